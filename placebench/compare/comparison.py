"""The comparison of two arms of an interleaved run, from its blocks to the verdict.

The key piece is `compare_blocks`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from placebench.compare.interval import Interval, hodges_lehmann, pseudo_median
from placebench.compare.reduction import METRICS, Block, Metric, Replicates, reduce_blocks
from placebench.compare.verdict import CANNOT_TELL, Verdict, decide, detectable_effect
from placebench.errors import TooFewReplicatesError

_OF_THE_INTERFACE = ("baseline", "variant", "metric", "ratio", "low", "high", "confidence", "verdict", "detectable")


@dataclass(frozen=True)
class Comparison:
    """How one metric of *variant* stands to that of *baseline*; ratios are variant over baseline, below 1 is less."""

    baseline: str
    variant: str
    metric: str
    ratio: float | None
    """The best guess; without limits where the replicates are too few, None where the metric was not measured."""
    low: float | None
    high: float | None
    confidence: float
    replicates: int
    """How many the interval rests on."""
    invalidated: int
    """How many were thrown away by a rule set before the run."""
    verdict: Verdict
    detectable: float | None
    """The smallest log ratio that this comparison would have found in 4 of 5 runs."""
    margin: float
    reason: str
    """Why it cannot tell, where it cannot: 'cannot tell: 3 replicates, 6 needed'."""
    log_ratios: tuple[float, ...]

    @property
    def measured(self) -> bool:
        """Whether any replicate has a value of this metric."""
        return bool(self.log_ratios)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Variant over baseline of each replicate, in the order they were made."""
        return tuple(math.exp(each) for each in self.log_ratios)

    def to_json(self) -> dict[str, Any]:
        """The figures that `--json` promises, with how many replicates they rest on."""
        figures = {name: getattr(self, name) for name in _OF_THE_INTERFACE}
        return {**figures, "replicates": self.replicates, "invalidated": self.invalidated, "reason": self.reason}


def compare_blocks(
    blocks: Iterable[Block], baseline: str, variant: str, metric: str, *, confidence: float = 0.95
) -> Comparison:
    """Compare two arms by *metric* ("cpu_s" or "wall_s"); too few replicates are a verdict, not an error.

    Raises KeyError for a metric that does not exist.
    """
    rule = METRICS[metric]
    reduced = reduce_blocks(blocks, baseline, variant, rule)
    interval, verdict, reason = _judge(reduced, rule, confidence)
    return Comparison(
        baseline=baseline,
        variant=variant,
        metric=metric,
        ratio=math.exp(pseudo_median(reduced.log_ratios)) if reduced.log_ratios else None,
        low=math.exp(interval.low) if interval else None,
        high=math.exp(interval.high) if interval else None,
        confidence=confidence,
        replicates=len(reduced.log_ratios),
        invalidated=reduced.invalidated,
        verdict=verdict,
        detectable=detectable_effect(reduced.log_ratios),
        margin=rule.margin,
        reason=reason,
        log_ratios=reduced.log_ratios,
    )


def _judge(reduced: Replicates, metric: Metric, confidence: float) -> tuple[Interval | None, Verdict, str]:
    try:
        interval = hodges_lehmann(reduced.log_ratios, confidence=confidence)
    except TooFewReplicatesError as error:
        return None, CANNOT_TELL, str(error)
    verdict = decide(reduced.log_ratios, interval, metric.margin)
    reason = (
        "cannot tell: the interval holds both no change and one beyond the margin" if verdict == CANNOT_TELL else ""
    )
    return interval, verdict, reason
