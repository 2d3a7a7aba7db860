"""One metric of a history as a series in the order of the commits, with its steps: `series_of`.

Ratios to an earlier reference are converted to the newest reference. This takes an entry *of* the earlier reference
against a later one, which the run that changed the reference has made.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from statistics import NormalDist

from placebench.history.change_points import Point, Step, find_steps
from placebench.history.history_file import Blessing, History, HistoryEntry, Measured
from placebench.stats import COUNTED, METRICS

MARGINS = {**{name: rule.margin for name, rule in METRICS.items()}, **COUNTED}
"""Margin of each metric as a log ratio; a smaller step is not a regression."""
_BETWEEN_RUNS = 0.6
"""Expected standard deviation between runs of identical programs, as a share of the margin, until it is estimated."""


@dataclass(frozen=True)
class SeriesPoint:
    """A commit in a series, with its entries merged and converted to the newest reference."""

    commit: str
    subject: str
    reference_name: str
    """Name of the reference of the commit's newest entry."""
    place: int
    """Position of the commit in the order of the commits."""
    point: Point

    @property
    def interval(self) -> tuple[float, float, float]:
        """Ratio to the newest reference, followed by the ends of its 95 % confidence interval."""
        half = NormalDist().inv_cdf(0.975) * math.sqrt(self.point.variance)
        return tuple(math.exp(self.point.value + each) for each in (0.0, -half, half))  # type: ignore[return-value]


@dataclass(frozen=True)
class SeriesStep:
    """A step, and the commits between which it lies."""

    after: str
    """The last commit that surely has the old level."""
    until: str
    """The first commit that surely has the new level."""
    commits: tuple[str, ...]
    """Measured commits that may have caused the step; the last one is `until`."""
    step: Step
    blessing: Blessing | None = None


@dataclass(frozen=True)
class Series:
    """One metric over the commits of a history."""

    metric: str
    points: tuple[SeriesPoint, ...]
    """Commits each of which contains the one before."""
    steps: tuple[SeriesStep, ...]
    left_out: tuple[HistoryEntry, ...]
    """Entries of commits that are not in the order of commits, as after a rebase or a squash."""
    unlinked: tuple[HistoryEntry, ...]
    """Entries against a reference that no run has compared with the newest one."""
    beside: tuple[SeriesPoint, ...] = ()
    """Commits of merged branches, which do not contain those of `points` that were measured beside them."""
    unmerged: tuple[SeriesPoint, ...] = ()
    """Those of `beside` that no commit of `points` contains: what they change is in HEAD, and in none of the steps."""

    @property
    def margin(self) -> float:
        """The margin of the metric, as a log ratio."""
        return MARGINS[self.metric]

    @cached_property
    def regressions(self) -> tuple[SeriesStep, ...]:
        """Upward steps beyond the margin that nobody has accepted, and after which the level has not come down."""
        return tuple(
            each
            for each in self.steps
            if each.blessing is None and each.step.change >= self.margin and not self._has_gone(each)
        )

    def _has_gone(self, risen: SeriesStep) -> bool:
        """Return whether a later step came back to within the margin of the level before *risen*."""
        later = self.steps[self.steps.index(risen) + 1 :]
        return any(each.step.after - risen.step.before < self.margin for each in later)


def all_points(series: Sequence[Series]) -> list[SeriesPoint]:
    """Return one point of each commit that any of the *series* has, in the order of the commits."""
    by_commit = {point.commit: point for each in series for point in each.points}
    return sorted(by_commit.values(), key=lambda point: point.place)


def series_of(
    history: History,
    metric: str,
    *,
    order: Sequence[str] | None = None,
    contained: Mapping[str, Collection[str]] | None = None,
) -> Series:
    """Return one metric over the commits of *order*, oldest first; None: in the order in which they were measured.

    Several entries of a commit are merged into one point. A reference is a point too, with the ratio 1 to itself: so a
    first commit that differs from it is a step. Raises KeyError for a metric that a history does not have.
    contained: the measured commits that each measured commit contains, as of `contained_in`; None: all before it. A
    change on one of two merged branches neither raises nor lowers the level of the other branch, so that the series is
    the longest one in which each commit contains the one before.
    """
    if order is None:
        order = list(dict.fromkeys(chain.from_iterable((each.reference, each.commit) for each in history.entries)))
    place = {commit: number for number, commit in enumerate(order)}
    references, variances, linking = _chain(history.entries, metric)
    names = {each.reference: each.reference_name for each in history.entries}
    by_commit: dict[str, list[tuple[HistoryEntry, Point]]] = defaultdict(list)
    left_out, unlinked = [], []
    for number, entry in enumerate(history.entries):
        point = _point(entry.metrics.get(metric))
        if point is None or number in linking:
            continue
        if entry.commit not in place:
            left_out.append(entry)
            continue
        if entry.reference not in references:
            unlinked.append(entry)
            continue
        offset, links = references[entry.reference]
        by_commit[entry.commit].append((entry, Point(point.value + offset, point.variance, links)))
    made = [_merge(found, place[commit]) for commit, found in by_commit.items()]
    made += [
        SeriesPoint(reference, names[reference], names[reference], place[reference], Point(offset, 0.0, links))
        for reference, (offset, links) in references.items()
        if made and reference in place and reference not in by_commit
    ]
    every = sorted(made, key=lambda point: point.place)
    points = tuple(every) if contained is None else _longest_line(every, contained)
    following = {each.commit for each in points}
    beside = tuple(each for each in every if each.commit not in following)
    merged = {commit for point in points for commit in (contained or {}).get(point.commit, ())}
    unmerged = tuple(each for each in beside if each.commit not in merged)
    found = find_steps(
        [each.point for each in points],
        between_runs=_BETWEEN_RUNS * MARGINS[metric],
        is_known=metric in COUNTED,
        link_variances=variances,
    )
    steps = tuple(_named(each, points, history.blessings, metric) for each in found)
    return Series(metric, points, steps, tuple(left_out), tuple(unlinked), beside, unmerged)


def _longest_line(points: Sequence[SeriesPoint], contained: Mapping[str, Collection[str]]) -> tuple[SeriesPoint, ...]:
    """Return the most of *points*, which are in the order of commits, of which each contains the one before."""
    lines: list[tuple[SeriesPoint, ...]] = []
    for point in points:
        before = [line for line in lines if line[-1].commit in contained[point.commit]]
        lines.append((*max(before, key=len, default=()), point))
    return max(lines, key=len, default=())


def _point(measured: Measured | None) -> Point | None:
    """Return the estimate and its variance; None if it has no interval."""
    if measured is None or measured.ratio is None or measured.low is None or measured.high is None:
        return None
    half = (math.log(measured.high) - math.log(measured.low)) / 2
    deviate = NormalDist().inv_cdf((1 + measured.confidence) / 2)
    return Point(math.log(measured.ratio), (half / deviate) ** 2)


def _chain(
    entries: Sequence[HistoryEntry], metric: str
) -> tuple[dict[str, tuple[float, frozenset[str]]], dict[str, float], set[int]]:
    """Return each reference's log ratio to the newest one and its links, the links' variances and their entries."""
    pinned = {each.reference for each in entries}
    linked = {each.reference: (0.0, frozenset[str]()) for each in entries[-1:]}
    variances: dict[str, float] = {}
    linking = set()
    for number, entry in reversed(list(enumerate(entries))):  # links are newer than what they link
        point = _point(entry.metrics.get(metric))
        if entry.commit in pinned and entry.commit not in linked and entry.reference in linked and point:
            offset, links = linked[entry.reference]
            name = f"{entry.commit} {entry.reference}"
            linked[entry.commit] = offset + point.value, links | {name}
            variances[name] = point.variance
            linking.add(number)
    return linked, variances, linking


def _merge(entries: Sequence[tuple[HistoryEntry, Point]], place: int) -> SeriesPoint:
    """Merge the entries of a commit into one point; only entries against its newest reference are used."""
    newest, last = entries[-1]
    same = [point for entry, point in entries if entry.reference == newest.reference]
    if len(same) > 1 and all(each.variance for each in same):
        weights = [1 / each.variance for each in same]
        value = sum(weight * each.value for weight, each in zip(weights, same, strict=True)) / sum(weights)
        last = replace(last, value=value, variance=1 / sum(weights))
    return SeriesPoint(newest.commit, newest.subject, newest.reference_name, place, last)


def _named(step: Step, points: Sequence[SeriesPoint], blessings: Sequence[Blessing], metric: str) -> SeriesStep:
    commits = tuple(each.commit for each in points[step.first : step.last + 1])
    accepted = [each for each in blessings if each.commit in commits and each.metric in (None, metric)]
    return SeriesStep(points[step.first - 1].commit, commits[-1], commits, step, accepted[-1] if accepted else None)
