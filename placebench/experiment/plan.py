"""The order of everything in an interleaved comparison: pure, seeded, balanced.

The key piece is `plan_replicates`. A round is a random order of all variants followed by the same order backwards (ABBA
or BAAB for two, CABBAC and the like for three), which cancels a linear drift of the machine. The servers are started
anew after every few rounds of a replicate; start order, warm-up order and the hash seed are drawn for each start and
shared by its variants.
Source: research on the same code measured A then B, which differed by 44 % (docs/explanation/statistics.md).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

_ROUNDS_OF_A_START = 8
"""At most. Two processes of the same code differ by some 1.5 % as long as they live, two rounds by 7 %, and a start
takes as long as two or three rounds: that many rounds a start say most in a given time."""


@dataclass(frozen=True)
class StartPlan:
    """What happens to one set of server processes, a fresh one for each variant."""

    start_order: tuple[str, ...]
    warmup_order: tuple[str, ...]
    hash_seed: int
    """PYTHONHASHSEED of every variant."""
    rounds: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class ReplicatePlan:
    """What happens in one replicate: sets of fresh server processes, one after the other."""

    number: int
    starts: tuple[StartPlan, ...]

    @property
    def rounds(self) -> tuple[tuple[str, ...], ...]:
        """Those of all starts, in order."""
        return tuple(chain.from_iterable(start.rounds for start in self.starts))


def plan_replicates(variants: Sequence[str], *, replicates: int, rounds: int, seed: int) -> list[ReplicatePlan]:
    """The plan of a comparison of *variants*; the same arguments give the same plan everywhere.

    The plan of a replicate depends on its number, not on how many there are: a longer run begins like a shorter one.
    """
    return [plan_replicate(variants, number, rounds=rounds, seed=seed) for number in range(replicates)]


def plan_replicate(variants: Sequence[str], number: int, *, rounds: int, seed: int) -> ReplicatePlan:
    """The plan of the replicate with this number, from 0; its *rounds* are spread evenly over its starts."""
    chance = random.Random(f"{seed} {number}")
    starts = -(-rounds // _ROUNDS_OF_A_START)
    shares = [rounds * (place + 1) // starts - rounds * place // starts for place in range(starts)]
    return ReplicatePlan(number, tuple(_plan_start(variants, chance, rounds=share) for share in shares))


def _plan_start(variants: Sequence[str], chance: random.Random, *, rounds: int) -> StartPlan:
    return StartPlan(
        start_order=_shuffled(variants, chance),
        warmup_order=_shuffled(variants, chance),
        hash_seed=chance.randrange(1, 2**32),
        rounds=tuple(_there_and_back(_shuffled(variants, chance)) for _ in range(rounds)),
    )


def block_size(request_s: float, *, block_s: float, at_most: int = 50) -> int:
    """How many requests of *request_s* seconds fill *block_s*; at least one, so slow requests get small blocks."""
    return max(1, min(at_most, round(block_s / request_s)))


def _shuffled(variants: Sequence[str], chance: random.Random) -> tuple[str, ...]:
    return tuple(chance.sample(list(variants), len(variants)))


def _there_and_back(order: tuple[str, ...]) -> tuple[str, ...]:
    return (*order, *reversed(order))
