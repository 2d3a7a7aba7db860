"""The shares of requests that two variants failed, with intervals, and whether one fails more of them.

The main function is `compare_errors`. Unlike a time, an error share has no ratio when a variant fails nothing, so it is
compared by counts of requests.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal, Protocol

from placebench.stats.replicates import MeasuredBlock

ErrorVerdict = Literal["no errors", "more errors", "fewer errors", "errors, no difference shown"]

NO_ERRORS: ErrorVerdict = "no errors"
MORE_ERRORS: ErrorVerdict = "more errors"
FEWER_ERRORS: ErrorVerdict = "fewer errors"
NO_DIFFERENCE_SHOWN: ErrorVerdict = "errors, no difference shown"
_LEVEL = 0.001
"""Level of the exact test; strict, because requests to one process are not quite independent of each other."""


class AnsweredBlock(MeasuredBlock, Protocol):
    """A block of consecutive requests to one variant that knows how many of them failed."""

    @property
    def error_responses(self) -> int:
        """The number of requests whose response was not accepted; a lost connection is not one."""


@dataclass(frozen=True)
class ErrorShare:
    """The requests that one variant was sent and those that it failed, with the 95 % interval of their share."""

    failed: int
    sent: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share of the requests that failed; 0 without requests."""
        return self.failed / self.sent if self.sent else 0.0


@dataclass(frozen=True)
class ErrorComparison:
    """The comparison of *variant* with *baseline* by their failed requests, in the rounds that both were sent."""

    baseline: str
    variant: str
    before: ErrorShare
    after: ErrorShare
    verdict: ErrorVerdict

    def to_json(self) -> dict[str, Any]:
        """Return the values that `--json` prints; shares are of 1."""
        shares = {
            name: {**asdict(each), "share": each.share}
            for name, each in (("before", self.before), ("after", self.after))
        }
        return {"baseline": self.baseline, "variant": self.variant, **shares, "verdict": self.verdict}


def compare_errors(blocks: Iterable[AnsweredBlock], baseline: str, variant: str) -> ErrorComparison:
    """Compare the failed requests of two variants, in discarded replicates too: most are discarded because of them.

    A round counts if both variants have as many of its blocks, so that a replicate that was cut short accuses nobody of
    what the other was not asked. Requests of a warm-up count (`warm_up_requests` and `warm_up_errors` of the counters).

    more errors   the baseline failed none, or Fisher's exact test on one side has p of 0.001 or less
    fewer errors  the same test on the other side; some errors against none are not proof of an improvement
    """
    of_round: dict[tuple[int, int], dict[str, list[AnsweredBlock]]] = defaultdict(lambda: defaultdict(list))
    for block in blocks:
        of_round[block.replicate, block.round][block.variant].append(block)
    shared = [each for each in of_round.values() if len(each[baseline]) == len(each[variant])]
    before, after = (_share([block for each in shared for block in each[name]]) for name in (baseline, variant))
    verdict = NO_DIFFERENCE_SHOWN
    if not before.failed and not after.failed:
        verdict = NO_ERRORS
    elif after.failed and (not before.failed or _more_by_chance(after, before) <= _LEVEL):
        verdict = MORE_ERRORS
    elif before.failed and _more_by_chance(before, after) <= _LEVEL:
        verdict = FEWER_ERRORS
    return ErrorComparison(baseline, variant, before, after, verdict)


def error_count(block: AnsweredBlock) -> int:
    """Return the number of requests of a block that failed with a response, and of the warm-up before it."""
    return block.error_responses + int(block.counters.get("warm_up_errors", 0))


def _share(blocks: Iterable[AnsweredBlock]) -> ErrorShare:
    """Return the failed and sent requests of *blocks*, with Wilson's interval of their share."""
    failed = sent = 0
    for block in blocks:
        errors = error_count(block)
        failed += errors
        sent += max(errors, block.requests + int(block.counters.get("warm_up_requests", 0)))
    if not sent:
        return ErrorShare(0, 0, 0.0, 1.0)
    squared = NormalDist().inv_cdf(0.975) ** 2
    center = failed + squared / 2
    half = math.sqrt(squared * (failed * (sent - failed) / sent + squared / 4))
    low, high = ((center + sign * half) / (sent + squared) for sign in (-1, 1))
    return ErrorShare(failed, sent, low if failed else 0.0, high if failed < sent else 1.0)


def _more_by_chance(one: ErrorShare, other: ErrorShare) -> float:
    """Return the probability that *one* has this number of all errors if each request is as likely to fail."""

    def log_ways(sent: int, failed: int) -> float:
        return math.lgamma(sent + 1) - math.lgamma(failed + 1) - math.lgamma(sent - failed + 1)

    errors, requests = one.failed + other.failed, one.sent + other.sent
    possible = range(max(one.failed, errors - other.sent), min(errors, one.sent) + 1)
    whole = log_ways(requests, errors)
    return min(
        1.0, sum(math.exp(log_ways(one.sent, each) + log_ways(other.sent, errors - each) - whole) for each in possible)
    )
