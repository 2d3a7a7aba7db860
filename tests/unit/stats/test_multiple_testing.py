"""Several metrics of one run, and what identical variants are called."""

import math
import random
from collections.abc import Sequence

import pytest

from placebench.report.gates import judge_gate, parse_gates
from placebench.stats import METRICS, compare_blocks, compare_counts, compare_profiled, significance_shares
from placebench.stats.comparison import Comparison
from placebench.stats.hodges_lehmann import hodges_lehmann, replicates_needed
from placebench.stats.multiple_testing import benjamini_hochberg
from placebench.stats.verdict import EQUIVALENT, FASTER, INCONCLUSIVE, SLOWER, decide, detection_probability


def test_benjamini_hochberg_by_hand() -> None:
    """Four values: 0.01·4/1, 0.02·4/2, 0.04·4/3 and 0.9, each no more than the next."""
    assert benjamini_hochberg([0.9, 0.01, 0.04, 0.02]) == pytest.approx([0.9, 0.04, 0.16 / 3, 0.04])


def test_benjamini_hochberg_agrees_with_scipy() -> None:
    """On random values, in the order they came."""
    stats = pytest.importorskip("scipy.stats")
    chance = random.Random(1)
    values = [chance.random() ** 3 for _ in range(30)]

    assert benjamini_hochberg(values) == pytest.approx(list(stats.false_discovery_control(values)))


def test_a_count_that_differs_is_told_apart() -> None:
    """17 statements against 11 in twelve requests: a ratio without noise."""
    made = compare_counts([17.0] * 12, [11.0] * 12, "naive", "tuned", "statements")

    assert (made.verdict, made.baseline_value, made.variant_value) == ("faster", 17.0, 11.0)
    assert [made.ratio, made.low, made.high] == pytest.approx([11 / 17] * 3)
    assert made.p == pytest.approx(2 / 4096)


def test_a_count_that_is_the_same_is_equivalent() -> None:
    """No difference in any request, zeros among them."""
    assert compare_counts([17.0] * 12, [17.0] * 12, "a", "b", "rows").verdict == "equivalent"
    assert compare_counts([0.0] * 12, [0.0] * 12, "a", "b", "rows").verdict == "equivalent"


def test_a_count_against_none_has_no_ratio() -> None:
    """11 statements against 0 is not so many times less, and less."""
    made = compare_counts([11.0] * 12, [0.0] * 12, "tuned", "noop", "statements")

    assert (made.ratio, made.low, made.baseline_value, made.variant_value) == (None, None, 11.0, 0.0)
    assert made.verdict == "faster"


def test_requests_that_one_variant_was_not_sent_do_not_count() -> None:
    """Three requests against two are two pairs, of which none was invalidated."""
    made = compare_counts([10.0, 20.0, 30.0], [10.0, 20.0], "a", "b", "rows")

    assert (made.replicates, made.invalidated, made.baseline_value) == (2, 0, 15.0)


def test_what_the_profiler_saw_has_a_ratio_and_no_verdict() -> None:
    """Garbage collection of 0.2 and 0.4 s, and of 0.1 and 0.2 s: half of it, in requests of one process."""
    made = compare_profiled([0.2, 0.4], [0.1, 0.2], "a", "b", "gc_s")

    assert (made.baseline_value, made.variant_value, made.ratio) == pytest.approx((0.3, 0.15, 0.5))
    assert (made.low, made.high, made.verdict) == (None, None, "inconclusive")
    assert (made.confidence, made.invalidated) == (0.95, 0)
    assert "2 and 2 requests" in made.reason


@pytest.mark.parametrize(
    ("before", "after", "is_measured"),
    [([], [0.1], False), ([0.1], [], False), ([0.0], [0.1], True), ([0.1], [0.0], True)],
)
def test_what_was_not_profiled_or_was_nothing_has_no_ratio(
    before: list[float], after: list[float], is_measured: bool
) -> None:
    """Without samples of both it was not measured; with a mean of 0 it was."""
    made = compare_profiled(before, after, "a", "b", "gc_s")

    assert made.ratio is None
    assert is_measured == ("requests" in made.reason)


def test_a_count_that_is_sometimes_none_is_never_equivalent() -> None:
    """In every other request the baseline asks nothing: the equal pairs alone do not speak for the others."""
    more = compare_counts([1.0, 0.0] * 6, [1.0] * 12, "a", "b", "statements")
    crossed = compare_counts([1.0, 0.0] * 6, [0.0, 1.0] * 6, "a", "b", "statements")
    less = compare_counts([1.0] * 12, [1.0, 0.0] * 6, "a", "b", "statements")

    assert less.verdict == "faster"
    assert (more.verdict, more.ratio, more.baseline_value, more.variant_value) == ("slower", None, 0.5, 1.0)
    assert (crossed.verdict, crossed.reason) == (
        "inconclusive",
        "inconclusive: some requests count less and some more, and with zeros there is no ratio",
    )


@pytest.mark.parametrize("primary", ["cpu_s", "elapsed_s", "p95_s"])
def test_the_shares_of_the_level_add_up_to_one(primary: str) -> None:
    """Whatever is measured, the primary metric has 5/8, and no metric has none."""
    shares = significance_shares(primary)

    assert sum(shares.values()) == pytest.approx(1)
    assert shares[primary] == 5 / 8
    assert min(shares.values()) > 0
    assert shares.keys() <= METRICS.keys()


def test_six_replicates_decide_cpu_and_eight_every_metric() -> None:
    """Of several users ten, at a rate nine: no preset makes fewer."""

    def needed(primary: str) -> list[int]:
        return [replicates_needed(1 - share * (1 - 0.95)) for share in significance_shares(primary).values()]

    assert needed("cpu_s") == [6, 8, 8]
    assert needed("elapsed_s") == [6, *[10] * 5]
    assert needed("p95_s") == [6, *[9] * 4]


def compared(cpu: Sequence[float], wall: Sequence[float], memory: Sequence[float]) -> list[Comparison]:
    """Compare two variants whose metrics differ by these log ratios, one per replicate."""
    blocks = [
        Block(
            number, name, 0.01 * math.exp(sign * of_cpu), 0.02 * math.exp(sign * of_wall), 1e8 * math.exp(sign * size)
        )
        for number, (of_cpu, of_wall, size) in enumerate(zip(cpu, wall, memory, strict=True))
        for name, sign in (("a", 0), ("b", 1), ("b", 1), ("a", 0))
    ]
    return [
        compare_blocks(blocks, "a", "b", metric, share=share) for metric, share in significance_shares("cpu_s").items()
    ]


class Block:
    """A block of one request."""

    round, requests, cycle, invalid = 0, 1, 1, None

    def __init__(self, replicate: int, variant: str, cpu_s: float, wall_s: float, pss_bytes: float) -> None:
        """Take the number of the replicate, the variant, and its three figures."""
        self.replicate, self.variant, self.cpu_s, self.wall_s = replicate, variant, cpu_s, (wall_s,)
        self.counters = {"pss_bytes": pss_bytes}


@pytest.mark.parametrize("n", [6, 8, 12])
@pytest.mark.parametrize("effect", [0.0, 0.01, 0.03, 1.0])
def test_verdict_interval_gate_and_p_say_the_same(n: int, effect: float) -> None:
    """The interval excludes no change if and only if a change is named, a gate on it decides, and p is small enough.

    It lies within the margin wherever the verdict is equivalence, and a gate at the margin then passes.
    """
    chance = random.Random(f"{n} {effect}")
    for _ in range(40):
        cpu, wall, memory = ([chance.gauss(effect, 0.02) for _ in range(n)] for _ in range(3))
        for made in compared(cpu, wall, memory):
            excluded = made.low is not None and made.high is not None and not made.low <= 1 <= made.high
            outcome = judge_gate(parse_gates([f"{made.metric}<+0%"])[0], made).outcome

            assert (outcome != "inconclusive") == excluded
            assert (made.verdict in (FASTER, SLOWER)) <= excluded <= (made.verdict != INCONCLUSIVE)
            at_margin = judge_gate(parse_gates([f"{made.metric}<{math.exp(made.margin)}x"])[0], made).outcome
            if made.verdict == EQUIVALENT:
                assert abs(math.log(made.low or 0.1)) < made.margin > abs(math.log(made.high or 0.1))
                assert "passed" == at_margin
            if made.verdict == SLOWER:
                assert "passed" != at_margin
            assert made.p_adjusted is not None
            if made.low is not None:
                assert (made.p_adjusted <= 0.05 + 1e-12) == excluded
            assert (made.verdict == INCONCLUSIVE) <= ("needed" in made.reason or made.replicates_to_decide is not None)


@pytest.mark.parametrize(("n", "shared"), [(6, 0.0), (8, 0.0), (8, 0.9), (12, 0.0), (12, 0.9)])
def test_identical_programs_seldom_differ_by_any_metric(n: int, shared: float) -> None:
    """Of 600 pairs without a change at most 5 in 100 have an interval without it; 43 allow for the luck of the draws.

    shared: the share of the noise that all metrics have in common.
    """
    chance = random.Random(f"{n} {shared}")
    wrong = 0
    for _ in range(600):
        common = [chance.gauss(0, 0.02) for _ in range(n)]
        noises = ([shared * each + (1 - shared) * chance.gauss(0, 0.02) for each in common] for _ in range(3))
        wrong += any(each.low and each.high and not each.low <= 1 <= each.high for each in compared(*noises))

    assert wrong <= 43


def test_a_large_effect_is_decided_by_every_metric_of_the_shortest_preset() -> None:
    """Ten times the noise in each metric, eight replicates: named in all of 40 pairs."""
    chance = random.Random(3)
    for _ in range(40):
        made = compared(*([chance.gauss(0.3, 0.03) for _ in range(8)] for _ in range(3)))

        assert [each.verdict for each in made] == [SLOWER] * 3


def test_an_undecided_comparison_names_the_replicates_that_decide_it() -> None:
    """With as many replicates as were named, at least 3 of 4 runs find the effect that was seen, or the margin."""
    chance = random.Random(5)
    values = [chance.gauss(0.012, 0.03) for _ in range(12)]
    made = compared(values, values, values)[1]

    assert (made.verdict, made.replicates_to_decide is not None) == (INCONCLUSIVE, True)
    assert made.replicates_to_decide is not None
    found = detection_probability(
        made.undecided_effect, made.log_ratios, replicates=made.replicates_to_decide, confidence=made.level
    )
    assert found is not None
    assert 0.75 <= found <= 0.95


@pytest.mark.parametrize("n", [6, 12, 30])
@pytest.mark.parametrize("tails", ["normal", "heavy", "coarse"])
def test_identical_programs_are_seldom_called_different(n: int, tails: str) -> None:
    """Of 1000 comparisons of noise at most 5 in 100 end with faster or slower; 68 allow for the luck of 1000 draws."""
    chance = random.Random(f"{n} {tails}")

    def noise() -> float:
        value = chance.gauss(0, 0.01)
        if tails == "heavy":
            return value / math.sqrt(chance.gammavariate(1.5, 1 / 1.5))
        return round(value, 2) if tails == "coarse" else value

    called = 0
    for _ in range(1000):
        values = [noise() for _ in range(n)]
        called += decide(hodges_lehmann(values), margin=0.0001) in ("faster", "slower")

    assert called <= 68
