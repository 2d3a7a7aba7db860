"""Test a published effect with a new run: `judge_reproduction`, by `difference_of_effects`.

A claim is reproduced if the new run's verdict has the same direction and both intervals allow one common effect, apart
from a difference within the margin. It is not reproduced if the new run's verdict excludes it, or if the effects differ
by more than the margin. Otherwise the new run is too small to decide.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

from placebench.stats.comparison import Comparison
from placebench.stats.hodges_lehmann import MIN_REPLICATES, ConfidenceInterval, count_replicates
from placebench.stats.replicates import COUNTED
from placebench.stats.verdict import BELOW_MARGIN, FASTER, INCONCLUSIVE, SLOWER, Verdict

Outcome = Literal["reproduced", "not reproduced", "inconclusive"]

REPRODUCED: Final = "reproduced"
NOT_REPRODUCED: Final = "not reproduced"
UNDECIDED: Final = "inconclusive"
_ROUNDING = 5e-4
"""The rounding error of the logarithm of a ratio that is published with four digits."""
_BETWEEN_RUNS = 0.05
"""Share of a log effect by which two runs may differ; the interval of neither run contains this variation.

Two runs of the same programs on one machine and one day gave log effects of −1.465 and −1.519 (n = 30 and 12), 3.7 %
apart (docs/explanation/statistics.md, "What the interval does not contain"). Counts do not vary between runs."""


@dataclass(frozen=True)
class Claim:
    """A published comparison; ratios are variant over baseline."""

    verdict: Verdict
    ratio: float | None
    """The published ratio; None if one of the values was 0."""
    low: float | None
    high: float | None

    @property
    def interval(self) -> ConfidenceInterval | None:
        """The published effect with its interval, as log ratios; None if it has no interval."""
        return _interval(self.ratio, self.low, self.high)


@dataclass(frozen=True)
class Reproduction:
    """The result of testing a claim with a new run."""

    outcome: Outcome
    reason: str
    difference: ConfidenceInterval | None
    """The new effect minus the published one, as log ratios; None if either has no interval."""
    replicates_needed: int | None = None
    """The number of replicates that would probably decide an inconclusive claim; None if it is unknown."""


def difference_of_effects(published: ConfidenceInterval, new: ConfidenceInterval) -> ConfidenceInterval:
    """Return the new effect minus the published one, with the interval of the difference; all are log ratios.

    The runs are independent, so their errors add as squares. Each limit combines the two distances that lead there:

        low  = d - sqrt((new - new.low)² + (published.high - published)²)
        high = d + sqrt((new.high - new)² + (published - published.low)²)

    This needs the published limits only, no samples, and handles asymmetric intervals. The distances come from
    Hodges-Lehmann estimates, whose errors are close to normal. With few replicates each distance is longer than that of
    normal errors, so the interval of the difference holds the true value somewhat more often than *confidence*
    (simulated in test_reproduction.py).
    Source: Zou and Donner 2008 (the method of variance estimates recovery), after Newcombe 1998.
    """
    estimate = new.estimate - published.estimate
    below = math.hypot(new.estimate - new.low, published.high - published.estimate)
    above = math.hypot(new.high - new.estimate, published.estimate - published.low)
    return ConfidenceInterval(estimate, estimate - below, estimate + above, min(published.confidence, new.confidence))


def judge_reproduction(claim: Claim, new: Comparison) -> Reproduction:
    """Compare a claim that has a verdict with the same comparison in a new run.

    The effects differ if the interval of their difference lies beyond the sum of the metric's margin and the variation
    between runs of the same programs, which is 5 % of the log effect, or 0 for counts. If the claim is true, at most
    one of 20 runs yields "not reproduced".
    """
    before, after = claim.interval, _interval(new.ratio, new.low, new.high)
    if before is None or after is None:
        return _judge_verdicts(claim, new)
    difference = difference_of_effects(before, after)
    varying = 0.0 if new.metric in COUNTED else _BETWEEN_RUNS * max(abs(before.estimate), abs(after.estimate))
    allowed = new.margin + _ROUNDING + varying
    if difference.low > allowed or difference.high < -allowed:
        same = "same direction, other size" if _supports(claim, new) else f"the new verdict is {new.verdict!r}"
        return Reproduction(NOT_REPRODUCED, f"the effects differ: {same}", difference)
    if _excludes(claim, new, after):
        return Reproduction(
            NOT_REPRODUCED, f"published {claim.verdict!r}, the new verdict is {new.verdict!r}", difference
        )
    if _supports(claim, new):
        return Reproduction(REPRODUCED, "", difference)
    needed = _replicates_needed(claim, before, new)
    return Reproduction(UNDECIDED, _too_wide(new, needed), difference, needed)


def _interval(ratio: float | None, low: float | None, high: float | None) -> ConfidenceInterval | None:
    if not (ratio and low and high):
        return None
    return ConfidenceInterval(math.log(ratio), math.log(low), math.log(high), 0.95)


def _judge_verdicts(claim: Claim, new: Comparison) -> Reproduction:
    """Judge by the verdicts alone if one of them has no interval: a count that became 0, or too few replicates."""
    if new.verdict == INCONCLUSIVE:
        needed = MIN_REPLICATES if new.measured else None
        return Reproduction(UNDECIDED, new.reason.removeprefix("inconclusive: ") or "no interval", None, needed)
    if new.verdict == claim.verdict:
        return Reproduction(REPRODUCED, "", None)
    return Reproduction(NOT_REPRODUCED, f"published {claim.verdict!r}, the new verdict is {new.verdict!r}", None)


def _direction(new: Comparison) -> Verdict:
    """Return the verdict, with 'below the margin' replaced by the direction of the change: 'faster' or 'slower'."""
    if new.verdict == BELOW_MARGIN and new.ratio is not None:
        return FASTER if new.ratio < 1 else SLOWER
    return new.verdict


def _supports(claim: Claim, new: Comparison) -> bool:
    """Return whether the new verdict agrees with the claim: in its direction, or in no change beyond the margin."""
    if claim.verdict in (FASTER, SLOWER):
        return _direction(new) == claim.verdict
    return new.verdict not in (FASTER, SLOWER, INCONCLUSIVE)


def _excludes(claim: Claim, new: Comparison, after: ConfidenceInterval) -> bool:
    """Return whether the new comparison rules the claim out by itself."""
    if claim.verdict in (FASTER, SLOWER):
        return new.verdict != INCONCLUSIVE and not _supports(claim, new)
    return after.low > new.margin or after.high < -new.margin


def _replicates_needed(claim: Claim, before: ConfidenceInterval, new: Comparison) -> int | None:
    """Return how many replicates would decide in 4 of 5 runs if the claim is true; None if that is unknown.

    The detectable effect is inversely proportional to the root of the number of replicates.
    """
    effect = abs(before.estimate)
    target = effect if claim.verdict in (FASTER, SLOWER) else new.margin - effect
    if target <= 0 or not new.detectable:
        return None
    return max(new.replicates + 1, math.ceil(new.replicates * (new.detectable / target) ** 2))


def _too_wide(new: Comparison, needed: int | None) -> str:
    enough = f"; about {needed} would do" if needed else ""
    return f"the new interval is too wide to tell, with {count_replicates(new.replicates)}{enough}"
