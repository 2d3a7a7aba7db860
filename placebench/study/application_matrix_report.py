"""The report of the matrix study of an application: a row per cell, and a map of the effects over the control."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from markupsafe import Markup

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import Measurement
from placebench.decoding import Amount, AtLeastOne, Positive
from placebench.report.model import Column, Table
from placebench.report.study_report import (
    StudyResults,
    interval_columns,
    interval_figures,
    measured,
    median_of_all,
    signed_duration,
)
from placebench.results import Run
from placebench.stats import METRICS, median_interval
from placebench.stats.verdict import EQUIVALENT, FASTER, INCONCLUSIVE, SLOWER
from placebench.study import overheads
from placebench.study.overheads import effect_text
from placebench.study.session import point_text, study_kind

_MAX_COLUMNS = 8
_SHADES = ((1.03, 0), (1.15, 1), (1.5, 2), (float("inf"), 3))
"""Upper bounds of the ratio, whichever way, of each shade of the map."""


class _Settings(StudySettings[dict[str, str | int | float]]):
    control: dict[str, str | int | float]
    count: str


class _Values(TypedDict):
    requests: AtLeastOne
    request_s: Positive
    throughput_per_s: Positive
    p50_s: Positive | None
    p95_s: Positive | None
    p99_s: Positive | None
    cpu_s: Amount | None
    pss_bytes: Amount | None
    client_cpu_share: Amount
    statements: Amount | None
    rows: Amount | None
    round_trips: Amount | None
    bytes_sent: Amount | None
    body_bytes: Amount | None
    results: Amount | None
    uncounted: NotRequired[str]


_MEDIANS = ("throughput_per_s", "p50_s", "p95_s", "p99_s", "cpu_s", "pss_bytes", "client_cpu_share")
_COUNTS = ("statements", "rows", "round_trips", "bytes_sent", "body_bytes", "results")
_EFFECTS = {"": ("request_s", METRICS["wall_s"].margin), "cpu_": ("cpu_s", METRICS["cpu_s"].margin)}
"""The value and the margin of each effect, by the prefix of its keys."""


_FIGURES = (
    measured("n", "n", units.count),
    *interval_columns("request", "_s", "time per request", units.duration),
    overheads.compared("ratio", "effect", units.signed_percent),
    measured("ratio_low", "from", units.signed_percent),
    measured("ratio_high", "to", units.signed_percent),
    measured("verdict", "verdict"),
    measured("overhead_s", "overhead", signed_duration),
    measured("results", "results", units.average),
    measured("overhead_per_result_s", "per result", signed_duration),
    measured("throughput_per_s", "requests per s", units.rate),
    measured("p50_s", "p50", units.duration),
    measured("p95_s", "p95", units.duration),
    measured("p99_s", "p99", units.duration),
    measured("cpu_s", "CPU per request", units.duration),
    measured("cpu_ratio", "effect on CPU", units.signed_percent),
    measured("cpu_ratio_low", "from", units.signed_percent),
    measured("cpu_ratio_high", "to", units.signed_percent),
    measured("statements", "statements", units.average),
    measured("round_trips", "round trips", units.average),
    measured("pss_bytes", "memory (PSS)", units.size),
)
_COUNTED = ("results", "overhead_per_result_s")


def results(run: Run) -> StudyResults:
    """Return one row per cell, compared with its control, and a map of the effects."""
    settings = run.head.settings
    control = settings["control"]
    found = overheads.comparable_cells(run)
    rows = [_row(point, made, found, control) for point, made in found]
    axes = overheads.varied_axes(settings["points"])
    figures = [
        each
        for each in _FIGURES
        if (settings["count"] or each.name not in _COUNTED)
        and (each.name in _COUNTED or any(row[each.name] is not None for row in rows))
    ]
    return StudyResults(
        headline=_headline(rows, control),
        rows=rows,
        columns=[*overheads.axis_columns(axes), *figures],
        tables=_map(rows, axes, control),
        summary=[*_summary(rows), *overheads.nothing_counted(found, settings["count"])],
        notes=(
            f"Control: the same combination with {point_text(control)}. Effects are ratios to it in the same repeat.",
            "Time per request: the mean of one user; 1 / throughput of several; at a rate the mean since it was due.",
            "A measurement is a replicate as in placebench compare: fresh processes, a warm-up, blocks of requests.",
            "Statements and round trips to the database are counted once per session, and not timed.",
            "The intervals are not adjusted for the number of rows.",
        ),
        limits=("Combinations are measured in turn: placebench compare alternates them and sees smaller effects.",),
        axes=lambda point: {"axes": point},
    )


def _row(
    point: dict[str, Any], made: Sequence[Measurement], found: overheads.Cells, control: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the row of a cell; effects are None for a control, and without one."""
    base = overheads.control_measurements(point, control, found)
    time = median_interval([each.values["request_s"] for each in made])
    overhead = overheads.paired_overhead(made, base, "request_s")
    counts = {name: made[-1].values[name] for name in _COUNTS}
    over_s = overhead["overhead_s"]
    return {
        "axes": point,
        "is_control": point == {**point, **control},
        "n": time.n,
        **interval_figures("request", "_s", time),
        "confidence": time.confidence,
        **{name: median_of_all([each.values[name] for each in made]) for name in _MEDIANS},
        **counts,
        **overhead,
        "overhead_per_result_s": over_s / counts["results"] if over_s is not None and counts["results"] else None,
        **{
            prefix + name: value
            for prefix, (metric, margin) in _EFFECTS.items()
            for name, value in overheads.paired_effect(made, base, metric, margin=margin).items()
        },
    }


def _map(rows: Sequence[dict[str, Any]], axes: Sequence[str], control: Mapping[str, Any]) -> list[Table]:
    """Return a table of the effects, with an axis as columns; the larger an effect, the darker its cell."""
    judged = [row for row in rows if row["ratio"] is not None]
    varied = {axis: list(dict.fromkeys(row["axes"][axis] for row in judged)) for axis in axes}
    varied = {axis: values for axis, values in varied.items() if len(values) > 1}
    wide = [axis for axis in varied if len(varied[axis]) <= _MAX_COLUMNS]
    if not wide:
        return []
    across = max(wide, key=lambda axis: (axis not in control, len(varied[axis])))
    lines: dict[str, dict[str, Any]] = {}
    for row in judged:
        others = {axis: row["axes"][axis] for axis in varied if axis != across}
        name = point_text(others) or "all"
        lines.setdefault(name, {"name": name})[str(row["axes"][across])] = _shaded(row)
    columns = [
        Column("", lambda line: str(line["name"])),
        *(measured(str(value), f"{across} {value}", Markup) for value in varied[across]),
    ]
    caption = (
        f"Effect on the time per request, against {point_text(control)}: orange is slower, blue is faster, and the "
        "darker, the larger. Without a colour the interval includes no change, or the effect is below the margin."
    )
    return [Table("Effects", columns, list(lines.values()), id="map", caption=caption, style="heat")]


def _shaded(row: Mapping[str, Any]) -> Markup:
    """Return the effect with the shade of its size; inconclusive ones have a question mark and no shade."""
    text = units.signed_percent(row["ratio"])
    if row["verdict"] not in (FASTER, SLOWER):
        mark = "" if row["verdict"] in (EQUIVALENT, None) else " ?" if row["verdict"] == INCONCLUSIVE else ""
        return Markup('<span class="effect">{}{}</span>').format(text, mark)
    shade = next(shade for bound, shade in _SHADES if max(row["ratio"], 1 / row["ratio"]) <= bound)
    way = "more" if row["verdict"] == SLOWER else "less"
    return Markup('<span class="effect {} by-{}">{}</span>').format(way, shade, text)


def _headline(rows: Sequence[Mapping[str, Any]], control: Mapping[str, Any]) -> str:
    """Return the largest effect with its interval, and how many combinations have a verdict."""
    judged = [row for row in rows if row["ratio"] is not None]
    if not judged:
        return "No combination was measured together with its control."
    decided = [row for row in judged if row["verdict"] in (FASTER, SLOWER)]
    if not decided and any(row["verdict"] is None for row in judged):
        few = judged[0]
        return (
            f"Inconclusive: {units.numbered(few['n'], 'replicate')}, {few['replicates_needed']} needed for an interval."
        )
    counts = {verdict: sum(row["verdict"] == verdict for row in judged) for verdict in (SLOWER, FASTER, INCONCLUSIVE)}
    said = ", ".join(f"{units.count(number)} {verdict}" for verdict, number in counts.items() if number)
    of = f"{units.numbered(len(judged), 'combination')} against {point_text(control)}"
    if not decided:
        return f"{of}: none was shown to be faster or slower{f'; {said}' if said else ''}."
    most = max(decided, key=lambda row: max(float(row["ratio"]), 1 / float(row["ratio"])))
    return f"{of}: {said}. Largest effect: {effect_text(most, 'time per request')} ({point_text(most['axes'])})."


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the cost of a result, and how many replicates would decide the combinations that are inconclusive."""
    counted = [row for row in rows if row["overhead_per_result_s"] is not None]
    if counted:
        most, kind = overheads.largest(counted, "overhead_per_result_s")
        yield (
            f"Largest {kind} per result: {signed_duration(most['overhead_per_result_s'])} "
            f"({point_text(most['axes'])}; results in a response: {units.average(most['results'])})."
        )
    yield from overheads.undecided(rows)
    busy = [row for row in rows if row["client_cpu_share"] > 0.5]
    if busy:
        yield f"The client used more than half a core in {units.numbered(len(busy), 'combination')}."


KIND = study_kind(__name__, _Settings, dict[str, str | int | float], _Values)
