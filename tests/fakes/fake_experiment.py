"""A run of an experiment for tests: several variants in the same replicates, and their trials; nothing was measured.

The main part is `write_experiment`.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from fake_run import FakeRun, write_run

from placebench.compare.keep.documents import Trial
from placebench.compare.keep.records import Block, RunHead, WirePass, append_lines

VARIANTS = {
    "naive": 0.0,
    "naive+slots": -0.2,
    "naive+sets": 0.0,
    "tuned-slots": -0.5,
    "tuned-sets": -0.7,
    "tuned": -0.7,
}
TRIALS = (
    Trial("slots", "alone", "naive", "naive+slots", shows_on="/elsewhere", shows_in="statements"),
    Trial("sets", "alone", "naive", "naive+sets"),
    Trial("slots", "leave_one_out", "tuned-slots", "tuned"),
    Trial("sets", "leave_one_out", "tuned-sets", "tuned"),
)


def write_experiment(
    folder: Path,
    variants: Mapping[str, float] = VARIANTS,
    trials: Sequence[Trial] = TRIALS,
    *,
    replicates: int = 12,
    equal: bool = True,
) -> Path:
    """Blocks whose log CPU is that of *variants*, with a noise of half a percent; returns *folder*."""
    chance = random.Random(1)
    write_run(folder, FakeRun(variants=tuple(variants), passes_of=0, equal=equal))
    head = RunHead.load(folder / "run.json")
    replace(head, settings={**head.settings, "trials": [asdict(each) for each in trials]}).save(folder / "run.json")
    for number in range(replicates):
        cost = {variant: math.exp(level + chance.gauss(0, 0.005)) for variant, level in variants.items()}
        order = [*variants, *reversed(variants)]
        append_lines(
            folder / "blocks.jsonl",
            [
                Block(number, 0, place, variant, 1, [cost[variant]], cost[variant])
                for place, variant in enumerate(order)
            ],
        )
    for variant in variants:
        asked = [11.0 if variant in ("naive+sets",) else 17.0] * 6
        WirePass(variant, asked, asked, asked, asked, asked, asked).save(folder / f"wire-{variant}.json")
    return folder
