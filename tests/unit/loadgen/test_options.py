from itertools import islice, pairwise

import pytest
from scipy.stats import kstest

from placebench.loadgen.options import LoadPart, arrivals


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


PARTS = [LoadPart(index, 3) for index in range(3)]


def split_schedule() -> list[list[float]]:
    """The first 20 000 arrivals of 20 a second, by the three parts."""
    return [list(part.select(islice(arrivals(20.0, 1), 20_000), seed=1)) for part in PARTS]


def test_the_parts_of_a_schedule_are_the_schedule() -> None:
    """Each arrival belongs to exactly one of three parts, and the only part of one has all."""
    assert sorted(at for part in split_schedule() for at in part) == list(islice(arrivals(20.0, 1), 20_000))
    assert list(LoadPart().select([0.5, 1.5], seed=1)) == [0.5, 1.5]


def test_a_part_of_a_schedule_is_a_poisson_process_of_its_share() -> None:
    """Its gaps are exponential with a mean of 150 ms, where every third arrival would have gaps of an Erlang law."""
    schedule = split_schedule()
    every_third = list(islice(arrivals(20.0, 1), 20_000))[::3]

    for part in schedule:
        assert fits_exponential(part, mean_s=0.150) > 0.01
    assert fits_exponential(every_third, mean_s=0.150) < 1e-6


def test_clocks_that_differ_do_not_change_the_process_of_all_arrivals() -> None:
    """Three parts whose clocks are 40 ms and 7 s off are together still a Poisson process of 20 a second.

    With every third arrival the same clocks make one that is not.
    """
    clocks_s = (0.0, 0.040, 7.0)
    parts = split_schedule()
    turns = [list(islice(arrivals(20.0, 1), 20_000))[first::3] for first in range(3)]

    assert fits_exponential(together(parts, clocks_s), mean_s=0.050) > 0.01
    assert fits_exponential(together(turns, clocks_s), mean_s=0.050) < 0.01


def together(parts: list[list[float]], clocks_s: tuple[float, ...]) -> list[float]:
    """The arrivals of all parts by one clock, while all of them run."""
    moments = sorted(at + ahead for part, ahead in zip(parts, clocks_s, strict=True) for at in part)
    return [at for at in moments if max(clocks_s) < at < min(part[-1] for part in parts)]


def fits_exponential(moments_s: list[float], *, mean_s: float) -> float:
    """The p-value of the gaps under the exponential law of this mean (Kolmogorov-Smirnov)."""
    gaps = [later - earlier for earlier, later in pairwise(moments_s)]
    return float(kstest(gaps, "expon", args=(0, mean_s)).pvalue)


@pytest.mark.parametrize(("total", "shares"), [(7, [3, 2, 2]), (2, [1, 1, 0]), (0, [0, 0, 0])])
def test_shares_add_up(total: int, shares: list[int]) -> None:
    """No request is sent twice or by nobody."""
    assert [part.share(total) for part in PARTS] == shares
