"""The order of an interleaved comparison."""

from collections import Counter
from pathlib import Path

import pytest

from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.replicate import block_size
from placebench.compare.measure.replicate_plan import ReplicatePlan, plan_replicate
from placebench.compare.what.variants import Variant
from placebench.compare.what.workload import SentRequest, Workload
from placebench.lab.placement_api import placement_workload


def plan_replicates(variants: tuple[str, ...], *, replicates: int, rounds: int, seed: int) -> list[ReplicatePlan]:
    """The plans of so many replicates."""
    return [plan_replicate(variants, number, rounds=rounds, seed=seed) for number in range(replicates)]


def test_the_same_seed_gives_the_same_plan() -> None:
    """A plan is made from its arguments alone."""
    first = plan_replicates(("naive", "tuned"), replicates=12, rounds=3, seed=7)
    second = plan_replicates(("naive", "tuned"), replicates=12, rounds=3, seed=7)

    assert first == second


def test_another_seed_gives_another_plan() -> None:
    """The seed decides the order."""
    first = plan_replicates(("naive", "tuned"), replicates=12, rounds=3, seed=7)
    second = plan_replicates(("naive", "tuned"), replicates=12, rounds=3, seed=8)

    assert first != second


def test_each_round_is_abba_or_baab() -> None:
    """In a round each variant stands twice, and the middle two are the same, so a linear drift cancels."""
    plans = plan_replicates(("a", "b"), replicates=20, rounds=4, seed=1)

    kinds = Counter(round_ for plan in plans for round_ in plan.rounds)

    assert set(kinds) == {("a", "b", "b", "a"), ("b", "a", "a", "b")}


def test_a_round_of_three_is_mirrored() -> None:
    """With more than two variants each stands twice, at the same distance from the middle."""
    (plan,) = plan_replicates(("a", "b", "c"), replicates=1, rounds=5, seed=1)

    assert all(order == order[::-1] and set(order) == {"a", "b", "c"} for order in plan.rounds)
    assert len(set(plan.rounds)) > 1


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    """Replicates that are added later change nothing in those before, so a run can be resumed."""
    short = plan_replicates(("a", "b"), replicates=3, rounds=2, seed=5)
    long = plan_replicates(("a", "b"), replicates=9, rounds=2, seed=5)

    assert long[:3] == short


def test_the_second_of_a_pair_has_the_orders_of_the_first_backwards() -> None:
    """What an order does to a variant it does to the other one as often, whatever the seed."""
    for seed in range(5):
        plans = plan_replicates(("a", "b", "c"), replicates=8, rounds=9, seed=seed)
        for first, second in zip(plans[::2], plans[1::2], strict=True):
            for one, other in zip(first.starts, second.starts, strict=True):
                assert one.start_order == other.start_order[::-1]
                assert one.warmup_order == other.warmup_order[::-1]
                assert [order[:3] for order in one.rounds] == [order[2::-1] for order in other.rounds]
                assert one.hash_seed != other.hash_seed


def test_variants_of_the_same_data_use_its_copies_by_turns(tmp_path: Path) -> None:
    """Each has its own in even replicates and the other's in odd ones; nobody else touches a database of its own."""
    variants = (
        Variant("a"),
        Variant("b"),
        Variant("migrated", migrate="alembic upgrade head"),
        Variant("control", request="GET /"),
        Variant("configured", postgres={"jit": "off"}),
    )
    prepared = prepare(tmp_path, variants, placement_workload("/"))

    assert [prepared.owner("a", number) for number in range(4)] == ["a", "b", "a", "b"]
    assert [prepared.owner("b", number) for number in range(4)] == ["b", "a", "b", "a"]
    for name in ("migrated", "control", "configured"):
        assert {prepared.owner(name, number) for number in range(4)} == {name}


def test_a_workload_that_writes_keeps_to_its_own_database(tmp_path: Path) -> None:
    """Otherwise rows that only one variant adds would grow in both databases alike, and nobody would notice."""
    writing = Workload(calls=(SentRequest("POST", "/"),), cycle=(0,))
    prepared = prepare(tmp_path, (Variant("a"), Variant("b")), writing)

    assert prepared.alike("a") == ["a"]


def prepare(folder: Path, variants: tuple[Variant, ...], workload: Workload) -> PreparedVariants:
    """Such variants, none of which is served."""
    return PreparedVariants(variants, {each.name: "" for each in variants}, workload, folder, block_s=0.1)


def test_start_and_warm_up_orders_vary() -> None:
    """Neither variant is always started or warmed first."""
    plans = plan_replicates(("a", "b"), replicates=20, rounds=1, seed=1)

    assert {("a", "b"), ("b", "a")} == {start.start_order for plan in plans for start in plan.starts}
    assert {("a", "b"), ("b", "a")} == {start.warmup_order for plan in plans for start in plan.starts}


@pytest.mark.parametrize(("rounds", "shares"), [(1, [1]), (8, [8]), (9, [4, 5]), (12, [6, 6]), (24, [8, 8, 8])])
def test_servers_are_started_anew_every_few_rounds(rounds: int, shares: list[int]) -> None:
    """The rounds are spread evenly over the starts, each with a hash seed of its own."""
    (plan,) = plan_replicates(("a", "b"), replicates=1, rounds=rounds, seed=1)

    assert [len(start.rounds) for start in plan.starts] == shares
    assert len(plan.rounds) == rounds
    assert len({start.hash_seed for start in plan.starts}) == len(shares)


@pytest.mark.parametrize(("request_s", "expected"), [(0.5, 1), (0.1, 5), (2.0, 1), (0.001, 50), (0.25, 2)])
def test_a_block_is_sized_by_time(request_s: float, expected: int) -> None:
    """Slow requests get small blocks, fast ones at most fifty."""
    assert block_size(request_s, block_s=0.5) == expected


def test_a_partial_variant_leaves_out_the_last_of_three_starts() -> None:
    """That is the start whose processes get older; with one start the variant takes part in all."""
    plans = [plan_replicate(("a", "b", "c"), number, rounds=24, seed=1, partial=["c"]) for number in range(6)]
    (single,) = [plan_replicate(("a", "b", "c"), 0, rounds=8, seed=1, partial=["c"])]

    assert {("abc", "abc", "ab")} == {
        tuple("".join(sorted(start.start_order)) for start in plan.starts) for plan in plans
    }
    assert {32} == {sum(order.count("c") for order in plan.rounds) for plan in plans}
    assert {48} == {sum(order.count("a") for order in plan.rounds) for plan in plans}
    assert 16 == sum(order.count("c") for order in single.rounds)
