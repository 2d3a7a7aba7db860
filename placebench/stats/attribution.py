"""Find the parts of a request that changed, among many that did not: `attribute`.

A part is a frame or a statement. Each replicate gives one difference per part. The parts are tested together by the
largest of their statistics over all sign flips of the replicates (Westfall and Young's max-T): the chance that any part
is named although none changed is at most 1 − confidence, however many parts there are. Correlated parts cost no power.
Without a change a replicate's differences are as likely as their negatives, because its variants are served in
mirrored order: no distribution is assumed.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from statistics import fmean
from typing import Generic, TypeVar

from placebench.stats.verdict import FASTER, INCONCLUSIVE, SLOWER, Verdict

Key = TypeVar("Key", bound=Hashable)

_ALL_FLIPS = 12
"""Maximum number of replicates for all sign flips: 2,048, since a flip and its negative give the same statistic."""
_DRAWN_FLIPS = 2048
_ROUNDING = 1e-9

PART_REPLICATES = 6
"""Minimum number of replicates at which a part can be named with 95 %: the most extreme 2 of 64 sign flips are 3 %."""


@dataclass(frozen=True, slots=True)
class PartChange(Generic[Key]):
    """One part of a request in two variants; all values are in the unit of the input, per request."""

    part: Key
    before: float
    """Mean over the baseline's replicates."""
    after: float
    change: float
    """Mean of the differences between variant and baseline, one per replicate."""
    low: float | None
    """Lower limit of the simultaneous interval of `change`; None below `PART_REPLICATES` or if the interval is open."""
    high: float | None
    p: float
    """The p of no change, adjusted for all parts."""
    verdict: Verdict
    """FASTER if the variant takes less, SLOWER if more, INCONCLUSIVE if no change is possible."""

    @property
    def is_decided(self) -> bool:
        """Whether the part changed significantly."""
        return self.verdict != INCONCLUSIVE


def attribute(
    before: Sequence[Mapping[Key, float]],
    after: Sequence[Mapping[Key, float]],
    *,
    confidence: float = 0.95,
    smallest_share: float = 0.0005,
    seed: int = 1,
) -> list[PartChange[Key]]:
    """Compare the parts of a request in two variants; return them by the size of their change, the largest first.

    before, after: the values of each replicate by part, such as self time per request in seconds; a missing part counts
        as 0.
    smallest_share: parts whose means are both below this share of a request are left out, because each further part
        raises the change that is needed for significance.
    seed: seed of the sign flips, which are drawn if there are too many to try all.
    """
    pairs = list(zip(before, after, strict=True))
    sums: dict[Key, tuple[float, float]] = {}
    for sides in pairs:
        for part in dict.fromkeys((*sides[0], *sides[1])):
            old, new = sums.get(part, (0.0, 0.0))
            sums[part] = old + sides[0].get(part, 0.0), new + sides[1].get(part, 0.0)
    least = smallest_share * max(sum(side) for side in zip(*sums.values(), strict=True)) if sums else 0.0
    kept = [part for part, both in sums.items() if max(both) >= least]
    differences = {part: [new.get(part, 0.0) - old.get(part, 0.0) for old, new in pairs] for part in kept}
    changed = _test_together(differences, confidence=confidence, seed=seed)
    made = [PartChange(part, sums[part][0] / len(pairs), sums[part][1] / len(pairs), *changed[part]) for part in kept]
    return sorted(made, key=lambda each: abs(each.change), reverse=True)


def _test_together(
    differences: Mapping[Key, Sequence[float]], *, confidence: float, seed: int
) -> dict[Key, tuple[float, float | None, float | None, float, Verdict]]:
    """Return change, interval, p and verdict of each part.

    The statistic is |Σ d| / √Σ d². A sign flip changes its numerator only, and it rises with Student's t.
    """
    rows = {part: _normalised(values) for part, values in differences.items()}
    number = len(next(iter(differences.values()), ()))
    largest = sorted(_largest_by_flip([row for row in rows.values() if row], number, seed))
    made = {}
    for part, values in differences.items():
        change, row = fmean(values) if values else 0.0, rows[part]
        seen = abs(sum(row)) if row else 0.0
        p = 1 - bisect_left(largest, seen - _ROUNDING) / len(largest) if row else 1.0
        low, high = _interval(values, largest, confidence)
        verdict = INCONCLUSIVE if p > 1 - confidence else FASTER if change < 0 else SLOWER
        made[part] = change, low, high, p, verdict
    return made


def _normalised(values: Sequence[float]) -> list[float]:
    """Return the values divided by the root of the sum of their squares; an empty list if all are 0."""
    length = math.hypot(*values)
    return [value / length for value in values] if length else []


def _largest_by_flip(rows: Sequence[Sequence[float]], number: int, seed: int) -> list[float]:
    """Return the largest statistic of all parts for each sign flip of the replicates, including the identity."""
    columns = [[row[place] for row in rows] for place in range(number)]
    if not rows:
        return []
    sums = [sum(row) for row in rows]
    largest = [max(map(abs, sums))]
    if number <= _ALL_FLIPS:
        signs = [1] * number
        for step in range(1, 2 ** (number - 1)):  # Gray code: one replicate changes its sign in each step
            place = (step & -step).bit_length() - 1
            signs[place] = -signs[place]
            twice = 2.0 * signs[place]
            sums = [total + twice * value for total, value in zip(sums, columns[place], strict=True)]
            largest.append(max(map(abs, sums)))
        return largest
    chance = random.Random(seed)
    for _ in range(_DRAWN_FLIPS - 1):
        flipped = chance.choices((False, True), k=number)
        now = (total - 2.0 * sum(compress(row, flipped)) for total, row in zip(sums, rows, strict=True))
        largest.append(max(map(abs, now)))
    return largest


def _interval(
    values: Sequence[float], largest: Sequence[float], confidence: float
) -> tuple[float, float] | tuple[None, None]:
    """Return the simultaneous interval: Student's, with the critical value of the sign flips; Nones if it is open."""
    number = len(values)
    if number < PART_REPLICATES or not largest:
        return None, None
    critical = largest[math.ceil(confidence * len(largest)) - 1]
    if critical**2 >= number * (1 - _ROUNDING):
        return None, None
    mean = fmean(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (number - 1))
    half = critical * math.sqrt((number - 1) / (number - critical**2)) * deviation / math.sqrt(number)
    return mean - half, mean + half
