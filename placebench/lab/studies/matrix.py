"""The matrix, the study of `placebench lab study matrix`: the duration and overhead of each combination's job.

`matrix_plan` reads the combinations, and `matrix_run` measures them. An overhead is the median, over the repeats, of
the difference from the control in the same repeat, so a machine that gets slower between repeats does not affect it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NotRequired, TypedDict

from placebench import units
from placebench.commands import options
from placebench.commands.runs import first_given
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import Measurement
from placebench.decoding import Amount, AtLeastOne, Count, Positive
from placebench.lab.studies.commands import MatrixOptions
from placebench.lab.studies.study import run_study
from placebench.page.row_charts import Bar, bars
from placebench.report.model import Chart, Column, Table
from placebench.report.study_report import (
    StudyResults,
    failed,
    interval_columns,
    interval_figures,
    measured,
    median_of_all,
    service_name,
    signed_duration,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval
from placebench.study.overheads import compared, control_measurements, paired_overhead
from placebench.study.session import point_text, study_kind


class _MatrixPoint(TypedDict, total=False):
    service: str
    server: str
    client: str
    database: str
    python: str
    version: str
    sqlalchemy: str
    driver: str
    users: AtLeastOne
    threads: AtLeastOne
    processes: AtLeastOne
    latency_ms: Amount
    proxies: AtLeastOne
    profiler: str


class _MatrixJob(_MatrixPoint):
    requests: AtLeastOne
    trees: AtLeastOne


class _MatrixVersions(TypedDict):
    point: _MatrixJob
    python: str | None
    service: str | None
    sqlalchemy: str | None
    driver: str | None


class _MatrixSettings(StudySettings[_MatrixJob]):
    title: str
    control: _MatrixPoint
    usual: _MatrixPoint
    versions: list[_MatrixVersions]


class _MatrixValues(TypedDict):
    duration_s: Positive
    cpu_s: Amount | None
    client_cpu_s: NotRequired[Amount | None]
    body_bytes: Amount
    results: Count


# --- the command


def run(given: MatrixOptions) -> int:
    """Measure every combination."""
    from placebench.lab.inventory.seeding import find_topology
    from placebench.lab.studies.matrix_plan import matrix_named
    from placebench.lab.studies.matrix_run import combine, matrix_study

    matrix = matrix_named(given.matrix, quick=given.is_quick).scaled(given.trees_or_preset(given.data.trees))
    topology = find_topology(
        first_given(given.data.topology, matrix.topology, default=options.TOPOLOGY),
        trees=max(job.trees for job in matrix.jobs),
        seed=first_given(given.data.seed, matrix.seed, default=options.SEED),
    )
    spec = matrix_study(
        matrix,
        combine(matrix, placement_python=given.placement_python),
        request=first_given(given.request, matrix.request, default=topology.request),
        repeats=first_given(given.replicates, matrix.repeats, default=options.STUDY_REPLICATES),
    )
    return run_study(given, topology, spec)


# --- the report


_FIGURES = (
    measured("requests", "Requests", units.count),
    measured("trees", "Trees", units.count),
    measured("results", "Results", units.count),
    *interval_columns("duration", "_s", "Duration", units.duration),
    measured("n", "n", units.count),
    compared("overhead_s", "Overhead", signed_duration),
    *interval_columns("overhead", "_s", "Overhead", signed_duration)[1:],
    measured("overhead_per_request_s", "per request", signed_duration),
    measured("overhead_per_result_s", "per result", signed_duration),
    measured("cpu_s", "Server CPU", units.duration),
    measured("client_cpu_s", "Client CPU", units.duration),
)
_MAX_BARS = 24
_HEADINGS = {"python": "Environment", "latency_ms": "Latency, ms"}
_VERSIONS = {"python": "Python", "service": "Version", "sqlalchemy": "SQLAlchemy", "driver": "Driver"}
_AXES_OF_VERSIONS = ("version", "sqlalchemy", "driver")
"""Axes whose values are requested versions; a column shows the version that actually ran."""
_NUMBERS = ("users", "threads", "processes", "latency_ms", "proxies")


def results(run: Run) -> StudyResults:
    """Return one row per combination, in the order of the file, and a chart of the largest job."""
    settings = run.head.settings
    found, axes = list(valid_points(run)), partial(_axes_of, settings)
    rows = [_row(axes(point), made, control_measurements(point, settings["control"], found)) for point, made in found]
    largest = max((row["requests"] * row["trees"] for row in rows), default=0)
    judged = [row for row in _judged(rows) if row["requests"] * row["trees"] == largest]
    judged.sort(key=lambda row: float(row["overhead_s"]))
    return StudyResults(
        headline=_headline(settings["title"], judged, rows),
        rows=rows,
        columns=[*_axes([*rows, *(axes(point) for point, _ in failed(run))], settings), *_FIGURES],
        charts=_charts(judged, rows, settings["control"]),
        tables=_pivot(rows, settings),
        summary=list(_summary(judged, rows)),
        notes=(
            f"Control: the same combination with {point_text(settings['control']) or 'nothing exchanged'}.",
            "Duration is the median of the repeats; with five, the range is a 93.75 % confidence interval.",
            "Overhead: the median of the differences from the control within each repeat.",
            "Per request, per result: the overhead divided by the number of requests or results.",
            "A result is one allocation candidate in a response.",
        ),
        limits=(
            "A single client and locust's users are two programs: compare rows with the same users.",
            "A job of few requests takes milliseconds: its interval is wide.",
            "The first requests after a start: every server is new and warmed up.",
        ),
        axes=axes,
    )


def _axes_of(settings: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    from placebench.lab.studies.matrix_plan import AXES
    from placebench.profiler.capture.sampling_thread import profile_function_defect

    none = dict.fromkeys(_VERSIONS)
    versions = next((each for each in settings["versions"] if each["point"] == point), none)
    axes = {**AXES, **settings["usual"], **point}
    profiler = axes["profiler"]
    python = tuple(int(number) for number in re.findall(r"\d+", versions["python"] or "")[:3])
    if profiler == "full" and python and profile_function_defect(python):  # "full" installs no profile function there
        profiler += ", by a sampling thread"
    return {
        **axes,
        "profiler": profiler,
        "is_control": point == {**point, **settings["control"]},
        "versions": {name: value for name, value in versions.items() if name != "point"},
    }


def _row(axes: dict[str, Any], made: Sequence[Measurement], control: Sequence[Measurement]) -> dict[str, Any]:
    """Return the row of a combination; the overhead is of the repeats that it and its control have."""
    duration = median_interval([each.values["duration_s"] for each in made])
    overhead, results = paired_overhead(made, control, "duration_s"), made[0].values["results"]
    over_s = overhead["overhead_s"]
    return {
        **axes,
        "results": results,
        **interval_figures("duration", "_s", duration),
        "confidence": duration.confidence,
        "n": duration.n,
        "cpu_s": median_of_all([each.values["cpu_s"] for each in made]),
        "client_cpu_s": median_of_all([each.values.get("client_cpu_s") for each in made]),
        "body_bytes": made[0].values["body_bytes"],
        **overhead,
        "overhead_per_request_s": None if over_s is None else over_s / axes["requests"],
        "overhead_per_result_s": over_s / results if over_s is not None and results else None,
    }


def _axes(rows: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> list[Column]:
    """Return columns for the axes that vary (and always the service), and for the versions that vary."""
    from placebench.lab.studies.matrix_plan import THIS

    axes = [axis for axis in settings["usual"] if axis not in _AXES_OF_VERSIONS]
    varied = [axis for axis in axes if axis == "service" or _differ(row[axis] for row in rows)]
    if all(row["python"] in (THIS, row["versions"]["python"]) for row in rows):
        varied = [axis for axis in varied if axis != "python"]  # the versions say it
    judged = [row for row in rows if not row["is_control"]] or rows
    named = [name for name in _VERSIONS if _differ(row["versions"][name] for row in judged)]
    return [
        *(
            measured(axis, _HEADINGS.get(axis, axis.capitalize()), partial(_named, rows) if axis == "service" else str)
            for axis in varied
        ),
        *(measured("versions", _VERSIONS[name], partial(_version, name)) for name in named),
    ]


def _version(name: str, versions: Mapping[str, str | None]) -> str:
    return versions[name] or "–"


def _differ(values: Iterable[Any]) -> bool:
    return len(set(map(str, values))) > 1


def _headline(title: str, judged: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> str:
    if not judged:
        return f"{title} No combination was measured together with its control."
    least, most = judged[0], judged[-1]
    overhead = f"{signed_duration(least['overhead_s'])} ({_label(least, rows)})"
    if least is not most:
        overhead += f" to {signed_duration(most['overhead_s'])} ({_label(most, rows)})"
    return f"{title} Overhead over the control, {_job(most)}: {overhead}."


def _job(row: Mapping[str, Any]) -> str:
    return f"{units.count(row['requests'])} requests × {units.count(row['trees'])} trees"


def _cost(row: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """Return an overhead as text: 'tuned, wsgiref: 12.3 ms [CI 11 ms, 13 ms; n = 5], 0.8 ms per request, …'."""
    limits = _limits(row)
    interval = f"CI {limits}" if limits else "no CI"
    each = f", {signed_duration(row['overhead_per_request_s'])} per request"
    each += f", {signed_duration(row['overhead_per_result_s'])} per result" if row["results"] else ""
    return f"{_label(row, rows)}: {signed_duration(row['overhead_s'])} [{interval}; n = {row['n']}]{each}"


def _summary(judged: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    if judged:
        yield f"Smallest overhead: {_cost(judged[0], rows)}."
    if len(judged) > 1:
        yield f"Largest: {_cost(judged[-1], rows)}."
    if known := [row for row in judged if row["overhead_low_s"] is not None]:
        more = sum(row["overhead_low_s"] > 0 for row in known)
        less = sum(row["overhead_high_s"] < 0 for row in known)
        counts = {"slower than their control": more, "faster": less, "inconclusive": len(known) - more - less}
        outcomes = ", ".join(f"{units.count(number)} {what}" for what, number in counts.items() if number)
        yield f"Largest job, {units.count(len(known))} combinations: {outcomes}."


def _charts(
    judged: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], control: Mapping[str, Any]
) -> list[tuple[str, Chart]]:
    drawn = sorted(judged, key=lambda row: float(row["duration_s"]))[:_MAX_BARS]
    if not drawn:
        return []
    faster = any(row["overhead_s"] < 0 for row in drawn)
    labels, drawn_bars = [], []
    for row in drawn:
        over = max(0.0, min(row["overhead_s"], row["duration_s"]))
        times = f": {units.times(row['times_the_control'])}" if faster else ""
        labels.append(f"{_label(row, rows)}{times}")
        drawn_bars.append(Bar(labels[-1], (row["duration_s"] - over, over)))
    svg = bars(
        drawn_bars,
        title="Duration of the largest job: the control and the overhead",
        description=", ".join(
            f"{label} {units.duration(row['duration_s'])}" for label, row in zip(labels, drawn, strict=True)
        ),
        show=units.duration,
        part_names=("control", "overhead"),
    )
    caption = f"The control is the same combination with {point_text(control)}."
    if faster:
        caption += " × is the ratio to its control; below 1 it was faster, and has no second part."
    return [("Largest job", Chart(svg, caption))]


def _judged(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that were measured together with their control."""
    return [row for row in rows if row["overhead_s"] is not None]


def _pivot(rows: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> list[Table]:
    """Return a pivot table: one row per combination of the other axes and job, one column per value of the axis.

    A column for the control comes first if the control is the same for all of them.
    """
    axis = settings.get("columns")
    judged = _judged(rows)
    if axis is None or not judged:
        return []
    others = [each for each in settings["usual"] if each != axis and _differ(row[each] for row in judged)]
    together: dict[str, dict[str, Any]] = {}
    for row in judged:
        name = ", ".join([*(f"{each} {row[each]}" for each in others), _job(row)])
        cells = together.setdefault(name, {"name": name, "control": units.duration(row["control_s"])})
        limits = f" [{_limits(row)}]" if _limits(row) else ""
        cells[str(row[axis])] = (
            f"{units.duration(row['duration_s'])}, overhead {signed_duration(row['overhead_s'])}{limits}"
        )
    values = dict.fromkeys(str(row[axis]) for row in judged)
    return [
        Table(
            "Control and each " + axis,
            [
                measured("name", "Job"),
                *([measured("control", "Control")] if axis in settings["control"] else []),
                *(measured(value, value) for value in values),
            ],
            list(together.values()),
            id="pivot",
        )
    ]


def _limits(row: Mapping[str, Any]) -> str:
    """Return the interval of the overhead as text; empty if there is none."""
    limits = row["overhead_low_s"], row["overhead_high_s"]
    return "" if None in limits else ", ".join(map(signed_duration, limits))


def _label(row: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """Return the values in which the row differs from other rows; numbers have the name of their axis."""
    return ", ".join(_values(row, rows)) or _named(rows, row["service"])


def _values(row: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    judged = [each for each in rows if not each["is_control"]]
    for axis in ("service", "server", "client", "database", "python", "profiler", *_NUMBERS):
        if _differ(each[axis] for each in judged):
            value = _named(rows, row[axis]) if axis == "service" else row[axis]
            if axis != "server" or value != "none":
                yield f"{axis} {value}" if axis in _NUMBERS or axis == "profiler" else str(value)
    for axis, name in zip(_AXES_OF_VERSIONS, ("service", "sqlalchemy", "driver"), strict=True):
        if _differ(each[axis] for each in judged):
            yield f"SQLAlchemy {row['versions'][name]}" if name == "sqlalchemy" else str(row["versions"][name])


def _named(rows: Sequence[Mapping[str, Any]], service: str) -> str:
    return service_name(service, [row["service"] for row in rows])


KIND = study_kind(__name__, _MatrixSettings, _MatrixJob, _MatrixValues)
