"""Digests of the tables of a database, whatever its schema, to see whether anything changed them.

The main function is `read_tables`. A digest is the number of rows and the sum of a 64-bit hash of each row, so that the
order of the rows does not matter.
"""

import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from placebench.runtime.postgres import open_connection

_WITHIN_S = 10.0
_UNREADABLE = ("57014", "42501")
"""SQLSTATEs of a query that took too long, and of a table with row-level security that binds the reading role."""
_MARIADB_TIMEOUT = 1969
"""MariaDB's error number of a statement that took too long."""
_ROWS_PER_CHECK = 10_000


@dataclass(frozen=True)
class TableContents:
    """The digests of a database's tables at one moment."""

    digests: Mapping[str, str] = field(default_factory=dict)
    """Digests by table, such as "12 rows, 5f3a…"; empty tables are left out, since an application may create some."""
    rows: int = 0
    unchecked: Sequence[str] = ()
    """Tables that could not be read in time, or whose row-level security binds their owner."""
    elapsed_s: float = 0.0

    @property
    def digest(self) -> str:
        """One digest of all tables."""
        return blake2b(repr(sorted(self.digests.items())).encode(), digest_size=16).hexdigest()

    def changed(self, now: "TableContents") -> list[str]:
        """Return the names of the tables whose digests differ in *now*."""
        tables = {*self.digests, *now.digests} - {*self.unchecked, *now.unchecked}
        return sorted(table for table in tables if self.digests.get(table) != now.digests.get(table))

    def difference(self, now: "TableContents", *, without: Collection[str] = ()) -> str:
        """Return "carts: 3 rows, 1f…, were none" for the first table that differs in *now*, or an empty text.

        without: tables that are left out.
        """
        for table in self.changed(now):
            if table not in without:
                before, after = (each.digests.get(table, "none") for each in (self, now))
                return f"{table}: {after}, were {before}"
        return ""

    def growth(self, now: "TableContents") -> dict[str, int]:
        """Return the number of rows that each table has gained *now* (negative if lost), without unchanged tables."""
        tables = {*self.digests, *now.digests} - {*self.unchecked, *now.unchecked}
        grown = {table: now.row_count(table) - self.row_count(table) for table in sorted(tables)}
        return {table: rows for table, rows in grown.items() if rows}

    def row_count(self, table: str) -> int:
        """Return the number of rows in the table's digest; 0 for an unknown table, or for a digest without a number."""
        count, rows, _ = self.digests.get(table, "").partition(" rows, ")
        return int(count) if rows else 0


def read_tables(url: str, *, without: Sequence[str] = (), within_s: float = _WITHIN_S) -> TableContents:
    """Digest all tables of the database at *url*, PostgreSQL, SQLite or MariaDB; empty for no database.

    without: tables that are left out, by name or as schema.name. A table that is not read within *within_s* seconds
    from the start is in `unchecked`. PostgreSQL's tables are read smallest first; 100,000 rows take some 50 ms.

    SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM ONLY table AS t; on MariaDB CHECKSUM TABLE
    """
    if not url:
        return TableContents()
    began = time.monotonic()
    read = {"sqlite": _in_sqlite, "mysql": _in_mariadb}.get(make_url(url).get_backend_name(), _in_postgresql)
    sums, unchecked = read(url, without, began + within_s)
    digests = {table: f"{rows} rows, {total % 2**64:016x}" for table, (rows, total) in sums.items() if rows}
    rows = sum(count for count, _ in sums.values())
    return TableContents(digests, rows, unchecked, time.monotonic() - began)


_Sums = dict[str, tuple[int, int]]
"""The number of rows and the sum of their hashes, by table."""
_TABLES = """
SELECT CASE nspname WHEN 'public' THEN relname ELSE nspname || '.' || relname END AS name,
       format('%I.%I', nspname, relname) AS quoted
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relkind = 'r' AND relpersistence <> 't' AND nspname <> 'information_schema' AND nspname !~ '^pg_'
ORDER BY pg_relation_size(pg_class.oid), 1
"""


def _in_postgresql(url: str, without: Sequence[str], give_up_at: float) -> tuple[_Sums, list[str]]:
    sums, unchecked = _Sums(), list[str]()
    with open_connection(url) as connection:
        # Nothing in the database may replace the functions and types below, or hide rows.
        connection.exec_driver_sql("SET search_path = pg_catalog, pg_temp; SET row_security = off")
        for name, quoted in connection.execute(text(_TABLES)).all():
            if name not in without and not _add_table(connection, name, quoted, sums, give_up_at):
                unchecked.append(name)
    return sums, unchecked


def _add_table(connection: Connection, name: str, quoted: str, sums: _Sums, give_up_at: float) -> bool:
    rest_ms = int(1000 * (give_up_at - time.monotonic()))
    if rest_ms <= 0:
        return False
    connection.exec_driver_sql(f"SET statement_timeout = {rest_ms}")
    query = f"SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM ONLY {quoted} AS t"
    try:
        rows, total = connection.exec_driver_sql(query.replace("%", "%%")).one()
    except DBAPIError as error:
        if getattr(error.orig, "pgcode", None) not in _UNREADABLE:
            raise
        return False
    sums[name] = int(rows), int(total)
    return True


def _in_mariadb(url: str, without: Sequence[str], give_up_at: float) -> tuple[_Sums, list[str]]:
    sums, unchecked = _Sums(), list[str]()
    with create_engine(url, poolclass=NullPool).connect() as connection:
        for name, _ in connection.exec_driver_sql("SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'").all():
            if name in without:
                continue
            quoted = f"`{name.replace('`', '``')}`".replace("%", "%%")
            rest_s = max(0.001, give_up_at - time.monotonic())
            connection.exec_driver_sql(f"SET SESSION max_statement_time = {rest_s:.3f}")
            try:
                rows = connection.exec_driver_sql(f"SELECT count(*) FROM {quoted}").scalar_one()
                total = connection.exec_driver_sql(f"CHECKSUM TABLE {quoted} EXTENDED").one()[1]
            except DBAPIError as error:
                if error.orig is None or error.orig.args[0] != _MARIADB_TIMEOUT:
                    raise
                unchecked.append(name)
            else:
                sums[name] = rows, total or 0
    return sums, unchecked


def _in_sqlite(url: str, without: Sequence[str], give_up_at: float) -> tuple[_Sums, list[str]]:
    sums, unchecked = _Sums(), list[str]()
    path = quote(str(make_url(url).database))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        for (name,) in found:
            if name in without or name.startswith("sqlite_"):
                continue
            rows = total = 0
            quoted = name.replace('"', '""')
            for rows, row in enumerate(connection.execute(f'SELECT * FROM "{quoted}"'), start=1):
                total += int.from_bytes(blake2b(repr(row).encode(errors="replace"), digest_size=8).digest())
                if rows % _ROWS_PER_CHECK == 0 and time.monotonic() > give_up_at:
                    unchecked.append(name)
                    break
            else:
                sums[name] = rows, total
    return sums, unchecked
