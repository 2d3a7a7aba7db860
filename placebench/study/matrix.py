"""The matrix study: one command with each combination of the values of some axes, compared with a control.

The main class is `CommandMatrix`, the study of `placebench study matrix`. A measurement is a number of runs of the
command, one after another, by the program that does the jobs of `placebench.study.workers`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NotRequired, TypedDict, TypeVar

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.decoding import Amount, AtLeastOne, Count, Positive
from placebench.errors import UsageError
from placebench.report.study_report import (
    StudyResults,
    interval_columns,
    interval_figures,
    measured,
    signed_duration,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval
from placebench.study.axes import fill_words
from placebench.study.overheads import (
    axis_columns,
    compared,
    control_measurements,
    largest,
    nothing_counted,
    paired_overhead,
)
from placebench.study.session import Measure, Point, StudySpec, point_text, study_kind
from placebench.study.workers import OwnWorkersStudy, Work, why_impossible

_Value = TypeVar("_Value")


def combinations(axes: Mapping[str, Sequence[_Value]], control: Mapping[str, _Value]) -> tuple[dict[str, _Value], ...]:
    """Return all combinations of the axes' values, each control before the first combination that needs it."""
    found: list[dict[str, _Value]] = []
    for values in product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        found.extend(each for each in ({**point, **control}, point) if each not in found)
    return tuple(found)


class _CommandMatrixSettings(StudySettings[dict[str, str]]):
    control: dict[str, str]
    jobs: AtLeastOne
    count: str


class _CommandMatrixValues(TypedDict):
    elapsed_s: Positive
    cpu_s: Amount
    results: Count | None
    uncounted: NotRequired[str]
    pss_bytes: Count


@dataclass(frozen=True)
class CommandMatrix:
    """A command with `{AXIS}` in its words, and the values of its axes."""

    work: Work
    axes: Mapping[str, tuple[str, ...]]
    control: Mapping[str, str]
    """The values that replace those of a combination in its control."""
    jobs: int
    """Number of runs of the command in a measurement."""

    @property
    def points(self) -> tuple[dict[str, str], ...]:
        """All combinations, with their controls."""
        return combinations(self.axes, self.control)

    def work_of(self, point: Point) -> Work:
        """Return the work of a combination."""
        return replace(self.work, command=fill_words(self.work.command, point))

    def spec(self, *, repeats: int, folder: Path) -> StudySpec[Path]:
        """Return the spec of the study, after one run of the command for each combination.

        folder: for the logs of these runs. Raises UsageError if the command fails with every combination.
        """
        reasons = [(point, why_impossible(self.work_of(point), "threads", folder)) for point in self.points]
        possible = tuple(point for point, reason in reasons if not reason)
        if not possible:
            raise UsageError(f"{self.work.title} cannot be measured: {reasons[0][1]}")
        return StudySpec(
            command="study-matrix",
            points=possible,
            repeats=repeats,
            prepare=self._prepare,
            request=self.work.title,
            settings={"control": dict(self.control), "jobs": self.jobs, "count": self.work.count},
            impossible=tuple((point, reason) for point, reason in reasons if reason),
        )

    @contextmanager
    def _prepare(self, folder: Path) -> Iterator[Measure]:
        def measure(point: Point, _: int) -> dict[str, Any]:
            alone = OwnWorkersStudy(self.work_of(point), ("threads",), (1,), self.jobs)
            values = alone.measure({"way": "threads", "workers": 1}, folder / "log" / "matrix.log")
            return {name: values[name] for name in _CommandMatrixValues.__annotations__}

        yield measure


# --- the report


_FIGURES = (
    measured("n", "n", units.count),
    *interval_columns("elapsed", "_s", "time", units.duration),
    compared("overhead_s", "overhead", signed_duration),
    *interval_columns("overhead", "_s", "overhead", signed_duration)[1:],
    measured("overhead_per_run_s", "per run", signed_duration),
    measured("results", "results", units.average),
    measured("overhead_per_result_s", "per result", signed_duration),
    measured("times_the_control", "× control", units.ratio),
    measured("cpu_s_per_run", "CPU per run", units.duration),
    measured("pss_bytes", "PSS", units.size),
)
_COUNTED = ("results", "overhead_per_result_s")


def results(run: Run) -> StudyResults:
    """Return one row per combination, with its overhead over its control."""
    settings = run.head.settings
    control, jobs = settings["control"], settings["jobs"]
    found = list(valid_points(run))
    rows = []
    for point, made in found:
        overhead = paired_overhead(made, control_measurements(point, control, found), "elapsed_s")
        elapsed = median_interval([each.values["elapsed_s"] for each in made])
        counted = [each.values["results"] for each in made if each.values["results"] is not None]
        counts = median(counted) if counted else None
        over_s = overhead["overhead_s"]
        rows.append(
            {
                "axes": point,
                "is_control": point == {**point, **control},
                "n": elapsed.n,
                "jobs": jobs,
                **interval_figures("elapsed", "_s", elapsed),
                "confidence": elapsed.confidence,
                **overhead,
                "overhead_per_run_s": None if over_s is None else over_s / jobs,
                "results": counts,
                "overhead_per_result_s": over_s / counts if over_s is not None and counts else None,
                "cpu_s_per_run": median([each.values["cpu_s"] for each in made]) / jobs,
                "pss_bytes": median([each.values["pss_bytes"] for each in made]),
            }
        )
    axes = list(settings["points"][0])
    return StudyResults(
        headline=_headline(rows, control),
        rows=rows,
        summary=list(nothing_counted(found, settings["count"])),
        columns=[*axis_columns(axes), *(each for each in _FIGURES if settings["count"] or each.name not in _COUNTED)],
        notes=(
            f"A measurement: {units.numbered(jobs, 'run')} of the command in turn, after one for warming up.",
            *(["Results: those of all these runs."] if settings["count"] else []),
            f"Control: the same combination with {point_text(control)}.",
            "Overhead: the median of the differences from the control within each repeat.",
            "The intervals are not adjusted for the number of rows.",
            "PSS: memory of the command and of the Python that starts it, at the highest sample.",
        ),
        limits=("Commands that run at the same time: placebench study workers has them.",),
        axes=lambda point: {"axes": point},
    )


def _headline(rows: list[dict[str, Any]], control: Mapping[str, str]) -> str:
    """Return the largest overhead with its interval, and how many were shown."""
    judged = [row for row in rows if row["overhead_s"] is not None]
    if not judged:
        return "No combination was measured together with its control."
    most, kind = largest(judged, "overhead_s")
    begin = f"Largest {kind} compared with {point_text(control)}: {signed_duration(most['overhead_s'])}"
    if most["overhead_low_s"] is None:
        return f"{begin} ({point_text(most['axes'])}); n = {most['n']} is too few for an interval."
    shown = sum(row["overhead_low_s"] is not None and row["overhead_low_s"] > 0 for row in judged)
    interval = f"[CI {signed_duration(most['overhead_low_s'])}, {signed_duration(most['overhead_high_s'])}"
    return (
        f"{begin} {interval}; n = {most['n']}] ({point_text(most['axes'])}). "
        f"{shown} of {units.numbered(len(judged), 'combination')} were slower."
    )


KIND = study_kind(__name__, _CommandMatrixSettings, dict[str, str], _CommandMatrixValues)
