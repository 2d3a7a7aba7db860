"""The result of one load as a document and as lines of text, and the lines of a lost-write check."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import count, takewhile
from statistics import fmean
from typing import TYPE_CHECKING, Any

from placebench import units

if TYPE_CHECKING:
    from placebench.compare.keep.records import LoadResult, WriteCheck


def load_document(result: "LoadResult") -> dict[str, Any]:
    """Return the result of a load as a document, without samples."""
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
        "repeats": result.repeats,
        "elapsed_s": result.elapsed_s,
        "throughput_per_s": result.throughput_per_s,
        "latency_s": _percentiles(result.latency_s),
        "service_s": _percentiles(result.service_s),
        "mean_latency_s": _means(result),
        "failed_latency_s": _percentiles(result.failed_latency_s),
        "body_bytes": sum(result.body_bytes),
        "client_cpu_s": result.client_cpu_s,
        "workers": [asdict(each) for each in result.workers],
        "write_check": None if result.write_check is None else asdict(result.write_check),
    }


def _percentiles(samples: list[float]) -> dict[str, float | None]:
    """Return the percentiles by name; None for each with fewer than 10 samples above it."""
    from placebench.compare.load.load_steps import PERCENTILES
    from placebench.stats import percentile

    ordered = sorted(samples)
    return {name: percentile(ordered, share) for name, share in PERCENTILES.items()}


def _means(result: "LoadResult") -> dict[str, float]:
    """Return the mean latency of the first 10, 100, 1000 … successes and of all, by the number of successes."""
    in_order = [latency_s for _, latency_s in sorted(zip(result.started_s, result.latency_s, strict=True))]
    numbers = takewhile(lambda number: number < len(in_order), (10**power for power in count(1)))
    return {str(number): fmean(in_order[:number]) for number in (*numbers, len(in_order)) if number}


def load_lines(result: "LoadResult") -> Iterator[str]:
    """Yield the lines of a load's result for a terminal."""
    took, throughput = units.duration(result.elapsed_s), units.rate(result.throughput_per_s)
    yield f"requests    {units.count(result.requests)} in {took}: {throughput}"
    yield f"latency     {_latency_line(result.latency_s) if result.latency_s else 'no request succeeded'}"
    means = (f"{units.duration(mean_s)} of {units.count(int(number))}" for number, mean_s in _means(result).items())
    if result.latency_s:
        yield f"mean        {', '.join(means)}"
    yield f"bodies      {units.size(sum(result.body_bytes))}"
    yield f"generator   {units.duration(result.client_cpu_s / result.requests)} of CPU per request"
    if result.workers:
        errors_s = [each.clock_error_s for each in result.workers if each.clock_error_s is not None]
        clocks = f"clocks within {units.duration(max(errors_s))}" if errors_s else "clocks not compared"
        lost = f", of which lost {units.count(result.lost_workers)}: their requests are in no figure"
        yield f"workers     {units.count(len(result.workers))}{lost if result.lost_workers else ''}; {clocks}"
    failed = f"; their latency {_latency_line(result.failed_latency_s)}" if result.failed_latency_s else ""
    yield f"failures    {units.count(result.failures)}{failed}"
    for message in result.failure_messages:
        yield f"            {message}"
    if result.statuses and all(status.startswith("3") for status in result.statuses):
        yield "redirects   every response: what they lead to was not requested"
    if result.repeats:
        yield f"sent again  {units.numbered(result.repeats, 'request')}: the server had closed a kept connection"
    if result.write_check:
        for line in write_check_lines(result.write_check):
            yield f"writes      {line}"
    if result.in_flight:
        yield f"in flight   {units.count(result.in_flight)} at the end, not counted"
    if result.missed:
        yield f"missed      {units.count(result.missed)} sent more than 10 ms late"


def _latency_line(latency_s: list[float]) -> str:
    shown = {name: seconds for name, seconds in _percentiles(latency_s).items() if seconds is not None}
    percentiles = ", ".join(f"{name} {units.duration(seconds)}" for name, seconds in shown.items())
    return f"{percentiles or 'too few for a percentile'}; longest {units.duration(max(latency_s))}"


def write_check_lines(made: "WriteCheck") -> Iterator[str]:
    """Yield lines on the writes, such as "sent 10 000, acknowledged 9595, found 9595, lost 0, doubled 0"."""
    named = {name: getattr(made, name) for name in ("sent", "acknowledged", "found", "lost", "doubled")}
    yield ", ".join(f"{name} {units.count(count)}" for name, count in named.items() if count is not None)
    yield ", ".join(f"{status}: {units.count(count)}" for status, count in sorted(made.statuses.items()))
    if made.in_doubt_and_found is not None and made.in_doubt:
        yield f"in doubt {units.count(made.in_doubt)}, of which {units.count(made.in_doubt_and_found)} found"
    if made.refused_and_found:
        yield f"refused and found all the same: {units.count(made.refused_and_found)}"
    if made.lost and not made.found:
        yield "not one acknowledged write was found: is --db the database that the service uses?"
    if made.reason:
        yield f"inconclusive whether one was lost: {made.reason}"
