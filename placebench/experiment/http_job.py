"""A job over HTTP: exactly so many requests, by one client after the other or by locust's users at once.

The key pieces are `http_job` and `locust_job`; what comes back is a `Done`.
"""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from placebench.errors import LoadError
from placebench.experiment.client_process import Driver
from placebench.experiment.http_request import get
from placebench.experiment.load_run import LoadSpec, run_load
from placebench.experiment.records import LoadResult
from placebench.measure.meters import Meters, ServerMeter
from placebench.runtime.wsgi_servers import RunningServer

_WARM_UPS_A_SLOT = 2
_DEATH_LOGGED_WITHIN_S = 3.0
"""uWSGI's master looks once a second for workers that are gone."""


@dataclass(frozen=True)
class Done:
    """A job that was done, every request of it answered with 200."""

    duration_s: float
    """From the first request to the last answer; of one client the sum of its waits."""
    cpu_s: float | None
    """Of the service and PostgreSQL's backends; None where not all of theirs could be read."""
    body_bytes: int
    latency_s: tuple[float, ...]
    answers: tuple[str, ...] = ()
    """Canonical digest of each distinct answer; under locust they are not read."""

    @classmethod
    def of_driver(cls, told: Mapping[str, Any], meters: Meters) -> Self:
        """Of what a driver said; raises LoadError with the first request that failed."""
        if told["failures"]:
            raise LoadError(f"{len(told['failures'])} of {len(told['wall_s'])} requests failed: {told['failures'][0]}")
        waits = tuple(told["wall_s"])
        return cls(sum(waits), _cpu_s(meters), told["body_bytes"], waits, tuple(told["answers"]))

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
    client: Driver,
    requests: int,
    users: int,
    slots: int,
    meter: ServerMeter,
    folder: Path,
) -> Done:
    """Warm the server's *slots* (its threads in all its processes) up, then send *requests* requests by *users*.

    One user is *client*, more are locust's. Raises LoadError for a request that fails.
    """
    warm_up(server, request, slots)
    if users > 1:
        return locust_job(server, request, requests=requests, users=users, meter=meter, folder=folder)
    with meter:
        told = client.drive(url=server.url, request=request, requests=requests)
    return Done.of_driver(told, meter.read())


def locust_job(
    server: RunningServer, request: str, *, requests: int, users: int, meter: ServerMeter, folder: Path
) -> Done:
    """Let locust send exactly *requests* requests, *users* at a time; raises LoadError for one that fails."""
    with meter:
        result = run_load(LoadSpec(server.url, request, users=users, requests=requests), folder=folder / "log")
    return Done.of_locust(result, meter.read(), requests=requests)


def warm_up(server: RunningServer, request: str, slots: int) -> None:
    """Two requests for each thread of the service, one a thread at a time, so that all have compiled and connected."""
    with responses_of(server), ThreadPoolExecutor(slots) as pool:
        list(pool.map(lambda _: get(server.url, request), range(_WARM_UPS_A_SLOT * slots)))


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
