"""A job over HTTP: exactly so many requests, by one client after the other or by locust's users at once.

The key pieces are `http_job` and `locust_job`; what comes back is a `JobResult`.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from placebench.errors import LoadError
from placebench.experiment.client_process import Driven, HttpClient
from placebench.experiment.http_request import get
from placebench.experiment.load_run import LoadSpec, run_load
from placebench.experiment.records import LoadResult
from placebench.measure.meters import Meters, ServerMeter
from placebench.runtime.wsgi_servers import RunningServer

WARM_UPS_A_THREAD = 2
_DEATH_LOGGED_WITHIN_S = 3.0
"""uWSGI's master looks once a second for workers that are gone."""


@dataclass(frozen=True)
class JobResult:
    """A job that was done, every request of it answered with 200."""

    duration_s: float
    """From the first request to the last answer; of one client the sum of its waits."""
    cpu_s: float | None
    """Of the service and PostgreSQL's backends; None where not all of theirs could be read."""
    body_bytes: int
    latency_s: tuple[float, ...]
    digests: tuple[str, ...] = ()
    """Canonical digest of each distinct response; under locust they are not read."""

    @classmethod
    def of_client(cls, driven: Driven, meters: Meters) -> Self:
        """Of what one user of a client process saw; raises LoadError with the first request that failed."""
        driven.check()
        latency_s, digests = tuple(driven.wall_s), tuple(driven.digests)
        return cls(sum(latency_s), _cpu_s(meters), driven.body_bytes, latency_s, digests)

    @classmethod
    def of_locust(cls, result: LoadResult, meters: Meters, *, requests: int) -> Self:
        """Of what locust saw; raises LoadError where requests failed or are missing."""
        if result.failures or result.requests != requests:
            said = result.failure_messages[0] if result.failure_messages else "the rest never ended"
            raise LoadError(f"{result.requests - result.failures} of {requests} requests were answered: {said}")
        return cls(result.elapsed_s, _cpu_s(meters), sum(result.body_bytes), tuple(result.latency_s))


def http_job(
    server: RunningServer,
    request: str,
    *,
    client: HttpClient,
    requests: int,
    users: int,
    slots: int,
    meter: ServerMeter,
    folder: Path,
) -> JobResult:
    """Warm the server's *slots* (its threads in all its processes) up, then send *requests* requests by *users*.

    One user is *client*, more are locust's. Raises LoadError for a request that fails.
    """
    warm_up(server, request, slots)
    if users > 1:
        return locust_job(server, request, requests=requests, users=users, meter=meter, folder=folder)
    with meter:
        driven = client.drive(server.url, [request] * requests)
    return JobResult.of_client(driven, meter.read())


def locust_job(
    server: RunningServer, request: str, *, requests: int, users: int, meter: ServerMeter, folder: Path
) -> JobResult:
    """Let locust send exactly *requests* requests, *users* at a time; raises LoadError for one that fails."""
    with meter:
        result = run_load(LoadSpec(server.url, request, users=users, requests=requests), folder=folder / "log")
    return JobResult.of_locust(result, meter.read(), requests=requests)


def warm_up(server: RunningServer, request: str, slots: int) -> None:
    """Two requests for each thread of the service, one a thread at a time, so that all have compiled and connected."""
    with responses_of(server), ThreadPoolExecutor(slots) as pool:
        list(pool.map(lambda _: get(server.url, request), range(WARM_UPS_A_THREAD * slots)))


@contextmanager
def responses_of(server: RunningServer) -> Iterator[None]:
    """Around requests: one without a response is ServerError with the log if a worker died, else LoadError."""
    try:
        yield
    except OSError as error:
        give_up_at = time.monotonic() + _DEATH_LOGGED_WITHIN_S
        while time.monotonic() < give_up_at:
            server.check()
            time.sleep(0.02)
        raise LoadError(f"a request to {server.url} got no response: {error}") from error


def _cpu_s(meters: Meters) -> float | None:
    return None if meters.backend_cpu_s is None else meters.worker_cpu_s + meters.backend_cpu_s
