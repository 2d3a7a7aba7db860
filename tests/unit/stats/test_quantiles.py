"""Quantiles of latencies and when they are shown."""

import pytest

from placebench.stats.percentiles import quantile, samples_needed


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50.0), (0.9, 90.0), (0.95, None), (0.99, None)])
def test_a_quantile_needs_ten_samples_above_it(share: float, expected: float | None) -> None:
    """Of 0 … 100 the 90 % quantile has ten above it and is shown, the 95 % quantile has five and is not."""
    assert expected == quantile(list(range(101)), share)


def test_how_many_samples_each_quantile_takes() -> None:
    """A p99 takes 1000 samples."""
    assert [samples_needed(share) for share in (0.5, 0.9, 0.95, 0.99)] == [20, 100, 200, 1000]


def test_between_two_samples_in_proportion() -> None:
    """The median of 20 samples lies half way between the tenth and the eleventh."""
    assert quantile([1.0] * 10 + [2.0] * 10, 0.5) == 1.5


def test_nothing_has_no_quantile() -> None:
    """No samples, no number."""
    assert quantile([], 0.5) is None
