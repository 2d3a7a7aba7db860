"""Copies of a database through a file: SQLite's backup, or pg_dump and pg_restore.

The main functions are `dump_database` and `restore_database`. A dump of PostgreSQL runs code of whoever could create a
function, a constraint or an index in the copied database. It is therefore restored as a role that owns the new database
and cannot run programs.
"""

import os
import re
import sqlite3
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import make_url, text
from sqlalchemy.engine import Connection

from placebench.errors import DatabaseError
from placebench.profiler.model.files import make_private
from placebench.runtime.postgres.binaries import find_binaries
from placebench.runtime.postgres.connection import describe, libpq_variables, normalise_url, open_connection
from placebench.runtime.postgres.scratch import quote_name

_ENTRY = re.compile(r"\d+; \d+ \d+ (?P<what>.*)")
"""A line of `pg_restore --list`: number; catalogue, object, then kind, schema, name and owner."""
_NOT_FOR_THE_OWNER = ("EXTENSION - ", "COMMENT - EXTENSION ", "PUBLICATION", "SUBSCRIPTION")
"""Entries that the owner does not restore: extensions are made beforehand, and a copy has no replication."""
_IDENTIFIER = r'(?:"(?:[^"]|"")+"|[a-z_][a-z0-9_$]*)'
_CREATE_EXTENSION = re.compile(
    rf"^CREATE EXTENSION IF NOT EXISTS ({_IDENTIFIER}) WITH SCHEMA ({_IDENTIFIER});$", re.MULTILINE
)
_NO_RIGHT = re.compile(r"permission denied|must be superuser|must be owner|only superuser", re.IGNORECASE)
_OF_DATA = re.compile(r"(CREATE|ALTER) (UNLOGGED )?(TABLE|SEQUENCE)|COPY|SELECT|REFRESH")
_OF_OTHER_SERVERS = re.compile(r"(CREATE|ALTER) (SERVER|USER MAPPING|FOREIGN)")
_MAY_RUN_PROGRAMS = """
SELECT rolsuper
    OR pg_has_role(oid, 'pg_execute_server_program', 'MEMBER')
    OR pg_has_role(oid, 'pg_write_server_files', 'MEMBER')
    OR pg_has_role(oid, 'pg_read_server_files', 'MEMBER')
    OR rolcreaterole AND current_setting('server_version_num')::int < 160000
FROM pg_roles WHERE rolname = current_user
"""
"""Whether the role may run programs or read files; before PostgreSQL 16 CREATEROLE could grant itself those rights."""


def dump_database(url: str, target: Path) -> None:
    """Write the contents of the database at *url*, which is only read, to a file that only its owner can read."""
    make_private(target)
    if not url.startswith("sqlite"):
        options = ["--format=custom", "--compress=1", "--no-owner", "--no-privileges", f"--file={target}"]
        _run_client("pg_dump", options, url, {"PGOPTIONS": "-c default_transaction_read_only=on"})
        return
    source = Path(str(make_url(url).database))
    if not source.is_file():
        raise DatabaseError(f"no SQLite database {source}: expected a file")
    copy_sqlite(source, target)


def restore_database(dump: Path, url: str, admin_url: str) -> list[str]:
    """Fill the empty database at *url* from a file that `dump_database` wrote; return why some objects are missing.

    admin_url: the same PostgreSQL database, for a role that may create extensions. Raises DatabaseError if tables or
    rows would be missing.
    """
    if not url.startswith("sqlite"):
        return _restore_postgresql(dump, url, admin_url)
    copy_sqlite(dump, Path(str(make_url(url).database)))
    return []


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a SQLite database, including its write-ahead log; the source is opened for reading."""
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)) as from_,
            closing(sqlite3.connect(target)) as to,
        ):
            from_.backup(to)
    except sqlite3.Error as error:
        raise DatabaseError(f"{source}: SQLite says {error}") from error


def sqlite_url(path: Path) -> str:
    """Return the URL of the SQLite database in a file."""
    return f"sqlite:///{path.absolute()}"


def _restore_postgresql(dump: Path, url: str, admin_url: str) -> list[str]:
    """Restore the dump into the empty database at *url*; return what only a superuser could have restored.

    url: for the role that owns the database, which runs the code in the dump. admin_url: for a role that may create
    extensions. An item of the result looks like "CREATE EVENT TRIGGER log_ddl ON ddl_command_end: permission denied".
    Raises DatabaseError if tables or data would be missing, or if the owner could run programs on the server or read
    its files.
    """
    with open_connection(url) as connection:
        if connection.scalar(text(_MAY_RUN_PROGRAMS)):
            raise DatabaseError(
                f"{describe(url)} may run programs or read files on the server, so no copied database is restored as "
                "that role: name a role with CREATEDB that has neither CREATEROLE nor any of pg_…_server_…"
            )
    entries = _run_client("pg_restore", ["--list", str(dump)], url, {}).stdout.splitlines()
    kinds = {line: found["what"] for line in entries if (found := _ENTRY.match(line))}
    with tempfile.TemporaryDirectory(prefix="placebench-") as folder:
        chosen = Path(folder) / "entries"
        chosen.write_text("\n".join(line for line, kind in kinds.items() if kind.startswith("EXTENSION - ")))
        named = _run_client("pg_restore", [f"--use-list={chosen}", "--file=-", str(dump)], url, {}).stdout
        # Before anything of the dump is in the database, since the role that creates extensions may be a superuser.
        schemas, missing = _create_extensions(admin_url, str(make_url(url).username), _CREATE_EXTENSION.findall(named))
        chosen.write_text("\n".join(line for line, kind in kinds.items() if not kind.startswith(_NOT_FOR_THE_OWNER)))
        options = ["--no-owner", "--no-privileges", "--no-tablespaces", f"--use-list={chosen}"]
        ended = _run("pg_restore", [*options, f"--dbname={make_url(url).database}", str(dump)], url, {})
    failed = []
    for block in ended.stderr.split("pg_restore: error: ")[1:]:
        # The first line of the failed command; COPY if pg_restore names none.
        command = block.partition("Command was: ")[2].partition("\n")[0] or "COPY"
        failed.append((command.rstrip(" (;"), block.partition("\n")[0].rpartition("ERROR:")[2].strip()))
    if not failed and ended.returncode:
        failed = [("pg_restore", _one_line(ended))]
    exists = {f'schema "{name}" already exists' for name in schemas}
    failed = [(command, why) for command, why in failed if why not in exists]
    said = [*missing, *(f"{command}: {why}" for command, why in failed)]
    for command, why in failed:
        needs_superuser = _NO_RIGHT.search(why) and not _OF_DATA.match(command)
        if not needs_superuser and not _OF_OTHER_SERVERS.match(command):
            raise DatabaseError(f"{describe(url)}: the copy would not be complete: {'; '.join(said)[:500]}")
    return said


def _create_extensions(admin_url: str, owner: str, wanted: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Create extensions, each in its schema; return the schemas made for them, and why extensions are missing.

    *owner* gets the right to fill the tables of an extension whose rows are in a dump.
    """

    def unquoted(identifier: str) -> str:
        return identifier[1:-1].replace('""', '"') if identifier.startswith('"') else identifier

    schemas, missing = list[str](), list[str]()
    for name, schema in (map(unquoted, each) for each in wanted):
        try:
            with open_connection(admin_url) as connection:
                known = connection.scalar(text("SELECT 1 FROM pg_namespace WHERE nspname = :name"), {"name": schema})
                if not known:
                    _execute(connection, f"CREATE SCHEMA {quote_name(schema)} AUTHORIZATION {quote_name(owner)}")
                    schemas.append(schema)
                _execute(connection, f"CREATE EXTENSION IF NOT EXISTS {quote_name(name)} SCHEMA {quote_name(schema)}")
                configured = text("SELECT unnest(extconfig)::regclass::text FROM pg_extension WHERE extname = :name")
                for table in connection.scalars(configured, {"name": name}).all():
                    _execute(connection, f"GRANT ALL ON {table} TO {quote_name(owner)}")
        except DatabaseError as error:
            missing.append(f"CREATE EXTENSION {name}: {str(error).partition(': ')[2]}")
    return schemas, missing


def _execute(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement.replace("%", "%%"))


def _run_client(
    name: str, options: Sequence[str], url: str, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a PostgreSQL client program; raises DatabaseError with its error output if it fails."""
    ended = _run(name, options, url, variables)
    if ended.returncode:
        raise DatabaseError(f"{describe(url)} cannot be copied: {_one_line(ended)[:500]}")
    return ended


def _run(name: str, options: Sequence[str], url: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    program = find_binaries().program(name)
    environment = {**os.environ, **libpq_variables(normalise_url(url)), **variables, "LC_ALL": "C"}
    try:
        return subprocess.run(
            [program, *options], env=environment, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise DatabaseError(f"{program}: {error.strerror}: install the client programs of PostgreSQL") from error


def _one_line(ended: subprocess.CompletedProcess[str]) -> str:
    return " ".join(ended.stderr.split()) or f"exit code {ended.returncode}"
