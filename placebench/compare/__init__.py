"""Numbers in, verdict out: estimators, intervals and the verdict of a comparison. No I/O, nothing but the stdlib.

    from placebench.compare import hodges_lehmann
    hodges_lehmann([-1.12, -1.15, -1.13, -1.14, -1.16, -1.11])

The way of the numbers: `reduction` (blocks of requests → one log ratio a replicate) → `interval` → `verdict`;
`compare_blocks` goes all of it.
"""

from placebench.compare.comparison import Comparison, compare_blocks
from placebench.compare.interval import Interval, hodges_lehmann
from placebench.compare.quantiles import cumulative, quantile, samples_needed

__all__ = [
    "Comparison",
    "Interval",
    "compare_blocks",
    "cumulative",
    "hodges_lehmann",
    "quantile",
    "samples_needed",
]
