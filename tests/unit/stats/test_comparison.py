"""From blocks to the verdict: the reduction level by level, and what each interval is called."""

import math
import random
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import pytest

from placebench.stats import ConfidenceInterval, compare_blocks, hodges_lehmann, sequential_interval
from placebench.stats.replicates import _CPU, _WALL, COUNTED, METRICS, reduce_blocks
from placebench.stats.verdict import decide, minimum_detectable_effect

NINE = [-0.03 * math.sqrt(4 / 3), 0.03 * math.sqrt(4 / 3), 0.0] * 3
"""Log ratios with a standard deviation of 0.03."""


@dataclass(frozen=True)
class FakeBlock:
    """A block as compare sees it."""

    replicate: int
    round: int
    variant: str
    wall_s: Sequence[float]
    cpu_s: float | None
    invalid: str | None = None
    cycle: int = 1
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        return len(self.wall_s)


def round_(replicate: int, number: int, walls: Sequence[float], cpus: Sequence[float | None]) -> list[FakeBlock]:
    """An ABBA round of one request a block."""
    variants = ("naive", "tuned", "tuned", "naive")
    return [
        FakeBlock(replicate, number, variant, [wall], cpu)
        for variant, wall, cpu in zip(variants, walls, cpus, strict=True)
    ]


def run(log_ratios: Iterable[float]) -> list[FakeBlock]:
    """A run whose replicates have these log ratios, in wall time and in CPU."""
    return [
        block
        for number, ratio in enumerate(log_ratios)
        for block in round_(
            number, 0, [1, math.exp(ratio), math.exp(ratio), 1], [1, math.exp(ratio), math.exp(ratio), 1]
        )
    ]


def test_under_load_the_throughput_and_the_percentiles_are_compared() -> None:
    """tuned takes 2 s instead of 4 for 500 requests of a block: half the time per request, and half the latency.

    Two blocks of 500 requests are enough for the p99 of a replicate; p99 is not measured with 400.
    """
    blocks = [
        FakeBlock(
            replicate,
            round=0,
            variant=variant,
            wall_s=[scale * number / 500 for number in range(1, 501)],
            cpu_s=1.0,
            counters={"elapsed_s": 4.0 * scale},
        )
        for replicate in range(6)
        for variant, scale in (("naive", 1.0), ("tuned", 0.5), ("tuned", 0.5), ("naive", 1.0))
    ]
    elapsed, p95, p99 = (compare_blocks(blocks, "naive", "tuned", name) for name in ("elapsed_s", "p95_s", "p99_s"))
    few = [replace(block, wall_s=block.wall_s[:400]) for block in blocks]

    assert "faster" == elapsed.verdict
    assert [elapsed.baseline_value, elapsed.variant_value] == pytest.approx([0.008, 0.004])
    assert [p95.ratio, p99.ratio] == pytest.approx([0.5, 0.5])
    assert [p95.baseline_value, p99.baseline_value] == pytest.approx([0.95, 0.99], rel=0.01)
    assert not compare_blocks(few, "naive", "tuned", "p99_s").measured
    assert compare_blocks(few, "naive", "tuned", "p95_s").measured


def test_without_users_there_is_no_metric_of_load() -> None:
    """A block of a single user has no time of its own."""
    assert not any(
        compare_blocks(run(NINE), "naive", "tuned", name).measured for name in ("elapsed_s", "p95_s", "p99_s")
    )


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("confidence", [0.51, 0.75, 0.95, 0.999])
def test_few_replicates_are_a_verdict_at_every_confidence(sequential: bool, confidence: float) -> None:
    """From none to nine, alike or different: there is a comparison, and a variant's interval with six of them."""
    for number in range(10):
        for log_ratio in (0.0, math.log(0.5)):
            blocks = run([log_ratio + 0.001 * each for each in range(number)])
            made = compare_blocks(blocks, "naive", "tuned", "cpu_s", confidence=confidence, sequential=sequential)

            assert made.replicates == number
            assert made.variant_low is None or number >= 6


@pytest.mark.parametrize("confidence", [-1.0, 0.0, 0.45, 0.5, 1.0, math.nan])
def test_a_confidence_that_cannot_be(confidence: float) -> None:
    """Equivalence needs more than 0.5; the line says what was expected."""
    with pytest.raises(ValueError, match=r"expected more than 0\.5 and less than 1"):
        compare_blocks(run([0.0] * 6), "naive", "tuned", "cpu_s", confidence=confidence)


def test_a_linear_drift_weighs_on_both_variants_alike() -> None:
    """CPU that climbs 1 2 3 4 through a round of identical variants leaves a log ratio of 0."""
    blocks = round_(0, 0, walls=[1, 1, 1, 1], cpus=[1, 2, 3, 4])

    assert reduce_blocks(blocks, "naive", "tuned", _CPU).log_ratios == (0.0,)


def test_cpu_is_totals_by_requests() -> None:
    """3 s over 30 requests against 1 s over 20: half the CPU a request, whatever the blocks' sizes."""
    blocks = [
        FakeBlock(0, 0, "naive", [1.0] * 10, 2.0),
        FakeBlock(0, 0, "tuned", [1.0] * 15, 0.9),
        FakeBlock(0, 0, "tuned", [1.0] * 5, 0.1),
        FakeBlock(0, 0, "naive", [1.0] * 20, 1.0),
    ]

    assert reduce_blocks(blocks, "naive", "tuned", _CPU).log_ratios == pytest.approx((math.log(0.5),))


def test_wall_time_is_the_median_of_the_block() -> None:
    """One request that a neighbour stalled for a minute does not move a block of three."""
    blocks = [
        FakeBlock(0, 0, "naive", [0.2, 60.0, 0.2], None),
        FakeBlock(0, 0, "tuned", [0.1, 0.1, 0.1], None),
        FakeBlock(0, 0, "tuned", [0.1, 0.1, 0.1], None),
        FakeBlock(0, 0, "naive", [0.2, 0.2, 0.2], None),
    ]

    assert reduce_blocks(blocks, "naive", "tuned", _WALL).log_ratios == pytest.approx((math.log(0.5),))


def test_wall_time_of_different_requests_is_the_median_of_their_cycles() -> None:
    """Requests of 1 and 5 s take 3 s on average, and one cycle that was stalled does not move that."""
    stalled = [1.0, 5.0, 1.0, 5.0, 10.0, 50.0]
    blocks = [
        FakeBlock(0, 0, variant, walls, None, cycle=2)
        for variant, walls in (("naive", stalled), ("tuned", [6.0] * 6), ("tuned", [6.0] * 6), ("naive", stalled))
    ]

    assert reduce_blocks(blocks, "naive", "tuned", _WALL).log_ratios == pytest.approx((math.log(2),))


def test_memory_is_the_most_of_the_round() -> None:
    """2 bytes at most against 4; where one block has no figure, there is none."""
    sizes = (4.0, 1.0, 2.0, 3.0)
    blocks = [
        replace(block, counters={"pss_bytes": size})
        for block, size in zip(round_(0, 0, [1] * 4, [1] * 4), sizes, strict=True)
    ]
    unknown = [replace(blocks[0], counters={}), *blocks[1:]]

    assert reduce_blocks(blocks, "naive", "tuned", METRICS["pss_bytes"]).log_ratios == pytest.approx((math.log(0.5),))
    assert reduce_blocks(unknown, "naive", "tuned", METRICS["pss_bytes"]).log_ratios == ()


@pytest.mark.parametrize("broken", [{"cpu_s": None}, {"wall_s": []}, {"cpu_s": 0.0}])
@pytest.mark.parametrize("variant", ["naive", "tuned"])
def test_cpu_of_one_variant_alone_is_no_ratio(variant: str, broken: dict[str, object]) -> None:
    """One block whose CPU could not be read, no request, or no CPU at all: the round says nothing."""
    blocks = round_(0, 0, [1, 1, 1, 1], [1, 1, 1, 1])
    changed = [replace(each, **broken) if each.variant == variant else each for each in blocks]
    one = [each if number else replace(each, cpu_s=None) for number, each in enumerate(blocks)]

    assert reduce_blocks(changed, "naive", "tuned", _CPU).log_ratios == ()
    assert reduce_blocks(one, "naive", "tuned", _CPU).log_ratios == ()


def test_more_blocks_than_four_are_a_round_too() -> None:
    """Three blocks of each variant; the levels are CPU seconds of one request."""
    blocks = [FakeBlock(0, 0, variant, [1.0], cpu) for variant, cpu in (("naive", 2.0), ("tuned", 3.0)) * 3]

    reduced = reduce_blocks(blocks, "naive", "tuned", _CPU)

    assert reduced.log_ratios == pytest.approx((math.log(1.5),))
    assert reduced.levels[0] == pytest.approx((2.0, 3.0))


def test_quads_become_replicates_by_median_for_wall_and_mean_for_cpu() -> None:
    """Rounds of e⁰, e⁰ and e³ are a replicate of 0 in wall time and of 1 in CPU."""
    blocks = [
        block
        for number, ratio in enumerate((0, 0, 3))
        for block in round_(0, number, [1, math.exp(ratio)] * 2, [1, math.exp(ratio)] * 2)
    ]
    blocks = [replace(block, variant=variant) for block, variant in zip(blocks, ("naive", "tuned") * 6, strict=True)]

    assert reduce_blocks(blocks, "naive", "tuned", _WALL).log_ratios == (0.0,)
    assert reduce_blocks(blocks, "naive", "tuned", _CPU).log_ratios == pytest.approx((1.0,))


def test_an_invalid_block_takes_its_whole_replicate() -> None:
    """Of eight replicates one has an invalid block: seven count, one is reported."""
    blocks = run([-1.0] * 8)
    blocks[5] = replace(blocks[5], invalid="steal 12 %")
    comparison = compare_blocks(blocks, "naive", "tuned", "cpu_s")

    assert (comparison.replicates, comparison.invalidated, comparison.verdict) == (7, 1, "faster")


def test_a_quad_that_was_cut_short_does_not_count() -> None:
    """The seventh replicate ended after two of four blocks: six count, none is called invalid."""
    comparison = compare_blocks(run([-1.0] * 7)[:-2], "naive", "tuned", "cpu_s")

    assert (comparison.replicates, comparison.invalidated) == (6, 0)


def test_ratios_are_variant_over_baseline() -> None:
    """Half the CPU is a ratio of 0.5; the other way round it is 2."""
    blocks = run([math.log(0.5)] * 6)
    there = compare_blocks(blocks, "naive", "tuned", "cpu_s")
    back = compare_blocks(blocks, "tuned", "naive", "cpu_s")

    assert [there.ratio, there.low, there.high] == pytest.approx([0.5, 0.5, 0.5])
    assert [back.ratio, back.low, back.high] == pytest.approx([2.0, 2.0, 2.0])
    assert (there.verdict, back.verdict) == ("faster", "slower")


def test_too_few_replicates_are_a_verdict() -> None:
    """Three replicates have an estimate, no limits, and say why they cannot tell."""
    comparison = compare_blocks(run([-0.1, -0.1, -0.1]), "naive", "tuned", "wall_s")

    assert (comparison.low, comparison.high, comparison.verdict) == (None, None, "inconclusive")
    assert comparison.reason == "inconclusive: 3 replicates, 6 needed"
    assert comparison.ratio == pytest.approx(math.exp(-0.1))


def test_what_was_not_measured_has_no_ratio() -> None:
    """Without the CPU of the backends there is no number to take for one."""
    blocks = [replace(block, cpu_s=None) for block in run([-1.0] * 6)]
    comparison = compare_blocks(blocks, "naive", "tuned", "cpu_s")

    assert (comparison.ratio, comparison.measured, comparison.verdict) == (None, False, "inconclusive")
    assert comparison.reason == "not measured: cpu_s"
    assert compare_blocks([], "naive", "tuned", "cpu_s").reason == "inconclusive: 0 replicates, 6 needed"


def test_a_percentile_of_too_few_requests_says_how_many_it_needs() -> None:
    """Two blocks of 60 requests of each variant in a replicate are 120, where the 95th percentile needs 200."""
    blocks = [replace(block, wall_s=[0.01] * 60, counters={"at_rate_s": 1.0}) for block in run([-1.0] * 6)]

    comparison = compare_blocks(blocks, "naive", "tuned", "p95_s")

    assert comparison.needs == "needs 200 requests of a variant in a replicate, and --rounds makes 120"
    assert comparison.reason == f"not measured: p95_s {comparison.needs}"


def test_the_value_of_the_variant_has_an_interval_too() -> None:
    """Six replicates of e⁻¹ to e⁻² s a request: at 95 % from least to greatest."""
    comparison = compare_blocks(run([-1.0, -1.2, -1.4, -1.6, -1.8, -2.0]), "naive", "tuned", "cpu_s")

    assert [comparison.variant_low, comparison.variant_high] == pytest.approx([math.exp(-2), math.exp(-1)])


@pytest.mark.parametrize(
    ("log_ratios", "verdict"),
    [
        ([-0.050, -0.052, -0.048, -0.051, -0.049, -0.050], "faster"),
        ([0.050, 0.052, 0.048, 0.051, 0.049, 0.050], "slower"),
        ([0.001, -0.002, 0.002, -0.001, 0.0, 0.001], "equivalent"),
        ([-0.004, -0.005, -0.006, -0.004, -0.005, -0.006], "equivalent"),
        ([-0.001, -0.018, -0.002, -0.015, -0.003, -0.004], "below the margin"),
        ([-0.012, 0.002, 0.003, -0.002, -0.001, 0.001], "inconclusive"),
        ([-0.05, 0.06, -0.02, 0.03, -0.04, 0.05], "inconclusive"),
    ],
)
def test_the_five_verdicts(log_ratios: list[float], verdict: str) -> None:
    """A 1 % margin: beyond it faster or slower, inside it equivalent, significant across it small, else cannot tell."""
    assert verdict == decide(hodges_lehmann(log_ratios), margin=0.01)


@pytest.mark.parametrize(
    ("estimate", "low", "high", "verdict"),
    [
        (-0.5, -1.0, 0.0, "inconclusive"),
        (0.5, 0.0, 1.0, "inconclusive"),
        (-0.01, -0.02, -0.005, "faster"),
        (0.01, 0.005, 0.02, "slower"),
        (0.0, -0.01, 0.005, "inconclusive"),
        (0.0, -0.005, 0.01, "inconclusive"),
        (0.0, -0.005, 0.02, "inconclusive"),
        (0.0, -0.005, 0.005, "equivalent"),
    ],
)
def test_a_limit_on_the_edge_does_not_decide_and_an_estimate_there_does(
    estimate: float, low: float, high: float, verdict: str
) -> None:
    """A 1 % margin: a limit of 0 excludes nothing, and one at the margin is not inside."""
    assert verdict == decide(ConfidenceInterval(estimate, low, high, 0.95), 0.01)


def test_the_margins_are_those_of_the_documentation() -> None:
    """docs/reference/metrics.md has those of timed and of counted metrics."""
    section = (Path(__file__).parents[3] / "docs/reference/metrics.md").read_text().partition("## Comparison")[2]
    rows = [re.fullmatch(r"\| (.*?) \|.*\| (\S+) % \|", line) for line in section.splitlines()]
    documented = {name: float(row[2]) / 100 for row in rows if row for name in re.findall(r"`(\w+)`", row[1])}

    assert documented == pytest.approx({name: rule.margin for name, rule in METRICS.items()} | COUNTED)


def test_a_reason_is_given_where_it_is_inconclusive_alone() -> None:
    """Two that are decided, and one whose interval is too wide."""
    ratios = ([-0.05] * 6, [0.05] * 6, [-0.05, 0.06, -0.02, 0.03, -0.04, 0.05])
    made = [compare_blocks(run(each), "naive", "tuned", "cpu_s") for each in ratios]

    assert [(each.verdict, bool(each.reason)) for each in made] == [
        ("faster", False),
        ("slower", False),
        ("inconclusive", True),
    ]


def test_values_that_differ_and_the_ratios_of_all_replicates() -> None:
    """More and less differ; equal values and an unknown one do not."""
    more = compare_blocks(run([math.log(2)] * 6), "naive", "tuned", "cpu_s")
    less, same = (compare_blocks(run([each] * 6), "naive", "tuned", "cpu_s") for each in (math.log(0.5), 0.0))

    assert more.pair == ("naive", "tuned")
    assert more.ratios == pytest.approx([2.0] * 6)
    assert [each.differs for each in (more, less, same, replace(more, baseline_value=None))] == [
        True,
        True,
        False,
        False,
    ]


def test_a_sequential_run_has_a_detectable_effect_of_its_own() -> None:
    """With an interval, half its width and 0.84 standard errors; none without."""
    made, few = (compare_blocks(run(each), "naive", "tuned", "cpu_s", sequential=True) for each in (NINE * 2, NINE[:3]))
    interval = sequential_interval(NINE * 2)

    assert (made.is_sequential, few.detectable) == (True, None)
    assert made.detectable == pytest.approx(
        (interval.high - interval.low) / 2 + 0.8416 * statistics.stdev(NINE * 2) / math.sqrt(18), rel=1e-4
    )


def test_identical_programs_are_called_faster_or_slower_at_most_one_time_in_twenty() -> None:
    """Of 2000 runs of 12 replicates of one program against itself, at most 5 % find a difference."""
    rng = random.Random(11)
    noise = [[rng.gauss(0, 0.05) / max(rng.random(), 0.05) for _ in range(12)] for _ in range(2000)]
    verdicts = [decide(hodges_lehmann(each), margin=0.01) for each in noise]

    assert fmean(verdict in ("faster", "slower") for verdict in verdicts) <= 0.05


def test_a_wider_interval_finds_larger_effects() -> None:
    """With three looks, whose intervals have 97.79 %, the detectable effect is that of such an interval."""
    detectable = minimum_detectable_effect(NINE, confidence=1 - 0.0221)

    assert detectable is not None
    assert detectable > (minimum_detectable_effect(NINE) or math.inf)
    assert compare_blocks(run(NINE), "naive", "tuned", "cpu_s", confidence=1 - 0.0221).detectable == pytest.approx(
        detectable
    )


def test_the_json_has_the_promised_figures() -> None:
    """The names that other programs read."""
    document = compare_blocks(run([-1.0] * 6), "naive", "tuned", "cpu_s").to_json()
    promised = {"baseline", "variant", "metric", "ratio", "low", "high", "confidence", "verdict", "detectable"}

    assert promised <= document.keys()
    assert (
        document["baseline"],
        document["variant"],
        document["metric"],
        document["confidence"],
        document["verdict"],
    ) == ("naive", "tuned", "cpu_s", 0.95, "faster")
