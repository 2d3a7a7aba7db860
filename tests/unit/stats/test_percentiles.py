"""Percentiles of latencies and when they are shown; the median of a few repeats."""

import pytest

from placebench.stats import MedianInterval, cumulative_distribution, median_interval
from placebench.stats.percentiles import percentile, samples_needed


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50.0), (0.9, 90.0), (0.95, None), (0.99, None)])
def test_a_percentile_needs_ten_samples_above_it(share: float, expected: float | None) -> None:
    """Of 0 … 100 the 90 % percentile has ten above it and is shown, the 95 % percentile has five and is not."""
    assert expected == percentile(list(range(101)), share)


def test_how_many_samples_each_percentile_takes() -> None:
    """A p99 takes 1000 samples."""
    assert [samples_needed(share) for share in (0.5, 0.9, 0.95, 0.99)] == [20, 100, 200, 1000]


def test_between_two_samples_in_proportion() -> None:
    """The median of 20 samples lies half way between the tenth and the eleventh."""
    assert percentile([1.0] * 10 + [5.0] + [9.0] * 9, 0.5) == 3.0
    assert percentile([0.0, 2.0, *[4.0] * 9], 0.05) == 1.0


def test_nothing_has_no_quantile() -> None:
    """No samples, no number."""
    assert percentile([], 0.5) is None


def test_the_distribution_of_few_samples_has_them_all() -> None:
    """A third of 1, 4 and 9 is at most 1, two thirds are at most 4."""
    assert cumulative_distribution([1.0, 4.0, 9.0]) == [(1.0, 1 / 3), (4.0, 2 / 3), (9.0, 1.0)]


def test_the_distribution_of_many_samples_is_thinned_evenly() -> None:
    """Of the squares of 0 to 10 the first, the last, and those nearest to a third and two thirds of the way."""
    squares = [float(number * number) for number in range(11)]

    assert cumulative_distribution(squares, points=4) == [(0.0, 1 / 11), (9.0, 4 / 11), (49.0, 8 / 11), (100.0, 1.0)]
    assert len(cumulative_distribution([0.0] * 300)) == 200


def test_five_repeats() -> None:
    """Five repeats give their median, and their least and greatest as the interval, which holds 15 times in 16."""
    assert MedianInterval(3.0, 1.0, 9.0, 0.9375, 5) == median_interval([9.0, 1.0, 3.0, 2.0, 4.0])


def test_more_repeats_narrow_the_interval() -> None:
    """Of ten repeats the second and the ninth are enough: 1 - 2 (1 + 10) / 1024 = 97.9 %."""
    made = median_interval([float(value) for value in range(1, 11)])

    assert MedianInterval(5.5, 2.0, 9.0, 1 - 22 / 1024, 10) == made


def test_too_few_have_no_interval() -> None:
    """Four repeats have a median and no interval: their least and greatest would hold 87.5 % only."""
    assert MedianInterval(2.5, None, None, None, 4) == median_interval([1.0, 2.0, 3.0, 4.0])


def test_no_value() -> None:
    """Without a value there is no median, and that is said."""
    with pytest.raises(ValueError, match="a median needs one"):
        median_interval([])
