"""Which parts of a request changed."""

import math
import random
from itertools import product

import pytest

from placebench.stats.attribution import PartChange, attribute

PARTS = 60
Replicates = list[dict[str, float]]


def replicates(number: int, chance: random.Random, *, more_s: float = 0.0) -> Replicates:
    """A request of some 10 ms in parts of equal size, each with noise of 3 %; *more_s* of them in one part."""
    sizes = {f"part {place}": 10e-3 / PARTS for place in range(PARTS)}
    made = []
    for _ in range(number):
        shared = chance.gauss(1, 0.01)
        made.append({part: size * (shared + chance.gauss(0, 0.03)) for part, size in sizes.items()})
        made[-1]["part 7"] += more_s
    return made


def named(changes: list[PartChange[str]]) -> list[str]:
    """The parts that have a verdict."""
    return [each.part for each in changes if each.verdict != "inconclusive"]


@pytest.mark.parametrize("number", [8, 12, 13])
def test_half_a_percent_of_a_request_is_found_in_its_part(number: int) -> None:
    """In 10 runs it is always named, as more, and its interval holds what was injected in 9 or 10 of them."""
    chance, injected_s = random.Random(number), 0.005 * 10e-3
    runs = [attribute(replicates(number, chance), replicates(number, chance, more_s=injected_s)) for _ in range(10)]
    found = [next(each for each in run if each.part == "part 7") for run in runs]

    assert {each.verdict for each in found} == {"slower"}
    assert sum(each.low <= injected_s <= each.high for each in found if each.low and each.high) >= 9
    assert all(run[0].part == "part 7" for run in runs)


def test_the_same_twice_names_a_part_in_one_run_of_twenty() -> None:
    """200 comparisons of the same with 60 parts: 10 are expected to name any, 19 or more have a chance of 0.6 %."""
    chance = random.Random(5)
    wrong = sum(bool(named(attribute(replicates(6, chance), replicates(6, chance)))) for _ in range(200))

    assert 1 <= wrong < 19


def test_five_replicates_name_nothing() -> None:
    """The most extreme of 32 sign flips has a chance of 6 %: there is a change, and no interval and no verdict."""
    chance = random.Random(1)

    largest, *_ = attribute(replicates(5, chance), replicates(5, chance, more_s=1.0))

    assert (largest.part, largest.low, largest.high, largest.verdict) == ("part 7", None, None, "inconclusive")
    assert largest.change == pytest.approx(1.0, rel=0.01)
    assert largest.p == 2 / 32


def test_a_part_that_came_or_went_took_nothing_before_or_after() -> None:
    """A statement of one variant alone is more of it, or less."""
    before = [{"kept": 1.0 + place / 100, "gone": 0.5} for place in range(6)]
    after = [{"kept": 1.0 - place / 100, "new": 0.25} for place in range(6)]

    changes = {each.part: each for each in attribute(before, after)}

    assert (changes["gone"].before, changes["gone"].after, changes["gone"].verdict) == (0.5, 0.0, "faster")
    assert (changes["new"].before, changes["new"].after, changes["new"].verdict) == (0.0, 0.25, "slower")
    assert changes["kept"].verdict == "inconclusive"


def test_the_adjusted_p_is_that_of_all_sign_flips() -> None:
    """By its definition: the share of the 64 flips whose largest statistic of both parts is as large as the part's."""
    chance = random.Random(2)
    differences = {part: [chance.gauss(0.5, 1) for _ in range(6)] for part in ("a", "b")}

    def statistic(part: str, signs: tuple[int, ...]) -> float:
        values = differences[part]
        return abs(sum(sign * value for sign, value in zip(signs, values, strict=True))) / math.hypot(*values)

    flips = list(product((1, -1), repeat=6))
    expected = {
        part: sum(max(statistic("a", flip), statistic("b", flip)) >= statistic(part, (1,) * 6) - 1e-9 for flip in flips)
        / 64
        for part in differences
    }
    before = [dict.fromkeys("ab", 10.0) for _ in range(6)]
    after = [{part: 10.0 + differences[part][place] for part in "ab"} for place in range(6)]

    assert {each.part: each.p for each in attribute(before, after)} == pytest.approx(expected)


def test_small_parts_are_left_out_and_nothing_is_nothing() -> None:
    """A part below 0.05 % of a request is not tested; without parts or replicates there is nothing to say."""
    one = [{"all": 1.0, "dust": 0.0001}] * 6

    assert [each.part for each in attribute(one, one)] == ["all"]
    assert attribute([], []) == []
    assert attribute([{}] * 6, [{}] * 6) == []
