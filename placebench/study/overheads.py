"""Effects of combinations over their controls, and how reports show them.

Figures are of pairs: each measurement is compared with the control's in the same repeat.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from placebench import units
from placebench.compare.keep.records import Measurement
from placebench.report.effects import written_effect
from placebench.report.environment import masked
from placebench.report.model import Column, Text
from placebench.report.study_report import failed, interval_figures, measured, valid_points
from placebench.results import Run
from placebench.stats import hodges_lehmann, median_interval
from placebench.stats.hodges_lehmann import MIN_REPLICATES, pseudo_median
from placebench.stats.verdict import INCONCLUSIVE, decide, minimum_detectable_effect
from placebench.study.session import point_text

REFUSED = "refused: "
"""Begins the reason of a measurement whose figures are not shown, because its responses or data differ."""
EFFECT = ("ratio", "ratio_low", "ratio_high", "verdict", "replicates_needed")
OVERHEAD = ("control_s", "overhead_s", "overhead_low_s", "overhead_high_s", "times_the_control")


def paired_overhead(made: Sequence[Measurement], control: Sequence[Measurement], value: str) -> dict[str, float | None]:
    """Return the figures of OVERHEAD: medians over the repeats that both have, the overhead with its limits.

    value: the name of the measured seconds. All are None if no repeat has both.
    """
    against = {each.repeat: each.values[value] for each in control}
    pairs = [(each.values[value], against[each.repeat]) for each in made if each.repeat in against]
    if not pairs:
        return dict.fromkeys(OVERHEAD)
    return {
        "control_s": median([before for _, before in pairs]),
        **interval_figures("overhead", "_s", median_interval([after - before for after, before in pairs])),
        "times_the_control": median([after / before for after, before in pairs]),
    }


def largest(rows: Sequence[Mapping[str, Any]], overhead: str) -> tuple[Mapping[str, Any], str]:
    """Return the row with the largest overhead and 'overhead', or with the largest saving and 'change' if none costs.

    overhead: the name of the seconds in the rows.
    """
    most = max(rows, key=lambda row: float(row[overhead]))
    return (most, "overhead") if most[overhead] > 0 else (min(rows, key=lambda row: float(row[overhead])), "change")


def paired_effect(
    made: Sequence[Measurement], control: Sequence[Measurement], value: str, *, margin: float
) -> dict[str, float | str | int | None]:
    """Return the ratio to the control in the same repeat, with its 95 % interval and the verdict.

    margin: the log ratio below which a change does not matter. `replicates_needed` is the number that would find a
    change of the size seen, but at least of the margin, in 4 of 5 runs; None if the verdict is clear, or the noise
    unknown. All are None if no repeat has both values.
    """
    after, before = (
        {each.repeat: each.values[value] for each in measurements if each.values[value]}
        for measurements in (made, control)
    )
    found = {**dict.fromkeys(EFFECT), **paired_ratio("ratio", after, before)}
    logs = [math.log(after[repeat] / before[repeat]) for repeat in sorted(after.keys() & before.keys())]
    if len(logs) < MIN_REPLICATES:
        return {**found, "replicates_needed": MIN_REPLICATES if logs else None}
    interval = hodges_lehmann(logs)
    verdict = decide(interval, margin)
    detectable, needed = minimum_detectable_effect(logs), None
    if verdict == INCONCLUSIVE and detectable:
        target = max(abs(interval.estimate), margin)
        needed = max(len(logs) + 1, math.ceil(len(logs) * (detectable / target) ** 2))
    return {**found, "verdict": verdict, "replicates_needed": needed}


def paired_ratio(name: str, after: Mapping[int, float], before: Mapping[int, float]) -> dict[str, float | None]:
    """Return the ratio of two values by repeat as `NAME`, `NAME_low` and `NAME_high`, its limits from six repeats on.

    All are None if no repeat has both.
    """
    logs = [math.log(after[repeat] / before[repeat]) for repeat in sorted(after.keys() & before.keys())]
    values: Iterable[float | None] = (math.exp(pseudo_median(logs)) if logs else None, None, None)
    if len(logs) >= MIN_REPLICATES:
        interval = hodges_lehmann(logs)
        values = map(math.exp, (interval.estimate, interval.low, interval.high))
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


# --- reports of combinations

Cells = Sequence[tuple[dict[str, Any], list[Measurement]]]
"""Combinations, each with its measurements."""


def comparable_cells(run: Run) -> Cells:
    """Return the combinations that were measured, without those that were refused."""
    refused = [point for point, reason in failed(run) if REFUSED in reason]
    return [(point, made) for point, made in valid_points(run) if point not in refused]


def varied_axes(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the axes that have more than one value; all axes if there is no such axis."""
    return [axis for axis in points[0] if len({point[axis] for point in points}) > 1] or list(points[0])


def control_measurements(point: Mapping[str, Any], control: Mapping[str, Any], found: Cells) -> list[Measurement]:
    """Return the measurements of a combination's control; none for a control itself."""
    against = {**point, **control}
    return next((made for other, made in found if other == against != point), [])


def compared(name: str, label: Text, show: Callable[[Any], Text]) -> Column:
    """Return the column of an effect over the control, with 'control' in the rows of controls (`is_control`)."""
    effects = measured(name, label, show)
    return replace(effects, cell=lambda row: "control" if row["is_control"] else effects.cell(row))


def axis_columns(axes: Iterable[str]) -> list[Column]:
    """Return a column for each axis of the rows' `axes`."""
    return [measured("axes", axis, partial(_axis_text, axis)) for axis in axes]


def _axis_text(axis: str, point: Mapping[str, Any]) -> str:
    return str(point[axis])


def effect_text(row: Mapping[str, Any], of: str = "") -> str:
    """Return the ratio of a row as text: '−77.0 % time [95 % CI −77.3, −76.4; n = 30]', with *of* time."""
    if row["ratio_low"] is None:
        needed = f"[n = {row['n']}, {row['replicates_needed']} needed for an interval]"
        return " ".join(filter(None, (units.signed_percent(row["ratio"]), of, needed)))
    ends = row["ratio_low"], row["ratio_high"]
    return written_effect(row["ratio"], *ends, of=of, confidence=0.95, n=row["n"], is_time=False)


def nothing_counted(found: Cells, pattern: str) -> Iterator[str]:
    """Yield a sentence on the points in which --count counted no result, with the beginning of what was returned."""
    nothing = [
        (point, made[-1].values.get("uncounted", ""))
        for point, made in found
        if not any(each.values["results"] for each in made)
    ]
    if pattern and nothing:
        where = "" if len(nothing) == len(found) else f" with {'; '.join(point_text(point) for point, _ in nothing)}"
        yield (
            f"--count {pattern} counted no result{where}: compare the pattern with what was returned"
            f"{f', {masked(nothing[0][1])}' if nothing[0][1] else ''}."
        )


def undecided(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how many replicates would decide each row that is inconclusive."""
    for row in rows:
        if row["verdict"] == INCONCLUSIVE and row["replicates_needed"]:
            yield (
                f"Undecided: {point_text(row['axes'])}, {effect_text(row)}; about "
                f"{units.count(row['replicates_needed'])} replicates would decide (-n)."
            )
