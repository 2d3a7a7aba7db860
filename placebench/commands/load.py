"""`placebench load`: a headless locust run against a service, and what it saw."""

import os
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench import limits, units
from placebench.commands import values
from placebench.commands.accounts import accounts_in_words
from placebench.commands.console import print_json, print_result, progress, say
from placebench.commands.saturating import add_options, run_search, wanted
from placebench.paths import check_writable, make_folder

if TYPE_CHECKING:
    from placebench.experiment.load_run import LoadSpec
    from placebench.experiment.records import LoadResult

HELP = "put a closed or an open load on a service, with locust"
EXIT_FAILURES = 1
EXIT_UNDECIDED = 3
_EXIT_INTERRUPTED = 130
_TIME_S = 10.0
_ANSWER_TIMEOUT_S = 300.0
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def configure(parser: ArgumentParser) -> None:
    """The options of `load`."""
    parser.add_argument(
        "--url", type=values.service_url, required=True, metavar="U", help="the service, such as http://127.0.0.1:8000"
    )
    parser.add_argument(
        "--locustfile",
        default="closed",
        metavar="F",
        help="closed: users wait for answers; open: arrivals on a schedule; claims: users claim what they "
        "are offered, and every write is accounted for; noop: GET / (closed); or a file's path",
    )
    parser.add_argument(
        "--users", type=values.whole(1, limits.USERS), default=1, metavar="N", help="of a closed load (default: 1)"
    )
    parser.add_argument(
        "--rate",
        type=values.number(0, limits.RATE_PER_S, above=True),
        metavar="R",
        help="arrivals per second of an open load",
    )
    parser.add_argument(
        "--time", type=values.seconds, metavar="S", help=f"seconds (default: {_TIME_S:g} without --requests)"
    )
    parser.add_argument("--requests", type=values.requests, metavar="N", help="stop after exactly so many")
    parser.add_argument(
        "--warmup", type=values.warm_up, default=0, metavar="N", help="requests before these, not counted"
    )
    parser.add_argument(
        "--seed", type=values.seed, default=1, metavar="S", help="of the open load's schedule (default: 1)"
    )
    parser.add_argument(
        "--path",
        type=values.request,
        metavar="P",
        help="path and query (default: $PLACEBENCH_REQUEST, or the query of nested-perfload)",
    )
    parser.add_argument(
        "--db", type=values.text, metavar="URL", help="look for the writes there (default: ask the service for each)"
    )
    parser.add_argument(
        "--telemetry",
        type=values.path,
        default=os.environ.get("PLACEBENCH_TELEMETRY") or None,
        metavar="DIR",
        help="the client's durations, with the numbers that servers note (default: $PLACEBENCH_TELEMETRY)",
    )
    parser.add_argument(
        "--answer-timeout", type=values.seconds, metavar="S", help="give an answer up after so long (default: 300 s)"
    )
    parser.add_argument(
        "--out",
        type=values.path,
        metavar="FILE",
        help="keep every sample there, as JSON; of a search the folder of its run",
    )
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="the result as one JSON document on stdout")


def run(arguments: Namespace) -> int:
    """Make the run; exit code 1 when requests failed or a write was lost, 3 when nobody could look for the writes."""
    from placebench.experiment.load_run import LoadInterrupted
    from placebench.runtime.supervisor import Supervisor, new_scratch_path

    if arguments.telemetry:
        make_folder(arguments.telemetry)
    if wanted(arguments):
        return run_search(arguments)
    if arguments.out:
        check_writable(arguments.out)
    with Supervisor(folder := new_scratch_path("placebench-load-")):
        try:
            result = _load(_spec(arguments), folder)
        except LoadInterrupted as interrupted:
            say("interrupted" if interrupted.result else "interrupted before any request had ended")
            if interrupted.result:
                _tell(interrupted.result, arguments)
            return _EXIT_INTERRUPTED
    _tell(result, arguments)
    return _exit_code(result)


def _exit_code(result: "LoadResult") -> int:
    writes = result.write_check
    if result.failures or (writes and writes.passed is False):
        return EXIT_FAILURES
    return EXIT_UNDECIDED if writes and writes.passed is None else 0


def _spec(arguments: Namespace) -> "LoadSpec":
    from placebench.experiment.load_run import LoadSpec
    from placebench.runtime.postgres.connection import normalise_url

    time_s = _TIME_S if arguments.time is None and arguments.requests is None else arguments.time
    return LoadSpec(
        url=arguments.url,
        request=arguments.path,
        kind=arguments.locustfile,
        users=arguments.users,
        rate_per_s=arguments.rate,
        time_s=time_s,
        requests=arguments.requests,
        warmup=arguments.warmup,
        seed=arguments.seed,
        response_timeout_s=_ANSWER_TIMEOUT_S if arguments.answer_timeout is None else arguments.answer_timeout,
        database_url=normalise_url(arguments.db) if arguments.db else None,
        telemetry=arguments.telemetry,
    )


def _load(spec: "LoadSpec", folder: Path) -> "LoadResult":
    from placebench.experiment.load_run import run_load

    label, total = ("requests", spec.requests) if spec.requests else ("seconds", round(spec.time_s or 0))
    with progress(label, total) as advance:
        return run_load(spec, folder=folder, progress=lambda done, _: advance(done))


def _tell(result: "LoadResult", arguments: Namespace) -> None:
    if arguments.out:
        result.save(arguments.out)
    if arguments.json:
        print_json(_summary(result))
    else:
        print_result("\n".join(_lines(result)))


def _summary(result: "LoadResult") -> dict[str, Any]:
    """What --json prints: everything but the samples themselves."""
    return {
        "kind": result.kind,
        "users": result.users,
        "rate_per_s": result.rate_per_s,
        "requests": result.requests,
        "failures": result.failures,
        "failure_messages": result.failure_messages,
        "statuses": result.statuses,
        "in_flight": result.in_flight,
        "missed": result.missed,
        "elapsed_s": result.elapsed_s,
        "throughput_per_s": result.throughput_per_s,
        "latency_s": _quantiles(result.latency_s),
        "service_s": _quantiles(result.service_s),
        "body_bytes": sum(result.body_bytes),
        "client_cpu_s": result.client_cpu_s,
        "write_check": None if result.write_check is None else asdict(result.write_check),
    }


def _quantiles(samples: list[float]) -> dict[str, float | None]:
    """By name; None where fewer than 10 samples lie above."""
    from placebench.stats import percentile

    ordered = sorted(samples)
    return {name: percentile(ordered, share) for name, share in _QUANTILES.items()}


def _lines(result: "LoadResult") -> list[str]:
    took, throughput = units.duration(result.elapsed_s), units.rate(result.throughput_per_s)
    lines = [
        f"requests    {units.count(result.requests)} in {took}: {throughput}",
        f"latency     {_quantiles_in_words(result.latency_s)}; longest {units.duration(max(result.latency_s))}",
        f"bodies      {units.size(sum(result.body_bytes))}",
        f"generator   {units.duration(result.client_cpu_s / result.requests)} of CPU a request",
        f"failures    {units.count(result.failures)}",
        *(f"            {message}" for message in result.failure_messages),
    ]
    if result.write_check:
        lines += [f"writes      {line}" for line in accounts_in_words(result.write_check)]
    if result.in_flight:
        lines.append(f"in flight   {units.count(result.in_flight)} at the end, not counted")
    if result.missed:
        lines.append(f"missed      {units.count(result.missed)} sent more than 10 ms late")
    return lines


def _quantiles_in_words(samples: list[float]) -> str:
    shown = {name: seconds for name, seconds in _quantiles(samples).items() if seconds is not None}
    return ", ".join(f"{name} {units.duration(seconds)}" for name, seconds in shown.items()) or "too few for a quantile"
