"""The order of an interleaved comparison."""

from collections import Counter

import pytest

from placebench.experiment.replicate import ReplicatePlan, block_size, plan_replicate


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
