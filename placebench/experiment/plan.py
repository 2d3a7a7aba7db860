"""The order of everything in an interleaved comparison: pure, seeded, balanced.

The key piece is `plan_replicates`. A round is a random order of all arms followed by the same order backwards (ABBA or
BAAB for two, CABBAC and the like for three), which cancels a linear drift of the machine; start order, warm-up order
and the hash seed are drawn anew for each replicate and shared by its arms.
Source: research on the same code measured A then B, which differed by 44 % (docs/design.md, "Why interleaved").
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ReplicatePlan:
    """What happens in one replicate: a fresh server process for each arm."""

    number: int
    start_order: tuple[str, ...]
    warmup_order: tuple[str, ...]
    hash_seed: int
    """PYTHONHASHSEED of every arm."""
    rounds: tuple[tuple[str, ...], ...]


def plan_replicates(arms: Sequence[str], *, replicates: int, rounds: int, seed: int) -> list[ReplicatePlan]:
    """The plan of a comparison of *arms*; the same arguments give the same plan everywhere.

    The plan of a replicate depends on its number, not on how many there are: a longer run begins like a shorter one.
    """
    return [plan_replicate(arms, number, rounds=rounds, seed=seed) for number in range(replicates)]


def plan_replicate(arms: Sequence[str], number: int, *, rounds: int, seed: int) -> ReplicatePlan:
    """The plan of the replicate with this number, from 0."""
    chance = random.Random(f"{seed} {number}")
    return ReplicatePlan(
        number=number,
        start_order=_shuffled(arms, chance),
        warmup_order=_shuffled(arms, chance),
        hash_seed=chance.randrange(1, 2**32),
        rounds=tuple(_there_and_back(_shuffled(arms, chance)) for _ in range(rounds)),
    )


def block_size(request_s: float, *, block_s: float, at_most: int = 50) -> int:
    """How many requests of *request_s* seconds fill *block_s*; at least one, so slow requests get small blocks."""
    return max(1, min(at_most, round(block_s / request_s)))


def _shuffled(arms: Sequence[str], chance: random.Random) -> tuple[str, ...]:
    return tuple(chance.sample(list(arms), len(arms)))


def _there_and_back(order: tuple[str, ...]) -> tuple[str, ...]:
    return (*order, *reversed(order))
