"""`placebench calibrate`: what this machine can resolve, by comparing a variant with itself."""

import math
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from placebench import limits, units
from placebench.commands import values
from placebench.commands.compare import add_measuring_options, sit
from placebench.commands.console import print_json, print_result, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placebench.results import Run
    from placebench.stats.calibration import MetricCalibration

HELP = "find out what this machine can resolve: A/A replicates, injected effects, the smallest one that is found"
_QUICK_REPLICATES, _QUICK_TREES, _QUICK_ROUNDS = 12, 20, 2
_ROUNDS = 64
"""So many that a replicate of `tuned` takes as long as one of `naive` and `tuned` by default."""
_FEWEST = 6


def configure(parser: ArgumentParser) -> None:
    """The options of `calibrate`."""
    add_measuring_options(parser)
    parser.add_argument(
        "--aa",
        type=values.whole(_FEWEST, limits.REPLICATES),
        default=60,
        metavar="N",
        help="replicates (default: %(default)s)",
    )
    parser.add_argument("--variant", default="tuned", help="what is compared with itself (default: %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help=f"{_QUICK_REPLICATES} short replicates on {_QUICK_TREES} trees: a minute"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, or the newest one")


def run(arguments: Namespace) -> int:
    """Make the replicates, calibrate each metric, and keep what was found for the reports of this machine."""
    from placebench import results
    from placebench.experiment.compare_run import CompareSettings
    from placebench.experiment.environment import calibration_document, calibration_file, keep_calibration
    from placebench.experiment.run_folder import RunFolder
    from placebench.experiment.variants import read_variants
    from placebench.report import comparisons_of, write_report
    from placebench.seeding import find_topology
    from placebench.stats import METRICS
    from placebench.stats.calibration import calibrate

    trees = _QUICK_TREES if arguments.quick and arguments.trees is None else arguments.trees
    topology = find_topology(arguments.topology, trees=trees, seed=arguments.seed, utilization=arguments.utilization)
    settings = CompareSettings(
        variants=read_variants([arguments.variant, arguments.variant]),
        request=arguments.request or topology.request,
        replicates=_QUICK_REPLICATES if arguments.quick else arguments.aa,
        rounds=arguments.rounds or (_QUICK_ROUNDS if arguments.quick else _ROUNDS),
    )
    folder = sit(topology, settings, arguments, name="calibrate")
    loaded = results.load(folder)
    calibrations = [
        calibrate(each.log_ratios, each.metric, margin=each.margin, seed=arguments.seed)
        for each in comparisons_of(loaded)
        if each.metric in METRICS and each.measured
    ]
    document = calibration_document(calibrations, loaded.head)
    RunFolder(folder, loaded.head).save(manifest={**loaded.head.manifest, "calibration": document})
    write_report(folder)
    if not keep_calibration(document):
        say(f"not kept for other reports: the one in {calibration_file()} rests on more")
    if arguments.json:
        print_json(_document(loaded, calibrations))
    else:
        print_result("\n".join(_sentences(each) for each in calibrations))
        print_result((folder / "index.html").as_uri())
    return 0


def _document(run: "Run", calibrations: "list[MetricCalibration]") -> dict[str, Any]:
    invalid = {block.replicate for block in run.blocks if block.invalid}
    return {
        "run": str(run.folder),
        "seed": run.head.seed,
        "variant": run.head.variants[0],
        "replicates": len({block.replicate for block in run.blocks} - invalid),
        "invalidated": len(invalid),
        "metrics": {each.metric: each.to_json() for each in calibrations},
    }


def _sentences(made: "MetricCalibration") -> str:
    """One metric in plain words."""
    differ, low, high = (units.change(math.exp(each)) for each in (made.estimate, made.low, made.high))
    within = f"{'within' if made.passed else 'NOT within'} half the margin of {units.level(made.margin)}"
    first = (
        f"{made.metric}: identical variants differ by {differ} ({low} to {high}, {made.replicates} replicates), "
        f"{within}; {made.false_positives} of {made.runs_of_six} runs of six call them different."
    )
    return "\n".join([first, *(_finds(made, number) for number in made.power)])


def _finds(made: "MetricCalibration", number: str) -> str:
    smallest = units.percent(math.expm1(made.detectable[number]), digits=2)
    return f"  {number} replicates find {smallest} in 4 of 5 runs, {_found(made.power[number])}"


def _found(power: "Mapping[str, float]") -> str:
    shares = ((units.level(float(effect)), units.percent(share, digits=2)) for effect, share in power.items())
    return ", ".join(f"{effect} in {share}" for effect, share in shares)
