"""`placebench calibrate`: what this machine can resolve, by comparing a variant with itself."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placebench.commands import Command, options
from placebench.commands.output import emit, say
from placebench.commands.runs import run_comparison

if TYPE_CHECKING:
    from placebench.results import Run
    from placebench.stats.calibration import MetricCalibration

_REPLICATES = {"quick": 12, "default": 60}
_QUICK_TREES, _QUICK_ROUNDS = 20, 2
_ROUNDS = 64
"""So many that a replicate of `tuned` takes as long as one of `naive` and `tuned` by default."""
_FEWEST = 6


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--variant", default="tuned", metavar="V", help="variant that is compared with itself (default: %(default)s)"
    )
    options.add_data(parser)
    options.add_replicates(parser, "60, or the preset's", at_least=_FEWEST)
    options.add_preset(
        parser,
        quick=f"{_REPLICATES['quick']} short replicates on {_QUICK_TREES} trees, a minute",
        default="60 replicates",
    )
    options.add_rounds(parser, _ROUNDS)
    options.add_run(parser)
    options.add_output(parser, page=True)


def _run(arguments: Namespace) -> int:
    """Make the replicates, calibrate each metric, and keep the result for the reports of this machine."""
    from placebench import results
    from placebench.compare.compare_run import CompareSettings
    from placebench.compare.keep.environment import calibration_document, calibration_file, keep_calibration
    from placebench.compare.keep.run_folder import RunFolder
    from placebench.compare.what.data_setup import find_data
    from placebench.compare.what.variants import read_variants
    from placebench.compare.what.workload import placement_workload
    from placebench.report import comparisons_of, write_report
    from placebench.report.calibration import metric_sentences
    from placebench.stats import METRICS
    from placebench.stats.calibration import calibrate

    is_quick = arguments.preset == "quick"
    trees = _QUICK_TREES if is_quick and arguments.trees is None else arguments.trees
    data, request = find_data(arguments.topology, trees=trees, seed=arguments.seed, utilization=arguments.utilization)
    settings = CompareSettings(
        variants=read_variants([arguments.variant, arguments.variant]),
        workload=placement_workload(arguments.request or request),
        replicates=_REPLICATES[arguments.preset or "default"] if arguments.replicates is None else arguments.replicates,
        rounds=arguments.rounds or (_QUICK_ROUNDS if is_quick else _ROUNDS),
    )
    folder = run_comparison(arguments, data, settings, name="calibrate")
    loaded = results.load(folder)
    calibrations = [
        calibrate(each.log_ratios, each.metric, margin=each.margin, seed=arguments.seed)
        for each in comparisons_of(loaded)
        if each.metric in METRICS and each.measured
    ]
    document = calibration_document(calibrations, loaded.head)
    run = RunFolder(folder, loaded.head)
    run.save(manifest={**loaded.head.manifest, "calibration": document})
    page = write_report(replace(loaded, head=run.head))
    if not keep_calibration(document):
        say(f"not kept for other reports: the calibration in {calibration_file()} has more replicates")
    emit(
        arguments,
        text=lambda: "\n".join(metric_sentences(each.to_json()) for each in calibrations),
        document=lambda: _document(loaded, calibrations),
        page=page,
    )
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


COMMANDS = {"calibrate": Command(_configure, _run)}
