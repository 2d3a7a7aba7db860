"""Scratch databases of runs, and the lock that shows whether a run is still alive.

The mark is a comment on the database (`Mark`). Comments on databases are in a catalog that all databases share: every
role can read them without connecting, and a copy does not inherit them. `scratch_databases` lists the databases with a
mark. An advisory lock shows that a run is alive (`RunLock`). If our role is a superuser, the databases belong to a role
of the run (`DatabaseOwner`), which has a mark too and is dropped after the last of these databases.
"""

import hashlib
import hmac
import json
import os
import platform
import re
import secrets
import select
import socket
import threading
import time
from base64 import b64encode
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self

from sqlalchemy import text
from sqlalchemy.engine import Connection

from placebench.errors import DatabaseError
from placebench.runtime.postgres.connection import open_connection

_NAME_LIMIT = 63
UNMARKED = 2_015_161_205
"""The connection limit with which a scratch database is created, until it has its comment.

CREATE DATABASE cannot run in one transaction with COMMENT. This number, which nobody chooses, and the name identify a
database whose creator was killed between the two statements.
"""
_State = Literal["running", "in use", "left"]
_COMMENT_PREFIX = "scratch database of placebench, dropped at the end of its run: "
_OWNER_COMMENT_PREFIX = "owner of scratch databases of placebench, dropped after them: "
_SUFFIX = re.compile(r"_([0-9a-f]{16})_\d+$")
_PING_S = 5.0
_AGAIN_AFTER_S = 0.2
_RELEASE_LIMIT_S = 2.0
_SECOND_LOOK_S = 1.0


@dataclass(frozen=True)
class Mark:
    """The content of a scratch database's comment."""

    run: str
    """The key of the run's advisory lock: 16 random hexadecimal digits."""
    database: str
    """The name with which the database was made; a database with another name was renamed by somebody to keep it."""
    host: str
    pid: int
    created_at: str
    """The time at which the database was made: UTC, ISO 8601."""

    @classmethod
    def of(cls, run: str, database: str) -> Self:
        """Return the mark of a database that this process makes now."""
        return cls(run, database, platform.node(), os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))

    @classmethod
    def read(cls, comment: str | None, prefix: str = _COMMENT_PREFIX) -> Self | None:
        """Return the mark in *comment*; None for any other comment."""
        if not (comment or "").startswith(prefix):
            return None
        with suppress(ValueError, TypeError):
            return cls(**json.loads((comment or "").removeprefix(prefix)))
        return None

    def comment(self, prefix: str = _COMMENT_PREFIX) -> str:
        """Return the comment text that `read` parses."""
        return prefix + json.dumps(asdict(self))


@dataclass(frozen=True)
class DatabaseOwner:
    """The role that owns the databases of one run; it is not a superuser, so that nothing in them can run programs."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class ScratchDatabase:
    """A database that a run of placebench made, and the state of that run."""

    name: str
    run: str
    mark: Mark | None
    """The mark of the run; None if its creator was killed before it could set one."""
    state: _State
    """'left' if the run no longer holds its lock and nobody is connected: only then may the database be dropped."""


def scratch_name(label: str, run: str, number: int) -> str:
    """Return an unused name: *label*, cut as PostgreSQL would cut it, the run and the number of the database."""
    suffix = f"_{run}_{number}"
    return label.encode()[: _NAME_LIMIT - len(suffix)].decode(errors="ignore") + suffix


def scratch_databases(connection: Connection) -> list[ScratchDatabase]:
    """Return all scratch databases on the server, of any run, by name; 2 round trips.

    A run is considered alive while its advisory lock is held, in any database.
    """
    rows = connection.execute(
        text(
            "SELECT datname, datconnlimit, shobj_description(oid, 'pg_database'),"
            " EXISTS (SELECT FROM pg_stat_activity WHERE datid = pg_database.oid) FROM pg_database ORDER BY datname"
        )
    ).all()
    # After the databases, not before: a run has its lock before its first database.
    alive = _living_runs(connection)
    found = []
    for name, limit, comment, connected_to in rows:
        mark = Mark.read(comment)
        if run := run_of_mark(name, limit, mark):
            state: _State = "running" if run in alive else "in use" if connected_to else "left"
            found.append(ScratchDatabase(name, run, mark, state))
    return found


def _living_runs(connection: Connection) -> set[str]:
    return set(
        connection.scalars(
            text(
                "SELECT lpad(to_hex(classid::bigint), 8, '0') || lpad(to_hex(objid::bigint), 8, '0')"
                " FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
            )
        )
    )


def run_of_mark(name: str, limit: int, mark: Mark | None) -> str | None:
    """Return the run whose mark a database has; None for a database that is not ours."""
    if mark is not None:
        return mark.run if mark.database == name else None
    unfinished = _SUFFIX.search(name) if limit == UNMARKED else None
    return unfinished[1] if unfinished else None


def find_leftovers(url: str) -> list[ScratchDatabase]:
    """Return the scratch databases on a server, as `scratch_databases` does, checking twice those that are left.

    A run whose connection to the server was lost takes its lock again within the second between the two checks.
    """
    with open_connection(url) as connection:
        first = scratch_databases(connection)
        left = {database.name for database in first if database.state == "left"}
        if not left:
            return first
        time.sleep(_SECOND_LOOK_S)
        return [
            database if database.state != "left" or database.name in left else replace(database, state="running")
            for database in scratch_databases(connection)
        ]


def drop_leftovers(url: str, databases: list[ScratchDatabase]) -> dict[str, str]:
    """Drop those of *databases* whose run is gone; return the server's reason for each database or role that stays.

    DROP DATABASE name, without FORCE: PostgreSQL refuses if somebody has connected meanwhile. Roles with the mark of a
    run that is gone are dropped afterwards, if they own no database.
    """
    problems = {}
    for name in (database.name for database in databases if database.state == "left"):
        try:
            with open_connection(url) as connection:
                connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {quote_name(name)}".replace("%", "%%"))
        except DatabaseError as error:
            problems[name] = str(error)
    with open_connection(url) as connection:
        rows = connection.execute(
            text(
                "SELECT rolname, shobj_description(oid, 'pg_authid') FROM pg_roles"
                " WHERE NOT EXISTS (SELECT FROM pg_database WHERE datdba = pg_roles.oid)"
            )
        ).all()
        alive = _living_runs(connection)
    for name, comment in rows:
        mark = Mark.read(comment, _OWNER_COMMENT_PREFIX)
        if mark is not None and mark.database == name and mark.run not in alive:
            try:
                drop_owner(url, name)
            except DatabaseError as error:
                problems[name] = str(error)
    return problems


def create_owner(url: str, run: str, *, is_marked: bool) -> DatabaseOwner:
    """Make the role that owns the databases of *run*; the role of *url* must be a superuser.

    CREATE ROLE name LOGIN PASSWORD 'SCRAM-SHA-256$…'; COMMENT ON ROLE name IS 'mark'

    is_marked: whether the run holds its lock, so that others see when the run is gone. The server gets the verifier
    instead of the password, because its log and its statistics would keep the password.
    """
    owner = DatabaseOwner(f"placebench_{run}", secrets.token_urlsafe(32))
    mark = Mark.of(run, owner.name).comment(_OWNER_COMMENT_PREFIX) if is_marked else None
    with open_connection(url) as connection:
        iterations = int(connection.scalar(text("SELECT current_setting('scram_iterations', true)")) or 4096)
        # One string is one transaction: there is no role without its mark.
        connection.exec_driver_sql(
            f"CREATE ROLE {quote_name(owner.name)} LOGIN PASSWORD %(verifier)s;"
            f"COMMENT ON ROLE {quote_name(owner.name)} IS %(mark)s",
            {"verifier": _scram_verifier(owner.password, iterations), "mark": mark},
        )
    return owner


def drop_owner(url: str, name: str) -> None:
    """Drop the role *name*; raises DatabaseError if something still belongs to it."""
    with open_connection(url) as connection:
        connection.exec_driver_sql(f"DROP ROLE IF EXISTS {quote_name(name)}".replace("%", "%%"))


def _scram_verifier(password: str, iterations: int) -> str:
    """Return the verifier that PostgreSQL stores for a password of ASCII characters (RFC 5803)."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    served = hmac.digest(salted, b"Server Key", "sha256")
    shown = (b64encode(each).decode() for each in (salt, stored, served))
    return "SCRAM-SHA-256${}:{}${}:{}".format(iterations, *shown)


def quote_name(name: str) -> str:
    """Return a quoted name for SQL; raises DatabaseError above 63 bytes, where PostgreSQL would cut it silently."""
    if not 0 < len(name.encode()) <= _NAME_LIMIT:
        raise DatabaseError(f"{name!r} cannot be the name of a database: 1 to {_NAME_LIMIT} bytes are allowed")
    return '"' + name.replace('"', '""') + '"'


class RunLock:
    """Shows on a server that a run is alive: an advisory lock, held by a separate connection until `release`.

    The lock ends with the connection, and so with the process, however that ends. It belongs to a transaction, which a
    pooler such as PgBouncer leaves on one connection to the server. The transaction has neither a snapshot nor an id,
    so that it does not delay VACUUM. A thread reconnects as soon as the connection is lost or a ping, every 5 s, fails.
    """

    def __init__(self, url: str, run: str) -> None:
        """Return when the lock is held; raises DatabaseError if the server refuses the connection."""
        self._url, self._key = url, int.from_bytes(bytes.fromhex(run), signed=True)
        self._tried, self._released = threading.Event(), threading.Event()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._refusal: DatabaseError | None = None
        self._thread = threading.Thread(target=self._hold, name="run lock", daemon=True)
        self._thread.start()
        self._tried.wait()
        if self._refusal is not None:
            self.release()
            raise self._refusal

    def release(self) -> None:
        """Release the lock; idempotent."""
        self._released.set()
        with suppress(OSError):
            self._wake_sender.close()
        self._thread.join(_RELEASE_LIMIT_S)

    def _hold(self) -> None:
        while not self._released.is_set():
            try:
                with open_connection(self._url) as connection:
                    self._hold_by(connection)
            except DatabaseError as error:
                if not self._tried.is_set():
                    self._refusal = error
                    self._tried.set()
            self._released.wait(_AGAIN_AFTER_S)
        self._wake_receiver.close()

    def _hold_by(self, connection: Connection) -> None:
        """Take the lock and keep it; return at once if an earlier connection, lost only on this side, still has it."""
        connection.exec_driver_sql("BEGIN")
        connection.execute(
            text(
                "SELECT set_config(name, CASE WHEN name LIKE 'tcp%' THEN '60' ELSE '0' END, true) FROM pg_settings"
                " WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout',"
                " 'tcp_keepalives_idle', 'tcp_keepalives_interval')"
            )
        )
        if connection.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": self._key}):
            self._tried.set()
            held_by: Any = connection.connection.dbapi_connection
            while not self._released.is_set():
                select.select([self._wake_receiver, held_by], [], [], _PING_S)
                if not self._released.is_set():
                    connection.exec_driver_sql("SELECT 1")
