"""The error rate of several metrics of one pair, several changes of one experiment, and their interaction."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from placebench.stats.replicates import LIFETIME, METRICS, PRIMARY, MeasuredBlock, ReducedReplicates, reduce_blocks

_SHARE_OF_PRIMARY = 5 / 8
"""At 95 % this leaves the primary metric 1/32, which 6 replicates that agree just reach (2/64)."""
_OTHERS = {
    "cpu_s": ("wall_s", "pss_bytes"),
    "elapsed_s": ("cpu_s", "wall_s", "pss_bytes", "p95_s", "p99_s"),
    "p95_s": ("cpu_s", "pss_bytes", "p50_s", "p99_s"),
}
"""By primary metric, the others that are measured beside it: of one user, of several, and of arrivals at a rate."""


def significance_shares(primary: str) -> dict[str, float]:
    """Return each noisy metric's share of the significance level; fixed before any run, together 1.

    The primary metric has 5/8, the others share the rest equally. An interval at 1 − share · (1 − confidence) for each
    metric then misses none of the true values with *confidence* or more, however the metrics are correlated (Bonferroni
    with weights; Hsu 1996, Multiple Comparisons, chapter 1). Counts have no noise, and no share.

    The metrics of a process's lifetime are a family of their own, whose intervals hold together with *confidence* too.

    primary: that of `primary_metric`; KeyError for any other metric.
    """
    others = _OTHERS[primary]
    return {primary: _SHARE_OF_PRIMARY, **dict.fromkeys(others, (1 - _SHARE_OF_PRIMARY) / len(others))}


def lifetime_shares() -> dict[str, float]:
    """Return the share of the level that each metric of a process's lifetime has: equal ones, together 1."""
    return dict.fromkeys(LIFETIME, 1 / len(LIFETIME))


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
