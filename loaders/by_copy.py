"""Loads a topology by COPY: keys and indexes are put aside, the rows are streamed in, the keys are made again.

PostgreSQL only, into tables without rows, all in the one transaction of the caller. To make an index over rows that
are there is several times cheaper than to keep it up row by row, and so it is to check a foreign key.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import psycopg2.errors
from sqlalchemy import Connection, Row, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Text

from placebench.errors import SeedError
from placebench.lab.inventory.seeding import (
    Progress,
    ProgressMeter,
    Rows,
    Target,
    advance_id_sequence,
    ensure_ids,
    table_rows,
)
from placebench.lab.inventory.tables import utc_now
from placebench.lab.inventory.topology import Topology

_TREES_IN_CHUNK = 100
# An upper bound. PostgreSQL's default of 64 MB sorts the names of a million providers on disk: 4.6 s for all indexes
# instead of 6.7 s.
_SORT_MEMORY = "256MB"

_CONSTRAINTS = """
SELECT conrelid::regclass::text AS table_name, quote_ident(conname) AS name, pg_get_constraintdef(oid) AS definition
FROM pg_constraint
WHERE contype IN ('f', 'p', 'u') AND (conrelid = ANY (:tables ::regclass[]) OR confrelid = ANY (:tables ::regclass[]))
ORDER BY contype = 'f' DESC, conrelid, conname
"""
_INDEXES = """
SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition
FROM pg_index
WHERE indrelid = ANY (:tables ::regclass[])
AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
ORDER BY 1
"""


def load(topology: Topology, target: Target, progress: Progress) -> None:
    """Write the topology with one COPY a table. Raises SeedError when the database is not PostgreSQL."""
    connection = target.connection
    if connection.dialect.name != "postgresql":
        raise SeedError(f"loader by_copy needs PostgreSQL, the database is {connection.dialect.name}: take by_sql")
    parts = table_rows(topology, ensure_ids(connection, topology))
    meter = ProgressMeter(progress, topology, passes=len(parts))
    with _keys_put_aside(connection, [part.table.name for part in parts]):
        for part in parts:
            _copy(connection, part, meter)
    for part in parts:
        advance_id_sequence(connection, part.table)


@contextmanager
def _keys_put_aside(connection: Connection, tables: list[str]) -> Iterator[None]:
    """Inside, the tables have neither keys nor indexes, whoever made them and however many there are."""
    constraints = _found(connection, _CONSTRAINTS, tables)
    for constraint in constraints:
        _run(connection, f"ALTER TABLE {constraint.table_name} DROP CONSTRAINT {constraint.name}")
    indexes = _found(connection, _INDEXES, tables)
    for index in indexes:
        _run(connection, f"DROP INDEX {index.name}")
    yield
    _run(connection, f"SET LOCAL maintenance_work_mem = '{_SORT_MEMORY}'")
    for index in indexes:
        _run(connection, index.definition)
    for constraint in reversed(constraints):
        _run(
            connection, f"ALTER TABLE {constraint.table_name} ADD CONSTRAINT {constraint.name} {constraint.definition}"
        )


def _found(connection: Connection, query: str, tables: list[str]) -> list[Row[tuple[str, ...]]]:
    names = bindparam("tables", tables, ARRAY(Text))
    return list(connection.execute(text(query).bindparams(names)))


def _run(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement.replace("%", "%%"))


def _copy(connection: Connection, rows: Rows, meter: ProgressMeter) -> None:
    """COPY <table> (created_at, …) FROM STDIN WITH (NULL 'None'); no text of ours is the one word None."""
    columns = ", ".join(("created_at", *rows.columns))
    statement = f"COPY {rows.table.name} ({columns}) FROM STDIN WITH (NULL 'None')"
    stream = _Stream(_chunks(rows, meter))
    cursor: Any = connection.connection.cursor()
    try:
        cursor.copy_expert(statement, stream)
    except psycopg2.errors.QueryCanceled:
        if stream.interrupted_by:
            raise stream.interrupted_by from None
        raise


def _chunks(rows: Rows, meter: ProgressMeter) -> Iterator[str]:
    """The rows in COPY's text form, a batch of trees at a time; no name contains a character that needs an escape."""
    line = "\t".join([str(utc_now()), *("%s" for _ in rows.columns)]) + "\n"
    trees = iter(rows.trees)
    while chunk := list(islice(trees, _TREES_IN_CHUNK)):
        yield "".join([line % row for tree in chunk for row in tree])
        meter.step(len(chunk))


class _Stream:
    """What psycopg2 reads a COPY from. It hides what is raised in `read`, be it Ctrl-C: so we keep it here, too."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self._chunks = chunks
        self.interrupted_by: BaseException | None = None

    def read(self, _size: int) -> str:
        """Return the next chunk, whatever the size; nothing at the end."""
        try:
            return next(self._chunks, "")
        except BaseException as error:
            self.interrupted_by = error
            raise
