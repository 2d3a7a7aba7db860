"""The metrics of a process's lifetime: its start, its rare slow requests, its leaks, and what changes with its age."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from placebench.report.gates import judge_gate, parse_gates
from placebench.stats import Comparison, compare_blocks
from placebench.stats.hodges_lehmann import replicates_needed
from placebench.stats.multiple_testing import lifetime_shares
from placebench.stats.replicates import LIFETIME, METRICS
from placebench.stats.verdict import EQUIVALENT, FASTER, INCONCLUSIVE, SLOWER

REQUESTS = 20


@dataclass(frozen=True)
class Block:
    """A block of requests as measured."""

    replicate: int
    round: int
    variant: str
    wall_s: Sequence[float]
    counters: dict[str, float] = field(default_factory=dict)
    requests: int = REQUESTS
    cycle: int = 1
    cpu_s: float | None = None
    invalid: str | None = None


def blocks_of(
    wall_s: Callable[[str, int], float],
    pss_bytes: Callable[[str, int], float] = lambda _name, _served: 4e7,
    start_s: Callable[[str], float] = lambda _: 0.5,
    *,
    replicates: int = 8,
    cycle: int = 1,
) -> list[Block]:
    """Three starts of eight rounds in each replicate; the last start serves 400 requests more before its last rounds.

    wall_s, pss_bytes: called with the variant and the number of requests that its process has served.
    """

    def made() -> Iterator[Block]:
        for replicate in range(replicates):
            for start in range(3):
                served = {"old": 3, "new": 3}
                for round_ in range(8):
                    if (start, round_) == (2, 6):
                        served = {name: number + 400 for name, number in served.items()}
                    for name in ("old", "new", "new", "old"):
                        walls = [wall_s(name, served[name] + place) for place in range(REQUESTS)]
                        served[name] += REQUESTS
                        counters = {
                            "served": float(served[name]),
                            "pss_bytes": pss_bytes(name, served[name]),
                            "start_s": start_s(name) * (1 + 0.001 * start),
                        }
                        yield Block(replicate, 8 * start + round_, name, walls, counters, cycle=cycle)

    return list(made())


def compared(blocks: Sequence[Block], metric: str, **options: float) -> Comparison:
    """Compare the two variants as a report does."""
    return compare_blocks(blocks, "old", "new", metric, share=lifetime_shares()[metric], **options)


def noisy(seed: int) -> Callable[[str, int], float]:
    """Requests of 5 ms with a noise of 3 %, which has a tail."""
    chance = random.Random(seed)
    return lambda _name, _served: 0.005 * math.exp(abs(chance.gauss(0, 0.03)))


def test_eight_replicates_decide_each_of_them() -> None:
    """The quick preset has eight."""
    assert {8} == {replicates_needed(1 - share * 0.05) for share in lifetime_shares().values()}
    assert 1 == pytest.approx(sum(lifetime_shares().values()))


def test_one_of_fifty_requests_that_takes_twenty_times_as_long_is_a_verdict() -> None:
    """The share of slow requests is 2 %, and no metric of all requests has to show it."""
    usual = noisy(1)
    made = blocks_of(lambda name, served: usual(name, served) * (20 if name == "new" and served % 50 == 0 else 1))

    slow, wall = compared(made, "slow_share"), compare_blocks(made, "old", "new", "wall_s")

    assert SLOWER == slow.verdict
    assert 0.02 == pytest.approx(slow.variant_value, rel=0.1)
    assert SLOWER != wall.verdict
    assert FASTER == compare_blocks(made, "new", "old", "slow_share", share=1 / 6).verdict


def test_a_slow_request_of_a_fast_route_is_seen_beside_a_slow_route() -> None:
    """Of two requests in turn one takes 10 times as long: each is compared with its own kind."""
    usual = noisy(2)

    def wall_s(name: str, served: int) -> float:
        times = 10 if served % 2 else 1
        return usual(name, served) * times * (5 if name == "new" and served % 40 == 4 else 1)

    assert SLOWER == compared(blocks_of(wall_s, cycle=2), "slow_share").verdict


def test_a_bound_of_the_user_decides_what_is_slow() -> None:
    """Above 200 ms nothing is slow here, above 1 ms everything."""
    made = blocks_of(noisy(3))

    none, every = compared(made, "slow_share", bound_s=0.2), compared(made, "slow_share", bound_s=0.001)

    assert (EQUIVALENT, EQUIVALENT) == (none.verdict, every.verdict)
    assert 0.001 > (none.variant_value or 1)
    assert 0.99 < (every.variant_value or 0)


def test_a_leak_is_a_slope_of_the_memory() -> None:
    """Ten kilobytes per request of 40 MB: a quarter after 1000 requests."""
    chance = random.Random(4)

    def pss_bytes(name: str, served: int) -> float:
        return 4e7 + chance.gauss(0, 5e4) + (1e4 * served if name == "new" else 0)

    grown = compared(blocks_of(noisy(4), pss_bytes), "memory_growth")

    assert SLOWER == grown.verdict
    assert 1.25 == pytest.approx(grown.variant_value, abs=0.02)
    assert 1.0 == pytest.approx(grown.baseline_value, abs=0.01)


def test_some_forty_requests_show_no_leak() -> None:
    """In so few requests one step of the memory, such as that of a first garbage collection, would look like a leak."""
    few = [
        replace(block, counters={**block.counters, "served": block.counters["served"] // 20})
        for block in blocks_of(noisy(4), lambda name, served: 5e7 if name == "new" and served > 300 else 4e7)
    ]

    grown = compared(few, "memory_growth")

    assert (None, None) == (grown.baseline_value, grown.variant_value)


def test_slower_after_500_requests_is_no_average() -> None:
    """The rounds of old processes are compared with those of young ones."""
    usual = noisy(5)
    made = blocks_of(lambda name, served: usual(name, served) * (1.3 if name == "new" and served > 500 else 1))

    late, wall = compared(made, "late_slowdown"), compare_blocks(made, "old", "new", "wall_s")

    assert SLOWER == late.verdict
    assert 1.3 == pytest.approx(late.variant_value, abs=0.03)
    assert abs(math.log(wall.ratio or 2)) < 0.05


def busy(seed: int, factor: float, *, waits: bool = False) -> list[Block]:
    """A variant that takes *factor* as long after 500 requests, on a machine that is sometimes three times as slow.

    The noise is that of real runs at a load of 10 on two cores: wall time by the round and the block, CPU a little.
    """
    chance = random.Random(seed)

    def made() -> Iterator[Block]:
        for replicate in range(8):
            for start in range(3):
                served = {"old": 3, "new": 3}
                for round_ in range(8):
                    if (start, round_) == (2, 5):
                        served = dict.fromkeys(served, 520)
                    machine = math.exp(chance.gauss(0.4, 0.4))
                    for name in ("old", "new", "new", "old"):
                        more = factor if name == "new" and served[name] > 500 else 1.0
                        block = machine * math.exp(chance.gauss(0, 0.25))
                        walls = [0.006 * more * block * math.exp(abs(chance.gauss(0, 0.3))) for _ in range(10)]
                        served[name] += 10
                        cpu_s = 10 * 0.005 * (1.0 if waits else more) * math.exp(chance.gauss(0, 0.07))
                        counters = {"served": float(served[name])}
                        yield Block(replicate, 8 * start + round_, name, walls, counters, 10, cpu_s=cpu_s)

    return list(made())


def test_slower_after_500_requests_is_found_on_a_busy_machine() -> None:
    """By 30 %: in each of 20 runs; one program is named in none of them."""
    found = [compared(busy(seed, 1.3), "late_slowdown").verdict for seed in range(20)]
    alike = [compared(busy(seed, 1.0), "late_slowdown").verdict for seed in range(20)]

    assert {SLOWER} == set(found)
    assert not {FASTER, SLOWER} & set(alike)


def test_a_wait_that_grows_is_read_from_the_wall_time() -> None:
    """On a quiet machine the wall time is the steadier one: 30 % more of it, and no more CPU."""
    usual = noisy(8)
    chance = random.Random(8)
    made = [
        Block(**{**vars(each), "cpu_s": REQUESTS * 0.005 * math.exp(chance.gauss(0, 0.07))})
        for each in blocks_of(lambda name, served: usual(name, served) * (1.3 if name == "new" and served > 500 else 1))
    ]

    assert 1.3 == pytest.approx(compared(made, "late_slowdown").variant_value, abs=0.03)


def test_a_start_has_a_mean_over_the_starts_of_a_replicate() -> None:
    """Three starts of about 0.5 and 0.6 s."""
    started = compared(blocks_of(noisy(6), start_s=lambda name: 0.6 if name == "new" else 0.5), "start_s")

    assert SLOWER == started.verdict
    assert [0.5005, 0.6006] == pytest.approx([started.baseline_value, started.variant_value], abs=1e-4)


def test_older_runs_have_none_of_them() -> None:
    """Their blocks have no number of served requests and no start."""
    made = [Block(each.replicate, each.round, each.variant, each.wall_s[:1]) for each in blocks_of(noisy(7))]

    assert {metric: False for metric in LIFETIME if metric != "slow_share"} == {
        metric: compared(made, metric).measured for metric in LIFETIME if metric != "slow_share"
    }
    assert not compared(made[:48], "slow_share").measured


@pytest.mark.parametrize("metric", LIFETIME)
@pytest.mark.parametrize("effect", [1.0, 1.1, 1.5])
def test_verdict_interval_and_gate_say_the_same(metric: str, effect: float) -> None:
    """As of the other metrics: a change is named if and only if the interval excludes none, and then a gate decides."""
    for seed in range(6):
        chance = random.Random(f"{metric} {effect} {seed}")
        usual = noisy(seed)

        def wall_s(name: str, served: int, usual: Callable[[str, int], float] = usual, seed: int = seed) -> float:
            is_slow = (served * 7 + seed) % 50 < (2 * effect if name == "new" else 2)
            return usual(name, served) * (effect if name == "new" and served > 300 else 1) * (3 if is_slow else 1)

        def pss_bytes(name: str, served: int, chance: random.Random = chance) -> float:
            return 4e7 * (1 + (effect - 1) * (name == "new") * served / 1000) + chance.gauss(0, 2e5)

        def start_s(name: str, chance: random.Random = chance) -> float:
            return (effect if name == "new" else 1) * math.exp(chance.gauss(0, 0.05))

        made = blocks_of(wall_s, pss_bytes, start_s)
        named = [
            Block(
                each.replicate,
                each.round,
                each.variant,
                each.wall_s,
                {**each.counters, **dict.fromkeys(("start_cpu_s", "start_pss_bytes"), each.counters["start_s"])},
            )
            for each in made
        ]
        found = compared(named, metric)
        excluded = found.low is not None and found.high is not None and not found.low <= 1 <= found.high
        outcome = judge_gate(parse_gates([f"{metric}<+0%"])[0], found).outcome

        if found.low != found.high:  # else a gate at exactly that value decides, as it should
            assert (outcome != "inconclusive") == excluded
        assert (found.verdict in (FASTER, SLOWER)) <= excluded <= (found.verdict != INCONCLUSIVE)
        if found.verdict == EQUIVALENT:
            assert max(abs(math.log(found.low or 9)), abs(math.log(found.high or 9))) < METRICS[metric].margin
