"""Benjamini-Hochberg adjustment for several metrics of one run, and the interaction of several changes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, compress

from placebench.stats.comparison import Comparison
from placebench.stats.replicates import METRICS, PRIMARY, MeasuredBlock, ReducedReplicates, reduce_blocks
from placebench.stats.verdict import EQUIVALENT, INCONCLUSIVE


def adjust_for_multiple_testing(comparisons: Sequence[Comparison], *, primary: str = PRIMARY) -> list[Comparison]:
    """Return the comparisons in their order, with p and verdict adjusted for all metrics that noise could move.

    Adjusted are all measured metrics but the primary one and counts. A count is the same in every process: it cannot
    get a verdict by chance, and must not make the verdicts of other metrics harder to reach.
    """
    noisy = [each.p is not None and each.metric in METRICS and each.metric != primary for each in comparisons]
    corrected = iter(benjamini_hochberg(each.p or 0.0 for each in compress(comparisons, noisy)))
    return [
        _adjust(each, next(corrected)) if is_noisy else each for each, is_noisy in zip(comparisons, noisy, strict=True)
    ]


def benjamini_hochberg(p_values: Iterable[float]) -> list[float]:
    """Return the Benjamini-Hochberg adjusted p values, in the order of *p_values*.

    Each is p times the number of values over its rank, made non-decreasing in p.
    """
    values = list(p_values)
    number = len(values)
    largest_first = sorted(range(number), key=lambda place: values[place], reverse=True)
    multiplied = (values[place] * number / (number - passed) for passed, place in enumerate(largest_first))
    adjusted = dict(zip(largest_first, accumulate(multiplied, min), strict=True))
    return [adjusted[place] for place in range(number)]


def _adjust(comparison: Comparison, p_adjusted: float) -> Comparison:
    held = replace(comparison, p_adjusted=p_adjusted)
    if comparison.verdict in (INCONCLUSIVE, EQUIVALENT) or p_adjusted <= 1 - comparison.confidence:
        return held
    needed = f"p is {p_adjusted:.3f} and {1 - comparison.confidence:.3g} is needed"
    reason = f"inconclusive: adjusted for the other metrics, {comparison.metric} has too few replicates: {needed}"
    return replace(held, verdict=INCONCLUSIVE, reason=reason)


Pair = tuple[str, str]
"""The names of baseline and variant."""


def interaction_effects(
    blocks: Iterable[MeasuredBlock], whole: Pair, parts: Sequence[Pair], *, metric: str = PRIMARY
) -> list[float]:
    """Return the log ratio of *whole* minus the sum of those of *parts*, per replicate; about 0 without interaction.

    A replicate in which one of the pairs was not measured is left out.
    """
    kept = list(blocks)
    of_pairs = [_by_number(reduce_blocks(kept, *pair, METRICS[metric])) for pair in (whole, *parts)]
    in_all = sorted(set.intersection(*(set(ratios) for ratios in of_pairs)))
    return [first - sum(others) for first, *others in ([ratios[number] for ratios in of_pairs] for number in in_all)]


def _by_number(reduced: ReducedReplicates) -> dict[int, float]:
    return dict(zip(reduced.numbers, reduced.log_ratios, strict=True))
