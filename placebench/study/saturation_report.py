"""The report of the saturation study of an application: a row per cell, its curve, and the effect on its capacity."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, TypedDict

import msgspec

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import Measurement
from placebench.compare.load.load_steps import LoadStep, Objective, Saturated, capacity_of, parse_objective
from placebench.decoding import AtLeastOne, Positive
from placebench.page.axis_charts import Line, lines
from placebench.page.svg import Role
from placebench.report.effects import percentile_text
from placebench.report.knee import FULL_TEXTS, capacity_text, knee_curve, settling_text
from placebench.report.model import Chart, Table
from placebench.report.study_report import StudyResults, measured
from placebench.results import Run
from placebench.stats import METRICS
from placebench.stats.verdict import FASTER, SLOWER
from placebench.study import overheads
from placebench.study.overheads import effect_text
from placebench.study.session import point_text, study_kind

_ROLES: tuple[Role, ...] = ("baseline", "variant", "between")
_VERDICTS = {FASTER: "lower", SLOWER: "higher"}
"""The verdict on a capacity, of which more is better, by that on a ratio of times."""
_PERCENTILES = ("p50", "p95", "p99")


class _Settings(StudySettings[dict[str, str | int | float]]):
    control: dict[str, str | int | float]
    objective: str
    users: list[AtLeastOne]
    step_s: Positive


class SaturationValues(TypedDict):
    """The values of one replicate of a cell."""

    knee_per_s: Positive | None
    max_per_s: Positive
    steps: list[LoadStep]
    saturated: Saturated


_FIGURES = (
    measured("n", "n", units.count),
    measured("knee_per_s", "capacity", units.rate),
    measured("knee_low_per_s", "from", units.rate),
    measured("knee_high_per_s", "to", units.rate),
    measured("max_per_s", "highest throughput", units.rate),
    measured("max_low_per_s", "from", units.rate),
    measured("max_high_per_s", "to", units.rate),
    overheads.compared("ratio", "effect", units.signed_percent),
    measured("ratio_low", "from", units.signed_percent),
    measured("ratio_high", "to", units.signed_percent),
    measured("verdict", "verdict"),
    measured("full", "full there"),
    measured("alone_s", "latency alone", units.duration),
    measured("client_cpu", "generator CPU", partial(units.percent, digits=2)),
)


def results(run: Run) -> StudyResults:
    """Return one row per cell, compared with its control, with the curves of all cells."""
    settings = run.head.settings
    control = settings["control"]
    objective = parse_objective(settings["objective"]) if settings["objective"] else None
    found = overheads.comparable_cells(run)
    rows = [_row(point, made, found, control, objective) for point, made in found]
    axes = overheads.varied_axes(settings["points"])
    names = {point_text({axis: point[axis] for axis in axes}): made for point, made in found}
    loads = [_load_row(name, *each) for name, made in names.items() for each in _by_load(made, objective)]
    figures = [each for each in _FIGURES if any(row[each.name] is not None for row in rows)]
    what = "users" if objective is None else "arrivals"
    return StudyResults(
        headline=_headline(rows, control, objective),
        rows=rows,
        columns=[*overheads.axis_columns(axes), *figures],
        charts=list(_charts(names, objective)),
        tables=[_load_table(loads, what)] if loads else [],
        document={"loads": loads},
        summary=list(_summary(rows, objective, settings["step_s"])),
        notes=(
            *_method(objective),
            "What was full is that at the highest throughput, with 32 users or more who wait only for responses.",
            f"Control: the same combination with {point_text(control)}. Effects are ratios to it in the same repeat.",
            "Each measurement has a fresh server, and begins with a user who is alone.",
            "The intervals are not adjusted for the number of rows.",
        ),
        limits=(
            "A generator on another machine: here it shares the cores with the service.",
            "Responses under load are checked by their status; that they are the same, by requests before.",
        ),
        axes=lambda point: {"axes": point},
    )


def _method(objective: Objective | None) -> tuple[str, ...]:
    if objective is None:
        return ("Each number of users is one load, closed-loop; percentiles are medians over the repeats.",)
    return (
        "Capacity: the rate of arrivals at which the percentile crosses its limit, among five rates of each repeat.",
        "Its interval is Hodges and Lehmann's over the repeats.",
    )


def _row(
    point: dict[str, Any],
    made: Sequence[Measurement],
    found: overheads.Cells,
    control: Mapping[str, Any],
    objective: Objective | None,
) -> dict[str, Any]:
    """Return the row of a cell; its effects are None if it is a control, or if its control was not measured."""
    base = overheads.control_measurements(point, control, found)
    figures: dict[str, Any] = {}
    for name in ("knee", "max"):
        capacity = capacity_of(each.values[f"{name}_per_s"] for each in made)
        figures[f"{name}_per_s"] = capacity and capacity.rate_per_s
        figures[f"{name}_low_per_s"] = capacity and capacity.low_per_s
        figures[f"{name}_high_per_s"] = capacity and capacity.high_per_s
    value = "max_per_s" if objective is None else "knee_per_s"
    effect = overheads.paired_effect(made, base, value, margin=METRICS["wall_s"].margin)
    saturated = [msgspec.convert(each.values["saturated"], Saturated) for each in made]
    counts = Counter(each.full for each in saturated)
    full, number = counts.most_common(1)[0]
    return {
        "axes": point,
        "is_control": point == {**point, **control},
        "n": len(made),
        **figures,
        **effect,
        "verdict": _VERDICTS.get(str(effect["verdict"]), effect["verdict"]),  # type: ignore[call-overload]
        "full": full,
        "full_n": number,
        "why": next(each.why for each in saturated if each.full == full),
        "alone_s": median(each.alone_s for each in saturated),
        "client_cpu": median(each.client_cpu for each in saturated),
    }


def _by_load(made: Sequence[Measurement], objective: Objective | None) -> Iterator[tuple[float, list[LoadStep]]]:
    """Yield the steps of all repeats: of each number of users, or one by one."""
    steps = sorted(_steps(made), key=lambda step: step.load)
    if objective is not None:
        yield from ((step.load, [step]) for step in steps)
        return
    for users in dict.fromkeys(step.load for step in steps):
        yield users, [step for step in steps if step.load == users]


def _steps(made: Sequence[Measurement]) -> list[LoadStep]:
    return [step for each in made for step in msgspec.convert(each.values["steps"], list[LoadStep])]


def _load_row(name: str, load: float, steps: Sequence[LoadStep]) -> dict[str, Any]:
    def middle(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return median(known) if known else None

    return {
        "name": name,
        "load": load,
        "steps": len(steps),
        "outcome": Counter(step.outcome for step in steps).most_common(1)[0][0],
        "requests": sum(step.requests for step in steps),
        "failures": sum(step.failures for step in steps),
        "throughput_per_s": median(step.throughput_per_s for step in steps),
        **{f"{each}_s": middle([step.latency_s.get(each) for step in steps]) for each in _PERCENTILES},
        "client_cpu": median(step.client_cpu for step in steps),
    }


def _load_table(rows: Sequence[dict[str, Any]], what: str) -> Table:
    columns = (
        measured("name", ""),
        measured("load", what, units.significant if what == "arrivals" else units.count),
        measured("outcome", "outcome"),
        measured("requests", "requests", units.count),
        measured("failures", "failed", units.count),
        measured("throughput_per_s", "throughput", units.rate),
        *(measured(f"{each}_s", each, percentile_text) for each in _PERCENTILES),
        measured("client_cpu", "generator CPU", partial(units.percent, digits=2)),
    )
    return Table("Loads", columns, rows, id="loads")


def _charts(names: Mapping[str, Sequence[Measurement]], objective: Objective | None) -> Iterator[tuple[str, Chart]]:
    if objective is not None:
        capacities = {name: capacity_of(each.values["knee_per_s"] for each in made) for name, made in names.items()}
        if curve := knee_curve({name: _steps(made) for name, made in names.items()}, objective, capacities):
            yield "Latency", curve
        return
    series: dict[str, list[Line]] = {"Throughput": [], "Latency": []}
    for number, (name, made) in enumerate(names.items()):
        role = _ROLES[min(number, len(_ROLES) - 1)]
        rows = [_load_row(name, *each) for each in _by_load(made, objective)]
        series["Throughput"].append(Line(name, [(row["load"], row["throughput_per_s"]) for row in rows], role))
        series["Latency"].append(Line(name, [(row["load"], row["p95_s"]) for row in rows], role))
    for title, drawn in series.items():
        if any(len(each.drawn) > 1 for each in drawn):
            show = units.rate if title == "Throughput" else units.duration
            description = "Requests per second" if title == "Throughput" else "p95 of the latency"
            svg = lines(
                drawn, title=title, description=f"{description} against users.", show=show, show_where=units.count
            )
            yield title, Chart(svg, f"{description}, against closed-loop users.")


def _headline(rows: Sequence[Mapping[str, Any]], control: Mapping[str, Any], objective: Objective | None) -> str:
    """Return the largest effect with its interval, or the capacity of the only cell."""
    if not rows:
        return "No combination was measured."
    what = f"capacity at {objective}" if objective else "highest throughput"
    judged = [row for row in rows if row["ratio"] is not None]
    if not judged:
        row = rows[0]
        return f"{point_text(row['axes'])}: {what} {_amount(row, objective)}; full: {FULL_TEXTS[row['full']]}."
    most = max(judged, key=lambda row: abs(math.log(float(row["ratio"]))))
    base = next((row for row in rows if row["is_control"] and row["axes"] == {**most["axes"], **control}), None)
    amounts = [_amount(each, objective) for each in (most, base) if each]
    if most["ratio_low"] is None:  # how many replicates an interval needs is said of the effect
        amounts = [each.partition(" [")[0] for each in amounts]
    verdict = most["verdict"] or "no verdict"
    against = f"{point_text(most['axes'])} against {point_text(control)}"
    return f"{against}: {effect_text(most, what)} ({verdict}), {', '.join(amounts)}{' before' if base else ''}."


def _amount(row: Mapping[str, Any], objective: Objective | None) -> str:
    name = "max" if objective is None else "knee"
    found = capacity_of([row[f"{name}_per_s"]])
    if found is None:
        return "unknown"
    text = capacity_text(type(found)(found.rate_per_s, row[f"{name}_low_per_s"], row[f"{name}_high_per_s"], row["n"]))
    return text if objective else text.replace("arrivals", "requests")


def _summary(rows: Sequence[Mapping[str, Any]], objective: Objective | None, step_s: float) -> Iterator[str]:
    """Yield what was full in each cell, what is undecided, and whether the steps were too short."""
    for row in rows:
        some = "" if row["full_n"] == row["n"] else f" in {row['full_n']} of {row['n']} replicates"
        most = f"at the highest throughput, {units.significant(row['max_per_s'])} requests/s"
        yield f"{point_text(row['axes'])}: {most}, what is full{some} is {FULL_TEXTS[row['full']]} ({row['why']})."
        yield from overheads.undecided([row])
    if objective is not None and rows:
        yield from filter(None, [settling_text(objective, min(row["alone_s"] for row in rows), step_s)])


KIND = study_kind(__name__, _Settings, dict[str, str | int | float], SaturationValues)
