"""Load: headless locust as a process of its own (`run_load`), and jobs of exactly so many requests (`http_job`).

locust leaves the exact samples that our locustfiles took. A job is done by one client process, or by locust's users.
"""

import math
import os
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Self

import msgspec

from placebench.addresses import service_address
from placebench.compare.keep.records import LoadResult, WriteCheck
from placebench.compare.load.client_process import Driven, HttpClient
from placebench.compare.load.write_check import check_writes, read_holdings
from placebench.compare.what.http_request import get
from placebench.compare.what.workload import placement_workload
from placebench.errors import LoadError, MissingExtraError
from placebench.http_session import Request
from placebench.loadgen.write_log import read_write_log, write_log_path
from placebench.masking import mask
from placebench.meters.meters import ServerMeter
from placebench.meters.readings import Meters
from placebench.paths import is_file, resource_folder
from placebench.runtime.postgres import open_connection
from placebench.runtime.postgres.private_server import free_port
from placebench.runtime.running_server import RunningServer
from placebench.runtime.supervisor import Child, ChildLog, ChildSpec, Supervisor, new_scratch_path, start_child

WARM_UPS_A_THREAD = 2
_DEATH_LOGGED_WITHIN_S = 3.0
"""uWSGI's master looks once a second for workers that are gone."""
LOCUSTFILES = {
    "closed": "candidates_closed.py",
    "open": "candidates_open.py",
    "claims": "claims.py",
    "instances": "instances.py",
    "noop": "noop.py",
}
_Progress = Callable[[int, int], None]
_PROGRESS_EVERY_S = 0.5
_CONNECT_TIMEOUT_S = 10.0
_ERROR_LINE = re.compile(r"[\w.]+(Error|Exception|Exit|Interrupt|Timeout|Stop\w*)\b(:|$)|\S+: error: |\d+ users for ")
"""The last line of a traceback, what argparse says of an option, and what LoadSession says of too few users."""


@dataclass(frozen=True)
class LoadSpec:
    """A load; it ends after *time_s* or *requests*, whichever comes first; one of them is needed."""

    url: str
    request: str | None = None
    """Path and query of a request to Placement's API; None: the locustfile's own."""
    workload: tuple[Request, ...] = ()
    """Requests of any service, sent in turn instead; a status of 400 or more is a failure."""
    kind: str = "closed"
    """A name in LOCUSTFILES, or the path of an ordinary locustfile, which says itself what is sent and how often."""
    users: int = 1
    """How many users of a closed-loop load."""
    rate_per_s: float | None = None
    """Arrivals per second of an open-loop load."""
    time_s: float | None = None
    """No request is started later; the ones under way are waited for."""
    requests: int | None = None
    """Exactly so many."""
    warmup: int = 0
    """Requests before these, in neither the time nor the result."""
    seed: int = 1
    """Of the open-loop load's schedule."""
    at_once: int = 400
    """How many requests of an open-loop load may be in flight."""
    response_timeout_s: float = 300.0
    """A request fails whose response is not complete by then."""
    insecure: bool = False
    """Whether a certificate that is not valid is accepted."""
    processes: int = 1
    """How many processes of this machine make the load; more than one are locust workers."""
    expect_workers: int | None = None
    """Wait for so many locust workers, of any machine, and let them make the load instead."""
    wait_for_workers_s: float | None = None
    """For how long; None: until they are there."""
    bind: str = "127.0.0.1:5557"
    """Where the master listens for them."""
    database_url: str | None = None
    """Where the writes of the run are looked for; None: in the responses of the service."""
    telemetry: Path | None = None
    """Where the client writes its telemetry; None: it writes none."""


class LoadInterrupted(KeyboardInterrupt):
    """Ctrl-C during a load run; `result` is what was measured until then, None when that was nothing."""

    def __init__(self, result: LoadResult | None) -> None:
        super().__init__()
        self.result = result


def run_load(spec: LoadSpec, *, folder: Path, progress: _Progress | None = None) -> LoadResult:
    """Run locust as *spec* says, and return what it saw; failed requests are in the result.

    folder: is made when it is missing; locust.log is appended to there, and a scratch folder comes and goes.
    progress: called with requests done and wanted, or with seconds, twice a second.
    The writes of a run are checked at its end (`LoadResult.write_check`). Costs about a second of start. Raises
    LoadError when nothing responds at spec.url or no request ended, DatabaseError when spec.database_url
    does not respond, MissingExtraError without locust, LoadInterrupted on Ctrl-C.
    """
    _check(spec)
    log = ChildLog(folder / "locust.log")
    scratch = new_scratch_path("locust-", folder.absolute())
    samples_file = scratch / "samples.json"
    with Supervisor(scratch) as supervisor:
        child = start_child(_child(spec, scratch, samples_file, log), supervisor)
        try:
            exit_code = _wait(child, spec, samples_file, progress)
        except KeyboardInterrupt:
            child.stop()
            raise LoadInterrupted(_read(samples_file, spec)) from None
        result = _read(samples_file, spec)
    if result is None:
        raise LoadError(f"no request ended: {_reason(log, exit_code)}")
    return result


def _reason(log: ChildLog, exit_code: int) -> str:
    """Why locust has no samples: the last exception or error in its log, which ends with tables, or the log's end."""
    lines = [line.strip() for line in log.text().splitlines()]
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    if errors:
        return mask(errors[-1])
    return f"locust ended with exit code {exit_code}; {log.end()}"


def _child(spec: LoadSpec, scratch: Path, samples_file: Path, log: ChildLog) -> ChildSpec:
    return ChildSpec(
        name="locust",
        argv=_command(spec, samples_file),
        env=_environment(spec),
        # locust imports from where it runs: nothing lies here that could stand in for a module. An ordinary locustfile
        # may read files beside it.
        cwd=scratch if spec.kind in LOCUSTFILES else Path.cwd(),
        log=log.path,
    )


def _command(spec: LoadSpec, samples_file: Path) -> list[str]:
    # Even an empty one: our own environment may name another folder.
    telemetry = "" if spec.telemetry is None else spec.telemetry.absolute()
    own_options = {
        "--requests-file": _requests_file(spec, samples_file.parent),
        "--rate": spec.rate_per_s,
        "--max-concurrent": spec.at_once,
        "--measure-s": spec.time_s,
        "--requests": spec.requests,
        "--warmup": spec.warmup,
        "--seed": spec.seed,
        "--response-timeout": spec.response_timeout_s,
        "--insecure": int(spec.insecure),
        "--samples-file": samples_file,
        "--telemetry": telemetry,
    }
    hooks_options = {
        "--placebench-measure-s": spec.time_s,
        "--placebench-samples-file": samples_file,
        "--placebench-telemetry": telemetry,
    }
    options = {
        "--locustfile": _locustfile(spec.kind),
        "--users": spec.users,
        "--spawn-rate": spec.users,
        **(own_options if spec.kind in LOCUSTFILES else hooks_options),
    }
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return [sys.executable, "-m", "locust", "--headless", "--only-summary", *given, *_distribution(spec)]


def _distribution(spec: LoadSpec) -> list[str]:
    """The options of locust's master, where there is one."""
    if spec.expect_workers is None and spec.processes == 1:
        return []
    host, _, port = spec.bind.rpartition(":")
    master = ["--master", f"--expect-workers={spec.expect_workers}"]
    if spec.wait_for_workers_s is not None:
        master.append(f"--expect-workers-max-wait={math.ceil(spec.wait_for_workers_s)}")
    if spec.expect_workers is None:
        host, port, master = "127.0.0.1", str(free_port()), [f"--processes={spec.processes}"]
    return [*master, f"--master-bind-host={host}", f"--master-bind-port={port}", f"--master-port={port}"]


def _requests_file(spec: LoadSpec, folder: Path) -> Path | None:
    if not spec.workload:
        return None
    path = folder / "requests.json"
    path.write_bytes(msgspec.json.encode(spec.workload))
    return path


def _environment(spec: LoadSpec) -> dict[str, str]:
    """Ours, with the URL and the request, which may have a token that no other user is to see in a command line.

    What locust itself would read as other options is left out.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")}
    environment["LOCUST_HOST"] = spec.url.rstrip("/")
    if spec.request is not None:
        environment["PLACEBENCH_REQUEST"] = spec.request
    with suppress(ValueError):
        ip_address(service_address(spec.url).hostname or "")
        # gevent looks even an address up in a thread: 20 % of the generator's CPU for each new connection.
        environment.setdefault("GEVENT_RESOLVER", "block")
    return environment


def _wait(child: Child, spec: LoadSpec, samples_file: Path, progress: _Progress | None) -> int:
    """Until locust ends by itself; returns its exit code."""
    started = time.monotonic()
    while True:
        with suppress(TimeoutError):
            return child.wait(_PROGRESS_EVERY_S)
        if progress and spec.requests is not None:
            progress(_requests_so_far(samples_file), spec.requests)
        elif progress and spec.time_s is not None:
            progress(min(round(time.monotonic() - started), round(spec.time_s)), round(spec.time_s))


def _requests_so_far(samples_file: Path) -> int:
    try:
        return int(samples_file.with_suffix(".count").read_text() or 0)
    except FileNotFoundError:
        return 0


def _read(samples_file: Path, spec: LoadSpec) -> LoadResult | None:
    """What locust left, with each write checked; None when not one request ended."""
    if not samples_file.exists():
        return None
    result = LoadResult.load(samples_file)
    if not result.requests:
        return None
    write_log = write_log_path(samples_file)
    return replace(result, write_check=_check_writes(write_log, spec)) if write_log.exists() else result


def _check_writes(write_log: Path, spec: LoadSpec) -> WriteCheck:
    writes = read_write_log(write_log)
    consumers = {write.consumer: None for write in writes}
    return check_writes(writes, read_holdings(consumers, url=spec.url, database_url=spec.database_url))


def _check(spec: LoadSpec) -> None:
    if find_spec("locust") is None:
        raise MissingExtraError("a load run needs locust, which is not installed: pip install 'placebench[bench]'")
    if spec.time_s is None and spec.requests is None and spec.kind in LOCUSTFILES:
        raise LoadError("a load run without an end: say how long (--time) or how many requests (--requests)")
    if spec.kind == "open" and spec.rate_per_s is None:
        raise LoadError("an open-loop load without a rate: say how many arrivals a second (--rate)")
    for name in ("users", "rate_per_s", "time_s", "requests", "at_once", "response_timeout_s", "processes"):
        if (value := getattr(spec, name)) is not None and value <= 0:
            raise LoadError(f"{name} is {value}: expected more than 0")
    workers = spec.expect_workers or spec.processes
    if spec.kind != "open" and spec.users < workers:
        raise LoadError(f"{spec.users} users for {workers} load generators: each needs a user at least (--users)")
    if spec.database_url:
        with open_connection(spec.database_url):
            pass  # said now, and not after the load
    _check_service(spec)


def _check_service(spec: LoadSpec) -> None:
    """Raise LoadError if nothing responds at the URL, or with a certificate that is not valid."""
    address = service_address(spec.url, error=LoadError)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        with socket.create_connection((address.hostname, port), timeout=_CONNECT_TIMEOUT_S) as connection:
            if address.scheme == "https" and spec.kind in LOCUSTFILES and not spec.insecure:
                ssl.create_default_context().wrap_socket(connection, server_hostname=address.hostname).close()
    except ssl.SSLCertVerificationError as error:
        raise LoadError(
            f"the certificate of {spec.url} is not valid ({error.verify_message}): name the file of its authority in "
            "SSL_CERT_FILE, or give --insecure"
        ) from error
    except OSError as error:
        raise LoadError(f"nothing responds at {spec.url} ({error}): start the service first") from error


def _locustfile(kind: str) -> str:
    """What locust is given: one of ours, or an ordinary one after the hooks that take its samples."""
    if kind in LOCUSTFILES:
        return str(resource_folder("locustfiles") / LOCUSTFILES[kind])
    path = Path(kind)
    if not is_file(path) or path.suffix != ".py" or "," in str(path.absolute()):
        raise LoadError(f"no locustfile {kind!r}: give the path of a Python file, without a comma in it")
    return f"{Path(__file__).parents[2] / 'loadgen' / 'locustfile_hooks.py'},{path.absolute()}"


@dataclass(frozen=True)
class JobResult:
    """A job that was done, every response of it 200."""

    duration_s: float
    """From the first request to the last response; of one client the sum of its latencies."""
    cpu_s: float | None
    """Of the service and PostgreSQL's backends; None where not all of theirs could be read."""
    client_cpu_s: float
    """Of sending and reading, all users together."""
    body_bytes: int
    latency_s: tuple[float, ...]
    digests: tuple[str, ...] = ()
    """Canonical digest of each distinct response; under locust they are not read."""

    @classmethod
    def of_client(cls, driven: Driven, meters: Meters) -> Self:
        """Of what one user of a client process saw; raises LoadError with the first request that failed."""
        driven.check()
        latency_s, digests = tuple(driven.wall_s), tuple(driven.digests)
        return cls(sum(latency_s), meters.cpu_s, driven.client_cpu_s, driven.body_bytes, latency_s, digests)

    @classmethod
    def of_locust(cls, result: LoadResult, meters: Meters, *, requests: int) -> Self:
        """Of what locust saw; raises LoadError where requests failed or are missing."""
        if result.failures or result.requests != requests:
            said = result.failure_messages[0] if result.failure_messages else "the rest never ended"
            raise LoadError(f"{result.requests - result.failures} of {requests} requests got a response of 200: {said}")
        bodies, latency_s = sum(result.body_bytes), tuple(result.latency_s)
        return cls(result.elapsed_s, meters.cpu_s, result.client_cpu_s, bodies, latency_s)


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
        driven = client.drive(server.url, placement_workload(request), times=requests)
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
