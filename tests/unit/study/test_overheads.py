"""Overheads of combinations over their controls, as the summary of a study names them."""

import pytest

from placebench.study.overheads import largest


@pytest.mark.parametrize(
    ("overheads_s", "expected"),
    [([0.001, -0.006, 0.002], (0.002, "overhead")), ([-0.001, -0.006], (-0.006, "change")), ([0.0], (0.0, "change"))],
)
def test_a_saving_is_not_called_an_overhead(overheads_s: list[float], expected: tuple[float, str]) -> None:
    """The largest overhead is named; if no combination costs more than its control, the largest saving is."""
    row, kind = largest([{"overhead_s": each} for each in overheads_s], "overhead_s")

    assert expected == (row["overhead_s"], kind)
