"""Counts of each statement over the whole life of a process, in bounded memory: `StatementStatistics`.

Times are counted in 208 buckets, 26 per decade from 1 µs to 100 s, so that any percentile of them is known to 5 %. The
bounds hold 1, 2 and 5 of each decade exactly.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil
from typing import Self

# The ranges 1 to 2, 2 to 5 and 5 to 10 of a decade: lower end, ratio, and number of buckets of each.
_RANGES = ((1.0, 2.0, 8), (2.0, 2.5, 10), (5.0, 2.0, 8))
_BOUNDS_S: tuple[float, ...] = (
    *(
        float(f"{low}e{decade}") * ratio ** (step / steps)
        for decade in range(-6, 2)
        for low, ratio, steps in _RANGES
        for step in range(steps)
    ),
    100.0,
)
RELATIVE_ERROR = 0.046
"""Maximum error of a percentile: half the width of a bucket over its middle; for times from 1 µs to 100 s."""
OTHER = "other"
"""The fingerprint under which all statements beyond the limit are counted together."""


def _no_buckets() -> "array[int]":
    return array("Q", bytes(8 * (len(_BOUNDS_S) + 1)))


@dataclass(slots=True)
class StatementStatistics:
    """All executions of the statements with one fingerprint.

    fingerprint: as for a recorded statement; "COMMIT" or "ROLLBACK" for these steps; "other" beyond the limit.
    sql: the first text that was seen, without its literals; empty for "other".
    row_count: rows returned, or touched by a write; None if no execution reported any.
    error_count: executions that raised; they count in all other figures too.
    total_s, max_s: seconds inside the driver, execute and fetch, in total and for the slowest execution.
    buckets: executions by their seconds, for `quantile_s` and `counts_within`.
    """

    fingerprint: str
    sql: str
    row_count: int | None = None
    error_count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0
    buckets: "array[int]" = field(default_factory=_no_buckets, repr=False)

    @property
    def count(self) -> int:
        """The number of executions."""
        return sum(self.buckets)

    @property
    def p95_s(self) -> float | None:
        """The seconds within which 95 % of the executions ended, to `RELATIVE_ERROR`; None without executions."""
        return self.quantile_s(0.95)

    def add(self, seconds: float, rows: int | None, *, failed: bool) -> None:
        """Count one execution."""
        self.buckets[bisect_left(_BOUNDS_S, seconds)] += 1
        self.total_s += seconds
        if seconds > self.max_s:
            self.max_s = seconds
        if failed:
            self.error_count += 1
        if rows is not None:
            self.row_count = rows + (self.row_count or 0)

    def quantile_s(self, share: float) -> float | None:
        """Return the seconds within which this *share* of executions ended, to `RELATIVE_ERROR`; None without any."""
        wanted, seen = max(1, ceil(share * self.count)), 0
        for index, count in enumerate(self.buckets):
            seen += count
            if seen >= wanted:
                return min(_middle_s(index), self.max_s)
        return None

    def counts_within(self, bounds_s: Sequence[float]) -> list[int]:
        """Return how many executions took at most each of *bounds_s*, which are 1, 2 or 5 times a power of ten."""
        within = list(accumulate(self.buckets))
        return [within[bisect_left(_BOUNDS_S, bound)] for bound in bounds_s]

    def copy(self) -> Self:
        """Return a copy, whose figures no longer change."""
        return type(self)(
            self.fingerprint,
            self.sql,
            self.row_count,
            self.error_count,
            self.total_s,
            self.max_s,
            array("Q", self.buckets),
        )


def _middle_s(index: int) -> float:
    """Return the value with the same relative distance to both bounds of a bucket; infinite above the last one."""
    if index == len(_BOUNDS_S):
        return float("inf")
    low, high = _BOUNDS_S[max(index - 1, 0)], _BOUNDS_S[index]
    return 2.0 * low * high / (low + high)
