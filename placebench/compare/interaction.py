"""Do changes add up? What is left of the whole when its parts are taken away.

The key piece is `remainder`. All arms stand in the same replicates, so that it is taken replicate by replicate.
"""

from collections.abc import Iterable, Sequence

from placebench.compare.reduction import METRICS, PRIMARY, Block, Replicates, reduce_blocks

Pair = tuple[str, str]
"""Baseline and variant."""


def remainder(blocks: Iterable[Block], whole: Pair, parts: Sequence[Pair], *, metric: str = PRIMARY) -> list[float]:
    """Log ratio of *whole* less those of *parts*, one a replicate; without interaction they lie about 0.

    A replicate in which one of the pairs was not measured is left out.
    """
    kept = list(blocks)
    of_pairs = [_by_number(reduce_blocks(kept, *pair, METRICS[metric])) for pair in (whole, *parts)]
    in_all = sorted(set.intersection(*(set(ratios) for ratios in of_pairs)))
    return [first - sum(others) for first, *others in ([ratios[number] for ratios in of_pairs] for number in in_all)]


def _by_number(reduced: Replicates) -> dict[int, float]:
    return dict(zip(reduced.numbers, reduced.log_ratios, strict=True))
