"""Scales: where a number lies, and which ticks are round."""

import pytest

from placebench.page.svg import linear_scale, log_scale


def test_a_linear_scale_places_in_proportion() -> None:
    """Between 0 and 10 the number 2.5 lies at a quarter; what lies outside is held at the border."""
    scale = linear_scale([0, 10])

    assert [scale.place(value) for value in (0, 2.5, 10, 11, -1)] == [0, 0.25, 1, 1, 0]


def test_equal_factors_are_equal_lengths() -> None:
    """From 0.1 s to 10 s one second lies in the middle."""
    scale = log_scale([0.1, 10])

    assert scale.place(1) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.1, 10], [0.1, 0.3, 1, 3, 10]),
        ([0.3, 1.1], [0.3, 0.5, 0.7, 1]),
        ([0.001, 1000], [0.001, 0.1, 10, 1000]),
        ([0.97, 1.01], [0.97, 0.98, 0.99, 1.0, 1.01]),
    ],
)
def test_logarithmic_ticks_are_round_and_few(values: list[float], ticks: list[float]) -> None:
    """As fine as six ticks allow; every other decade on a long scale, even steps on one too short for 1-2-5."""
    assert log_scale(values).ticks == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [([0, 1], [0, 0.2, 0.4, 0.6, 0.8, 1]), ([13, 87], [20, 40, 60, 80]), ([0, 0], [-1, -0.5, 0, 0.5, 1])],
)
def test_linear_ticks_are_round(values: list[float], ticks: list[float]) -> None:
    """Steps of 1, 2 or 5; a single value has some room around it."""
    assert linear_scale(values).ticks == pytest.approx(ticks)


def test_a_scale_of_one_value_has_a_length() -> None:
    """Equal replicates are drawn in the middle, not divided by zero."""
    assert log_scale([0.5, 0.5]).place(0.5) == pytest.approx(0.5)
