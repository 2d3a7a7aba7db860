"""Walsh averages: sorted where they are few, counted where they are many, with one answer."""

import random

from placebench.stats.hodges_lehmann import order_statistics, select


def test_the_averages_of_three_values() -> None:
    """1 2 6 have six pairs, each value with itself among them."""
    assert order_statistics([6, 1, 2], [1, 2, 3, 4, 5, 6]) == [1.0, 1.5, 2.0, 3.5, 4.0, 6.0]


def test_counting_finds_what_sorting_finds() -> None:
    """Every rank of 40 values, ties among them, is the same both ways, to the last bit."""
    rng = random.Random(3)
    values = sorted([rng.gauss(0, 1) for _ in range(30)] + [0.0, 0.25, 0.25, -0.25] + [1.5] * 6)
    ranks = range(1, 40 * 41 // 2 + 1)

    assert order_statistics(values, ranks) == [select(values, rank) for rank in ranks]
