"""`placebench load`: a headless locust run against a service, a search for its capacity, and a lost-write check."""

import re
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from placebench import limits, units
from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.interrupts import EXIT_INTERRUPTED
from placebench.commands.load_result import load_document, load_lines
from placebench.commands.output import emit, emit_report, progress, say
from placebench.commands.profile.recording import SERVICE_MODES, ServiceProfile
from placebench.commands.runs import leave_folder, list_run
from placebench.errors import LoadError, PlacebenchError, ProfilerError, UndecidedError
from placebench.loadgen.options import DEFAULT_TIME_S
from placebench.paths import check_writable, make_ignored_folder

if TYPE_CHECKING:
    from placebench.compare.keep.records import LoadResult
    from placebench.compare.load.load_run import LoadSpec
    from placebench.compare.load.load_steps import LoadStep
    from placebench.http_session import Request
    from placebench.meters.remote_hosts import RemoteHost

_EXIT_FAILURES = 1
_EXIT_INCONCLUSIVE = 3
_RESPONSE_TIMEOUT_S = 300.0
_SEARCH_TIMEOUT_S = 10.0
_MAX_USERS = 1024
REPLICATES = 6
"""The number of replicates of --slo: the fewest that have a 95 % interval."""
_RESULT = "load.json"
_BIND = "127.0.0.1:5557"
_MAX_CONNECT_S = 60.0
"""Maximum number of seconds that the workers of --hosts may take to connect."""
_MAX_PORT = 65_535


@dataclass(frozen=True)
class LoadCommandOptions:
    """The options of `placebench load`."""

    output: options.OutputOptions
    workload: options.RequestOptions
    url: str
    users: int
    rate: float | None
    processes: int
    expect_workers: int | None
    bind: str | None
    hosts: Path | None
    check_writes: bool
    locustfile: Path | None
    db: str | None
    time: float | None
    requests: int | None
    warmup: int
    response_timeout: float | None
    insecure: bool
    seed: int
    slo: str | None
    replicates: int | None
    until_errors: bool
    telemetry: Path | None
    profile: str | None
    mode: str | None
    out: Path | None


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "url",
        type=options.service_url,
        metavar="URL",
        help="the service, such as http://127.0.0.1:8000; its path is requested if there is no --request",
    )
    options.add_requests(parser, default="GET /")
    options.add_login(parser)
    _configure_kind(parser)
    parser.add_argument(
        "--time", type=options.seconds, metavar="S", help=f"seconds (default: {DEFAULT_TIME_S:g}, without --requests)"
    )
    parser.add_argument("--requests", type=options.request_count, metavar="N", help="number of requests, exactly")
    parser.add_argument(
        "--warmup", type=options.warmup_count, default=0, metavar="N", help="number of requests before, not counted"
    )
    parser.add_argument(
        "--response-timeout",
        type=options.seconds,
        metavar="S",
        help=f"seconds after which a request without a whole response has failed (default: {_RESPONSE_TIMEOUT_S:g}; "
        f"--until-errors: {_SEARCH_TIMEOUT_S:g})",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="accept a certificate that is not valid, such as a self-signed one"
    )
    options.add_seed(parser, "seed of the open-loop schedule")
    capacity = parser.add_argument_group("capacity")
    search = capacity.add_mutually_exclusive_group()
    search.add_argument(
        "--slo",
        metavar="EXPR",
        help="find the highest arrival rate at which this holds, as 'p95 <= 500ms', with its interval, and what was "
        "full: from --rate on, in steps of --time",
    )
    search.add_argument(
        "--until-errors", action="store_true", help=f"double --users up to {_MAX_USERS} until requests fail"
    )
    options.add_replicates(capacity, f"with --slo {REPLICATES}, each of five steps; 0: only the search before them")
    options.add_telemetry(parser, "folder for the client's durations, beside those of the service")
    profile = parser.add_argument_group("profile")
    profile.add_argument(
        "--profile",
        type=options.text,
        metavar="PID|DIR",
        help="profile the service meanwhile: its process, which needs a middleware of placebench, or the folder that "
        "it records into; the page of the mean request goes into --out, or into ./profile",
    )
    profile.add_argument(
        "--mode", choices=SERVICE_MODES, help="with --profile PID: how much is recorded (default: sampled)"
    )
    options.add_out(parser, f"folder for every sample, in {_RESULT}; of a search: of its run")
    options.add_output(parser, page=True)


def _configure_kind(parser: ArgumentParser) -> None:
    """Add the options that define the kind of load, and the processes that generate it."""
    parser.add_argument(
        "--users",
        type=options.whole(1, limits.USERS),
        default=1,
        metavar="N",
        help="number of users of a closed-loop load, each of whom waits for the response (default: 1)",
    )
    parser.add_argument(
        "--rate",
        type=options.number(0, limits.RATE_PER_S, above=True),
        metavar="R",
        help="arrivals per second: an open-loop load, corrected for coordinated omission",
    )
    machines = parser.add_argument_group("several load generators").add_mutually_exclusive_group()
    machines.add_argument(
        "--processes",
        type=options.worker_count,
        default=1,
        metavar="N",
        help="number of processes of this machine, or of each with --hosts, that make the load (default: 1)",
    )
    machines.add_argument(
        "--expect-workers",
        type=options.whole(1, limits.USERS),
        metavar="N",
        help="wait for N locust workers, started on any machine with locust -f - --worker --master-host HOST",
    )
    parser.add_argument(
        "--bind",
        metavar="HOST:PORT",
        help=f"with --expect-workers: where to listen for them (default: {_BIND}), with --hosts: likewise (default: a "
        "free port); whoever reaches it can take part",
    )
    parser.add_argument(
        "--hosts",
        type=options.path,
        metavar="FILE",
        help="hosts file: start --processes locust workers on each of its machines with the role load, by SSH",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--check-writes",
        action="store_true",
        help="lost-write check: users allocate what they are offered, and each acknowledged write must be found again",
    )
    kind.add_argument(
        "--locustfile",
        type=options.path,
        metavar="FILE",
        help="ordinary locustfile, run with --users and --time; it says what is sent and how often",
    )
    options.add_database(
        parser,
        "with --check-writes: look for the writes there (default: request each of the service); with --slo: the "
        "service's PostgreSQL, whose sessions show what was full",
    )


def _run(given: LoadCommandOptions) -> int:
    """Run the load; exit code 1 if requests failed or a write was lost, 3 if the writes could not be looked up."""
    from placebench.compare.load.load_run import LoadInterrupted, run_load
    from placebench.meters.remote_hosts import read_hosts
    from placebench.runtime.supervisor import Supervisor, new_scratch_path

    given = _with_request_of_url(given)
    if given.db and not (given.check_writes or given.locustfile or given.slo):
        raise LoadError("--db is read only with --check-writes or --slo: add one of them, or leave --db out")
    if given.replicates is not None and not given.slo:
        raise LoadError("--replicates without --slo: only the search for a capacity is repeated")
    if given.mode and not given.profile:
        raise LoadError("--mode without --profile: name the process or the folder with --profile PID|DIR")
    if given.slo or given.until_errors:
        return _search(given)
    spec = _spec(given)
    if given.hosts is not None and given.expect_workers:
        raise LoadError("--expect-workers with --hosts: the file says which machines have workers")
    hosts = None if given.hosts is None else read_hosts(given.hosts)
    if given.telemetry:
        make_ignored_folder(given.telemetry)
    if given.out:
        _check_result(make_ignored_folder(given.out) / _RESULT)
    profile = ServiceProfile(given.profile, given.mode, given.out) if given.profile else None
    with Supervisor(folder := new_scratch_path("placebench-load-")), _on_hosts(given, hosts, spec) as spec:
        try:
            label, total = ("requests", spec.requests) if spec.requests else ("seconds", round(spec.time_s or 0))
            with progress(label, total) as advance, profile or nullcontext():
                result = run_load(spec, folder=folder, progress=lambda done, _: advance(done))
        except LoadInterrupted as interrupted:
            say("interrupted" if interrupted.result else "interrupted before any request had ended")
            if interrupted.result:
                _emit(interrupted.result, given, profile)
            return EXIT_INTERRUPTED
    _emit(result, given, profile)
    writes = result.write_check
    if result.failures or result.lost_workers or (writes and writes.passed is False):
        return _EXIT_FAILURES
    return _EXIT_INCONCLUSIVE if writes and writes.passed is None else 0


def _check_result(path: Path) -> None:
    """Raise PlacebenchError if a result cannot be written at *path*, or would overwrite a file that is not a result."""
    from placebench.compare.keep.records import LoadResult

    if path.is_file():
        try:
            LoadResult.load(path)
        except PlacebenchError as error:
            raise PlacebenchError(f"{error}; it would be replaced: name another folder with --out") from error
    check_writable(path)


def _spec(given: LoadCommandOptions) -> "LoadSpec":
    from placebench.compare.load.load_run import LoadSpec
    from placebench.runtime.postgres.connection import normalise_url

    if given.locustfile:
        return _locustfile_spec(given)
    time_s = DEFAULT_TIME_S if given.time is None and given.requests is None else given.time
    workload = _workload(given)
    if given.check_writes and (workload or given.workload.login):
        option = "--request" if workload else "--login"
        raise LoadError(
            f"{option} with --check-writes: its users request candidates of Placement's API, and claim them"
        )
    return LoadSpec(
        url=given.url,
        workload=workload,
        login=tuple(given.workload.logins()),
        kind="claims" if given.check_writes else "closed" if given.rate is None else "open",
        users=given.users,
        rate_per_s=given.rate,
        time_s=time_s,
        requests=given.requests,
        warmup=given.warmup,
        seed=given.seed,
        response_timeout_s=_RESPONSE_TIMEOUT_S if given.response_timeout is None else given.response_timeout,
        insecure=given.insecure,
        database_url=normalise_url(given.db) if given.db else None,
        telemetry=given.telemetry,
        processes=given.processes,
        expect_workers=given.expect_workers,
        bind=_bind(given),
    )


def _with_request_of_url(given: LoadCommandOptions) -> LoadCommandOptions:
    """Return the options with the path of the URL as the request, if no other request is named."""
    parts = urlsplit(given.url)
    named = given.workload.login or "--request" in dict(given.workload.requests_given)
    if named or given.check_writes or given.locustfile or (parts.path in ("", "/") and not parts.query):
        return given
    request = ("--request", urlunsplit(("", "", parts.path or "/", parts.query, "")))
    workload = replace(given.workload, requests_given=(*given.workload.requests_given, request))
    return replace(given, url=f"{parts.scheme}://{parts.netloc}", workload=workload)


def _workload(given: LoadCommandOptions) -> "tuple[Request, ...]":
    """Return the requests of the command line, or GET /; empty for --check-writes, whose locustfile has its own."""
    from placebench.http_session import Request

    return tuple(given.workload.requests()) or (() if given.check_writes else (Request("GET", "/"),))


def _locustfile_spec(given: LoadCommandOptions) -> "LoadSpec":
    """Return the spec for a user's locustfile; raise UsageError for an option that the locustfile itself decides."""
    from placebench.compare.load.load_run import LoadSpec

    options.refuse(
        given,
        ("requests_given", "login", "rate", "requests", "warmup", "response_timeout", "insecure", "db"),
        "with --locustfile: the locustfile says what is sent, when, and what is a failure; give --users and --time, or "
        "write a LoadTestShape in it",
    )
    return LoadSpec(
        url=given.url,
        kind=str(given.locustfile),
        users=given.users,
        time_s=given.time,
        telemetry=given.telemetry,
        processes=given.processes,
        expect_workers=given.expect_workers,
        bind=_bind(given),
    )


@contextmanager
def _on_hosts(
    given: LoadCommandOptions, hosts: "dict[str, RemoteHost] | None", spec: "LoadSpec"
) -> "Iterator[LoadSpec]":
    """Yield the spec with the workers that --hosts starts; the workers of --expect-workers are started by the user."""
    if hosts is None:
        if spec.expect_workers:
            host, _, port = spec.bind.rpartition(":")
            say(
                f"waiting for {units.numbered(spec.expect_workers, 'worker')} at {spec.bind}; on each: "
                f"TMPDIR=$(mktemp -d) locust -f - --worker --master-host {host} --master-port {port}"
            )
        yield spec
        return
    from placebench.remote.machines import load_workers

    bind = _bind(given) if given.bind else ""
    with load_workers(hosts, processes=given.processes, bind=bind) as workers:
        say(f"{units.numbered(workers.count, 'worker')} on other machines, to connect to {workers.bind}")
        yield replace(
            spec, processes=1, expect_workers=workers.count, wait_for_workers_s=_MAX_CONNECT_S, bind=workers.bind
        )


def _bind(given: LoadCommandOptions) -> str:
    if given.bind is None:
        return _BIND
    if given.expect_workers is None and given.hosts is None:
        raise LoadError("--bind without --expect-workers or --hosts: nothing listens there")
    host, _, port = given.bind.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) <= _MAX_PORT:
        raise LoadError(f"--bind {given.bind!r}: expected an address of this machine and a port, such as 10.0.0.5:5557")
    return given.bind


def _emit(result: "LoadResult", given: LoadCommandOptions, profile: ServiceProfile | None = None) -> None:
    if given.out:
        result.save(given.out / _RESULT)
    lines, document = list(load_lines(result)), load_document(result)
    page, not_recorded = None, None
    if profile is not None:
        try:
            more, document["profile"], page = profile.write(lines)
            lines += more
        except ProfilerError as error:
            not_recorded = error
    emit(given.output, text=lambda: "\n".join(lines), document=lambda: document, page=page)
    if not_recorded is not None:  # after the load's own result, which is not lost
        raise not_recorded


def _search(given: LoadCommandOptions) -> int:
    """Search the capacity of the service; each step is printed when it ends."""
    from placebench import paths
    from placebench.compare.keep.run_folder import claim_folder, new_folder
    from placebench.compare.load.capacity import CapacitySearch
    from placebench.compare.load.load_steps import parse_objective

    objective = parse_objective(given.slo) if given.slo else None
    spec = _search_spec(given)
    is_users = given.out is not None and given.out.exists()
    folder = claim_folder(given.out.resolve()) if given.out else new_folder("saturation", paths.profiles_folder())
    step_s = given.time or DEFAULT_TIME_S
    search = CapacitySearch(spec, folder, step_s=step_s, report=_say_step)
    replicates = REPLICATES if given.replicates is None else given.replicates
    try:
        if objective:
            search.rate(objective, given.rate, replicates=replicates, database_url=_database(given))
        else:
            search.users(given.users, _MAX_USERS)
    except PlacebenchError:
        if not search.result.steps:
            (folder / "saturation.json").unlink(missing_ok=True)
            leave_folder(folder, is_users=is_users)
            raise
        _emit_search(folder, given.output)
        raise
    except KeyboardInterrupt:
        say("interrupted")
        _emit_search(folder, given.output)
        return EXIT_INTERRUPTED
    _emit_search(folder, given.output)
    found = search.result
    if found.held is None and found.broken is None:
        last, unit = found.steps[-1], "arrivals/s" if given.slo else "users"
        raise UndecidedError(
            f"inconclusive: {last.why}, even {'at' if given.slo else 'with'} {last.load:g} {unit}: "
            "repeat it while nothing else uses this machine"
        )
    if found.knees and found.capacity is None:
        raise UndecidedError(f"inconclusive: {found.knees[-1].why}")
    return 0


def _search_spec(given: LoadCommandOptions) -> "LoadSpec":
    from placebench.compare.load.load_run import LoadSpec

    search = "--slo" if given.slo else "--until-errors"
    options.refuse(
        given,
        ("requests", "locustfile", "check_writes", "expect_workers", "hosts", "bind", "profile", "telemetry"),
        f"with {search}: a search makes a load of its own, in steps of --time",
    )
    timeout_s = _RESPONSE_TIMEOUT_S if given.slo else _SEARCH_TIMEOUT_S
    return LoadSpec(
        url=given.url,
        workload=_workload(given),
        login=tuple(given.workload.logins()),
        insecure=given.insecure,
        kind="open" if given.slo else "closed",
        warmup=given.warmup,
        seed=given.seed,
        response_timeout_s=given.response_timeout or timeout_s,
        processes=given.processes,
    )


def _emit_search(folder: Path, output: options.OutputOptions) -> None:
    from placebench.report import build_report, write_report

    report = build_report(folder)
    write_report(report)
    list_run(folder)
    emit_report(output, report)


def _database(given: LoadCommandOptions) -> str:
    from placebench.runtime.postgres import open_connection
    from placebench.runtime.postgres.connection import normalise_url

    url = normalise_url(given.db) if given.db else ""
    if url:
        with open_connection(url):
            pass  # so that a database which does not respond is reported before the search
    return url


def _say_step(replicate: str, step: "LoadStep") -> None:
    p95 = step.latency_s["p95"] if step.latency_s["p95"] is not None else step.latency_s["p50"]
    outcome = {"held": "passed", "broken": "failed", "generator": "discarded"}[step.outcome]
    line = f"{replicate}{step.load:g}: {units.rate(step.throughput_per_s)}, {units.duration(p95)}, {outcome}"
    say(f"{line}: {step.why}" if step.why else line)


COMMANDS = {"load": Command(_configure, _run, options=LoadCommandOptions, needs_linux=STARTS_SERVERS)}
