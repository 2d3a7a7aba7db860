"""Numbers in, verdict out: estimators, intervals and the verdict of a comparison. No I/O, nothing but the stdlib.

    from placebench.stats import hodges_lehmann
    hodges_lehmann([-1.12, -1.15, -1.13, -1.14, -1.16, -1.11])

The way of the numbers: `reduction` (blocks of requests → one log ratio a replicate) → `interval` → `verdict`;
`compare_blocks` goes all of it.
"""

from placebench.stats.comparison import Comparison, compare_blocks, compare_counts, compare_watched
from placebench.stats.hodges_lehmann import Interval, hodges_lehmann
from placebench.stats.median_interval import Middle, middle
from placebench.stats.multiple_testing import adjusted
from placebench.stats.percentiles import cumulative, quantile, samples_needed
from placebench.stats.replicates import COUNTED, METRICS, PRIMARY, WATCHED

__all__ = [
    "COUNTED",
    "METRICS",
    "PRIMARY",
    "WATCHED",
    "Comparison",
    "Interval",
    "Middle",
    "adjusted",
    "compare_blocks",
    "compare_counts",
    "compare_watched",
    "cumulative",
    "hodges_lehmann",
    "middle",
    "quantile",
    "samples_needed",
]
