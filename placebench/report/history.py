"""The report of a performance history: a table, and for each metric a chart with its steps (`history_report`)."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from placebench import units
from placebench.gates import Outcome
from placebench.history import History, HistoryEntry, Series, SeriesPoint, SeriesStep, all_points
from placebench.page.axis_charts import PointSeries, points
from placebench.page.row_charts import Estimate, forest
from placebench.report.effects import METRIC_LABELS, join_and
from placebench.report.model import Chart, Check, Column, Details, Report, Section, Table

_SHOWN = 12
"""Number of characters of a commit hash that are shown."""
_NEWEST = 20
"""Maximum number of commits in the table for a terminal."""
_MAX_NAMED = 5
"""Maximum number of commits named in a sentence on left-out measurements."""
_POINTS = (
    "Each point is the ratio of a commit to the reference, measured in one interleaved run on one machine: machines "
    "cancel, and several may add to one history."
)
_STEPS = (
    "A step is found where the levels before and after differ by more than the intervals and the noise between runs "
    "explain. A flat history of 60 commits, tested after each of them, has one in at most 5 of 100 cases."
)
_REGRESSIONS = (
    "A regression is a step upwards beyond the metric's margin that nobody has accepted (placebench history bless), "
    "and that has not gone away since."
)


MIN_POINTS = 2
"""The least commits with a metric for a verdict on it; the reference is one of them if it is in the history."""


def history_report(path: Path, history: History, series: Sequence[Series], *, shallow: bool = False) -> Report:
    """Build the report of the history in *path*; series: one per metric, the primary metric first.

    shallow: whether the repository is a shallow clone, which lacks older commits.
    """
    regressions = [(each, step) for each in series for step in each.regressions]
    columns = [
        Column("commit", lambda each: each.commit[:_SHOWN]),
        *(Column(METRIC_LABELS[each.metric], _ratio_cell(each)) for each in series),
        Column("subject", lambda each: each.subject, wide=True),
    ]
    newest = all_points(series)[::-1]
    checks = [_check(each, shallow=shallow) for each in series]
    if not history.entries:
        headline = "No commit has been measured yet: `placebench history add --reference TAG` measures the first."
    else:
        undecided = [METRIC_LABELS[each.variant] for each in checks if each.outcome == "inconclusive"]
        found = "No verdict" if len(undecided) == len(series) else "No regression"
        found = units.numbered(len(regressions), "regression") if regressions else found
        end = f"; undecided: {', '.join(undecided)}" if undecided else ""
        headline = f"{found} in {units.numbered(len(newest), 'commit')} against {_reference(history)}{end}."
    return Report(
        folder=path.parent,
        name=path.stem,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        status="complete",
        headline=headline,
        document={
            "reference": history.reference.reference if history.reference else None,
            "entries": len(history.entries),
            "failures": [{"commit": each.commit, "reason": each.reason} for each in history.failures],
            "metrics": {each.metric: _series_document(each) for each in series},
        },
        notices=[
            f"{'Regression' if step in each.regressions else 'Step'}: {step_sentence(each, step)}"
            for each in series
            for step in each.steps
        ],
        overview=[Table("Commits", columns, newest[:_NEWEST])] if newest else [],
        remarks=[
            *(
                f"{each.commit[:_SHOWN]} ({each.subject}) could not be measured: {each.reason}"
                for each in history.failures
            ),
            *left_out_sentences(series, shallow=shallow),
        ],
        sections=[_section(each) for each in series if each.points],
        notes=(_POINTS, _STEPS, _REGRESSIONS),
        about=f"{len(history.entries)} measurements, {_reference(history)}",
        checks=checks,
        can_rebuild=False,
        is_of_run=False,
    )


def step_sentence(series: Series, found: SeriesStep) -> str:
    """Return a sentence on a step: 'server CPU +2.1 % between 0123456789ab and ba9876543210 (Check more)'.

    If the step was accepted, the reason is appended.
    """
    change = units.signed_percent(math.exp(found.step.change))
    subjects = {each.commit: each.subject for each in series.points}
    several = f", one of {len(found.commits)} measured commits" if len(found.commits) > 1 else ""
    sentence = (
        f"{METRIC_LABELS[series.metric]} {change} between {found.after[:_SHOWN]} and {found.until[:_SHOWN]} "
        f"({subjects[found.until]}){several}"
    )
    return f"{sentence}; accepted: {found.blessing.reason}" if found.blessing else sentence


def _check(series: Series, *, shallow: bool) -> Check:
    """Return whether there is a regression; inconclusive if commits are missing or too few."""
    outcome: Outcome = "passed"
    measured = ""
    if series.regressions:
        outcome, measured = "failed", "; ".join(step_sentence(series, step) for step in series.regressions)
    elif shallow and series.left_out:
        outcome, measured = "inconclusive", "this clone is shallow and lacks measured commits"
    elif series.unmerged:
        outcome, measured = "inconclusive", unmerged_sentence(series)
    elif len(series.points) < MIN_POINTS:
        outcome, measured = "inconclusive", "only one commit has it" if series.points else units.NOT_MEASURED
    return Check(f"no regression of {METRIC_LABELS[series.metric]}", series.metric, outcome, measured)


def unmerged_sentence(series: Series) -> str:
    """Return a sentence on measured commits of branches that no other measured commit contains; empty without any."""
    if not series.unmerged:
        return ""
    named = join_and([f"{each.commit[:_SHOWN]} ({each.subject})" for each in series.unmerged[:_MAX_NAMED]])
    both = f"both {named} and {series.points[-1].commit[:_SHOWN]}"
    return f"branches were merged, and no measured commit contains {both}: measure HEAD with `placebench history add`"


def left_out_sentences(series: Sequence[Series], *, shallow: bool = False) -> list[str]:
    """Return sentences that name the commits whose measurements are in none of the *series*, with the reason."""
    why = "for this clone is shallow: `git fetch --unshallow`" if shallow else "as after a rebase or a squash"
    reasons: dict[str, list[Sequence[HistoryEntry | SeriesPoint]]] = {
        f"the history of HEAD does not have {{commits}}, {why}": [one.left_out for one in series],
        "no run links the reference of {commits} to the newest one": [one.unlinked for one in series],
        "a branch that was merged beside the others has {commits}": [one.beside for one in series],
    }
    sentences = []
    for reason, entries in reasons.items():
        subjects = {each.commit: each.subject for some in entries for each in some}
        if not subjects:
            continue
        named = [f"{commit[:_SHOWN]} ({subject})" for commit, subject in list(subjects.items())[:_MAX_NAMED]]
        more = [f"{len(subjects) - _MAX_NAMED} more"] if len(subjects) > _MAX_NAMED else []
        count = units.numbered(len(subjects), "measured commit")
        verb = "is" if len(subjects) == 1 else "are"
        sentences.append(f"{count} {verb} left out, for {reason.format(commits=join_and([*named, *more]))}")
    return sentences


def _series_document(series: Series) -> dict[str, Any]:
    return {
        "points": [
            {"commit": each.commit, "subject": each.subject}
            | dict(zip(("ratio", "low", "high"), each.interval, strict=True))
            for each in series.points
        ],
        "left_out": list(dict.fromkeys(each.commit for each in series.left_out)),
        "unlinked": list(dict.fromkeys(each.commit for each in series.unlinked)),
        "beside": [each.commit for each in series.beside],
        "steps": [
            {
                "after": each.after,
                "until": each.until,
                "commits": list(each.commits),
                "change": math.exp(each.step.change),
                "accepted": each.blessing.reason if each.blessing else None,
                "regression": each in series.regressions,
            }
            for each in series.steps
        ],
    }


def _reference(history: History) -> str:
    return f"reference {history.reference.reference_name}" if history.reference else "no reference"


def _ratio_cell(series: Series) -> Any:
    by_commit = {each.commit: each for each in series.points}

    def cell(row: SeriesPoint) -> str:
        found = by_commit.get(row.commit)
        if found is None:
            return units.NOT_MEASURED
        ratio, low, high = map(units.ratio, found.interval)
        return ratio if low == high else f"{ratio} [{low}, {high}]"

    return cell


def _section(series: Series) -> Section:
    label = METRIC_LABELS[series.metric]
    bounds = [0, *(each.step.place for each in series.steps), len(series.points)]
    levels = [series.steps[0].step.before, *(each.step.after for each in series.steps)] if series.steps else [None]
    step_of = {0: ""} | {
        each.step.place: f" ({units.signed_percent(math.exp(each.step.change))}"
        f"{', regression' if each in series.regressions else ', accepted' if each.blessing else ''})"
        for each in series.steps
    }
    parts = [
        PointSeries(
            f"from {series.points[begin].commit[:_SHOWN]}{step_of[begin]}",
            [(float(place + 1), series.points[place].interval[0]) for place in range(begin, end)],
            "baseline" if number % 2 else "variant",
            level=None if level is None else math.exp(level),
        )
        for number, ((begin, end), level) in enumerate(zip(pairwise(bounds), levels, strict=True))
    ]
    over_time = points(
        parts,
        title=f"{label} over the commits",
        description="Ratio of each commit to the reference, the oldest first; a line is the level between two steps.",
        show=None,
        show_where=lambda where: units.count(where) if where >= 1 and where == int(where) else "",
    )
    rows = [
        Estimate(
            label=f"{point.commit[:_SHOWN]} {point.subject}",
            text=units.signed_percent(ratio),
            value=ratio,
            low=low,
            high=high,
        )
        for point in reversed(series.points)
        for ratio, low, high in [point.interval]
    ]
    intervals = forest(
        rows,
        title=f"{label} with confidence intervals",
        description="Ratio of each commit to the reference, the newest first; left is less, which is better.",
    )
    return Section(
        label,
        [
            Chart(over_time, "Ratio to the reference, the oldest commit first; lines are the levels between steps."),
            Details("Every commit with its interval", [Chart(intervals)]),
        ],
        id=series.metric,
    )
