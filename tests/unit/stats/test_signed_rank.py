"""The critical rank of the signed-rank sum: by hand, from the tables, and where counting ends."""

import random

import pytest

from placebench.stats.signed_rank import critical_rank, normal_rank, signed_rank_p


@pytest.mark.parametrize(("n", "tail", "rank"), [(6, 0.025, 1), (9, 0.025, 6), (12, 0.025, 14), (20, 0.025, 53)])
def test_the_ranks_of_the_tables(n: int, tail: float, rank: int) -> None:
    """One above the critical values 0, 5, 13 and 52 of the printed tables (two-sided 5 %)."""
    assert rank == critical_rank(n, tail)


def test_no_rank_for_too_few() -> None:
    """Of five coins none falls on the 2.5 % side: all tails has 1 in 32."""
    assert critical_rank(5, 0.025) == 0


def test_the_normal_distribution_takes_over_without_a_step() -> None:
    """From 100 to 200 values the corrected normal rank is within one of the counted rank, and mostly on it."""
    off = [
        abs(critical_rank(n, tail) - normal_rank(n, tail))
        for n in range(100, 201, 10)
        for tail in (0.0005, 0.005, 0.01105, 0.025, 0.05, 0.25)
    ]

    assert max(off) == 1
    assert sum(off) < len(off) / 10


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([], 1.0),
        ([0.0, 0.0], 1.0),
        ([1.0] * 6, 2 / 64),
        ([-1.0, -2.0, -3.0], 2 / 8),
        ([1.0, -1.0], 1.0),
        ([3.0, 2.0, -1.0], 4 / 8),
    ],
)
def test_the_p_of_few_values_by_hand(values: list[float], p: float) -> None:
    """Of 2ⁿ sign patterns so many are as lopsided; equal sizes share a rank, zeros say nothing."""
    assert signed_rank_p(values) == pytest.approx(p)


def test_the_p_agrees_with_scipy() -> None:
    """Without ties scipy's exact test gives the same, from 5 to 40 values."""
    stats = pytest.importorskip("scipy.stats")
    chance = random.Random(1)
    for n in range(5, 41, 5):
        values = [chance.gauss(0.3, 1) for _ in range(n)]

        assert signed_rank_p(values) == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)


def test_the_p_of_many_values_goes_on() -> None:
    """Above 200 values the normal distribution takes over, a percent beside the counted one."""
    chance = random.Random(2)
    values = [chance.gauss(0.1, 1) for _ in range(201)]

    assert signed_rank_p(values) == pytest.approx(signed_rank_p(values[:200]), rel=0.25)
