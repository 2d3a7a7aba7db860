"""`placebench lab study breakdown`: what the latency of a request consists of, each endpoint against a no-op."""

from argparse import ArgumentParser, Namespace

from placebench.commands import Command, options
from placebench.errors import PlacebenchError
from placebench.lab.commands.study import REPLICATES, add_study_options, is_quick, run_study, topology_of

_TIME_S = 3.0
_QUICK_TIME_S = 0.5
_MOST_PROCESSES = 64


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--variant", default="tuned", metavar="V", help="variant that serves the requests (default: %(default)s)"
    )
    parser.add_argument(
        "--processes",
        type=options.whole(1, _MOST_PROCESSES),
        default=2,
        metavar="N",
        help="number of worker processes, and of users (default: 2)",
    )
    parser.add_argument(
        "--endpoints", metavar="E,E", help="endpoints beside the no-op (default: all; --preset quick: two)"
    )
    parser.add_argument(
        "--time", type=options.seconds, metavar="S", help=f"seconds of each load (default: {_TIME_S:g})"
    )
    options.add_data(parser)
    add_study_options(parser)


def _run(arguments: Namespace) -> int:
    """Measure every endpoint."""
    from placebench.lab.reference.variants import variant
    from placebench.lab.studies.breakdown import BreakdownStudy

    variant(arguments.variant)
    topology = topology_of(arguments)
    study = BreakdownStudy(
        endpoints=_endpoints(arguments),
        request=arguments.request or topology.request,
        variant=arguments.variant,
        processes=arguments.processes,
        time_s=arguments.time or (_QUICK_TIME_S if is_quick(arguments) else _TIME_S),
    )
    return run_study(arguments, topology, study.spec(repeats=arguments.replicates or REPLICATES))


def _endpoints(arguments: Namespace) -> tuple[str, ...]:
    """The no-op, then those that are named, without their blanks and commas: `candidates-limit-10`."""
    from placebench.lab.studies.breakdown import ENDPOINTS, NOOP, QUICK_ENDPOINTS

    if arguments.endpoints is None:
        return QUICK_ENDPOINTS if is_quick(arguments) else ENDPOINTS
    known = {name.replace(",", "").replace(" ", "-"): name for name in ENDPOINTS}
    names = arguments.endpoints.split(",")
    if strange := [name for name in names if name not in known]:
        raise PlacebenchError(f"--endpoints names {strange[0]!r}: expected {', '.join(known)}, with commas between")
    return tuple(dict.fromkeys((NOOP, *(known[name] for name in names))))


COMMANDS = {"lab study breakdown": Command(_configure, _run, "breakdown")}
