"""`placebench calibrate`: measure which differences this machine can detect, by comparing a variant with itself."""

from argparse import ArgumentParser
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.output import emit, say
from placebench.commands.runs import run_comparison

if TYPE_CHECKING:
    from placebench.results import Run
    from placebench.stats.calibration import MetricCalibration

_REPLICATES = {"quick": 12, "default": 60}
_QUICK_TREES, _QUICK_ROUNDS = 20, 2
_ROUNDS = 64
"""Number of rounds at which a replicate of `tuned` takes as long as a default replicate of `naive` and `tuned`."""
_MIN_REPLICATES = 6


@dataclass(frozen=True)
class CalibrateOptions(options.RunCommandOptions):
    """The options of `placebench calibrate`."""

    data: options.DataOptions
    variant: str
    request: str | None
    replicates: int | None
    preset: str | None
    rounds: int | None


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--variant", default="tuned", metavar="V", help="variant that is compared with itself (default: %(default)s)"
    )
    options.add_data(parser)
    options.add_replicates(parser, "60, or the preset's", at_least=_MIN_REPLICATES)
    options.add_preset(
        parser,
        quick=f"{_REPLICATES['quick']} short replicates on {_QUICK_TREES} trees, a minute",
        default="60 replicates",
    )
    options.add_rounds(parser, _ROUNDS)
    options.add_run(parser)
    options.add_output(parser, page=True)


def _run(given: CalibrateOptions) -> int:
    """Make the replicates, calibrate each metric, and store the result for later reports on this machine."""
    from placebench import results
    from placebench.compare.compare_run import CompareSettings
    from placebench.compare.keep.environment import calibration_document, calibration_file, keep_calibration
    from placebench.compare.keep.run_folder import RunFolder
    from placebench.compare.what.data_setup import find_data
    from placebench.compare.what.variants import read_variants
    from placebench.report import comparisons_of, write_report
    from placebench.report.calibration import metric_sentences
    from placebench.stats.calibration import CALIBRATED, calibrate

    is_quick, seed = given.preset == "quick", given.data.seed
    trees = _QUICK_TREES if is_quick and given.data.trees is None else given.data.trees
    data, request = find_data(given.data.topology, trees=trees, seed=seed, utilization=given.data.utilization)
    variants = read_variants([given.variant, given.variant])
    settings = CompareSettings(
        variants=variants,
        workload=variants[0].api.workload(given.request or request),
        replicates=_REPLICATES[given.preset or "default"] if given.replicates is None else given.replicates,
        rounds=given.rounds or (_QUICK_ROUNDS if is_quick else _ROUNDS),
    )
    folder = run_comparison(given.run, data, settings, name="calibrate")
    loaded = results.load(folder)
    calibrations = [
        calibrate(each.log_ratios, each.metric, margin=each.margin, seed=seed)
        for each in comparisons_of(loaded)
        if each.metric in CALIBRATED and each.measured
    ]
    document = calibration_document(calibrations, loaded.head)
    run = RunFolder(folder, loaded.head)
    run.save(manifest={**loaded.head.manifest, "calibration": document})
    page = write_report(replace(loaded, head=run.head))
    if not keep_calibration(document):
        say(f"not kept for other reports: the calibration in {calibration_file()} has more replicates")
    emit(
        given.output,
        text=lambda: "\n".join(metric_sentences(asdict(each)) for each in calibrations),
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
        "metrics": {each.metric: asdict(each) for each in calibrations},
    }


COMMANDS = {"calibrate": Command(_configure, _run, options=CalibrateOptions, needs_linux=STARTS_SERVERS)}
