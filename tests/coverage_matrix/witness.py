"""What counts beside the profiler: a second client in another process, by the server's own books.

PostgreSQL: statements and transaction steps by the server's log, rows by pg_stat_statements. MariaDB: statements by the
general log, while rows are those that the program was handed out. Fetches and closes of a server-side cursor are parts
of its statement.
"""

import re
import time
from typing import Any

import psycopg2
import pymysql
from place import ROWS
from sqlalchemy import make_url
from texts import split

from placebench.runtime.mariadb import MariaDbServer
from placebench.runtime.postgres.private_server import LaunchedServer

SETTINGS = {"log_statement": "all", "log_line_prefix": "%d|", "max_prepared_transactions": "8"}
_LOGGED = re.compile(r"(?P<database>\w+)\|LOG:  (?:statement|execute (?!fetch from)[^:]*): (?P<text>.*)")
_POLL_S = 0.02


class PostgresWitness:
    """A superuser's connection to a private server, and the server's log."""

    databases = ("coverage_one", "coverage_two")

    def __init__(self, launched: LaunchedServer) -> None:
        assert launched.child.spec.log is not None
        self._log = launched.child.spec.log
        self._url = make_url(launched.url).set(drivername="postgresql")
        self.url = self._url.set(database=self.databases[0])
        self._connection = self._connect(self._url.database or "postgres")
        self._cursor = self._connection.cursor()
        self._cursor.execute("create extension if not exists pg_stat_statements")
        for name in self.databases:
            self._cursor.execute(f"create database {name}")
        self._offset = 0
        self.settings = {"url": self._shown(self.databases[0]), "other": self._shown(self.databases[1])}

    def _shown(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    def _connect(self, name: str) -> Any:
        connection = psycopg2.connect(self._shown(name))
        connection.autocommit = True
        return connection

    def mark(self) -> None:
        """Count from here on, with the table made anew."""
        for name in self.databases:
            connection = self._connect(name)
            with connection.cursor() as cursor:
                cursor.execute("create table if not exists item (id int primary key, name text)")
                cursor.execute(
                    "truncate item; insert into item select i, 'x' from generate_series(1, %s) as i", (ROWS,)
                )
            connection.close()
        self._cursor.execute("select pg_stat_statements_reset()")
        self._offset = self._log.stat().st_size

    def read(self) -> dict[str, Any]:
        """Everything that was counted since the mark."""
        return split(self.texts()) | {"rows": self.rows()}

    def texts(self) -> list[str]:
        """The texts that the server has run since the mark, without those by which mode "plans" has plans sent."""
        return [each for each in self._logged() if "auto_explain" not in each]

    def _logged(self) -> list[str]:
        with self._log.open("rb") as log:
            log.seek(self._offset)
            text = log.read().decode(errors="replace")
        return [each["text"] for each in _LOGGED.finditer(text) if each["database"] in self.databases]

    def rows(self, pattern: str = "") -> int:
        """The rows since the mark of statements whose text matches a pattern; mode "plans" has two per checkout."""
        self._cursor.execute(
            "select coalesce(sum(rows), 0)::int from pg_stat_statements join pg_database on pg_database.oid = dbid"
            " where datname = any(%s) and query not like '%%pg_advisory_unlock_all()%%' and query ~* %s",
            ([*self.databases], pattern),
        )
        checkouts = 0 if pattern else sum("LOAD 'auto_explain'" in each for each in self._logged())
        return int(self._cursor.fetchone()[0]) - 2 * checkouts

    def running(self, text: str) -> int:
        """The process that runs a statement with *text*, once there is one."""
        while True:
            self._cursor.execute(
                "select pid from pg_stat_activity where state = 'active' and position(%s in query) > 0"
                " and pid <> pg_backend_pid()",
                (text,),
            )
            if (found := self._cursor.fetchone()) is not None:
                return int(found[0])
            time.sleep(_POLL_S)

    def interrupt(self, text: str) -> None:
        """Cancel the statement with this text."""
        self._cursor.execute("select pg_cancel_backend(%s)", (self.running(text),))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class MariaDbWitness:
    """A connection to a private MariaDB with its general log in a table."""

    databases = ("coverage_one", "coverage_two")

    def __init__(self, server: MariaDbServer) -> None:
        url = server.url
        self._connection = pymysql.connect(
            host=url.host, port=url.port or 3306, user=url.username, password=url.password or "", autocommit=True
        )
        self._cursor = self._connection.cursor()
        for statement in (
            *(f"create database {name}" for name in self.databases),
            *(f"create table {name}.item (id int primary key, name text)" for name in self.databases),
            "set global log_output = 'TABLE'",
            "set global general_log = 1",
        ):
            self._cursor.execute(statement)
        shown = [url.set(database=name).render_as_string(hide_password=False) for name in self.databases]
        self.settings = {"url": shown[0], "other": shown[1]}

    def mark(self) -> None:
        """Count from here on, with the table made anew."""
        for name in self.databases:
            self._cursor.execute(f"delete from {name}.item")
            self._cursor.executemany(f"insert into {name}.item values (%s, 'x')", [(1 + n,) for n in range(ROWS)])
        self._cursor.execute("truncate mysql.general_log")

    def read(self) -> dict[str, Any]:
        """Everything that was counted since the mark."""
        self._cursor.execute(
            "select convert(argument using utf8mb4) from mysql.general_log"
            " where thread_id <> connection_id() and command_type = 'Query'"
        )
        # The server begins transactions by itself, and gets a COMMIT without one, too: no step is counted.
        return {"statements": split(text for (text,) in self._cursor.fetchall())["statements"], "rows": None}

    def running(self, text: str) -> int:
        """The connection that runs a statement with *text*, once there is one."""
        while True:
            self._cursor.execute(
                "select id from information_schema.processlist where id <> connection_id() and info like %s",
                (f"%{text}%",),
            )
            if (found := self._cursor.fetchone()) is not None:
                return int(found[0])
            time.sleep(_POLL_S)

    def interrupt(self, text: str) -> None:
        """Cancel the statement with this text."""
        self._cursor.execute(f"kill query {self.running(text)}")

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class NoWitness:
    """For databases inside of the program's process, whose own trace is the witness."""

    settings: dict[str, str] = {}  # noqa: RUF012  nobody changes it

    def mark(self) -> None:
        """Do nothing."""

    def read(self) -> dict[str, Any]:
        """Nothing was counted here."""
        return {}
