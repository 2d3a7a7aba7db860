"""`placebench.stats.reproduction`: when a new run reproduces a published effect."""

import math
import random
from dataclasses import replace

import pytest
from comparisons import comparison

from placebench.stats import Comparison, ConfidenceInterval, hodges_lehmann
from placebench.stats.reproduction import Claim, difference_of_effects, judge_reproduction
from placebench.stats.verdict import Verdict, decide, minimum_detectable_effect

MARGIN = 0.01


def compared(log_ratios: list[float]) -> Comparison:
    """A comparison of CPU with these replicates."""
    interval = hodges_lehmann(log_ratios)
    return comparison(
        ratio=math.exp(interval.estimate),
        low=math.exp(interval.low),
        high=math.exp(interval.high),
        replicates=len(log_ratios),
        verdict=decide(interval, MARGIN),
        detectable=minimum_detectable_effect(log_ratios),
        margin=MARGIN,
        log_ratios=tuple(log_ratios),
    )


def claimed(made: Comparison) -> Claim:
    """An effect as a published claim."""
    return Claim(made.verdict, made.ratio, made.low, made.high)


def around(effect: float, *, apart: float = 0.002) -> list[float]:
    """Nine replicates, evenly around the effect."""
    return [effect + apart * step for step in range(-4, 5)]


def simulated(effect: float, n: int, chance: random.Random) -> Comparison:
    """A comparison whose replicates have errors of 1.5 %, now and then three times as large."""
    return compared([effect + chance.gauss(0, 0.015) * (3 if chance.random() < 0.1 else 1) for _ in range(n)])


def test_distances_of_independent_estimates_add_as_squares() -> None:
    """3 and 4 make 5, below by the new low and the published high, above by the others."""
    published = ConfidenceInterval(0.10, 0.10 - 0.12, 0.10 + 0.04, 0.95)
    new = ConfidenceInterval(0.30, 0.30 - 0.03, 0.30 + 0.05, 0.95)

    made = difference_of_effects(published, new)

    assert (made.estimate, made.low, made.high) == pytest.approx((0.20, 0.20 - 0.05, 0.20 + 0.13))


@pytest.mark.parametrize(
    ("published", "new", "outcome"),
    [
        (-0.30, -0.30, "reproduced"),
        (-0.30, -0.31, "reproduced"),  # the intervals allow it
        (-0.30, -0.20, "not reproduced"),  # the same direction, and two thirds of it
        (-0.30, 0.30, "not reproduced"),
        (-0.012, 0.0, "not reproduced"),  # equivalent
        (0.0, 0.0, "reproduced"),
        (0.0, 0.05, "not reproduced"),
    ],
)
def test_direction_and_size_have_to_agree(published: float, new: float, outcome: str) -> None:
    """With a spread of 0.2 % around both effects."""
    claim = claimed(compared(around(published, apart=0.001)))

    assert judge_reproduction(claim, compared(around(new, apart=0.001))).outcome == outcome


@pytest.mark.parametrize(
    ("new", "reason"), [(-0.20, "same direction, other size"), (0.30, "the new verdict is 'slower'")]
)
def test_effects_that_differ_do_so_by_their_size_or_by_their_verdict(new: float, reason: str) -> None:
    """The interval of their difference has the confidence of both."""
    claim = claimed(compared(around(-0.30, apart=0.001)))

    made = judge_reproduction(claim, compared(around(new, apart=0.001)))

    assert made.reason == f"the effects differ: {reason}"
    assert made.difference is not None
    assert made.difference.confidence == 0.95


@pytest.mark.parametrize(("metric", "outcome"), [("cpu_s", "reproduced"), ("statements", "not reproduced")])
def test_times_vary_between_runs_and_counts_do_not(metric: str, outcome: str) -> None:
    """-76.9 and -78.1 % CPU of two runs of one machine and day, whose intervals do not overlap."""
    claim = Claim("faster", 0.2314, 0.2272, 0.2358)
    new = replace(compared(around(math.log(0.2193), apart=0.004)), metric=metric)

    assert judge_reproduction(claim, new).outcome == outcome


@pytest.mark.parametrize(
    ("metric", "published", "new", "outcome"),
    [
        ("statements", -1.0, -1.0014, "reproduced"),
        ("statements", -1.0, -1.0016, "not reproduced"),
        ("cpu_s", -1.0, -1.063, "reproduced"),  # 1 % + 0.05 % + 5 % of 1.063
        ("cpu_s", -1.0, -1.0645, "not reproduced"),
        ("cpu_s", -1.063, -1.0, "reproduced"),
        ("cpu_s", -1.0645, -1.0, "not reproduced"),
    ],
)
def test_by_how_much_two_runs_may_differ(metric: str, published: float, new: float, outcome: str) -> None:
    """The margin, the rounding of a published ratio, and 5 % of the larger effect where it is not a count."""
    claim = claimed(compared([published] * 9))
    margin = 0.001 if metric == "statements" else MARGIN

    made = judge_reproduction(claim, replace(compared([new] * 9), metric=metric, margin=margin))

    assert made.outcome == outcome


@pytest.mark.parametrize(
    ("verdict", "published", "new", "outcome"),
    [
        ("faster", -0.005, -0.004, "reproduced"),
        ("faster", -0.005, 0.004, "not reproduced"),
        ("slower", 0.005, 0.004, "reproduced"),
        ("slower", 0.005, -0.004, "not reproduced"),
    ],
)
def test_a_change_below_the_margin_has_a_direction(
    verdict: Verdict, published: float, new: float, outcome: str
) -> None:
    """The effects differ by less than the margin of 1 %: the direction decides."""
    claim = replace(claimed(compared(around(published, apart=0.0001))), verdict=verdict)
    small = compared(around(new, apart=0.0001))

    for decided in ("below the margin", "faster" if new < 0 else "slower"):
        assert judge_reproduction(claim, replace(small, verdict=decided)).outcome == outcome


@pytest.mark.parametrize("sign", [1, -1])
def test_no_change_is_excluded_by_an_interval_beyond_the_margin(sign: int) -> None:
    """The published effect of 0.8 % allows 1.5 %, and the new interval, from 1.2 to 1.8 %, allows no claim of none."""
    claim = replace(claimed(compared(around(sign * 0.008))), verdict="equivalent")
    new = compared(around(sign * 0.015, apart=0.001))

    assert judge_reproduction(claim, new).outcome == "not reproduced"


def test_a_wide_interval_cannot_tell_and_says_how_many_would_do() -> None:
    """A spread of 27 % in nine replicates against a claim of -10 %: some fifty times as many squares of it."""
    new = compared(around(-0.05, apart=0.1))

    made = judge_reproduction(claimed(compared(around(-0.10))), new)

    assert made.outcome == "inconclusive"
    assert made.replicates_needed == math.ceil(9 * ((new.detectable or 0) / 0.10) ** 2)
    assert str(made.replicates_needed) in made.reason


def test_how_many_would_do_for_a_claim_of_no_change() -> None:
    """An effect of 0.4 % leaves 0.6 % to the margin; there is always one more to make, and no number at the margin."""
    new = compared(around(0.0, apart=0.05))
    claim = Claim("equivalent", math.exp(0.004), math.exp(0.003), math.exp(0.005))

    def needed(claim: Claim, new: Comparison) -> int | None:
        return judge_reproduction(claim, new).replicates_needed

    assert needed(claim, new) == math.ceil(9 * ((new.detectable or 0) / 0.006) ** 2)
    assert needed(claim, replace(new, detectable=1e-6)) == 10
    assert needed(claim, replace(new, detectable=None)) is None
    assert needed(replace(claim, ratio=math.exp(0.012)), new) is None
    assert needed(Claim("faster", 1.0, 0.9, 1.1), new) is None


@pytest.mark.parametrize(
    ("claim", "verdict", "outcome"),
    [
        ("faster", "faster", "reproduced"),
        ("faster", "slower", "not reproduced"),
        ("slower", "faster", "not reproduced"),
    ],
)
def test_a_count_that_became_zero_is_judged_by_its_verdict(claim: Verdict, verdict: Verdict, outcome: str) -> None:
    """There is no ratio, and so no difference; neither is there with an interval on one side alone."""
    new = replace(compared(around(0.0)), ratio=None, low=None, high=None, verdict=verdict)

    for published in (Claim(claim, None, None, None), Claim(claim, 0.5, 0.4, 0.6), Claim(claim, 0.5, None, None)):
        made = judge_reproduction(published, new)

        assert (made.outcome, made.difference) == (outcome, None)


@pytest.mark.parametrize(
    ("reason", "ratios", "expected"),
    [("inconclusive: why", (0.1,), ("why", 6)), ("", (), ("no interval", None))],
)
def test_without_an_interval_the_reason_is_that_of_the_new_run(
    reason: str, ratios: tuple[float, ...], expected: tuple[str, int | None]
) -> None:
    """Six replicates are needed, if it was measured at all."""
    new = replace(compared(around(0.0)), low=None, verdict="inconclusive", reason=reason, log_ratios=ratios)

    made = judge_reproduction(Claim("faster", 0.5, 0.4, 0.6), new)

    assert (made.outcome, made.reason, made.replicates_needed) == ("inconclusive", *expected)


@pytest.mark.parametrize(("published", "new"), [(6, 6), (12, 12), (20, 8)])
def test_the_difference_of_two_runs_of_one_truth_holds_zero(published: int, new: int) -> None:
    """In at least 95 % of 600 pairs, less three standard errors of the simulation; the errors are not normal ones."""
    chance = random.Random(published)
    held = 0
    for _ in range(600):
        before, after = (hodges_lehmann(simulated(0.0, n, chance).log_ratios) for n in (published, new))
        made = difference_of_effects(before, after)
        held += made.low <= 0 <= made.high

    assert held / 600 >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 600)


@pytest.mark.parametrize("effect", [0.0, -0.01, -0.02, -0.10])
def test_a_true_claim_is_called_not_reproduced_in_one_of_twenty_runs_at_most(effect: float) -> None:
    """Of 500 pairs of runs with 12 replicates each; whatever the published run made of the effect."""
    chance = random.Random(7)
    wrong = 0
    for _ in range(500):
        claim = claimed(simulated(effect, 12, chance))
        is_true = claim.verdict == ("equivalent" if effect == 0 else "faster")
        wrong += is_true and judge_reproduction(claim, simulated(effect, 12, chance)).outcome == "not reproduced"

    assert wrong / 500 <= 0.05
