"""A throwaway MariaDB server: `temporary_mariadb` starts the machine's mariadbd in a folder that is removed with it.

A server that root starts runs as an unprivileged user. It listens on 127.0.0.1 only, and syncs nothing to disk.
`find_mariadbd` finds the programs, which are needed for MariaDB only.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from placebench.errors import DatabaseError, MissingExtraError
from placebench.runtime.ports import free_port
from placebench.runtime.postgres.binaries import Account, private_folder, server_account
from placebench.runtime.postgres.private_server import one_line_errors
from placebench.runtime.private_files import write_private
from placebench.runtime.supervisor import Child, ChildSpec, Supervisor, start_child

_PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb-dump", "mariadb")
_PATH = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
_USER = "placebench"
_START_LIMIT_S = 60.0
_POLL_S = 0.02
_CAUSE_LINES = 6
_SETTINGS = {
    # Strings compare as in the PostgreSQL tables of Placement, by code point, and 0 is an ordinary id.
    "character-set-server": "utf8mb4",
    "collation-server": "utf8mb4_bin",
    "sql-mode": "STRICT_TRANS_TABLES,NO_AUTO_VALUE_ON_ZERO",
    "innodb-buffer-pool-size": "256M",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-doublewrite": "0",
    "max-connections": "200",
    "bind-address": "127.0.0.1",
}


@dataclass(frozen=True)
class MariaDbServer:
    """A running MariaDB server, without databases at first."""

    url: URL
    """The URL of the server, without a database; its user has all rights."""

    def database(self, name: str) -> str:
        """Make the database *name* and return its URL; raises DatabaseError if it cannot be made."""
        try:
            with create_engine(self.url, poolclass=NullPool).connect() as connection:
                connection.execute(text(f"CREATE DATABASE `{name}`"))
        except DBAPIError as error:
            raise DatabaseError(f"MariaDB makes no database {name}: {error.orig}") from error
        return self.url.set(database=name).render_as_string(hide_password=False)

    def copy(self, source: str, name: str) -> str:
        """Make the database *name* with everything in *source* and return its URL; raises DatabaseError."""
        url, programs = self.database(name), find_mariadbd()
        login = [f"--host={self.url.host}", f"--port={self.url.port}", f"--user={self.url.username}"]
        environment = {**os.environ, "MYSQL_PWD": str(self.url.password)}

        def run(program: str, *options: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> None:
            argv = [programs[program], "--no-defaults", *login, *options]
            ended = subprocess.run(
                argv, env=environment, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, check=False
            )
            if ended.returncode:
                said = " ".join(ended.stderr.decode(errors="replace").split())
                raise DatabaseError(f"{source} of MariaDB cannot be copied: {said}")

        with tempfile.TemporaryFile() as dump:
            run("mariadb-dump", "--single-transaction", "--routines", "--hex-blob", source, stdout=dump)
            dump.seek(0)
            run("mariadb", name, stdin=dump)
        return url

    def drop(self, name: str) -> None:
        """Drop the database *name*."""
        with create_engine(self.url, poolclass=NullPool).connect() as connection:
            connection.execute(text(f"DROP DATABASE `{name}`"))


def mariadb_url(url: str) -> str | None:
    """Return the *url* of a MariaDB or MySQL with its driver named; None for any other URL.

    A URL without a driver gets PyMySQL; raises MissingExtraError if that is not installed.
    """
    backend, _, rest = url.partition("://")
    if backend.partition("+")[0] not in ("mysql", "mariadb"):
        return None
    if "+" in backend:
        return url
    if find_spec("pymysql") is None:
        raise MissingExtraError("the driver PyMySQL is not installed: pip install 'placebench[mariadb]'")
    return f"mysql+pymysql://{rest}"


def find_mariadbd() -> dict[str, str]:
    """Return the paths of mariadbd and mariadb-install-db; raises DatabaseError, with how to install them."""
    found = {name: shutil.which(name) or shutil.which(name, path=_PATH) for name in _PROGRAMS}
    if missing := [name for name, path in found.items() if path is None]:
        raise DatabaseError(
            f"no {missing[0]} on this machine: apt-get install --no-install-recommends mariadb-server (nothing of it "
            "has to run; placebench starts a server of its own)"
        )
    return {name: str(path) for name, path in found.items()}


@contextmanager
def temporary_mariadb() -> Iterator[MariaDbServer]:
    """Start a server for the `with` block; takes one to three seconds.

    Raises DatabaseError if MariaDB is not installed or does not start, with the end of its log.
    """
    programs, account = find_mariadbd(), server_account()
    folder = private_folder(account)
    with Supervisor(folder) as supervisor:
        with one_line_errors("no MariaDB server could be made"):
            server = _launch(programs, account, folder, supervisor)
        yield server


def _launch(programs: dict[str, str], account: Account, folder: Path, supervisor: Supervisor) -> MariaDbServer:
    account.enter(folder)
    data, scratch, init = folder / "data", folder / "tmp", folder / "init.sql"
    for each in (data, scratch):
        each.mkdir(mode=0o700)
        account.own(each)
    environment = {**os.environ, "TMPDIR": str(scratch)}  # the caller's may be closed to the account
    password = secrets.token_urlsafe(32)
    write_private(
        init,
        f"CREATE USER {_USER}@'127.0.0.1' IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO {_USER}@'127.0.0.1';\n"
        "DROP USER IF EXISTS root@localhost;\n",
        owner=account.ids,
    )

    def run(program: str, *options: str) -> Child:
        argv = [programs[program], "--no-defaults", f"--datadir={data}", *options]
        log = folder / f"{program}.log"
        spec = ChildSpec(program, argv, env=environment, cwd=folder, log=log, user=account.ids)
        return start_child(spec, supervisor)

    made = run("mariadb-install-db", "--skip-test-db", "--auth-root-authentication-method=normal")
    if made.wait():
        # The first paragraph of the log has the cause; general advice follows.
        cause = made.log_tail(100).strip().partition("\n\n")[0].splitlines()[-_CAUSE_LINES:]
        raise DatabaseError(f"mariadb-install-db failed: {'; '.join(cause)}")
    port = free_port()
    settings = {
        "port": str(port),
        "socket": str(data / "socket"),
        "pid-file": str(data / "pid"),
        "init-file": str(init),
    }
    server = run("mariadbd", *(f"--{name}={value}" for name, value in {**_SETTINGS, **settings}.items()))
    deadline = time.monotonic() + _START_LIMIT_S
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):  # it listens once init.sql is done
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return MariaDbServer(URL.create("mysql+pymysql", _USER, password, "127.0.0.1", port))
        time.sleep(_POLL_S)
    raise DatabaseError(f"mariadbd did not start: {server.log_tail(6)}")
