from itertools import islice, pairwise

import pytest

from placebench.loadgen.options import arrivals


def test_the_same_seed_gives_the_same_schedule() -> None:
    """And another seed another one."""
    schedules = [list(islice(arrivals(20.0, seed), 100)) for seed in (1, 1, 2)]

    assert schedules[0] == schedules[1]
    assert schedules[0] != schedules[2]


def test_the_gaps_are_those_of_independent_arrivals() -> None:
    """At 20 a second the mean gap is 50 ms, and so is its standard deviation; 20 000 gaps tell both to 3 %."""
    gaps = [later - earlier for earlier, later in pairwise(islice(arrivals(20.0, 1), 20_001))]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5

    assert mean == pytest.approx(0.05, rel=0.03)
    assert deviation == pytest.approx(0.05, rel=0.03)
