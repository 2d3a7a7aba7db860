"""The report of a study: `study_report`.

The results come from the study's own function `results(run) -> StudyResults`, which is named in its `RunKind`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import prod
from statistics import median
from typing import Any, cast

from placebench import units
from placebench.compare.keep.documents import RUNS, RunKind
from placebench.compare.keep.records import Measurement
from placebench.report.calibration import calibration_sentences
from placebench.report.effects import status_sentences
from placebench.report.environment import environment_rows, masked, request_section
from placebench.report.figures import shorten_variant
from placebench.report.model import Chart, Column, Items, Paragraph, Report, Section, Table, Text
from placebench.results import Run
from placebench.stats import MedianInterval

CLIENT_IS_BUSY = 0.7
"""Share of a core from which on the client may limit the throughput."""


@dataclass(frozen=True)
class StudyResults:
    """The results of a study, in the form that its report needs."""

    headline: str
    """The result in one or two sentences, with values and their uncertainty."""
    rows: Sequence[dict[str, Any]] = ()
    """Plain values in seconds and bytes, printed as they are by `--json`; None means not measured."""
    columns: Sequence[Column] = ()
    charts: Sequence[tuple[str, Chart]] = ()
    """Charts, each with its heading."""
    tables: Sequence[Table] = ()
    """Further tables of the same measurements."""
    document: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Further rows that `--json` prints, by name."""
    summary: Sequence[str] = ()
    """Sentences that follow `headline`."""
    notes: Sequence[str] = ()
    """Sentences on how to read the table and the charts."""
    limits: Sequence[str] = ()
    """Sentences on what this study cannot show."""
    axes: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Returns the columns of a row that describe its point, as opposed to measured values."""


def study_report(run: Run) -> Report:
    """Build the report of a study, with what has been measured so far; it has no speeds if responses differ."""
    head = run.head
    if head.same_responses.get("equal") is False:
        results = StudyResults(f"No speed is shown: {head.same_responses['difference']}.")
    else:
        kind = RUNS.get(head.command)
        assert kind is not None
        results = results_of(kind)(run)
    rows = _all_rows(run, results)
    # A point that was not measured is named with its reason below the table, and not in a row of dashes.
    table = Table("Measurements", results.columns, [*results.rows], id="rows")
    order = ", every second one backwards" if head.settings["repeats"] > 1 else ""
    repeats = units.numbered(head.settings["repeats"], "repeat")
    sentences = calibration_sentences(head)
    return Report(
        folder=run.folder,
        name=head.name,
        started_at=head.started_at,
        status=head.status,
        headline=results.headline,
        document={
            "run": str(run.folder),
            "status": head.status,
            "note": head.note,
            "headline": results.headline,
            "summary": list(results.summary),
            "request": head.request,
            "topology": head.topology,
            "trees": head.trees,
            "seed": head.seed,
            "data_digest": head.receipt.get("digest"),
            "rows": rows,
            **results.document,
            "impossible": head.settings["impossible"],
        },
        notices=status_sentences(head),
        summary=results.summary,
        overview=[table, *results.tables] if table.rows else [],
        remarks=[f"not measured: {each}" for each in by_reason([*_impossible(run), *failed(run)])],
        sections=[
            *(Section(heading, [chart]) for heading, chart in results.charts),
            *(Section(each.label, [each]) for each in results.tables),
            *([Section("Measurements", [table])] if table.rows else []),
            *([Section("Calibration", [Paragraph(sentences)])] if sentences else []),
        ],
        notes=[*results.notes, f"{repeats}, in a random order drawn from the seed{order}."] if results.notes else [],
        limits=results.limits,
        failures=_failures(run),
        request=request_section(head),
        environment=environment_rows(head),
    )


def results_of(kind: RunKind) -> Callable[[Run], StudyResults]:
    """Return the function that computes a study's results from its run."""
    module, _, function = kind.results.partition(":")
    return cast(Callable[[Run], StudyResults], getattr(import_module(module), function))


def measured(name: str, label: Text, show: Callable[[Any], Text] = str) -> Column:
    """Return a column with the rows' values of the key *name*; a dash for None."""
    return Column(label, lambda row: "–" if (value := row.get(name)) is None else show(value), name=name)


def interval_columns(name: str, unit: str, label: Text, show: Callable[[Any], Text]) -> tuple[Column, Column, Column]:
    """Return the columns of the values from `interval_figures`: median, lower and upper limit."""
    low, high = (measured(f"{name}_{end}{unit}", text, show) for end, text in (("low", "from"), ("high", "to")))
    return measured(f"{name}{unit}", label, show), low, high


def interval_figures(name: str, unit: str, found: MedianInterval | None) -> dict[str, float | None]:
    """Return a median and its confidence interval as a row: `knee_per_s`, `knee_low_per_s` and `knee_high_per_s`."""
    values = (found.median, found.low, found.high) if found else (None, None, None)
    return dict(zip((f"{name}{unit}", f"{name}_low{unit}", f"{name}_high{unit}"), values, strict=True))


def busy_client(rows: Iterable[Mapping[str, Any]], name: Callable[[Mapping[str, Any]], str]) -> Iterator[str]:
    """Yield a sentence on the rows whose throughput the client may have limited, by their `client_cpu_share`."""
    if busy := [name(row) for row in rows if row["client_cpu_share"] > CLIENT_IS_BUSY]:
        yield (
            f"The load generator took more than {units.round_percent(CLIENT_IS_BUSY)} of a core, so it may have been "
            f"the limit: {', '.join(busy)}."
        )


def median_of_all(values: Sequence[float | None]) -> float | None:
    """Return the median; None if any value was not measured."""
    known = [value for value in values if value is not None]
    return median(known) if len(known) == len(values) else None


def valid_points(run: Run) -> Iterator[tuple[dict[str, Any], list[Measurement]]]:
    """Yield each point in the requested order with its valid measurements; points without any are left out."""
    for point in run.head.settings["points"]:
        made = [each for each in run.measurements if each.invalid is None and each.point == point]
        if made:
            yield point, made


def failed(run: Run) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each point that lacks a valid measurement in some repeat, with the last reason, without secrets."""
    for point in run.head.settings["points"]:
        made = [each for each in run.measurements if each.point == point]
        repeats = {each.repeat for each in made if each.invalid is None}
        if reasons := [each.invalid for each in made if each.invalid and each.repeat not in repeats]:
            some = f"{len(repeats)} of {run.head.settings['repeats']} repeats are valid: " if repeats else ""
            yield point, some + masked(reasons[-1])


def signed_duration(seconds: float | None) -> str:
    """Return a duration that may be negative; a dash for None."""
    return "–" if seconds is None else units.duration(seconds).replace("-", "−")


def service_name(service: str, among: Iterable[str] = ()) -> str:
    """Return an application's given name, the short name of a variant, or any other service unchanged.

    among: the services from which the name must differ, as in `shorten_variant`.
    """
    given = dict(part.partition("=")[::2] for part in service.split(",")) if service.startswith("app=") else {}
    return given.get("name") or shorten_variant(masked(service), map(masked, among))


def _all_rows(run: Run, results: StudyResults) -> list[dict[str, Any]]:
    """Return the result rows, each with a `reason` if the point was not measured in all repeats, else None.

    A point without a valid measurement is a row too, with its axes and None for all measured values. No such rows are
    added if no speed is shown.
    """
    rows = [{**row, "reason": None} for row in results.rows]
    for point, reason in failed(run) if results.columns else ():
        axes = results.axes(point)
        row = next((row for row in rows if axes.items() <= row.items()), None)
        if row is None:
            row = {**dict.fromkeys(rows[0] if rows else [column.name for column in results.columns]), **axes}
            rows.append(row)
        row["reason"] = reason
    return rows


def _failures(run: Run) -> list[Items]:
    """Return the list of points that could not be measured and of measurements that were repeated, without secrets."""
    lost = list(failed(run))
    repeated = (
        f"{_as_text([each.point])}, once: {masked(each.invalid)}; repeated"
        for each in run.measurements
        if each.invalid and each.point not in [point for point, _ in lost]
    )
    items = [*by_reason([*_impossible(run), *lost]), *repeated]
    return [Items(items)] if items else []


def _impossible(run: Run) -> list[tuple[dict[str, Any], str]]:
    """Return the points that cannot be measured, each with the reason."""
    return [(each["point"], masked(each["reason"])) for each in run.head.settings["impossible"]]


def by_reason(points: Iterable[tuple[Mapping[str, Any], str]]) -> Iterator[str]:
    """Yield the points as text with their reason; points with the same reason are listed together."""
    reasons: dict[str, list[Mapping[str, Any]]] = {}
    for point, reason in points:
        reasons.setdefault(reason, []).append(point)
    for reason, together in reasons.items():
        yield f"{_as_text(together)}: {reason}"


def _as_text(points: Sequence[Mapping[str, Any]]) -> str:
    """Return points as text without secrets: 'service naive, tuned; server none'.

    If they are a part of these combinations, up to four are listed, and more are '5 of …'.
    """
    values = {name: list(dict.fromkeys(point[name] for point in points)) for name in points[0]}
    text = "; ".join(f"{name} {', '.join(masked(str(each)) for each in found)}" for name, found in values.items())
    every = prod(len(found) for found in values.values()) == len(points)
    if every:
        return text
    if len(points) > 4:
        return f"{units.count(len(points))} of {text}"
    return "; ".join(", ".join(f"{name} {masked(str(value))}" for name, value in point.items()) for point in points)
