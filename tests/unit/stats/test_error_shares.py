"""Failed requests of two variants are compared by counts of requests, in the rounds that both were sent."""

from dataclasses import replace

import pytest

from placebench.compare.keep.records import Block
from placebench.stats.error_shares import ErrorComparison, ErrorVerdict, compare_errors


def block(variant: str, failed: int, *, sent: int = 200, replicate: int = 0, round_: int = 0) -> Block:
    """A block of a variant with so many failed requests."""
    return Block(
        replicate, round_, position=0, variant=variant, requests=sent, wall_s=[0.1], cpu_s=None, error_responses=failed
    )


def compare(before: int, after: int, *, sent: int = 200) -> ErrorComparison:
    """Compare two variants by one block of each."""
    return compare_errors([block("main", before, sent=sent), block("change", after, sent=sent)], "main", "change")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (0, 0, "no errors"),
        (0, 1, "more errors"),
        (1, 200, "more errors"),
        (1, 0, "errors, no difference shown"),
        (5, 5, "errors, no difference shown"),
        (3, 6, "errors, no difference shown"),
        (200, 1, "fewer errors"),
    ],
)
def test_the_verdict_on_two_hundred_requests_of_each(before: int, after: int, verdict: ErrorVerdict) -> None:
    """One error against none is a verdict; one more or less than the baseline's own errors is not."""
    assert verdict == compare(before, after).verdict


def test_only_rounds_that_both_variants_were_sent_count() -> None:
    """A round that was cut short neither accuses the variant nor excuses its other replicates and rounds."""
    cut = [block("main", 0, replicate=1), block("main", 0, replicate=1), block("change", 7, replicate=1)]
    whole = [block("main", 0, replicate=2), block("change", 2, replicate=2)]

    assert "no errors" == compare_errors(cut, "main", "change").verdict
    made = compare_errors([*cut, *whole, block("change", 1, replicate=2, round_=1)], "main", "change")

    assert ("more errors", 2, 200, 0, 200) == (
        made.verdict,
        made.after.failed,
        made.after.sent,
        made.before.failed,
        made.before.sent,
    )


@pytest.mark.parametrize(
    ("failed", "low", "high"), [(0, 0.0, 0.0188456), (1, 0.00088336, 0.0277786), (200, 0.9811544, 1.0)]
)
def test_the_interval_of_a_share_is_that_of_wilson(failed: int, low: float, high: float) -> None:
    """Of 200 requests, the interval with one error is [0.088 %, 2.78 %]: it holds the share."""
    share = compare(0, failed).after

    assert (pytest.approx(low, rel=1e-3), pytest.approx(high, rel=1e-3)) == (share.low, share.high)
    assert share.low <= share.share <= share.high


def test_failed_requests_of_a_warm_up_count() -> None:
    """They are errors of the block that follows, with their own requests; without requests a share says nothing."""
    warmed = replace(block("change", 1), counters={"warm_up_errors": 2, "warm_up_requests": 16})

    assert (3, 216) == (
        (after := compare_errors([block("main", 0), warmed], "main", "change").after).failed,
        after.sent,
    )
    nothing = compare_errors([block("main", 0)], "main", "change").after
    assert (0, 0, 0, 1) == (nothing.failed, nothing.share, nothing.low, nothing.high)


def test_swapping_the_variants_swaps_the_verdict() -> None:
    """The test is the same on both sides; only errors against none are judged on one side alone."""
    mirrored = {"more errors": "fewer errors", "fewer errors": "more errors"}
    for before in range(1, 60, 7):
        for after in range(1, 60, 7):
            verdict = compare(before, after).verdict
            assert mirrored.get(verdict, verdict) == compare(after, before).verdict
