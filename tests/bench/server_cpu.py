"""CPU of a server under test: its workers, and the PostgreSQL backends of their database. See `server_cpu`."""

from collections.abc import Callable

from placebench.meters.meters import backend_cpu_between, read_backends
from placebench.meters.processes import cpu_between, read_cpu_by_pid
from placebench.runtime.running_server import RunningServer


def server_cpu(served: RunningServer, database_url: str) -> Callable[[], float | None]:
    """Start to measure; the returned function gives the CPU seconds since then.

    It gives None where a connection was closed meanwhile, since nobody can read any more what its backend used.
    """
    database_before, workers_before = read_backends(database_url), read_cpu_by_pid(served.metered_pids())

    def cpu_s() -> float | None:
        workers_s = cpu_between(workers_before, read_cpu_by_pid(served.metered_pids()))
        database_s = backend_cpu_between(database_before, read_backends(database_url))
        return None if database_s is None else workers_s + database_s

    return cpu_s
