"""The middle of a few repeats."""

import pytest

from placebench.stats import Middle, middle


def test_five_repeats() -> None:
    """Five repeats give their median, and their least and greatest as the interval, which holds 15 times in 16."""
    assert Middle(3.0, 1.0, 9.0, 0.9375, 5) == middle([9.0, 1.0, 3.0, 2.0, 4.0])


def test_more_repeats_narrow_the_interval() -> None:
    """Of ten repeats the second and the ninth are enough: 1 - 2 (1 + 10) / 1024 = 97.9 %."""
    made = middle([float(value) for value in range(1, 11)])

    assert Middle(5.5, 2.0, 9.0, 1 - 22 / 1024, 10) == made


def test_too_few_have_no_interval() -> None:
    """Four repeats have a median and no interval: their least and greatest would hold 87.5 % only."""
    assert Middle(2.5, None, None, None, 4) == middle([1.0, 2.0, 3.0, 4.0])


def test_no_value() -> None:
    """Without a value there is no median, and that is said."""
    with pytest.raises(ValueError, match="a median needs one"):
        middle([])
