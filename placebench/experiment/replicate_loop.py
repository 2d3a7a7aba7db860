"""The replicates of an interleaved comparison until enough of them count: the one loop of `compare` and `perfload`.

The main class is `Replicates`. Each replicate is on the disk before the next one is made, so that a run that was killed
loses one at the most. One that does not count has another in its place; three in a row end the comparison.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from placebench.errors import UndecidedError
from placebench.experiment.parts import Say
from placebench.experiment.plan import plan_replicate
from placebench.experiment.replicate import (
    DEATHS,
    PreparedVariants,
    append_blocks,
    invalidated,
    keep_whole_replicates,
    make_replicate,
    together,
)
from placebench.experiment.run_folder import KeptHead
from placebench.experiment.same_responses import AnswerGate
from placebench.seeding import data_digest

_INVALID_IN_A_ROW = 3
_FILE = "blocks.jsonl"


class Replicates:
    """The replicates in the folder of a run, those of earlier sittings too."""

    def __init__(self, kept: KeptHead, gate: AnswerGate, folder: Path, *, variants: int, rounds: int) -> None:
        """variants: how many take part; rounds: of one replicate."""
        self._kept = kept
        self._gate = gate
        self._folder = folder
        self._rounds = rounds
        self._spent_before = kept.head.spent_s
        self.blocks = keep_whole_replicates(folder / _FILE, blocks_each=2 * variants * rounds)

    def valid(self) -> list[int]:
        """The numbers of the replicates that count, from 0."""
        return sorted({block.replicate for block in self.blocks} - set(self.invalid()))

    def invalid(self) -> list[int]:
        """The numbers of those that do not."""
        return sorted({block.replicate for block in self.blocks if block.invalid is not None})

    def make(
        self,
        variants: PreparedVariants,
        wanted: int,
        *,
        say: Say,
        note: Say,
        decided: Callable[[Sequence[int]], bool] = lambda _: False,
    ) -> None:
        """Make replicates until *wanted* of them count, or those that count have *decided*.

        say: is told of each that is begun, once; note: why one does not count. Raises GateFailedError when answers or
        data differ, UndecidedError when three in a row do not count.
        """
        self._hold_data(self._data(variants))
        lost = 0
        while len(valid := self.valid()) < wanted and not decided(valid):
            if not lost:
                say(f"replicate {len(valid) + 1} of {wanted}: {', '.join(variants.named)}")
            reason = self._make_one(variants)
            lost = lost + 1 if reason else 0
            if reason:
                note(f"the replicate does not count: {reason}")
            if lost == _INVALID_IN_A_ROW:
                counts = f"{len(valid)} of {wanted} replicates count"
                raise UndecidedError(f"{counts}: {lost} in a row do not, the last because {reason}")

    def _make_one(self, variants: PreparedVariants) -> str | None:
        """Check its answers and the data against what they should be, and keep it; why it does not count.

        In this order: a replicate that is on the disk was checked, or its run is known to have failed.
        """
        number = max((block.replicate for block in self.blocks), default=-1) + 1  # one that was used is not used again
        plan = plan_replicate(list(variants.named), number, rounds=self._rounds, seed=self._kept.head.seed)
        with variants.spent.on("replicates"):
            blocks = make_replicate(variants, plan)
            try:
                digests = self._data(variants)
            except DEATHS as error:
                digests = {}
                blocks = invalidated(blocks, plan, f"the database cannot be read: {error}")
        answered = [block for block in blocks if variants.named[block.variant].request is None]
        try:
            self._gate.check(answered, self._folder / "answers")
            self._hold_data(digests)
        finally:
            append_blocks(self._folder / _FILE, blocks)
            self._kept.save(spent_s=together(self._spent_before, variants.spent.seconds))
            self.blocks += blocks
        return next((block.invalid for block in blocks if block.invalid), None)

    def _data(self, variants: PreparedVariants) -> dict[str, str]:
        return {name: data_digest(url) for name, url in variants.databases.items()}

    def _hold_data(self, digests: dict[str, str]) -> None:
        """Every variant's data is still what was seeded; raises GateFailedError for the first that is not."""
        seeded = self._kept.head.receipt["digest"]
        for name, digest in digests.items():
            if digest != seeded:
                raise self._gate.stop(f"the data of {name} changed: digest {digest}, seeded {seeded}")
