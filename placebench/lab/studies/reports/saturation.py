"""Saturation: the knee of each variant with its interval, latency at each rate, and what comes of twice the knee."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from placebench import units
from placebench.compare.keep.records import Measurement
from placebench.compare.load.load_steps import parse_objective
from placebench.lab.studies.saturation import OVERLOAD
from placebench.page.axis_charts import Line, lines
from placebench.report.model import Chart, Table
from placebench.report.study_report import (
    CLIENT_IS_BUSY,
    StudyResults,
    interval_columns,
    interval_figures,
    measured,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval, percentile

_PERCENTILES = {"p50_s": 0.5, "p90_s": 0.9, "p95_s": 0.95, "p99_s": 0.99, "p999_s": 0.999}
_REFUSED = "409"


_LATENCIES = (
    measured("p50_s", "p50", units.duration),
    measured("p90_s", "p90", units.duration),
    measured("p95_s", "p95", units.duration),
    measured("p99_s", "p99", units.duration),
    measured("p999_s", "p99.9", units.duration),
)
_COLUMNS = (
    measured("variant", "variant"),
    measured("n", "n", units.count),
    *interval_columns("knee", "_per_s", "knee", units.rate),
    measured("limited_by", "limited by"),
    *_LATENCIES,
    measured("refused_share", "claimed after 409", units.percent),
    *interval_columns("overload", "_per_s", "claimed at twice the knee", units.rate),
    measured("overload_failed", "failed there", units.percent),
    measured("overload_timeouts", "without a response there", units.percent),
    measured("client_cpu", "generator CPU", units.percent),
)
_RATE_COLUMNS = (
    measured("variant", "variant"),
    measured("rate_per_s", "offered", units.rate),
    measured("repeats", "steps", units.count),
    measured("held", "held", units.count),
    measured("requests", "instances", units.count),
    measured("claimed_per_s", "claimed", units.rate),
    *_LATENCIES,
    measured("failed", "failed", units.percent),
)


def results(run: Run) -> StudyResults:
    """Return a row for each variant; a table and charts of all rates that were offered."""
    settings, found = run.head.settings, list(valid_points(run))
    rows = [_row(point["variant"], made) for point, made in found]
    rates = [rate for point, made in found for rate in _rates(point["variant"], made)]
    return StudyResults(
        headline=_headline(rows, settings["objective"]),
        rows=rows,
        columns=_COLUMNS,
        charts=list(_charts(rates, settings["objective"])),
        tables=[Table("Rates", _RATE_COLUMNS, rates, id="rates")] if rates else [],
        document={"rates": rates},
        summary=list(_summary(rows)),
        notes=(
            f"Knee: the highest rate of arrivals with {settings['objective']}, no failure and no queue that grew.",
            f"The search ends within 5 %. Steps last {settings['step_s']:g} s or more.",
            f"The service has {settings['processes']} processes of {settings['threads']} threads.",
            "An instance: candidates, the claim of one drawn from them, and the release of an old one.",
            "Latency runs from when an instance was due until its claim was accepted.",
            f"A client gives a request up after {settings['timeout_s']:g} s, an instance after three refused claims.",
            "Percentiles are of the instances of all repeats; a dash: too few for it.",
            "From and to: interval of the median over the repeats, 93.75 % with five.",
        ),
        limits=(
            "A generator on another machine: here it shares the cores, and its late starts are in the latency.",
            "Longer overload, and clients that send a failed request again.",
            "Rates beyond twice the knee.",
        ),
    )


def _row(variant: str, made: Sequence[Measurement]) -> dict[str, Any]:
    values = [each.values for each in made]
    knees = [each["knee_per_s"] for each in values if each["knee_per_s"] is not None]
    knee = median_interval(knees) if knees else None
    at_knee = [step for each in values for step in each["steps"] if step["rate_per_s"] == each["knee_per_s"]]
    overloads = [each["overload"] for each in values if each["overload"]]
    claimed = median_interval([_claimed_per_s(each) for each in overloads]) if overloads else None
    is_limited = all(each["broken_per_s"] is not None for each in values)
    return {
        "variant": variant,
        "n": len(knees),
        **interval_figures("knee", "_per_s", knee),
        "confidence": knee and knee.confidence,
        "limited_by": "service" if is_limited else "generator",
        **_latencies(at_knee),
        "refused_share": _share_of(at_knee, _after_refusal),
        **interval_figures("overload", "_per_s", claimed),
        "overload_failed": _share_of(overloads, _failures),
        "overload_timeouts": _share_of(overloads, _without_response),
        "client_cpu": max((step["client_cpu"] for step in at_knee), default=None),
    }


def _rates(variant: str, made: Sequence[Measurement]) -> Iterator[dict[str, Any]]:
    """What came of each rate that was offered, by rate; the steps of all repeats together."""
    by_rate: dict[float, list[dict[str, Any]]] = {}
    for each in made:
        for step in [*each.values["steps"], *filter(None, [each.values["overload"]])]:
            by_rate.setdefault(step["rate_per_s"], []).append(step)
    for rate, steps in sorted(by_rate.items()):
        yield {
            "variant": variant,
            "rate_per_s": rate,
            "repeats": len(steps),
            "held": sum(step["outcome"] == "held" for step in steps),
            "requests": sum(step["requests"] for step in steps),
            "claimed_per_s": median_interval([_claimed_per_s(step) for step in steps]).median,
            **_latencies(steps),
            "failed": _share_of(steps, _failures),
        }


def _claimed_per_s(step: Mapping[str, Any]) -> float:
    return float((step["requests"] - step["failures"]) / step["elapsed_s"])


def _latencies(steps: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    ordered = sorted(latency for step in steps for latency in step["latency_s"])
    return {name: percentile(ordered, share) for name, share in _PERCENTILES.items()}


def _share_of(steps: Sequence[Mapping[str, Any]], count: Callable[[Mapping[str, Any]], int]) -> float | None:
    requests = sum(step["requests"] for step in steps)
    return sum(count(step) for step in steps) / requests if requests else None


def _failures(step: Mapping[str, Any]) -> int:
    return int(step["failures"])


def _after_refusal(step: Mapping[str, Any]) -> int:
    return sum(count for status, count in step["statuses"].items() if status.endswith(_REFUSED))


def _without_response(step: Mapping[str, Any]) -> int:
    """Those that ended with an exception: a timeout, or a connection that was refused or closed."""
    return sum(count for status, count in step["statuses"].items() if status.isidentifier())


def _headline(rows: Sequence[Mapping[str, Any]], objective: str) -> str:
    known = [row for row in rows if row["knee_per_s"] is not None]
    if not known:
        return f"Saturation: no rate was found at which {objective} holds."
    said = ", ".join(
        f"{row['variant']} {'at least ' if row['limited_by'] == 'generator' else ''}{units.rate(row['knee_per_s'])}"
        for row in known
    )
    return f"Instances per second with {objective}: {said}."


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["overload_per_s"] is not None:
            yield (
                f"{row['variant']} at {OVERLOAD:g} times its knee: {units.rate(row['overload_per_s'])} claimed, "
                f"{units.percent(row['overload_failed'])} failed."
            )
    if busy := [row["variant"] for row in rows if (row["client_cpu"] or 0) > CLIENT_IS_BUSY]:
        yield f"The load generator took more than {units.round_percent(CLIENT_IS_BUSY)} of a core: {', '.join(busy)}."


def _charts(rates: Sequence[Mapping[str, Any]], objective: str) -> Iterator[tuple[str, Chart]]:
    name = parse_objective(objective).name
    for value, heading, show in (
        ("claimed_per_s", "Throughput over offered rate", units.rate),
        (f"{name}_s", f"{name} over offered rate", units.duration),
    ):
        drawn = [
            Line(variant, [(rate["rate_per_s"], rate[value]) for rate in rates if _is_shown(rate, variant, value)])
            for variant in dict.fromkeys(rate["variant"] for rate in rates)
        ]
        svg = lines(
            drawn,
            title=heading,
            description="A line for each variant; a point for each rate that was offered. Both axes are logarithmic.",
            show=show,
            show_where=units.rate,
            logarithmic=True,
        )
        yield heading, Chart(svg, "Instances per second that were offered, on logarithmic axes.")


def _is_shown(rate: Mapping[str, Any], variant: str, value: str) -> bool:
    return bool(rate["variant"] == variant and rate[value])
