from placebench.telemetry.clock import ClockBounds


def test_each_exchange_bounds_the_offset_from_both_sides() -> None:
    """The other clock is 10 s ahead: 1 s there and 3 s back say 8 to 12 s; 3 s there and 0.5 s back say 9.5 to 13 s."""
    slow_back = (100.0, 111.0, 111.0, 104.0)
    slow_there = (200.0, 213.0, 214.0, 204.5)

    assert ClockBounds.of([slow_back]) == ClockBounds(7.0, 11.0)
    assert ClockBounds.of([slow_back, slow_there]) == ClockBounds(9.5, 11.0)
    assert ClockBounds(9.5, 11.0).offset_s == 10.25
    assert ClockBounds(9.5, 11.0).uncertainty_s == 0.75
    assert ClockBounds(9.5, 11.0).error_s(10.0) == 1.0


def test_clocks_that_drift_are_reported() -> None:
    """An offset of 0 fits the first exchange, one of 5 s the second: that of the faster one is given."""
    assert ClockBounds.of([(0.0, 1.0, 1.0, 2.0), (10.0, 15.5, 15.5, 11.0)]) == ClockBounds(4.5, 5.5, drifts=True)
