"""The order of everything in an interleaved comparison: pure, seeded, balanced.

The key piece is `plan_replicates`. A quad is ABBA or BAAB by a seeded coin, which cancels a linear drift of the
machine; start order, warm-up order and the hash seed are drawn anew for each replicate and shared by both arms.
Source: research on the same code measured A then B, which differed by 44 % (docs/design.md, "Why interleaved").
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ReplicatePlan:
    """What happens in one replicate: a fresh pair of server processes."""

    number: int
    start_order: tuple[str, str]
    warmup_order: tuple[str, str]
    hash_seed: int
    """PYTHONHASHSEED of both arms."""
    quads: tuple[tuple[str, str, str, str], ...]


def plan_replicates(arms: Sequence[str], *, replicates: int, quads: int, seed: int) -> list[ReplicatePlan]:
    """The plan of a comparison of two *arms*; the same arguments give the same plan everywhere."""
    first, second = arms
    chance = random.Random(seed)
    return [
        ReplicatePlan(
            number=number,
            start_order=_shuffled(first, second, chance),
            warmup_order=_shuffled(first, second, chance),
            hash_seed=chance.randrange(1, 2**32),
            quads=tuple(_quad(first, second, chance) for _ in range(quads)),
        )
        for number in range(replicates)
    ]


def block_size(request_s: float, *, block_s: float, at_most: int = 50) -> int:
    """How many requests of *request_s* seconds fill *block_s*; at least one, so slow requests get small blocks."""
    return max(1, min(at_most, round(block_s / request_s)))


def _shuffled(first: str, second: str, chance: random.Random) -> tuple[str, str]:
    return (first, second) if chance.random() < 0.5 else (second, first)


def _quad(first: str, second: str, chance: random.Random) -> tuple[str, str, str, str]:
    outer, inner = _shuffled(first, second, chance)
    return outer, inner, inner, outer
