"""How often and how soon a comparison is decided, simulated: fixed, with interim analyses, and sequential.

    tox -e bench -- sequential                                                      (about ten minutes)

Errors are log ratios of replicates. The sequential run is analysed after each replicate, up to 100. Of identical
variants, `false_positives` is the share of runs that ever excluded no change, and so 1 - the coverage of all intervals
together: the bets rest on distances from the true value alone. All designs are at the level of the primary metric, CPU,
whose interval holds together with those of wall time and memory with 95 %.
"""

import argparse
import math
import random
from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import fmean

from raw_file import measured_here, write_raw

from placebench.stats import hodges_lehmann, significance_shares
from placebench.stats.sequential import Bets

MOST, SEED, MARGIN = 100, 20261122, 0.01
ERROR_RATE = 0.05 * significance_shares("cpu_s")["cpu_s"]
INTERIM, POCOCK = (12, 24, 36), 1 - 0.0134
"""The level of each of three analyses that together have the error rate (Pocock 1977)."""
TWO_SIDED = math.log(2 / ERROR_RATE)
Errors = Callable[[random.Random], list[float]]


def autocorrelated(correlation: float) -> Errors:
    """Normal errors, each correlated so much with the one before."""

    def draw(chance: random.Random) -> list[float]:
        first, *others = (chance.gauss(0, 1) for _ in range(MOST))
        rest = math.sqrt(1 - correlation**2)
        return list(accumulate(others, lambda before, step: correlation * before + rest * step, initial=first))

    return draw


def drift(chance: random.Random) -> list[float]:
    """A machine that drifts, with a random order of the variants in each replicate."""
    wandering = accumulate(chance.gauss(0, 1) for _ in range(MOST))
    return [chance.choice((-1, 1)) * 0.3 * each + chance.gauss(0, 1) for each in wandering]


ERRORS: dict[str, Errors] = {
    "normal": lambda chance: [chance.gauss(0, 1) for _ in range(MOST)],
    "t, 3 degrees of freedom": lambda chance: [
        chance.gauss(0, 1) / math.sqrt(2 * chance.gammavariate(1.5, 1)) for _ in range(MOST)
    ],
    "gamma, skewness 0.7": lambda chance: [(chance.gammavariate(8, 1) - 7.834) / 2.83 for _ in range(MOST)],
    "gamma, skewness 1": lambda chance: [(chance.gammavariate(4, 1) - 3.834) / 2 for _ in range(MOST)],
    "autocorrelated 0.1": autocorrelated(0.1),
    "autocorrelated 0.2": autocorrelated(0.2),
    "autocorrelated 0.4": autocorrelated(0.4),
    "drift": drift,
}


def reached(values: Sequence[float], claimed: float, capital: float) -> list[bool]:
    """Whether the capital against *claimed* has ever been that large, after each value."""
    capitals = accumulate(Bets.prepare(values).capital(claimed), max)
    return [each >= capital for each in capitals]


def sequential(values: Sequence[float]) -> tuple[str, int]:
    """The first decision, and after how many replicates: different, equivalent or inconclusive."""
    mirrored = [-each for each in values]
    up, down = Bets.prepare(values), Bets.prepare(mirrored)
    different = [max(pair) >= TWO_SIDED for pair in zip(up.capital(0.0), down.capital(0.0), strict=True)]
    within = [min(pair) >= TWO_SIDED for pair in zip(up.capital(-MARGIN), down.capital(-MARGIN), strict=True)]
    for number, (is_different, is_within) in enumerate(zip(different, within, strict=True), start=1):
        if is_different or is_within:
            return ("different" if is_different else "equivalent"), number
    return "inconclusive", len(values)


def excludes(values: Sequence[float], confidence: float) -> bool:
    """Whether the signed-rank interval excludes no change."""
    interval = hodges_lehmann(values, confidence=confidence)
    return interval.low > 0 or interval.high < 0


def interim(values: Sequence[float]) -> tuple[bool, int]:
    """Whether an analysis after 12, 24 or 36 replicates finds a difference, and after how many it ended."""
    found = next((number for number in INTERIM if excludes(values[:number], POCOCK)), None)
    return found is not None, found or INTERIM[-1]


def false_positives(errors: Errors, noise: float, count: int) -> dict[str, float]:
    """Of identical variants, in each design."""
    chance = random.Random(SEED)
    runs = [[noise * each for each in errors(chance)] for _ in range(count)]
    return {
        "sequential": fmean(
            reached(run, 0.0, TWO_SIDED)[-1] or reached([-x for x in run], 0.0, TWO_SIDED)[-1] for run in runs
        ),
        "interim_12_24_36": fmean(interim(run)[0] for run in runs),
        "fixed_12": fmean(excludes(run[:12], 1 - ERROR_RATE) for run in runs),
    }


def power(effect: float, noise: float, count: int) -> dict[str, object]:
    """How an effect is found with normal errors."""
    chance = random.Random(SEED)
    runs = [[math.log1p(effect) + noise * each for each in ERRORS["normal"](chance)] for _ in range(count)]
    made, compared = [sequential(run) for run in runs], [interim(run) for run in runs]
    numbers = sorted(number for _, number in made)
    return {
        "effect": effect,
        "noise": noise,
        "sequential": {
            **{verdict: fmean(each == verdict for each, _ in made) for verdict in ("different", "equivalent")},
            "replicates_mean": fmean(numbers),
            "replicates_p50": numbers[count // 2],
            "replicates_p90": numbers[count * 9 // 10],
        },
        "interim_12_24_36": {
            "different": fmean(found for found, _ in compared),
            "replicates_mean": fmean(number for _, number in compared),
        },
        "fixed_12": {"different": fmean(excludes(run[:12], 1 - ERROR_RATE) for run in runs)},
    }


def bench_sequential(arguments: argparse.Namespace, say: Callable[..., None], _: Callable[..., str]) -> None:
    """Simulate, and write the figures to sequential.json."""
    runs: int = arguments.simulated
    say("sequential, interim, fixed", f"n = {runs} runs each")
    nulls = [
        {"errors": name, "noise": noise, **false_positives(errors, noise, runs)}
        for name, errors in ERRORS.items()
        for noise in (0.01, 0.02)
    ]
    found = [power(effect, noise, runs) for noise in (0.01, 0.02) for effect in (0.0, 0.01, 0.02, 0.05, 0.10)]
    about = {"runs": runs, "most": MOST, "seed": SEED, "margin": MARGIN, "level": 1 - ERROR_RATE}
    document = {**measured_here(), "n": runs, **about, "false_positives": nulls, "power": found}
    write_raw(arguments.out / "sequential.json", document)
