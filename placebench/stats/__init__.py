"""Numbers in, verdict out: estimators, intervals and the verdict of a comparison. No I/O, standard library only.

    from placebench.stats import hodges_lehmann
    hodges_lehmann([-1.12, -1.15, -1.13, -1.14, -1.16, -1.11])

Data flow: `replicates` (blocks of requests → one log ratio per replicate) → `hodges_lehmann` (the interval) →
`verdict`; `compare_blocks` does all of it.
"""

from placebench.stats.attribution import PART_REPLICATES, PartChange, attribute
from placebench.stats.comparison import Comparison, compare_blocks, compare_counts, compare_profiled
from placebench.stats.hodges_lehmann import ConfidenceInterval, hodges_lehmann
from placebench.stats.multiple_testing import significance_shares
from placebench.stats.percentiles import (
    MedianInterval,
    crossing_rate,
    cumulative_distribution,
    median_interval,
    percentile,
    samples_needed,
)
from placebench.stats.replicates import COUNTED, METRICS, PRIMARY, PROFILED, primary_metric
from placebench.stats.reproduction import Claim, Reproduction, difference_of_effects, judge_reproduction
from placebench.stats.sequential import sequential_interval

__all__ = [
    "COUNTED",
    "METRICS",
    "PART_REPLICATES",
    "PRIMARY",
    "PROFILED",
    "Claim",
    "Comparison",
    "ConfidenceInterval",
    "MedianInterval",
    "PartChange",
    "Reproduction",
    "attribute",
    "compare_blocks",
    "compare_counts",
    "compare_profiled",
    "crossing_rate",
    "cumulative_distribution",
    "difference_of_effects",
    "hodges_lehmann",
    "judge_reproduction",
    "median_interval",
    "percentile",
    "primary_metric",
    "samples_needed",
    "sequential_interval",
    "significance_shares",
]
