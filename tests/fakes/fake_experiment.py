"""A run of an experiment for tests: several arms in the same replicates, and trials between them; nothing was measured.

The key piece is `write_experiment`.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from fake_run import FakeRun, write_run

from placebench.experiment.records import Block, RunHead, WirePass
from placebench.experiment.replicate import append_blocks
from placebench.experiment.trials import Trial

ARMS = {"naive": 0.0, "naive+slots": -0.2, "naive+sets": 0.0, "tuned-slots": -0.5, "tuned-sets": -0.7, "tuned": -0.7}
TRIALS = (
    Trial("slots", "alone", "naive", "naive+slots", shows_on="/elsewhere", shows_in="statements"),
    Trial("sets", "alone", "naive", "naive+sets"),
    Trial("slots", "missed", "tuned-slots", "tuned"),
    Trial("sets", "missed", "tuned-sets", "tuned"),
)


def write_experiment(
    folder: Path,
    arms: Mapping[str, float] = ARMS,
    trials: Sequence[Trial] = TRIALS,
    *,
    replicates: int = 12,
    equal: bool = True,
) -> Path:
    """Blocks whose log CPU is that of *arms*, with a noise of half a percent; returns *folder*."""
    chance = random.Random(1)
    write_run(folder, FakeRun(variants=tuple(arms), passes_of=0, equal=equal))
    head = RunHead.load(folder / "run.json")
    replace(head, settings={**head.settings, "trials": [asdict(each) for each in trials]}).save(folder / "run.json")
    for number in range(replicates):
        cost = {arm: math.exp(level + chance.gauss(0, 0.005)) for arm, level in arms.items()}
        order = [*arms, *reversed(arms)]
        append_blocks(
            folder / "blocks.jsonl",
            [Block(number, 0, place, arm, 1, [cost[arm]], cost[arm]) for place, arm in enumerate(order)],
        )
    for arm in arms:
        asked = [11.0 if arm in ("naive+sets",) else 17.0] * 6
        WirePass(arm, asked, asked, asked, asked, asked, asked).save(folder / f"wire-{arm}.json")
    return folder
