"""The section of the bench about runs: how much of the variation between runs the interval of one run does not contain.

The key piece is `bench_repeats`. Each run has what `placebench compare` makes anew: a PostgreSQL, its data, a copy for
each variant, seeded orders and hash seeds; the replicates within it are those of the section candidates. Runs add up in
repeats.json, so that they can be made a few at a time; `components` takes their variance apart.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from data_sets import DATA, make
from raw_file import measured_here, write_raw
from serving import costs_of

from placebench import units
from placebench.experiment.variants import read_variants
from placebench.runtime.postgres import open_server
from placebench.stats import hodges_lehmann
from placebench.stats.hodges_lehmann import FEWEST_REPLICATES

VARIANTS, MOST_TREES, ROUNDS = ("naive", "tuned"), 100, 2


@dataclass(frozen=True)
class Components:
    """The variance of log ratios in and between runs of as many replicates each (one-way random effects)."""

    within_sd: float
    """Of a replicate in its run."""
    between_sd: float
    """Of a run's true value; 0 where runs differ by no more than their replicates say."""
    f: float
    """Observed variance of the runs' means over what the replicates predict: 1 where runs do not differ."""
    degrees: tuple[int, int]


def components(runs: Sequence[Sequence[float]]) -> Components:
    """Analysis of variance by the method of moments. Source: Searle, Casella and McCulloch 1992, ch. 3."""
    (size,) = {len(run) for run in runs}
    within = statistics.fmean(statistics.variance(run) for run in runs)
    predicted, observed = within / size, statistics.variance([statistics.fmean(run) for run in runs])
    between = math.sqrt(max(0.0, observed - predicted))
    return Components(math.sqrt(within), between, observed / predicted, (len(runs) - 1, len(runs) * (size - 1)))


def bench_repeats(arguments: argparse.Namespace, say: Callable[..., None], _: Callable[..., str]) -> None:
    """A line for each run with its interval, then the components of the variance."""
    path, repeats = arguments.out / "repeats.json", max(arguments.repeats, 2)
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    variants, data = read_variants(VARIANTS), DATA["uniform"]
    topology = data.seeded(min(arguments.trees, MOST_TREES))
    for _ in range(arguments.runs):
        began = time.perf_counter()
        with open_server() as server:
            make(server, f"bench_{data.name}", data, topology)
            costs = costs_of(
                server,
                variants,
                data,
                topology,
                repeats=repeats,
                rounds=ROUNDS,
                seed=len(runs) + 1,
                block_s=arguments.block_s,
            )
            head = measured_here(server.url)
        values = {name: each.cpu_ms for name, each in costs.items()}
        runs.append({"made_at": head["made_at"], "seed": len(runs) + 1, "cpu_ms": values})
        write_raw(path, {**head, "n": len(runs), "trees": topology.trees, "rounds": ROUNDS, "runs": runs})
        say(f"run {len(runs)}", *_effect(runs[-1]), f"{time.perf_counter() - began:.1f} s")
    found = components([log_ratios(run) for run in runs])
    for name, value in asdict(found).items():
        say(name, value)


def log_ratios(run: dict[str, dict[str, list[float]]]) -> list[float]:
    """Of tuned over naive, a value a replicate."""
    before, after = (run["cpu_ms"][name] for name in VARIANTS)
    return [math.log(b / a) for a, b in zip(before, after, strict=True)]


def _effect(run: dict[str, dict[str, list[float]]]) -> tuple[str, ...]:
    ratios = log_ratios(run)
    if len(ratios) < FEWEST_REPLICATES:
        return ("too few replicates for an interval",)
    interval = hodges_lehmann(ratios)
    return tuple(units.ratio(math.exp(each)) for each in (interval.estimate, interval.low, interval.high))
