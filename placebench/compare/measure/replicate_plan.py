"""The plan of a replicate: its mirrored rounds of blocks, and which blocks make it whole.

A round is a random order of all variants followed by the same order backwards (ABBA or BAAB for two, CABBAC and the
like for three), which cancels a linear drift of the machine. The servers are restarted after every few rounds of a
replicate. Start order, warm-up order and the hash seed are drawn for each start and shared by its variants. Replicates
come in pairs, 0 and 1, 2 and 3: the second has the orders of the first backwards, so that an effect of the order is not
taken for an effect of a variant.
Source: research on the same code measured A then B, which differed by 44 % (docs, "Why interleaved").
"""

import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from placebench.compare.keep.records import Block, read_blocks, rewrite_lines

_MAX_ROUNDS_PER_START = 8
"""Maximum number of rounds per start of the servers, which gives the most information in a given time.

Two processes of the same code differ by some 1.5 % as long as they live, two rounds by 7 %, and a start takes as long
as two or three rounds.
"""

_PARTIAL_STARTS = 3
"""A variant of which less is measured leaves out one of three starts: starts cost more than rounds, and tell less.

It is the last of the three, so that it is not in the start whose processes are made older, which takes time too.
"""


@dataclass(frozen=True)
class StartPlan:
    """The orders of one set of fresh server processes, one for each variant."""

    start_order: tuple[str, ...]
    warmup_order: tuple[str, ...]
    hash_seed: int
    """The PYTHONHASHSEED of every variant's process."""
    rounds: tuple[tuple[str, ...], ...]

    def without(self, absent: Collection[str]) -> "StartPlan":
        """Return the plan without some variants."""

        def present(order: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name for name in order if name not in absent)

        return replace(
            self,
            start_order=present(self.start_order),
            warmup_order=present(self.warmup_order),
            rounds=tuple(map(present, self.rounds)),
        )


@dataclass(frozen=True)
class ReplicatePlan:
    """The plan of one replicate: several sets of fresh server processes, one set after the other."""

    number: int
    starts: tuple[StartPlan, ...]

    @property
    def rounds(self) -> tuple[tuple[str, ...], ...]:
        """The rounds of all starts, in order."""
        return tuple(chain.from_iterable(start.rounds for start in self.starts))


def plan_replicate(
    variants: Sequence[str], number: int, *, rounds: int, seed: int, partial: Collection[str] = ()
) -> ReplicatePlan:
    """Return the plan of the replicate *number*, from 0; its *rounds* are spread evenly over its starts.

    partial: variants that leave out each third start of a replicate.

    The plan depends on the arguments only, not on the number of replicates: a longer run begins like a shorter one. A
    replicate with an odd number has the orders of the previous replicate, backwards.
    """
    pair, is_second = divmod(number, 2)
    chance = random.Random(f"{seed} {pair}")
    starts = -(-rounds // _MAX_ROUNDS_PER_START)
    shares = [rounds * (place + 1) // starts - rounds * place // starts for place in range(starts)]
    planned = []
    for place, share in enumerate(shares):
        absent = partial if (place + 1) % _PARTIAL_STARTS == 0 else ()
        start = _plan_start(variants, chance, rounds=share, backwards=bool(is_second))
        planned.append(start.without(absent) if absent else start)
    return ReplicatePlan(number, tuple(planned))


def _plan_start(variants: Sequence[str], chance: random.Random, *, rounds: int, backwards: bool) -> StartPlan:
    def order() -> tuple[str, ...]:
        drawn = tuple(chance.sample(list(variants), len(variants)))
        return drawn[::-1] if backwards else drawn

    hash_seeds = [chance.randrange(1, 2**32) for _ in range(2)]
    return StartPlan(
        start_order=order(),
        warmup_order=order(),
        hash_seed=hash_seeds[backwards],
        rounds=tuple(drawn + drawn[::-1] for drawn in (order() for _ in range(rounds))),
    )


def invalidated(made: list[Block], plan: ReplicatePlan, reason: str) -> list[Block]:
    """Return the blocks of a discarded replicate with *reason* on the last one; an empty block if there are none."""
    if not made:
        variant = plan.starts[0].start_order[0]
        nothing = Block(plan.number, round=0, position=0, variant=variant, requests=0, wall_s=[], cpu_s=None)
        return [replace(nothing, invalid=reason)]
    return [*made[:-1], replace(made[-1], invalid=made[-1].invalid or reason)]


def keep_whole_replicates(path: Path, *, rounds: int, partial: Collection[str] = ()) -> list[Block]:
    """Remove the blocks of incomplete replicates, as a kill leaves them, from blocks.jsonl; return the other blocks.

    A replicate is complete if every variant has both blocks of each round of its plan, or if one block says why it is
    discarded. partial: as in `plan_replicate`.
    """
    blocks = read_blocks(path)
    made: dict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        made[block.replicate].append(block)
    whole = set()
    for number, own in made.items():
        names = sorted({block.variant for block in own})
        expected = sum(map(len, plan_replicate(names, number, rounds=rounds, seed=0, partial=partial).rounds))
        if len(own) == expected or any(block.invalid for block in own):
            whole.add(number)
    kept = [block for block in blocks if block.replicate in whole]
    rewrite_lines(path, kept)
    return kept
