"""Do changes add up? What is left of the whole when its parts are taken away.

The key piece is `remainder`. All arms stand in the same replicates, so that it is taken replicate by replicate.
"""

from collections.abc import Iterable, Sequence

from placebench.compare.reduction import METRICS, PRIMARY, Block, reduce_blocks

Pair = tuple[str, str]
"""Baseline and variant."""


def remainder(blocks: Iterable[Block], whole: Pair, parts: Sequence[Pair], *, metric: str = PRIMARY) -> list[float]:
    """Log ratio of *whole* less those of *parts*, one a replicate; without interaction they lie about 0.

    Replicates in which a pair was not measured are in none of it; different numbers of them are an empty list.
    """
    kept = list(blocks)
    ratios = [reduce_blocks(kept, *pair, METRICS[metric]).log_ratios for pair in (whole, *parts)]
    if len({len(each) for each in ratios}) > 1:
        return []
    return [first - sum(others) for first, *others in zip(*ratios, strict=True)]
