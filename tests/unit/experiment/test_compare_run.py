"""The sequential rule: three interim analyses, and what they call identical variants."""

import math
import random
from pathlib import Path

from placebench.experiment.compare_run import INTERIM_ANALYSES, SEQUENTIAL_CONFIDENCE, CompareRun, CompareSettings
from placebench.experiment.data_setup import TopologyData
from placebench.experiment.records import Block, append_lines
from placebench.experiment.variants import read_variants
from placebench.seeding import find_topology
from placebench.stats import hodges_lehmann

RUNS = 4000
AT_MOST = round(RUNS * 0.05 + 3 * math.sqrt(RUNS * 0.05 * 0.95))
"""5 in 100, and three standard deviations for the luck of the draws."""


def called_different(log_ratios: list[float], confidence: float) -> bool:
    """Whether any interim analysis finds an interval that excludes no change."""
    analyses = [hodges_lehmann(log_ratios[:number], confidence=confidence) for number in INTERIM_ANALYSES]
    return any(each.low > 0 or each.high < 0 for each in analyses)


def test_three_looks_call_identical_programs_different_5_times_in_100() -> None:
    """Of 4000 runs of noise; with intervals of 95 % at each analysis it would be twice as many."""
    chance = random.Random(36)
    runs = [[chance.gauss(0, 0.01) for _ in range(INTERIM_ANALYSES[-1])] for _ in range(RUNS)]

    assert sum(called_different(each, SEQUENTIAL_CONFIDENCE) for each in runs) <= AT_MOST
    assert sum(called_different(each, 0.95) for each in runs) > 1.5 * AT_MOST


def made(folder: Path, *, sequential: bool) -> CompareRun:
    """A sitting of a run in which 36 replicates are on disk, all with half the CPU; no server is asked for anything."""
    variants = read_variants(["naive", "tuned"])
    folder.mkdir()
    for number in range(INTERIM_ANALYSES[-1]):
        order = enumerate((("naive", 1.0), ("tuned", 0.5), ("tuned", 0.5), ("naive", 1.0)))
        append_lines(
            folder / "blocks.jsonl",
            [Block(number, 0, place, variant, 1, [cost_s], cost_s) for place, (variant, cost_s) in order],
        )
    settings = CompareSettings(variants, "/", replicates=INTERIM_ANALYSES[-1], sequential=sequential, rounds=1)
    return CompareRun(TopologyData(find_topology("nested-perfload", trees=1)), settings, folder, server=None)


def test_a_sequential_run_stops_at_its_looks_alone(tmp_path: Path) -> None:
    """A difference that is plain from the sixth replicate on ends a run at 12, 24 or 36, and a fixed number never."""
    sequential, fixed = made(tmp_path / "analyses", sequential=True), made(tmp_path / "fixed", sequential=False)
    numbers = range(1, INTERIM_ANALYSES[-1] + 1)

    assert [number for number in numbers if sequential._decided(range(number))] == [12, 24, 36]
    assert [number for number in numbers if fixed._decided(range(number))] == []
