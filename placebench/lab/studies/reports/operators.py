"""What each setting of Placement is worth: CPU per request against Placement as installed, and what comes back."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from placebench import units
from placebench.compare.keep.records import Measurement
from placebench.errors import TooFewReplicatesError
from placebench.lab.studies.operators import TIMES
from placebench.report.study_report import StudyResults, interval_columns, measured, valid_points
from placebench.results import Run
from placebench.stats import hodges_lehmann

_COLUMNS = (
    measured("topology", "inventory"),
    measured("setting", "setting"),
    measured("n", "n", units.count),
    measured("cpu_s_per_request", "CPU per request", units.duration),
    *interval_columns("cpu_ratio", "", "CPU, change", units.signed_percent),
    measured("latency_s", "median latency", units.duration),
    measured("throughput_per_s", "throughput", units.rate),
    measured("unanswered", "unanswered", units.count),
    measured("requests", "of requests", units.count),
    measured("candidates", "candidates", units.count),
    measured("hosts", "hosts among them", units.count),
)


def results(run: Run) -> StudyResults:
    """Return a row for each inventory and setting."""
    settings, found = run.head.settings, list(valid_points(run))
    cpu = {(point["topology"], point["setting"]): _cpu_by_repeat(made) for point, made in found}
    rows = [
        _row(point, made, cpu[point["topology"], point["setting"]], cpu.get((point["topology"], settings["base"]), {}))
        for point, made in found
    ]
    return StudyResults(
        headline=_headline(rows, settings["base"]),
        rows=rows,
        columns=_COLUMNS,
        summary=list(_unanswered(rows, settings["timeout_s"])),
        notes=(
            f"Each measurement is a new Placement of one worker, or as set, and {settings['clients']} clients.",
            f"Change: against {settings['base']} in the same repeat; 95 % intervals from six repeats on.",
            "CPU is that of Placement's workers and PostgreSQL's backends.",
        ),
        limits=(
            "Throughput and latency of a machine with more processors, or with other work on it.",
            "Another request: what a setting is worth depends on how many candidates there are.",
        ),
    )


def _cpu_by_repeat(made: Sequence[Measurement]) -> dict[int, float]:
    """CPU seconds per request, where all were answered and all CPU could be read."""
    return {
        each.repeat: each.values["cpu_s"] / each.values["requests"] for each in made if each.values["cpu_s"] is not None
    }


def _row(
    point: Mapping[str, Any], made: Sequence[Measurement], cpu: Mapping[int, float], base: Mapping[int, float]
) -> dict[str, Any]:
    values = [each.values for each in made]
    ratios = [] if cpu is base else [math.log(cpu[repeat] / base[repeat]) for repeat in sorted(cpu.keys() & base)]
    estimate, low, high = _change_of(ratios)
    elapsed_s, latency_s, _ = TIMES
    answered = [each for each in values if each[elapsed_s] is not None]
    return {
        **point,
        "n": len(values),
        "requests": sum(each["requests"] for each in values),
        "unanswered": sum(each["unanswered"] for each in values),
        "cpu_s_per_request": _median(list(cpu.values())),
        "cpu_ratio": estimate,
        "cpu_ratio_low": low,
        "cpu_ratio_high": high,
        "latency_s": _median([each[latency_s] for each in answered]),
        "throughput_per_s": _median([each["requests"] / each[elapsed_s] for each in answered]),
        "candidates": _median([each["candidates"] for each in values if each["candidates"] is not None]),
        "hosts": _median([each["hosts"] for each in values if each["hosts"] is not None]),
    }


def _change_of(log_ratios: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """The estimated ratio with its limits; without them where there are too few repeats."""
    try:
        made = hodges_lehmann(log_ratios)
    except TooFewReplicatesError:
        return (math.exp(median(log_ratios)) if log_ratios else None), None, None
    return math.exp(made.estimate), math.exp(made.low), math.exp(made.high)


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _headline(rows: Sequence[Mapping[str, Any]], base: str) -> str:
    """The setting that saves most CPU, of those with an interval below 1."""
    sure = [row for row in rows if row["cpu_ratio_high"] is not None and row["cpu_ratio_high"] < 1]
    best = min(sure, key=lambda row: float(row["cpu_ratio"]), default=None)
    if best is None:
        return f"No setting of Placement is known to reduce the CPU of {base}."
    limits = f"[{units.signed_percent(best['cpu_ratio_low'])}, {units.signed_percent(best['cpu_ratio_high'])}]"
    return (
        f"{best['setting']} saves most: {units.signed_percent(best['cpu_ratio'])} CPU {limits} on {best['topology']}."
    )


def _unanswered(rows: Sequence[Mapping[str, Any]], timeout_s: float) -> Iterator[str]:
    for row in rows:
        if row["unanswered"]:
            yield (
                f"{row['setting']} on {row['topology']}: {row['unanswered']} of {row['requests']} requests had no "
                f"response within {units.duration(timeout_s)}."
            )
