"""Several metrics of one run: how sure is one of them, when so many were looked at?

The key piece is `adjusted`. The primary metric was declared before the run and keeps its verdict; the verdict of each
other one needs a p that holds after the adjustment of Benjamini and Hochberg (1995) over all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from placebench.compare.comparison import Comparison
from placebench.compare.reduction import PRIMARY
from placebench.compare.verdict import CANNOT_TELL, EQUIVALENT


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons in the same order; metrics other than the primary one with p and verdict adjusted."""
    others = [each.p for each in comparisons if each.metric != PRIMARY and each.p is not None]
    corrected = iter(benjamini_hochberg(others))
    return [
        each if each.metric == PRIMARY or each.p is None else _held_to(each, next(corrected)) for each in comparisons
    ]


def benjamini_hochberg(p_values: Iterable[float]) -> list[float]:
    """Adjusted p values, in the order they came: p times how many there are over its rank, never falling with p."""
    values = list(p_values)
    largest_first = sorted(range(len(values)), key=lambda place: values[place], reverse=True)
    made = [1.0] * len(values)
    least = 1.0
    for passed, place in enumerate(largest_first):
        least = min(least, values[place] * len(values) / (len(values) - passed))
        made[place] = least
    return made


def _held_to(comparison: Comparison, p_adjusted: float) -> Comparison:
    held = replace(comparison, p_adjusted=p_adjusted)
    if comparison.verdict in (CANNOT_TELL, EQUIVALENT) or p_adjusted <= 1 - comparison.confidence:
        return held
    reason = f"cannot tell: among so many metrics p is {p_adjusted:.3f}, {1 - comparison.confidence:.3g} is needed"
    return replace(held, verdict=CANNOT_TELL, reason=reason)
