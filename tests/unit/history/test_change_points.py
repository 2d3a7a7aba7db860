"""Steps in series of estimates: none in flat ones, and where and when one is found."""

import math
import random
from itertools import pairwise

import pytest

from placebench.history import Point, Step, find_steps

INTERVAL = 0.004
"""Standard deviation of an entry, as 12 to 30 replicates give it on a shared machine."""
BETWEEN = 0.006
EXACT = 1e-12


def series(chance: random.Random, levels: list[float], *, between: float = 0.0) -> list[Point]:
    """Points about *levels*, whose intervals differ by a factor of two."""
    deviations = [INTERVAL * chance.choice((0.7, 1.0, 1.4)) for _ in levels]
    return [
        Point(chance.gauss(level, math.hypot(deviation, between)), deviation**2)
        for level, deviation in zip(levels, deviations, strict=True)
    ]


@pytest.mark.parametrize("between", [0.0, 0.003, 0.006])
def test_flat_histories_have_no_step(between: float) -> None:
    """Of 100 series of 60 commits, at most 5 have one, whether or not runs differ by more than their intervals say."""
    chance = random.Random(60)

    found = [find_steps(series(chance, [0.0] * 60, between=between), between_runs=BETWEEN) for _ in range(100)]

    assert sum(map(bool, found)) <= 5


def test_a_flat_history_that_is_tested_after_every_commit_has_no_step() -> None:
    """Of 15 series, at most 2 have one at any of their 60 commits."""
    chance = random.Random(61)

    histories = [series(chance, [0.0] * 60, between=0.003) for _ in range(15)]
    found = [any(find_steps(each[:end], between_runs=BETWEEN) for end in range(2, 61, 2)) for each in histories]

    assert sum(found) <= 2


def test_a_step_of_two_percent_is_found_within_three_commits() -> None:
    """In 9 of 10 series it is seen at the third commit after it, and its place lies between the named ones."""
    chance = random.Random(20)

    found = [find_steps(series(chance, [0.0] * 20 + [0.02] * 3), between_runs=BETWEEN) for _ in range(100)]

    assert sum(len(each) == 1 and each[0].first <= 20 <= each[0].last for each in found) >= 90


def test_two_steps_have_their_places_and_levels() -> None:
    """Up by 5 % at the tenth point and back at the twentieth."""
    levels = [0.0] * 10 + [0.05] * 10 + [0.0] * 10

    up, down = find_steps(series(random.Random(1), levels), between_runs=BETWEEN)

    assert (up.place, down.place) == (10, 20)
    assert (up.change, down.change) == pytest.approx((0.05, -0.05), abs=0.005)
    assert up.after == pytest.approx(down.before)


def test_a_count_that_changes_is_seen_at_once() -> None:
    """A count has no noise: each other value is a step, however short the history."""
    points = [Point(0.0, 0.0), Point(math.log(1.1), 0.0), Point(math.log(1.2), 0.0)]

    up, again = find_steps(points, between_runs=0.0006, is_known=True)

    assert up == Step(1, 1, 1, pytest.approx(0.0), pytest.approx(math.log(1.1)))
    assert again == Step(2, 2, 2, pytest.approx(math.log(1.1)), pytest.approx(math.log(1.2)))


def test_a_large_step_between_few_points_is_found() -> None:
    """Five commits are enough for 20 %."""
    (found,) = find_steps(series(random.Random(5), [0.0, 0.0, 0.0, 0.2, 0.2]), between_runs=BETWEEN)

    assert found.place == 3


@pytest.mark.parametrize(
    "levels",
    [[0.0, -0.5, 0.0], [0.0, -0.3, -0.3, 0.3], [0.0, 0.0, -0.5, -0.5, 0.6], [0.0, 0.0, -0.5, -0.5, 0.6, 0.6, 0.0]],
)
def test_several_steps_in_a_short_history_are_found(levels: list[float]) -> None:
    """A fix and its loss in three commits; two steps in four and five, three in seven: none passes for noise."""
    chance = random.Random(7)

    found = [find_steps(series(chance, levels, between=BETWEEN), between_runs=BETWEEN) for _ in range(20)]

    places = [place for place, (before, after) in enumerate(pairwise(levels), start=1) if before != after]
    assert [places] * 20 == [[each.place for each in steps] for steps in found]


@pytest.mark.parametrize("number", [3, 4, 5, 6, 10])
def test_short_flat_histories_have_no_step(number: int) -> None:
    """Of 200, at most 5 have one, where runs differ by as much as expected."""
    chance = random.Random(number)

    found = [find_steps(series(chance, [0.0] * number, between=BETWEEN), between_runs=BETWEEN) for _ in range(200)]

    assert sum(map(bool, found)) <= 5


def test_the_error_of_a_link_is_no_step() -> None:
    """A reference changed at the twentieth point by a link that is wrong by 2 %, as its own interval admits."""
    chance = random.Random(9)
    before = [Point(each.value + 0.02, each.variance, frozenset({"link"})) for each in series(chance, [0.0] * 20)]
    points = [*before, *series(chance, [0.0] * 20)]

    assert find_steps(points, between_runs=BETWEEN, link_variances={"link": 0.01**2}) == []
    assert len(find_steps(points, between_runs=BETWEEN, link_variances={"link": EXACT})) == 1


@pytest.mark.parametrize("number", [0, 1])
def test_too_few_points_have_no_step(number: int) -> None:
    """Nothing to compare."""
    assert find_steps([Point(0.0, 0.0)] * number, between_runs=BETWEEN) == []
