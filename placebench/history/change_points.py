"""Steps in a series of estimates that each have an interval: `find_steps`.

After each point, the points since the last step are split in two at every place, and the weighted means of both sides
are compared (the generalised likelihood ratio). A split is a step if the means differ by more than noise explains. The
threshold rises with the number of points, so that a flat series, tested again after every commit, has a step in at most
5 of 100 histories.

The noise of a point has two parts: the variance of its interval, and the variance between runs of identical programs,
which no interval contains. The latter is estimated from the differences of neighbours. The largest differences are left
out, because they may be steps: a tenth, but at least three, or half of fewer than six. While there are few differences,
an expected value is given weight too.

Sources: Siegmund and Venkatraman 1995 (generalised likelihood ratio for a change), Page 1954.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import NormalDist, fmean

_FALSE_STEPS = 0.05
"""Share of flat series in which any step is found."""
_LEFT_OUT, _MIN_LEFT_OUT = 0.1, 3
"""Share of the differences of neighbours that is left out of the noise, and its least number, up to half of them."""
_EXPECTED_COUNTS_AS = 4
"""Number of differences that weigh as much as the expected noise between runs."""
_PLAUSIBLE = 6.0
"""A place is plausible if twice its log likelihood is lower than the best place's by at most this: odds of 1 to 20."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Point:
    """An estimate as a log ratio, its variance, and the error that it shares with other points."""

    value: float
    variance: float
    links: frozenset[str] = frozenset()
    """Entries that relate its reference to the newest one; all points with the same entry share that entry's error."""


@dataclass(frozen=True)
class Step:
    """A change of the level; `place`, `first` and `last` are indices of points."""

    place: int
    """Best estimate of the first point with the new level."""
    first: int
    last: int
    """The first point with the new level lies between `first` and `last`."""
    before: float
    after: float
    """Levels before and after the step, as log ratios."""

    @property
    def change(self) -> float:
        """Log ratio of the level after the step to the level before it."""
        return self.after - self.before


def find_steps(
    points: Sequence[Point],
    *,
    between_runs: float,
    is_known: bool = False,
    link_variances: Mapping[str, float] | None = None,
) -> list[Step]:
    """Return the steps of a series, in order; costs n² for n points (2 s for 1000).

    between_runs: the standard deviation, as a log ratio, to expect between runs of the same pair of programs.
    is_known: whether that deviation is exact, as it is for counts, instead of an expected value.
    link_variances: the variance of each link that points name.
    """
    links = link_variances or {}
    starts = [0]
    for end in range(2, len(points) + 1):
        splits = _Splits.of(points[starts[-1] : end], _Noise.of(points[:end], between_runs, is_known), links)
        if (place := splits.step) is not None:
            starts.append(starts[-1] + place)
    return _located(points, starts, _Noise.of(points, between_runs, is_known), links)


def _located(points: Sequence[Point], starts: list[int], noise: "_Noise", links: Mapping[str, float]) -> list[Step]:
    """Return the steps at *starts*, each relocated between its neighbours, without those no longer significant."""
    found: list[Step] = []
    number = 1
    while number < len(starts):
        low, high = starts[number - 1], starts[number + 1] if number + 1 < len(starts) else len(points)
        splits = _Splits.of(points[low:high], noise, links)
        if (place := splits.step) is None:
            del starts[number]
            del found[max(0, number - 2) :]
            number = max(1, number - 1)
            continue
        starts[number] = low + place
        first, last = splits.plausible
        found.append(Step(low + place, low + first, low + last, *splits.levels[place - 1]))
        number += 1
    return found


@dataclass(frozen=True)
class _Noise:
    """The variance between runs of the same pair of programs."""

    variance: float
    freedom: float
    """Degrees of freedom of the variance; infinite if it is known."""

    @classmethod
    def of(cls, points: Sequence[Point], expected: float, is_known: bool) -> "_Noise":
        if is_known:
            return cls(expected**2, math.inf)
        pairs = [(one, next_) for one, next_ in pairwise(points) if one.links == next_.links]
        squares = sorted((next_.value - one.value) ** 2 for one, next_ in pairs)
        if len(squares) < 3:  # two differences may both be steps, and say nothing of the noise
            return cls((max(1, len(squares)) * expected) ** 2, _EXPECTED_COUNTS_AS)
        left_out = math.ceil(max(_LEFT_OUT * len(squares), min(_MIN_LEFT_OUT, len(squares) / 2)))
        kept = squares[:-left_out]
        known = fmean(one.variance + next_.variance for one, next_ in pairs)
        seen = max(0.0, fmean(kept) / _smaller_squares(left_out / len(squares)) - known) / 2
        weight = len(kept) / 2  # neighbouring differences share a point
        freedom = weight + _EXPECTED_COUNTS_AS
        return cls((weight * seen + _EXPECTED_COUNTS_AS * expected**2) / freedom, freedom)


def _smaller_squares(left_out: float) -> float:
    """Return the mean square of normal deviates without this share of the largest."""
    limit = _NORMAL.inv_cdf(1 - left_out / 2)
    return (1 - left_out - 2 * limit * _NORMAL.pdf(limit)) / (1 - left_out)


@dataclass(frozen=True)
class _Splits:
    """Every way to split points in two; the entry at n - 1 is for n points on the left."""

    levels: tuple[tuple[float, float], ...]
    deviates: tuple[float, ...]
    """Absolute normal deviate of the difference between the two levels of each split."""
    threshold: float

    @classmethod
    def of(cls, points: Sequence[Point], noise: _Noise, links: Mapping[str, float]) -> "_Splits":
        weights = [1 / (each.variance + noise.variance) for each in points]
        sums = list(accumulate(weights))
        products = list(accumulate(weight * each.value for weight, each in zip(weights, points, strict=True)))
        levels, deviates = [], []
        for left, product in zip(sums[:-1], products[:-1], strict=True):
            right = sums[-1] - left
            before, after = product / left, (products[-1] - product) / right
            levels.append((before, after))
            deviates.append(abs(after - before) / math.sqrt(1 / left + 1 / right))
        for name, variance in links.items():
            linked = list(accumulate(w * (name in each.links) for w, each in zip(weights, points, strict=True)))
            for place, (left, of_left) in enumerate(zip(sums[:-1], linked[:-1], strict=True)):
                right = sums[-1] - left
                contrast = (linked[-1] - of_left) / right - of_left / left
                own = 1 / left + 1 / right
                deviates[place] *= math.sqrt(own / (own + contrast**2 * variance))
        estimated = noise.variance * sums[-1] / len(points)
        return cls(tuple(levels), tuple(deviates), _threshold(len(points), estimated, noise.freedom))

    @property
    def step(self) -> int | None:
        """Number of points before the step; None if no split is a step."""
        highest = max(self.deviates, default=0.0)
        return self.deviates.index(highest) + 1 if highest > self.threshold else None

    @property
    def plausible(self) -> tuple[int, int]:
        """Smallest and largest number of points that may be before the step."""
        needed = max(self.deviates) ** 2 - _PLAUSIBLE
        places = [place for place, each in enumerate(self.deviates, start=1) if each**2 >= needed]
        return places[0], places[-1]


def _threshold(points: int, estimated: float, freedom: float) -> float:
    """Return the normal deviate that a split of this many points must exceed.

    estimated: the share of the variance that is estimated, with *freedom* degrees of freedom. For that share the
    threshold is a deviate of Student's t, which is larger (first term of its expansion by Cornish and Fisher).
    """
    z = _NORMAL.inv_cdf(1 - _FALSE_STEPS / points**2)
    return z + estimated**2 * (z**3 + z) / (4 * freedom)
