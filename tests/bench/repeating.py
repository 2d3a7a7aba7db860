"""The section of the bench about runs: how much of the variation between runs the interval of one run does not contain.

The main part is `bench_repeats`. Each run has what `placebench compare` makes anew: a PostgreSQL, its data, a copy for
each variant, seeded orders and hash seeds; the replicates within it are those of the section candidates. With --beside
other variants take turns with the two, as in a cumulative series. Runs add up in repeats.json, so that they can be made
a few at a time; `components` in published.py takes their variance apart.
"""

import argparse
import json
import math
import time
from collections.abc import Callable

from data_sets import DATA, make
from published import REPEATED, components, log_ratios
from raw_file import measured_here, write_raw
from serving import costs_of

from placebench import units
from placebench.compare.what.variants import read_variants
from placebench.runtime.postgres import open_server
from placebench.stats.hodges_lehmann import pseudo_median

BESIDE = ("naive+freeze", "naive+summaries", "naive+usages", "tuned-freeze", "tuned-summaries", "tuned-usages")
MOST_TREES, ROUNDS = 100, 1


def bench_repeats(arguments: argparse.Namespace, say: Callable[..., None], _: Callable[..., str]) -> None:
    """A line for each run, then the components of the variance of those with as many variants."""
    path, repeats = arguments.out / "repeats.json", max(arguments.repeats, 2)
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    variants, data = read_variants([*REPEATED, *BESIDE[: arguments.beside]]), DATA["uniform"]
    topology = data.seeded(min(arguments.trees, MOST_TREES))
    for seed in range(len(runs) + 1, len(runs) + 1 + arguments.runs):
        began = time.perf_counter()
        with open_server() as server:
            make(server, f"bench_{data.name}", data, topology)
            amounts = {"repeats": repeats, "rounds": ROUNDS, "block_s": arguments.block_s}
            costs = costs_of(server, variants, data, topology, seed=seed, **amounts)
            head = measured_here(server.url)
        values = {name: each.cpu_ms for name, each in costs.items()}
        runs.append({"made_at": head["made_at"], "seed": seed, "beside": arguments.beside, "cpu_ms": values})
        write_raw(path, {**head, "n": len(runs), "trees": topology.trees, "rounds": ROUNDS, "runs": runs})
        ratio = units.ratio(math.exp(pseudo_median(log_ratios(runs[-1]))))
        say(f"run {seed}, {len(variants)} variants", ratio, f"{time.perf_counter() - began:.1f} s")
    alike = [log_ratios(run) for run in runs if run["beside"] == arguments.beside]
    for name, value in vars(components(alike)).items():
        say(name, value)
