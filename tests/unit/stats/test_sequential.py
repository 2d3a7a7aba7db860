"""The confidence sequence: valid after each replicate, and narrow enough to be worth it."""

import math
import random
from collections.abc import Callable
from itertools import accumulate

import pytest

from placebench.errors import TooFewReplicatesError
from placebench.stats.hodges_lehmann import ConfidenceInterval
from placebench.stats.sequential import Bets, sequential_detectable, sequential_interval, sequential_p

RUNS, REPLICATES = 400, 60
AT_MOST = RUNS * 0.05 + 3 * math.sqrt(RUNS * 0.05 * 0.95)
"""5 in 100, and three standard deviations for the luck of the draws."""
NOISE = 0.02


def correlated(chance: random.Random) -> list[float]:
    """Each error keeps a fifth of the one before."""
    steps = [chance.gauss(0, 1) for _ in range(REPLICATES)]
    return list(accumulate(steps[1:], lambda before, step: 0.2 * before + math.sqrt(0.96) * step, initial=steps[0]))


def drifting(chance: random.Random) -> list[float]:
    """Log ratios on a machine that becomes slower and faster for long, with variants in random order."""
    moods = accumulate(chance.gauss(0, 1) for _ in range(REPLICATES))
    return [chance.choice((-1, 1)) * (0.3 * mood + chance.gauss(0, 1)) for mood in moods]


ERRORS: dict[str, Callable[[random.Random], list[float]]] = {
    "normal": lambda chance: [chance.gauss(0, 1) for _ in range(REPLICATES)],
    "heavy tails": lambda chance: [chance.gauss(0, 1) / chance.gammavariate(1.5, 1) ** 0.5 for _ in range(REPLICATES)],
    # The pseudo-median of a gamma distribution of shape 8 is half the median of one of shape 16; its skewness is 0.7.
    "skewed": lambda chance: [(chance.gammavariate(8, 1) - 7.834) / 2.83 for _ in range(REPLICATES)],
    "autocorrelated": correlated,
    "drift": drifting,
}


@pytest.mark.parametrize("kind", ERRORS)
def test_looking_after_each_replicate_finds_nothing_where_nothing_is(kind: str) -> None:
    """Of runs of 60 replicates without an effect, at most 5 in 100 ever reach p = 0.05, whatever the errors."""
    chance = random.Random(7)

    found = [sequential_p([NOISE * each for each in ERRORS[kind](chance)]) <= 0.05 for _ in range(RUNS)]

    assert sum(found) <= AT_MOST


def test_p_never_rises_and_the_interval_excludes_no_change_only_with_it() -> None:
    """Over a run with an effect: p falls, and where the interval lies above 0 it is at most 0.05."""
    chance = random.Random(3)
    values = [0.02 + NOISE * chance.gauss(0, 1) for _ in range(REPLICATES)]

    p_values = [sequential_p(values[:number]) for number in range(REPLICATES + 1)]
    lows = [sequential_interval(values[:number]).low for number in range(20, REPLICATES + 1)]

    assert p_values[0] == 1
    assert p_values == sorted(p_values, reverse=True)
    assert lows[-1] > 0
    assert all(p <= 0.05 for p, low in zip(p_values[20:], lows, strict=True) if low > 0)


@pytest.mark.parametrize(("effect", "at_most"), [(0.05, 9), (0.02, 21)])
def test_how_soon_an_effect_is_found(effect: float, at_most: int) -> None:
    """On average, at a noise of 2 % a replicate: 5 % within 9 replicates, 2 % within 21."""
    chance = random.Random(5)

    made = [first_found([effect + NOISE * each for each in ERRORS["normal"](chance)]) for _ in range(200)]

    assert sum(made) / len(made) <= at_most


def first_found(values: list[float]) -> int:
    """After how many replicates no change is ruled out."""
    capital = Bets.prepare(values).capital(0.0)
    return next((number for number, each in enumerate(capital, start=1) if each >= math.log(40)), len(values))


def test_the_interval_is_where_the_capital_of_either_side_reaches_forty() -> None:
    """At both limits one side has 40, and within them neither has; six equal replicates leave one side open."""
    values = [0.01, 0.03, 0.02, 0.0, 0.025, 0.015, 0.02, 0.01, 0.03, 0.005, 0.02, 0.015]

    interval = sequential_interval(values)

    assert Bets.prepare(values).capital(interval.low)[-1] == pytest.approx(math.log(40))
    assert Bets.prepare([-each for each in values]).capital(-interval.high)[-1] == pytest.approx(math.log(40))
    assert interval.low < interval.estimate < interval.high
    with pytest.raises(
        TooFewReplicatesError, match="3 replicates, 4 or more needed"
    ):  # at 8, which three won bets make
        sequential_interval([0.01, 0.02, 0.03], confidence=0.75)
    with pytest.raises(TooFewReplicatesError, match="5 replicates, 7 or more needed"):
        sequential_interval([0.01] * 5)


def test_the_first_bets_by_hand() -> None:
    """A distance of 1 % is one unit of noise at first; equal values halve the noise that the second bet assumes."""

    def capital(distance: float) -> list[float]:
        return [2 / (1 + math.exp(-2 * bet * distance)) for bet in (0.2, 0.5, 1.2)]

    one, two = capital(1), [first * second for first, second in zip(capital(1), capital(2), strict=True)]

    assert Bets.prepare([0.01, 0.01]).capital(0.0) == pytest.approx([math.log(sum(one) / 3), math.log(sum(two) / 3)])
    assert sequential_p([0.01]) == 1.0
    assert sequential_p([0.01] * 2) == sequential_p([-0.01] * 2) == pytest.approx(2 / (sum(two) / 3))


@pytest.mark.parametrize(
    ("values", "scale", "power"),
    [
        ([], 0.01, 1.0),
        ([0.05], 0.005, 1.0),
        ([0.01, 0.03], 0.01, 1.0),
        ([0.02, 0.02], 0.01 / 3, 1.0),  # two are too few for a correlation
        ([0.01, 0.03, 0.05], 0.0125, 1 / 2),  # no correlation, 1/3 is added
        ([0.01, 0.02, 0.03, 0.04], 0.01, 1 / 3),  # 1/4 and 1/4
        ([0.01, 0.05, 0.01, 0.05], 0.018, 1.0),  # they alternate
        ([0.02, 0.02, 0.02], 0.0025, 1 / 2),
        ([0.0] * 50 + [1.0] * 50, 50.01 / 101, 0.1 / 1.9),  # 0.98, of which 0.9 count
    ],
)
def test_a_bet_rests_on_the_values_before_it(values: list[float], scale: float, power: float) -> None:
    """Noise: the sum of distances from the median and 1 % over one more; power: (1 − ρ) / (1 + ρ)."""
    bets = Bets.prepare([*values, 9.0])

    assert (bets.scales[-1], bets.powers[-1]) == pytest.approx((scale, power))


def test_moving_all_values_moves_the_interval() -> None:
    """The bets rest on distances alone, so that coverage does not depend on the effect."""
    values = [0.01, 0.03, 0.02, 0.0, 0.025, 0.015, 0.02, 0.01, 0.03, 0.005]

    here, there = sequential_interval(values), sequential_interval([each - 1.5 for each in values])

    assert (there.low + 1.5, there.high + 1.5) == pytest.approx((here.low, here.high))


def test_what_is_no_number_is_refused() -> None:
    """A log ratio that is not finite is a bug upstream, never a quiet part of an interval."""
    with pytest.raises(ValueError, match="nan"):
        sequential_interval([0.1] * 9 + [math.nan])


@pytest.mark.parametrize("confidence", [-0.5, 0.0, 1.0, 95, math.nan])
def test_a_confidence_is_a_share_of_one(confidence: float) -> None:
    """None below nothing, none that nothing reaches, and no 95 (percent)."""
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        sequential_interval([0.1] * 9, confidence=confidence)


@pytest.mark.parametrize(
    ("made", "confidence", "counted"),
    [
        (0, 0.95, "0 replicates, 6"),
        (1, 0.95, "1 replicate, 6"),
        (2, 0.5, "2 replicates, 3"),
        (1, 0.75, "1 replicate, 4"),
    ],
)
def test_how_many_are_needed_at_least(made: int, confidence: float, counted: str) -> None:
    """Five won bets make 32 and six 64, of the 40 that 95 % needs; two make just the 4 that 50 % has to exceed."""
    with pytest.raises(TooFewReplicatesError, match=f"{counted} or more needed"):
        sequential_interval([0.01] * made, confidence=confidence)


def test_the_detectable_effect_by_hand() -> None:
    """Half of a width of 8 %, and 0.8416 standard errors of 1 %: so much more than the half is found in 4 of 5 runs."""
    assert sequential_detectable([0.0, 0.02], ConfidenceInterval(0.01, -0.03, 0.05, 0.95)) == pytest.approx(
        0.048416, abs=1e-6
    )


def test_an_interval_of_less_confidence_is_narrower_and_needs_fewer() -> None:
    """1 of 10 instead of 1 of 20: the capital of a side has to reach 20, which five won bets make."""
    values = [0.01, 0.03, 0.02, 0.0, 0.025, 0.015, 0.02, 0.01, 0.03, 0.005, 0.02, 0.015]
    wide, narrow = (sequential_interval(values, confidence=each) for each in (0.95, 0.9))

    assert wide.low < narrow.low < narrow.high < wide.high
    assert Bets.prepare(values).capital(narrow.low)[-1] == pytest.approx(math.log(20))
    assert [narrow.confidence, wide.confidence] == [0.9, 0.95]
    with pytest.raises(TooFewReplicatesError, match="4 replicates, 5 or more needed"):
        sequential_interval([0.01, 0.02, 0.01, 0.02], confidence=0.9)
    assert sequential_interval([0.01, 0.02, 0.01, 0.02, 0.01], confidence=0.9).low < 0.01


def test_a_value_far_from_the_others_is_no_overflow() -> None:
    """A replicate ten thousand times as far off as the others doubles the capital above them, and takes it below."""
    values = [0.001, 0.002] * 4

    *_, before, above = Bets.prepare([*values, 10.0]).capital(0.0)
    *_, below = Bets.prepare([*values, -10.0]).capital(0.0)

    assert above == pytest.approx(before + math.log(2))
    assert below < before - 100
