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
    (apart,) = attribute([{"part": 10.0}] * 5, [{"part": 10.0 + step} for step in range(1, 6)])
    assert (apart.low, apart.high, apart.p) == (None, None, 2 / 32)


def test_a_part_that_came_or_went_took_nothing_before_or_after() -> None:
    """A statement of one variant alone is more of it, or less."""
    before = [{"kept": 1.0 + place / 100, "gone": 0.5} for place in range(6)]
    after = [{"kept": 1.0 - place / 100, "new": 0.25} for place in range(6)]

    changes = {each.part: each for each in attribute(before, after)}

    assert (changes["gone"].before, changes["gone"].after, changes["gone"].verdict) == (0.5, 0.0, "faster")
    assert (changes["new"].before, changes["new"].after, changes["new"].verdict) == (0.0, 0.25, "slower")
    assert (changes["gone"].change, changes["new"].change) == (-0.5, 0.25)
    assert changes["kept"].verdict == "inconclusive"


@pytest.mark.parametrize(
    ("number", "mean", "error"), [(6, 0.5, 1e-9), (12, 0.5, 1e-9), (13, 0.5, 0.025), (13, 1.5, 0.005)]
)
def test_the_adjusted_p_is_that_of_all_sign_flips(number: int, mean: float, error: float) -> None:
    """By its definition: the share of the flips whose largest statistic of both parts is as large as the part's.

    Of 6 replicates there are 64, of 12 4,096; of the 8,192 of 13 a quarter is drawn: two standard errors are 0.02.
    """
    chance = random.Random(2)
    differences = {part: [chance.gauss(mean, 1) for _ in range(number)] for part in ("a", "b")}

    def statistic(part: str, signs: tuple[int, ...]) -> float:
        values = differences[part]
        return abs(sum(sign * value for sign, value in zip(signs, values, strict=True))) / math.hypot(*values)

    flips = list(product((1, -1), repeat=number))
    together = [max(statistic("a", flip), statistic("b", flip)) for flip in flips]
    expected = {
        part: sum(largest >= statistic(part, (1,) * number) - 1e-9 for largest in together) / len(flips)
        for part in differences
    }
    before = [dict.fromkeys("ab", 10.0) for _ in range(number)]
    after = [{part: 10.0 + differences[part][place] for part in "ab"} for place in range(number)]

    assert {each.part: each.p for each in attribute(before, after)} == pytest.approx(expected, abs=error)


@pytest.mark.parametrize(("sign", "verdict"), [(1, "slower"), (-1, "faster")])
def test_the_interval_of_one_part_by_hand(sign: int, verdict: str) -> None:
    """The second largest of the 32 sums of ±1 … ±6 is 19; over √91 that is 3.124 of Student's t with 5 degrees."""
    before = [{"all": 100.0, "part": 10.0}] * 6
    after = [{"all": 100.0, "part": 10.0 + sign * step} for step in (1, 2, 3, 4, 5, 6)]

    changes = {each.part: each for each in attribute(before, after)}
    part, same = changes["part"], changes["all"]

    assert (part.before, part.after, part.change, part.p) == (10.0, 10.0 + sign * 3.5, sign * 3.5, 1 / 32)
    assert sorted((sign * (part.low or 0), sign * (part.high or 0))) == pytest.approx(
        [3.5 - 2.3857, 3.5 + 2.3857], abs=1e-4
    )
    assert (part.verdict, part.is_decided) == (verdict, True)
    half = next(each for each in attribute(before, after, confidence=0.5) if each.part == "part")
    assert abs((half.high or 0) - half.change) == pytest.approx(0.5362, abs=1e-4)  # the sixteenth largest is 7
    assert {each.verdict for each in attribute(before, after, confidence=31 / 32)} == {verdict, "inconclusive"}
    assert (same.change, same.p, same.verdict, same.is_decided) == (0.0, 1.0, "inconclusive", False)


def test_an_interval_that_nothing_limits_is_open() -> None:
    """16 equal differences, at a confidence that only all of the 2048 sign flips reach."""
    (part,) = attribute([{"part": 1.0}] * 16, [{"part": 2.0}] * 16, confidence=0.9999)

    assert (part.change, part.low, part.high) == (1.0, None, None)


@pytest.mark.parametrize("number", range(6, 20))
def test_equal_differences_have_no_interval_of_rounding(number: int) -> None:
    """Their statistic is √n but for its last bits, at a confidence that only all of the sign flips reach."""
    (part,) = attribute([{"part": 0.0}] * number, [{"part": 0.3}] * number, confidence=0.9999)

    assert (part.change, part.low, part.high) == (pytest.approx(0.3), None, None)


def test_the_interval_at_the_greatest_statistic_ends_at_no_change() -> None:
    """At 99 % no flip of six is more extreme: the change of 1 is just what can be told from 0."""
    (part,) = attribute([{"part": 1.0}] * 6, [{"part": 2.0 + away} for away in (-0.1, 0.1) * 3], confidence=0.99)

    assert (part.low, part.high) == (pytest.approx(0.0, abs=1e-9), pytest.approx(2.0))


def test_more_than_six_replicates_have_a_narrower_interval() -> None:
    """Around the same mean of 3.5 with the same distances from it, twice each."""
    once, twice = (
        attribute([{"part": 10.0}] * len(steps), [{"part": 10.0 + step} for step in steps])[0]
        for steps in (range(1, 7), [*range(1, 7)] * 2)
    )

    assert (once.low or 0) < (twice.low or 0) < 3.5 < (twice.high or 0) < (once.high or 0)


def test_a_part_is_small_below_a_share_of_the_larger_request() -> None:
    """Of 100 s, a part of 1 s in either variant is kept at a share of 1 %, one of 0.9 s is not."""
    before = [{"all": 98.1, "gone": 1.0, "small": 0.9}] * 6
    after = [{"all": 10.0, "small": 0.9}] * 6

    assert [each.part for each in attribute(before, after, smallest_share=0.01)] == ["all", "gone"]


def test_small_parts_are_left_out_and_nothing_is_nothing() -> None:
    """A part below 0.05 % of a request is not tested; without parts or replicates there is nothing to say."""
    one = [{"all": 1.0, "dust": 0.0001}] * 6

    assert [each.part for each in attribute(one, one)] == ["all"]
    assert attribute([], []) == []
    assert attribute([{}] * 6, [{}] * 6) == []
