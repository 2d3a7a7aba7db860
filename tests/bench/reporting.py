"""What the page of a run of many samples costs, in a process of its own: seconds, CPU seconds and peak memory.

The main part is `bench_report`. The runs are made up; the limits are 10 s and 500 MiB for a million samples.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from fake_run import FakeRun, write_run

from placebench import units
from placebench.compare.keep.records import Block

_LOAD_PASSES = 9
"""Of the seven rungs that `write_run` makes, with the two open loads."""
_REPLICATES, _ROUNDS = 30, 6

Say = Callable[..., None]
Spread = Callable[[Sequence[float]], str]


def bench_report(arguments: argparse.Namespace, say: Say, spread: Spread) -> None:
    """A ladder under load, and a comparison of two variants."""
    repeats = min(arguments.repeats, 5)
    say(f"report, {units.count(arguments.samples)} samples, n = {repeats}", "seconds", "of CPU", "peak memory, MiB")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (("perfload, 9 load passes", _loaded), ("compare, 30 replicates", _compared)):
            run = make(Path(folder) / make.__name__, arguments.samples)
            costs = list(zip(*(_reported(run) for _ in range(repeats)), strict=True))
            say(name, *(spread(cost) for cost in costs))


def _loaded(folder: Path, samples: int) -> Path:
    return write_run(folder, FakeRun(requests=samples // _LOAD_PASSES))


def _compared(folder: Path, samples: int) -> Path:
    """A run of two variants whose blocks hold all the samples."""
    write_run(folder, FakeRun(variants=("naive", "tuned"), requests=40, replicates=0))
    chance, each = random.Random(1), samples // (4 * _ROUNDS * _REPLICATES)
    with (folder / "blocks.jsonl").open("w") as file:
        for place in range(4 * _ROUNDS * _REPLICATES):
            position, variant = place % 4, ("naive", "tuned", "tuned", "naive")[place % 4]
            walls = [chance.lognormvariate(-3 if variant == "naive" else -4, 0.2) for _ in range(each)]
            replicate, round_ = divmod(place // 4, _ROUNDS)
            block = Block(replicate, round_, position, variant, each, walls, sum(walls) * chance.gauss(1, 0.01))
            file.write(json.dumps(asdict(block)) + "\n")
    return folder


def _reported(run: Path) -> tuple[float, float, float]:
    """Seconds, CPU seconds and MiB of one `placebench report open`."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "placebench", "report", "open", str(run)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    elapsed_s = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"placebench report open ended with {child.returncode}")
    return elapsed_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
