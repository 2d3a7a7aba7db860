"""The comparison of two variants of an interleaved run, from its blocks to the verdict.

The main function is `compare_blocks`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from placebench.errors import TooFewReplicatesError
from placebench.stats.hodges_lehmann import ConfidenceInterval, hodges_lehmann, interval_p, pseudo_median
from placebench.stats.percentiles import samples_needed
from placebench.stats.replicates import (
    COUNTED,
    METRICS,
    PERCENTILES,
    PROFILED,
    MeasuredBlock,
    ReducedReplicates,
    reduce_blocks,
    slow_share_rule,
    valid_replicates,
)
from placebench.stats.sequential import sequential_detectable, sequential_interval, sequential_p
from placebench.stats.verdict import (
    FASTER,
    INCONCLUSIVE,
    SLOWER,
    IntervalMethod,
    Verdict,
    decide,
    minimum_detectable_effect,
)

_JSON_FIELDS = (
    "baseline",
    "variant",
    "metric",
    "ratio",
    "low",
    "high",
    "confidence",
    "p_adjusted",
    "verdict",
    "detectable",
    "replicates_to_decide",
    "baseline_value",
    "variant_value",
    "margin",
    "replicates",
    "invalidated",
    "reason",
)


@dataclass(frozen=True)
class Comparison:
    """The comparison of *variant* with *baseline* by one metric; a ratio (variant over baseline) below 1 means less."""

    baseline: str
    variant: str
    metric: str
    ratio: float | None
    """The estimate; None if the metric was not measured, or is 0 on one side only. Limits need enough replicates."""
    low: float | None
    high: float | None
    confidence: float
    """The level at which the intervals of all noisy metrics of the pair hold together."""
    replicates: int
    """The number of replicates behind the interval."""
    invalidated: int
    """The number of replicates that were discarded by a rule set before the run."""
    verdict: Verdict
    detectable: float | None
    """Minimum detectable effect: the log ratio that this comparison would have found in 4 of 5 runs."""
    margin: float
    reason: str
    """The reason for an inconclusive verdict, such as 'inconclusive: 3 replicates, 6 needed'; otherwise empty."""
    log_ratios: tuple[float, ...]
    p: float | None = None
    """The p of no change: the error rate at which the interval just excludes it; None if there are no replicates."""
    p_adjusted: float | None = None
    """p over the metric's share of the level, at most 1 (`placebench.stats.multiple_testing.significance_shares`)."""
    baseline_value: float | None = None
    """The baseline's value per request: the median over the replicates, or for a count the mean over the requests."""
    variant_value: float | None = None
    variant_low: float | None = None
    """The lower limit of the variant's own value; None for a count, or if the replicates are too few."""
    variant_high: float | None = None
    is_sequential: bool = False
    """Whether interval and p hold after any replicate (`placebench.stats.sequential`), not only for a fixed number."""
    level: float = 0.95
    """The level of this interval alone: `confidence` if the metric stands alone, else more."""
    needs: str = ""
    """The number of requests that a percentile needs and the replicates do not have, as text; otherwise empty."""

    @property
    def pair(self) -> tuple[str, str]:
        """The names of baseline and variant."""
        return self.baseline, self.variant

    @property
    def measured(self) -> bool:
        """Whether any replicate has a value of this metric."""
        return bool(self.log_ratios)

    @property
    def differs(self) -> bool:
        """Whether both variants have a value, and the values differ."""
        return None not in (self.baseline_value, self.variant_value) and self.baseline_value != self.variant_value

    @property
    def ratios(self) -> tuple[float, ...]:
        """The ratio of variant to baseline for each replicate, in the order the replicates were made."""
        return tuple(math.exp(each) for each in self.log_ratios)

    @property
    def undecided_effect(self) -> float:
        """The log ratio that more replicates would have to find: the estimate, or the margin if that is larger."""
        return max(abs(math.log(self.ratio)) if self.ratio else 0.0, self.margin)

    @property
    def replicates_to_decide(self) -> int | None:
        """About how many replicates find `undecided_effect` in 4 of 5 runs; None if there is a verdict, or no noise.

        The minimum detectable effect falls with the root of the number of replicates. One that is large enough already
        was missed by bad luck: then one more replicate is asked for. With too few for an interval, `reason` names them.
        """
        if self.verdict != INCONCLUSIVE or self.low is None or not self.detectable:
            return None
        return max(self.replicates + 1, math.ceil(self.replicates * (self.detectable / self.undecided_effect) ** 2))

    def to_json(self) -> dict[str, Any]:
        """Return the values that `--json` prints, including the number of replicates."""
        return {name: getattr(self, name) for name in _JSON_FIELDS}


def compare_blocks(
    blocks: Iterable[MeasuredBlock],
    baseline: str,
    variant: str,
    metric: str,
    *,
    confidence: float = 0.95,
    share: float = 1.0,
    sequential: bool = False,
    bound_s: float | None = None,
) -> Comparison:
    """Compare two variants by *metric*, a name of `METRICS`; too few replicates are a verdict, not an error.

    sequential: whether the run may have stopped after any replicate because of its results.
    confidence: above 0.5 and below 1; that of all metrics of the pair together.
    bound_s: what a slow request exceeds, for `slow_share`; None: twice the baseline's p98 in each replicate.
    share: the share of the significance level, 1 − *confidence*, that this metric has (`significance_shares`); above 0,
    at most 1. The interval, and with it the verdict, is at the level 1 − share · (1 − confidence).
    Raises KeyError for a metric that does not exist, ValueError for any other confidence.
    """
    kept = list(blocks)
    rule = METRICS[metric] if bound_s is None or metric != "slow_share" else slow_share_rule(bound_s)
    reduced = reduce_blocks(kept, baseline, variant, rule)
    made = _compare_reduced(
        baseline,
        variant,
        metric,
        reduced,
        margin=rule.margin,
        confidence=confidence,
        share=share,
        sequential=sequential,
    )
    if made.low is not None:
        with suppress(TooFewReplicatesError):  # a sequential interval may be there earlier
            level = hodges_lehmann([math.log(after) for _, after in reduced.levels], confidence=made.level)
            return replace(made, variant_low=math.exp(level.low), variant_high=math.exp(level.high))
        return made
    replicates = valid_replicates(kept)
    if made.measured or not replicates:
        return made
    requests = Counter[tuple[int, str]]()
    for number, each in replicates.items():
        for block in each:
            requests[number, block.variant] += len(block.wall_s)
    most, needed = max(requests.values()), samples_needed(PERCENTILES.get(metric, 0.0))
    if metric not in PERCENTILES or most >= needed:
        return replace(made, reason=f"not measured: {metric}")
    needs = f"needs {needed} requests of a variant in a replicate, and --rounds makes {most}"
    return replace(made, reason=f"not measured: {metric} {needs}", needs=needs)


def compare_counts(
    before: Sequence[float] | None,
    after: Sequence[float] | None,
    baseline: str,
    variant: str,
    metric: str,
    *,
    confidence: float = 0.95,
) -> Comparison:
    """Compare the counts of two variants, request by request.

    before, after: the count of each request; None for a variant that was not counted. Requests replace replicates
    here, because a count is the same in every process. Two zeros are equal. A zero against another number has no
    ratio, so the comparison has none either: its verdict follows from the values, unless the requests contradict each
    other. Raises KeyError for a metric that does not exist.
    """
    pairs = tuple(zip(before or (), after or (), strict=False))
    lone_zeros = any((then == 0) != (now == 0) for then, now in pairs)
    ratios = () if lone_zeros else tuple(math.log(now / then) if then else 0.0 for then, now in pairs)
    counted = ReducedReplicates(log_ratios=ratios, levels=pairs, invalidated=0)
    margin = COUNTED[metric]
    made = _compare_reduced(baseline, variant, metric, counted, margin=margin, confidence=confidence, middle=fmean)
    if not lone_zeros:
        return made
    verdict, reason = _judge_values(pairs)
    return replace(made, verdict=verdict, reason=reason)


def compare_profiled(
    before: Sequence[float],
    after: Sequence[float],
    baseline: str,
    variant: str,
    metric: str,
    *,
    confidence: float = 0.95,
) -> Comparison:
    """Compare the means of a few profiled requests of one process each.

    before, after: the values of the requests; empty for a variant that was not profiled. Requests of one process are
    correlated, so there is a ratio, but no interval and no verdict.
    Raises KeyError for a metric that does not exist.
    """
    then, now = (fmean(samples) if samples else None for samples in (before, after))
    nothing = ReducedReplicates(log_ratios=(), levels=(), invalidated=0)
    made = _compare_reduced(baseline, variant, metric, nothing, margin=PROFILED[metric], confidence=confidence)
    reason = f"inconclusive: profiled in {len(before)} and {len(after)} requests of one process, which give no interval"
    return replace(
        made,
        ratio=now / then if then and now else None,
        baseline_value=then,
        variant_value=now,
        reason=reason if then is not None and now is not None else "not measured of a variant that is not ours",
    )


def _compare_reduced(
    baseline: str,
    variant: str,
    metric: str,
    reduced: ReducedReplicates,
    *,
    margin: float,
    confidence: float,
    middle: Callable[[Iterable[float]], float] = median,
    share: float = 1.0,
    sequential: bool = False,
) -> Comparison:
    if not 0.5 < confidence < 1:  # equivalence is tested at 2 · confidence − 1
        raise ValueError(f"confidence {confidence}: expected more than 0.5 and less than 1, such as 0.95")
    log_ratios, level = reduced.log_ratios, 1 - share * (1 - confidence)
    method = sequential_interval if sequential else hodges_lehmann
    interval, verdict, reason = _judge(log_ratios, margin, level, method)
    p = (sequential_p if sequential else interval_p)(log_ratios) if log_ratios else None
    detectable = minimum_detectable_effect(log_ratios, confidence=level)
    if sequential:
        detectable = sequential_detectable(log_ratios, interval) if interval else None
    return Comparison(
        baseline=baseline,
        variant=variant,
        metric=metric,
        ratio=math.exp(interval.estimate if interval else pseudo_median(log_ratios)) if log_ratios else None,
        low=math.exp(interval.low) if interval else None,
        high=math.exp(interval.high) if interval else None,
        confidence=confidence,
        replicates=len(log_ratios),
        invalidated=reduced.invalidated,
        verdict=verdict,
        detectable=detectable,
        margin=margin,
        reason=reason,
        log_ratios=log_ratios,
        p=p,
        p_adjusted=None if p is None else min(1.0, p / share),
        baseline_value=middle(before for before, _ in reduced.levels) if reduced.levels else None,
        variant_value=middle(after for _, after in reduced.levels) if reduced.levels else None,
        is_sequential=sequential,
        level=level,
    )


def _judge_values(pairs: Sequence[tuple[float, float]]) -> tuple[Verdict, str]:
    """Return the verdict for counts of which some are zero on one side only."""
    if all(now <= then for then, now in pairs):
        return FASTER, ""
    if all(now >= then for then, now in pairs):
        return SLOWER, ""
    return INCONCLUSIVE, "inconclusive: some requests count less and some more, and with zeros there is no ratio"


def _judge(
    log_ratios: Sequence[float], margin: float, confidence: float, method: IntervalMethod
) -> tuple[ConfidenceInterval | None, Verdict, str]:
    try:
        interval = method(log_ratios, confidence=confidence)
    except TooFewReplicatesError as error:
        return None, INCONCLUSIVE, str(error)
    verdict = decide(interval, margin)
    reason = (
        "inconclusive: the interval holds both no change and one beyond the margin" if verdict == INCONCLUSIVE else ""
    )
    return interval, verdict, reason
