"""The parts of a request that changed, among many that did not: `attribute`.

A part is a frame or a statement; each replicate gives one difference of it. The parts are tested together by the
largest of their statistics over all sign flips of the replicates (Westfall and Young's max-T): the chance that any part
is named although none changed is at most 1 − confidence, however many there are, and parts that move together cost
nothing. Without a change a replicate's differences are as likely as their negatives, because its variants are served in
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
"""The fewest replicates at which a part can be named with 95 %: 2 of 64 sign flips are as extreme as the extreme."""


@dataclass(frozen=True, slots=True)
class PartChange(Generic[Key]):
    """One part of a request in two variants; all figures are in the unit of the values, per request."""

    part: Key
    before: float
    """Mean of the baseline's replicates."""
    after: float
    change: float
    """Mean of the replicates' differences."""
    low: float | None
    """The simultaneous interval of `change`; None below `PART_REPLICATES`."""
    high: float | None
    p: float
    """The p of no change, adjusted for all the parts."""
    verdict: Verdict
    """FASTER for less, SLOWER for more, INCONCLUSIVE if no change is possible."""

    @property
    def is_decided(self) -> bool:
        """Whether it changed significantly."""
        return self.verdict != INCONCLUSIVE


def attribute(
    before: Sequence[Mapping[Key, float]],
    after: Sequence[Mapping[Key, float]],
    *,
    confidence: float = 0.95,
    smallest_share: float = 0.0005,
    seed: int = 1,
) -> list[PartChange[Key]]:
    """Return the parts by the size of their change, the largest first.

    before, after: the values of each replicate by part, such as self time per request in seconds; a part that is
        missing took nothing.
    smallest_share: parts whose means are both below this share of a request are left out, because with more parts a
        change must be larger to be told from chance.
    seed: seed of the sign flips if there are too many to make all.
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

    The statistic is |Σ d| / √Σ d², which a sign flip changes in its numerator alone, and which rises with Student's t.
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
    """Return the values over the root of the sum of their squares; an empty list if all are 0."""
    length = math.hypot(*values)
    return [value / length for value in values] if length else []


def _largest_by_flip(rows: Sequence[Sequence[float]], number: int, seed: int) -> list[float]:
    """Return the largest statistic of all parts for each sign flip of the replicates, the identity among them."""
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
    """Return the simultaneous interval: Student's with the sign flips' critical value; None if it is open."""
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
