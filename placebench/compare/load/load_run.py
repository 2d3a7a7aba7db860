"""Load: headless locust in its own process (`run_load`), and jobs of a fixed number of requests (`http_job`).

locust saves the exact samples that our locustfiles took. A job is done by one client process or by locust's users.
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
from placebench.compare.keep.records import LoadResult
from placebench.compare.load.client_process import Driven
from placebench.compare.load.clients import HttpClient
from placebench.compare.load.write_check import check_writes, read_holdings
from placebench.compare.what.http_request import get
from placebench.compare.what.workload import Workload
from placebench.errors import LoadError, MissingExtraError
from placebench.http_session import Request
from placebench.loadgen.write_log import read_write_log, write_log_path
from placebench.masking import mask
from placebench.meters.meters import ServerMeter
from placebench.meters.readings import Meters
from placebench.paths import is_file, resource_folder
from placebench.runtime.ports import free_port
from placebench.runtime.postgres import open_connection
from placebench.runtime.running_server import RunningServer
from placebench.runtime.supervisor import Child, ChildLog, ChildSpec, Supervisor, new_scratch_path, start_child

WARM_UPS_A_THREAD = 2
_DEATH_LOGGED_WITHIN_S = 3.0
"""Maximum time until a dead worker is in the log: uWSGI's master checks for dead workers once per second."""
LOCUSTFILES = {
    "closed": "candidates_closed.py",
    "open": "candidates_open.py",
    "claims": "claims.py",
    "instances": "instances.py",
    "noop": "noop.py",
}
_Progress = Callable[[int, int], None]
_PROGRESS_EVERY_S = 0.5
_TAGS = ("LOCUST_TAGS", "LOCUST_EXCLUDE_TAGS")
_CONNECT_TIMEOUT_S = 10.0
_ERROR_LINE = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt|Timeout|Stop\w*)\b(:|$)|\S+: error: |\d+ users for ")
"""Matches the last line of a traceback, argparse's message about an option, and LoadSession's about too few users."""


@dataclass(frozen=True)
class LoadSpec:
    """A load that ends after *time_s* or *requests*, whichever comes first; one of them is needed."""

    url: str
    request: str | None = None
    """Path and query of a request to Placement's API; None: the locustfile's own request."""
    workload: tuple[Request, ...] = ()
    """Requests to any service, sent in turn instead of `request`; a status of 400 or more is a failure."""
    login: tuple[Request, ...] = ()
    """Requests that each user of `workload` sends once before; its cookies, CSRF token and access token are kept."""
    kind: str = "closed"
    """A name in LOCUSTFILES, or the path of an ordinary locustfile, which itself decides what is sent and how often."""
    users: int = 1
    """The number of users of a closed-loop load."""
    rate_per_s: float | None = None
    """Arrivals per second of an open-loop load."""
    time_s: float | None = None
    """Time after which no request is started; requests under way are awaited."""
    requests: int | None = None
    """The exact number of requests."""
    warmup: int = 0
    """The number of warm-up requests, which are in neither the time nor the result."""
    seed: int = 1
    """Seed of the open-loop load's schedule."""
    at_once: int = 400
    """The number of requests of an open-loop load that may be in flight."""
    response_timeout_s: float = 300.0
    """Time limit of a request in seconds; a request fails if its response is not complete by then."""
    insecure: bool = False
    """Whether a certificate that is not valid is accepted."""
    processes: int = 1
    """The number of local processes that make the load; more than one are locust workers."""
    expect_workers: int | None = None
    """The number of locust workers, on any machine, that make the load instead of local processes."""
    wait_for_workers_s: float | None = None
    """The time to wait for these workers; None: until they are connected."""
    bind: str = "127.0.0.1:5557"
    """The address at which the master listens for these workers."""
    database_url: str | None = None
    """The database in which the run's writes are looked up; None: they are looked up by requests to the service."""
    telemetry: Path | None = None
    """The folder for the client's telemetry; None: it writes none."""


class LoadInterrupted(KeyboardInterrupt):
    """Raised on Ctrl-C during a load run; `result` has the measurements until then, or None if there are none."""

    def __init__(self, result: LoadResult | None) -> None:
        super().__init__()
        self.result = result


def run_load(spec: LoadSpec, *, folder: Path, progress: _Progress | None = None) -> LoadResult:
    """Run locust as *spec* says, and return the result, which includes failed requests.

    folder: made if it is missing; locust.log in it is appended to, and a scratch folder in it is removed at the end.
    progress: called twice a second with the requests done and the requests planned, or with seconds instead.
    The writes of a run are checked at its end (`LoadResult.write_check`). The start costs about a second. Raises
    LoadError if nothing responds at spec.url or no request ended, DatabaseError if spec.database_url does not respond,
    MissingExtraError without locust, LoadInterrupted on Ctrl-C.
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
        # The log ends with tables; an exception or error comes before them.
        errors = [line for line in map(str.strip, log.text().splitlines()) if _ERROR_LINE.match(line)]
        reason = mask(errors[-1]) if errors else f"locust ended with exit code {exit_code}; {log.end()}"
        raise LoadError(f"no request ended: {reason}")
    return result


def _child(spec: LoadSpec, scratch: Path, samples_file: Path, log: ChildLog) -> ChildSpec:
    return ChildSpec(
        name="locust",
        argv=_command(spec, samples_file),
        env=_environment(spec),
        # locust imports from its working folder, so that must hold nothing that could replace a module. An ordinary
        # locustfile may read files beside it.
        cwd=scratch if spec.kind in LOCUSTFILES else Path.cwd(),
        log=log.path,
    )


def _command(spec: LoadSpec, samples_file: Path) -> list[str]:
    files: dict[str, Path] = {}
    for name, requests in (("requests", spec.workload), ("login", spec.login)):
        if requests:
            files[name] = samples_file.with_name(f"{name}.json")
            files[name].write_bytes(msgspec.json.encode(requests))
    # Given even if it is empty: our own environment may name another folder.
    telemetry = "" if spec.telemetry is None else spec.telemetry.absolute()
    own_options = {
        "--requests-file": files.get("requests"),
        "--login-file": files.get("login"),
        "--rate": spec.rate_per_s,
        "--max-concurrent": spec.at_once,
        "--measure-s": spec.time_s,
        "--requests": spec.requests,
        "--warmup": spec.warmup,
        "--seed": spec.seed,
        "--response-timeout": spec.response_timeout_s,
        "--insecure": int(spec.insecure),
        # They are looked up after locust has ended.
        "--keep-claims": 1 if spec.kind == "claims" else None,
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
    locust = [sys.executable, "-P", "-m", "placebench.loadgen"]
    return [*locust, "--headless", "--only-summary", *given, *_distribution(spec)]


def _distribution(spec: LoadSpec) -> list[str]:
    """Return the options of locust's master; empty if the load needs no master."""
    if spec.expect_workers is None and spec.processes == 1:
        return []
    host, _, port = spec.bind.rpartition(":")
    master = ["--master", f"--expect-workers={spec.expect_workers}"]
    if spec.wait_for_workers_s is not None:
        master.append(f"--expect-workers-max-wait={math.ceil(spec.wait_for_workers_s)}")
    if spec.expect_workers is None:
        host, port, master = "127.0.0.1", str(free_port()), [f"--processes={spec.processes}"]
    return [*master, f"--master-bind-host={host}", f"--master-bind-port={port}", f"--master-port={port}"]


def _environment(spec: LoadSpec) -> dict[str, str]:
    """Return our environment without variables that locust reads as options, with the URL and the request added.

    URL and request may hold a token, which other users would see on a command line. Tags choose tasks of an ordinary
    locustfile, which no option of ours does.
    """
    kept = () if spec.kind in LOCUSTFILES else _TAGS
    environment = {name: each for name, each in os.environ.items() if name in kept or not name.startswith("LOCUST_")}
    environment["LOCUST_HOST"] = spec.url.rstrip("/")
    if spec.request is not None:
        environment["PLACEBENCH_REQUEST"] = spec.request
    with suppress(ValueError):
        ip_address(service_address(spec.url).hostname or "")
        # gevent looks even an address up in a thread: 20 % of the generator's CPU for each new connection.
        environment.setdefault("GEVENT_RESOLVER", "block")
    return environment


def _wait(child: Child, spec: LoadSpec, samples_file: Path, progress: _Progress | None) -> int:
    """Wait until locust ends, reporting the progress; returns the exit code."""
    started = time.monotonic()
    while True:
        with suppress(TimeoutError):
            return child.wait(_PROGRESS_EVERY_S)
        if progress and spec.requests is not None:
            count_file = samples_file.with_suffix(".count")
            progress(int(count_file.read_text() or 0) if count_file.exists() else 0, spec.requests)
        elif progress and spec.time_s is not None:
            progress(min(round(time.monotonic() - started), round(spec.time_s)), round(spec.time_s))


def _read(samples_file: Path, spec: LoadSpec) -> LoadResult | None:
    """Return the result that locust saved, with its writes checked; None if no request ended."""
    if not samples_file.exists():
        return None
    result = LoadResult.load(samples_file)
    if not result.requests:
        return None
    write_log = write_log_path(samples_file)
    if not write_log.exists():
        return result
    writes = read_write_log(write_log)
    consumers = {write.consumer: None for write in writes}
    held = read_holdings(consumers, url=spec.url, database_url=spec.database_url)
    return replace(result, write_check=check_writes(writes, held))


def _check(spec: LoadSpec) -> None:
    if find_spec("locust") is None:
        raise MissingExtraError("a load run needs locust, which is not installed: pip install 'placebench[bench]'")
    if spec.time_s is None and spec.requests is None and spec.kind in LOCUSTFILES:
        raise LoadError("a load run without an end: say how long (--time) or how many requests (--requests)")
    if spec.kind == "open" and spec.rate_per_s is None:
        raise LoadError("an open-loop load without a rate: give the arrivals per second (--rate)")
    for name in ("users", "rate_per_s", "time_s", "requests", "at_once", "response_timeout_s", "processes"):
        if (value := getattr(spec, name)) is not None and value <= 0:
            raise LoadError(f"{name} is {value}: expected more than 0")
    workers = spec.expect_workers or spec.processes
    if spec.kind != "open" and spec.users < workers:
        raise LoadError(f"{spec.users} users for {workers} load generators: each needs at least one (--users)")
    if spec.database_url:
        with open_connection(spec.database_url):
            pass  # so that a database which does not respond is reported before the load
    _check_service(spec)


def _check_service(spec: LoadSpec) -> None:
    """Raise LoadError if nothing responds at the URL, or if its certificate is not valid."""
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
        reason = error.strerror or error
        raise LoadError(f"nothing responds at {spec.url} ({reason}): is the service running?") from error


def _locustfile(kind: str) -> str:
    """Return locust's option: one of our locustfiles, or an ordinary one after the hooks that collect its samples."""
    if kind in LOCUSTFILES:
        return str(resource_folder("locustfiles") / LOCUSTFILES[kind])
    path = Path(kind)
    if not is_file(path) or path.suffix != ".py" or "," in str(path.absolute()):
        raise LoadError(f"no locustfile {kind!r}: give the path of a Python file, without a comma in it")
    return f"{Path(__file__).parents[2] / 'loadgen' / 'locustfile_hooks.py'},{path.absolute()}"


@dataclass(frozen=True)
class JobResult:
    """The result of a job in which every response had status 200."""

    duration_s: float
    """Time from the first request to the last response; for a single user the sum of the latencies."""
    cpu_s: float | None
    """CPU seconds of the service and PostgreSQL's backends; None if not all of the backends could be read."""
    client_cpu_s: float
    """CPU seconds that sending and reading took, over all users."""
    body_bytes: int
    latency_s: tuple[float, ...]
    digests: tuple[str, ...] = ()
    """Canonical digests of the distinct responses; empty for locust, which does not compute them."""

    @classmethod
    def of_client(cls, driven: Driven, meters: Meters) -> Self:
        """Return the result of one user of a client process; raises LoadError with the first failed request."""
        driven.check()
        latency_s, digests = tuple(driven.wall_s), tuple(driven.digests)
        return cls(sum(latency_s), meters.cpu_s, driven.client_cpu_s, driven.body_bytes, latency_s, digests)


def http_job(
    server: RunningServer,
    request: str,
    *,
    workload: Workload,
    client: HttpClient,
    requests: int,
    users: int,
    slots: int,
    meter: ServerMeter,
    folder: Path,
) -> JobResult:
    """Warm up the server's *slots* (its threads in all its processes), then let *users* users send *requests* requests.

    A single user is *client*, which sends *workload*; several users are locust's. Raises LoadError if a request fails.
    """
    warm_up(server, request, slots)
    if users > 1:
        return locust_job(server, request, requests=requests, users=users, meter=meter, folder=folder)
    with meter:
        driven = client.drive(server.url, workload, times=requests)
    return JobResult.of_client(driven, meter.read())


def locust_job(
    server: RunningServer, request: str, *, requests: int, users: int, meter: ServerMeter, folder: Path
) -> JobResult:
    """Let locust send exactly *requests* requests, *users* at a time; raises LoadError if one fails or is missing."""
    with meter:
        result = run_load(LoadSpec(server.url, request, users=users, requests=requests), folder=folder / "log")
    if result.failures or result.requests != requests:
        said = result.failure_messages[0] if result.failure_messages else "the rest never ended"
        raise LoadError(f"{result.requests - result.failures} of {requests} requests got a response of 200: {said}")
    bodies, latency_s = sum(result.body_bytes), tuple(result.latency_s)
    return JobResult(result.elapsed_s, meter.read().cpu_s, result.client_cpu_s, bodies, latency_s)


def warm_up(server: RunningServer, request: str, slots: int) -> None:
    """Send two requests per thread of the service, *slots* at a time, so that every thread compiles and connects."""
    with responses_of(server), ThreadPoolExecutor(slots) as pool:
        list(pool.map(lambda _: get(server.url, request), range(WARM_UPS_A_THREAD * slots)))


@contextmanager
def responses_of(server: RunningServer) -> Iterator[None]:
    """Convert an OSError in the `with` block (no response) to ServerError if a worker died, else to LoadError."""
    try:
        yield
    except OSError as error:
        give_up_at = time.monotonic() + _DEATH_LOGGED_WITHIN_S
        while time.monotonic() < give_up_at:
            server.check()
            time.sleep(0.02)
        raise LoadError(f"a request to {server.url} got no response: {error}") from error
