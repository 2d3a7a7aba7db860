"""The resources that a service and its database use in a `with` block: CPU of both, memory of the service.

`ServerMeter` measures a block, `inspect_backends` reads the CPU of the database's processes. A value that cannot be
read is None ("not measured").
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sqlalchemy import NullPool, Row, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from placebench.errors import DatabaseError
from placebench.meters.processes import cpu_between, read_cpu_by_pid, read_parent, read_pss_bytes
from placebench.meters.readings import Meters
from placebench.runtime.postgres import APPLICATION_NAME, open_connection

_PROC = Path("/proc")
_SAMPLE_S = 0.25
LOCAL_HOSTS = {None, "", "localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Backends:
    """The CPU used so far by the processes of PostgreSQL that work for one database, except for our own connections."""

    cpu_s: Mapping[int, float]
    """CPU seconds so far, by process id."""
    sessions: int | None = None
    """Sessions begun so far, including this reading's; None before PostgreSQL 15, which counts them late or never."""
    server_pid: int | None = None
    """The process that starts all backends, and that has the CPU of those that ended; None for other databases."""

    def unchanged_since(self, before: Self) -> bool:
        """Return whether the same processes worked throughout, and no other session came and went."""
        return self.cpu_s.keys() == before.cpu_s.keys() and not self._hides_some_since(before)

    def spent_since(self, before: Self) -> float | None:
        """Return the CPU seconds between two readings; of a process that started in between, all its CPU counts.

        Returns None if a process ended in between, because its CPU can no longer be read.
        """
        if before.cpu_s.keys() - self.cpu_s.keys() or self._hides_some_since(before):
            return None
        return cpu_between(before.cpu_s, self.cpu_s)

    def _hides_some_since(self, before: Self) -> bool:
        """Return whether more sessions began than processes appeared.

        PostgreSQL may count a session late, so one session is allowed for each process that existed before.
        """
        if self.sessions is None or before.sessions is None:
            return False
        begun = self.sessions - before.sessions - 1  # without the session of this reading
        return begun > len(self.cpu_s.keys() - before.cpu_s.keys()) + len(before.cpu_s)


def inspect_backends(database_url: str) -> Backends | str:
    """Return the CPU of the database's processes, or a line that says why not all of it can be read.

    SQLite and no database ("") have no processes. Costs a connection and 1 round trip; raises DatabaseError if the
    server no longer responds.
    """
    if not database_url:
        return Backends({})
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite":
        return Backends({})  # it works in the process of its client
    if url.get_backend_name() in ("mysql", "mariadb") and url.host in LOCAL_HOSTS:
        return _inspect_mariadb(database_url)
    if url.get_backend_name() != "postgresql" or url.host not in LOCAL_HOSTS:
        return "the database is on another machine"
    with open_connection(database_url) as connection:
        found = connection.execute(text(_BACKENDS), {"ours": APPLICATION_NAME}).one()
        server_pid = read_parent(found.own)
    io_workers = [pid for pid in found.io_workers if b"io worker" in _command_line(pid)]
    pids = [*found.clients, *io_workers]
    if not all(is_postgresql(pid) for pid in pids):
        return "the database is in a container of its own, whose processes are not to be seen from here"
    return _why_incomplete(found, io_workers) or Backends(
        read_cpu_by_pid(pids), found.sessions, server_pid if server_pid and is_postgresql(server_pid) else None
    )


def _inspect_mariadb(database_url: str) -> Backends | str:
    """Return the CPU of the one process that serves all databases of MariaDB or MySQL: SELECT @@pid_file."""
    engine = create_engine(database_url, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            pid = int(Path(str(connection.scalar(text("SELECT @@pid_file")))).read_text())
        is_its_own = b"mariadbd" in (named := (_PROC / str(pid) / "cmdline").read_bytes()) or b"mysqld" in named
    except (OSError, ValueError):
        is_its_own = False
    except DBAPIError as error:
        raise DatabaseError(f"the database does not respond: {error.orig}") from error
    return Backends(read_cpu_by_pid([pid])) if is_its_own else "the server's process cannot be found on this machine"


def read_backends(database_url: str) -> Backends | None:
    """Return the CPU of the database's processes as `inspect_backends` does; None if not all of it can be read."""
    seen = inspect_backends(database_url)
    return None if isinstance(seen, str) else seen


_BACKENDS = """
SELECT current_setting('max_parallel_workers_per_gather')::int AS parallel_workers,
       coalesce(current_setting('io_method', true), 'sync') AS io_method,
       pg_backend_pid() AS own,
       ARRAY(SELECT pid FROM pg_stat_activity
             WHERE datid IS NULL AND coalesce(backend_type, 'io worker') = 'io worker') AS io_workers,
       ARRAY(SELECT pid FROM pg_stat_activity WHERE datname = current_database()
             AND backend_type = 'client backend' AND application_name <> :ours) AS clients,
       (SELECT (to_jsonb(counted) ->> 'sessions')::bigint FROM pg_stat_database AS counted
        WHERE datname = current_database() AND current_setting('server_version_num')::int >= 150000) AS sessions
"""
"""A query for the backends of the current database, and for settings as these backends have them.

The workers of io_method=worker (PostgreSQL 18) serve every database; they are counted, because only one variant works
at a time. A role without pg_read_all_stats does not see their backend_type, so their command lines are checked.
"""


def _why_incomplete(found: Row[Any], io_workers: list[int]) -> str:
    """Return why some work for the database cannot be attributed to it; empty if all can."""
    if found.parallel_workers:
        return f"max_parallel_workers_per_gather is {found.parallel_workers}: parallel workers come and go unseen"
    if found.io_method == "worker" and not io_workers:
        return "io_method is worker, and none of the workers is to be seen from here"
    if found.io_method not in ("sync", "worker"):
        return f"io_method is {found.io_method}: the kernel works for the backends"
    return ""


def is_postgresql(pid: int) -> bool:
    """Return whether *pid* is a PostgreSQL process; the pids of a container's server may be others' here."""
    return b"postgres" in _command_line(pid)


def _command_line(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


class ServerMeter:
    """Measures a service and its database inside the `with` block; memory is sampled four times per second."""

    def __init__(self, worker_pids: Callable[[], list[int]], database_url: str) -> None:
        self._worker_pids = worker_pids
        self._database_url = database_url
        self._done = threading.Event()
        self._peak_pss: int | None = None

        def sample_memory() -> None:
            while True:
                now = read_pss_bytes(self._worker_pids())
                self._peak_pss = max(filter(None, (self._peak_pss, now)), default=None)
                if self._done.wait(_SAMPLE_S):
                    return

        self._sampler = threading.Thread(target=sample_memory, name="memory-sampler", daemon=True)
        self._before: tuple[dict[int, float], Backends | None] = ({}, None)
        self._after: tuple[dict[int, float], Backends | None] = ({}, None)

    def __enter__(self) -> Self:
        self._before = self.snapshot()
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._sampler.join()
        self._after = self.snapshot()

    def snapshot(self) -> tuple[dict[int, float], Backends | None]:
        """Return the CPU seconds so far of the workers by process id, and of the backends."""
        seen = read_backends(self._database_url)
        return read_cpu_by_pid(self._worker_pids()), seen

    def read(self) -> Meters:
        """Return the readings of the `with` block; call it after the block."""
        (workers_before, backends_before), (workers_after, backends_after) = self._before, self._after
        return Meters(
            worker_cpu_s=cpu_between(workers_before, workers_after),
            backend_cpu_s=backend_cpu_between(backends_before, backends_after),
            peak_pss_bytes=self._peak_pss,
        )


def backend_cpu_between(before: Backends | None, after: Backends | None) -> float | None:
    """Return the CPU seconds between two readings, as `Backends.spent_since` does; None if either is missing."""
    return None if before is None or after is None else after.spent_since(before)
