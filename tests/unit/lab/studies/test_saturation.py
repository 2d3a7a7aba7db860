"""What a search of rates comes to."""

import pytest

from placebench.compare.load.load_steps import LoadStep, Outcome
from placebench.lab.studies.saturation import _knee


@pytest.mark.parametrize(
    ("made", "knee"),
    [
        ([(8, "held"), (16, "held"), (32, "broken"), (22, "held")], (22, 32)),
        ([(8, "broken"), (4, "held"), (5.6, "broken")], (4, 5.6)),
        ([(8, "held"), (16, "generator"), (16, "generator"), (11, "held")], (11, None)),
        ([(8, "held"), (16, "generator"), (16, "broken")], (8, 16)),
        ([(8, "held"), (16, "generator"), (16, "generator"), (32, "broken")], (8, None)),
        ([(8, "broken"), (4, "broken")], (None, 4)),
    ],
)
def test_the_knee_is_below_all_that_was_broken(
    made: list[tuple[float, Outcome]], knee: tuple[float | None, float | None]
) -> None:
    """A load at which the generator was the limit says nothing about the service beyond it."""
    steps = [LoadStep(load, 1, 0, load, {}, 0.1, 0, outcome, "") for load, outcome in made]

    assert knee == _knee(steps)
