"""`placebench lab study saturation`: how many instances per second each variant takes, and how it breaks."""

from argparse import ArgumentParser, Namespace

from placebench import limits
from placebench.commands import Command, options
from placebench.errors import PlacebenchError
from placebench.lab.commands.study import REPLICATES, add_study_options, is_quick, run_study, topology_of

_VARIANTS = ("naive", "tuned", "dedup", "cached")
_QUICK_VARIANTS = ("naive", "cached")
_OBJECTIVE = "p95 <= 500ms"
_STEP_S, _QUICK_STEP_S = 5.0, 1.0
_QUICK_REPLICATES = 1
_PROCESSES = 4
_TIMEOUT_S = 5.0


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--variants",
        type=options.names,
        metavar="V,V",
        help=f"variants, of which placement needs --placement-python (default: {','.join(_VARIANTS)}; --preset quick: "
        f"{','.join(_QUICK_VARIANTS)})",
    )
    parser.add_argument(
        "--slo",
        default=_OBJECTIVE,
        metavar="EXPR",
        help="what has to hold for an instance, from its arrival to its claim (default: %(default)s)",
    )
    parser.add_argument(
        "--time",
        type=options.seconds,
        metavar="S",
        help=f"seconds of each step, at least (default: {_STEP_S:g}; --preset quick: {_QUICK_STEP_S:g})",
    )
    parser.add_argument(
        "--response-timeout",
        type=options.seconds,
        default=_TIMEOUT_S,
        metavar="S",
        help=f"seconds after which a client gives a request up (default: {_TIMEOUT_S:g})",
    )
    for name, default in (("processes", _PROCESSES), ("threads", 1)):
        parser.add_argument(
            f"--{name}",
            type=options.whole(1, limits.WORKERS),
            default=default,
            metavar="N",
            help=f"number of {name} of the service{' in each process' if name == 'threads' else ''} "
            "(default: %(default)s)",
        )
    options.add_placement(parser)
    options.add_data(parser)
    add_study_options(parser, replicates=f"{REPLICATES}; --preset quick: {_QUICK_REPLICATES}")


def _run(arguments: Namespace) -> int:
    """Search the knee of every variant."""
    from placebench.compare.load.load_steps import parse_objective
    from placebench.compare.what.variants import read_variant, require_servers
    from placebench.lab.studies.saturation import SaturationStudy
    from placebench.lab.variants import CONTROL

    quick, topology = is_quick(arguments), topology_of(arguments)
    names = arguments.variants or (_QUICK_VARIANTS if quick else _VARIANTS)
    if CONTROL in names:
        raise PlacebenchError(f"--variants {','.join(names)}: {CONTROL} has no candidates")
    variants = [read_variant(name, placement_python=arguments.placement_python) for name in names]
    require_servers(variants)
    study = SaturationStudy(
        variants=variants,
        objective=parse_objective(arguments.slo),
        request=arguments.request or topology.request,
        workers=(arguments.processes, arguments.threads),
        step_s=arguments.time or (_QUICK_STEP_S if quick else _STEP_S),
        timeout_s=arguments.response_timeout,
    )
    repeats = arguments.replicates or (_QUICK_REPLICATES if quick else REPLICATES)
    return run_study(arguments, topology, study.spec(repeats=repeats))


COMMANDS = {"lab study saturation": Command(_configure, _run, "saturation")}
