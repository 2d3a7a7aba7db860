"""Scratch databases: which databases a run made, and whether that run still lives.

The mark is a comment on the database (`Mark`). Comments on databases are in a catalog that all databases share: every
role can read them without connecting, and a copy does not inherit them. `scratch_databases`
lists what carries a mark. That a run lives is said by an advisory lock (`RunLock`). Where our role is a superuser the
databases belong to a role of the run (`DatabaseOwner`), which carries a mark too and goes after the last of them.
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
"""The connection limit that a scratch database is created with, until it has its comment.

CREATE DATABASE cannot run in one transaction with COMMENT: by this number, which nobody chooses, and its name, a
database is known whose creator was killed between the two.
"""
_State = Literal["running", "in use", "left"]
_COMMENT_PREFIX = "scratch database of placebench, dropped at the end of its run: "
_OWNER_SAID = "owner of scratch databases of placebench, dropped after them: "
_SUFFIX = re.compile(r"_([0-9a-f]{16})_\d+$")
_PING_S = 5.0
_AGAIN_AFTER_S = 0.2
_RELEASE_LIMIT_S = 2.0
_SECOND_LOOK_S = 1.0


@dataclass(frozen=True)
class Mark:
    """What the comment of a scratch database says."""

    run: str
    """Random, 16 hexadecimal digits: the key of the run's advisory lock."""
    database: str
    """Its name when it was made: a database with another name was renamed by somebody who keeps it."""
    host: str
    pid: int
    created_at: str
    """UTC, ISO 8601."""

    @classmethod
    def of(cls, run: str, database: str) -> Self:
        """The mark of a database that this process makes now."""
        return cls(run, database, platform.node(), os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))

    @classmethod
    def read(cls, comment: str | None, said: str = _COMMENT_PREFIX) -> Self | None:
        """The mark that *comment* is; None for any other comment."""
        if not (comment or "").startswith(said):
            return None
        with suppress(ValueError, TypeError):
            return cls(**json.loads((comment or "").removeprefix(said)))
        return None

    def comment(self, said: str = _COMMENT_PREFIX) -> str:
        """The comment that `read` reads."""
        return said + json.dumps(asdict(self))


@dataclass(frozen=True)
class DatabaseOwner:
    """The role that owns the databases of one run: no superuser, so that nothing in them runs programs."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class ScratchDatabase:
    """A database that a run of placebench made, and what is known of that run."""

    name: str
    run: str
    mark: Mark | None
    """None where its creator was killed before it could leave one."""
    state: _State
    """left: the run holds its lock no more and nobody is connected to the database. Only such a one may go."""


def scratch_name(label: str, run: str, number: int) -> str:
    """A name that nobody has: *label*, cut where PostgreSQL would cut it, the run and the database's number in it."""
    suffix = f"_{run}_{number}"
    return label.encode()[: _NAME_LIMIT - len(suffix)].decode(errors="ignore") + suffix


def scratch_databases(connection: Connection) -> list[ScratchDatabase]:
    """All scratch databases on the server, of whatever run, by name; 2 round trips.

    A run is taken for alive while its advisory lock is held, in whichever database.
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
    """The runs that hold their advisory lock."""
    return set(
        connection.scalars(
            text(
                "SELECT lpad(to_hex(classid::bigint), 8, '0') || lpad(to_hex(objid::bigint), 8, '0')"
                " FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
            )
        )
    )


def run_of_mark(name: str, limit: int, mark: Mark | None) -> str | None:
    """The run whose mark a database carries; None for a database that is not ours."""
    if mark is not None:
        return mark.run if mark.database == name else None
    unfinished = _SUFFIX.search(name) if limit == UNMARKED else None
    return unfinished[1] if unfinished else None


def find_leftovers(url: str) -> list[ScratchDatabase]:
    """Return the scratch databases on a server, as `scratch_databases`, after a second look at those that are left.

    A run whose connection to the server was lost takes its lock again within the second between the two looks.
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
    """Drop those of *databases* whose run is gone; returns the server's reason for each that stays all the same.

    DROP DATABASE name, without FORCE: PostgreSQL refuses where somebody has connected meanwhile. Roles with the mark of
    a run that is gone follow, once they own no database.
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
        mark = Mark.read(comment, _OWNER_SAID)
        if mark is not None and mark.database == name and mark.run not in alive:
            try:
                drop_owner(url, name)
            except DatabaseError as error:
                problems[name] = str(error)
    return problems


def create_owner(url: str, run: str, *, is_marked: bool) -> DatabaseOwner:
    """Make the role that owns the databases of *run*; the role of *url* is a superuser.

    CREATE ROLE name LOGIN PASSWORD 'SCRAM-SHA-256$…'; COMMENT ON ROLE name IS 'mark'

    is_marked: whether the run holds its lock, so that others see when it is gone. The server gets the verifier and not
    the password, which its log and its statistics would keep.
    """
    owner = DatabaseOwner(f"placebench_{run}", secrets.token_urlsafe(32))
    mark = Mark.of(run, owner.name).comment(_OWNER_SAID) if is_marked else None
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
    """Return what PostgreSQL stores of a password (RFC 5803), for a password of ASCII characters."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    served = hmac.digest(salted, b"Server Key", "sha256")
    shown = (b64encode(each).decode() for each in (salt, stored, served))
    return "SCRAM-SHA-256${}:{}${}:{}".format(iterations, *shown)


def quote_name(name: str) -> str:
    """A name as SQL wants it; longer than 63 bytes it would silently be cut."""
    if not 0 < len(name.encode()) <= _NAME_LIMIT:
        raise DatabaseError(f"{name!r} cannot be the name of a database: 1 to {_NAME_LIMIT} bytes are allowed")
    return '"' + name.replace('"', '""') + '"'


class RunLock:
    """Says on a server that a run lives: an advisory lock, held by a connection of its own until `release`.

    The lock goes with the connection, and so with the process, however that ends. It belongs to a transaction, which a
    pooler such as PgBouncer leaves on one connection to the server; the transaction has neither a snapshot nor an id,
    so that it holds nothing back. A thread connects anew as soon as the connection is lost, or a ping every 5 s fails.
    """

    def __init__(self, url: str, run: str) -> None:
        """Return when the lock is held; raises DatabaseError when the server refuses the connection."""
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
        """Let go of the lock; may be called again."""
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
        """Take the lock and keep it; at once back when an earlier connection, lost to us alone, still has it."""
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
