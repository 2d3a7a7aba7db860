"""`placebench gauge`: what a request is made of, how near each endpoint comes to a no-op, and what nothing explains."""

from argparse import ArgumentParser, Namespace

from placebench.commands import values
from placebench.commands.asking import add_asking_options, ask, topology_asked
from placebench.errors import PlacebenchError

HELP = "take requests apart: framework, handler, database, and what is left unexplained; each endpoint against a no-op"
_TIME_S = 3.0
_QUICK_TIME_S = 0.5
_MOST_PROCESSES = 64


def configure(parser: ArgumentParser) -> None:
    """The options of `gauge`."""
    parser.add_argument("--variant", default="tuned", metavar="V", help="that answers (default: %(default)s)")
    parser.add_argument(
        "--processes",
        type=values.whole(1, _MOST_PROCESSES),
        default=2,
        metavar="N",
        help="workers, and users (default: 2)",
    )
    parser.add_argument(
        "--endpoints", metavar="E,E", help="beside the no-op; see docs/lab/breakdown.md (default: all; --quick: two)"
    )
    parser.add_argument("--time", type=values.seconds, metavar="S", help=f"of each load (default: {_TIME_S:g})")
    add_asking_options(parser)


def run(arguments: Namespace) -> int:
    """Gauge every endpoint."""
    from placebench.experiment.breakdown_study import BreakdownStudy
    from placebench.reference.variants import variant

    variant(arguments.variant)
    topology = topology_asked(arguments)
    time_s = arguments.time if arguments.time is not None else _QUICK_TIME_S if arguments.quick else _TIME_S
    asked = BreakdownStudy(
        endpoints=_endpoints(arguments),
        request=arguments.request or topology.request,
        variant=arguments.variant,
        processes=arguments.processes,
        time_s=time_s,
    )
    ask(arguments, topology, asked.spec(repeats=arguments.repeats))
    return 0


def _endpoints(arguments: Namespace) -> tuple[str, ...]:
    """Those asked for, the no-op first; a name may leave its blanks and commas out: `candidates-limit-10`."""
    from placebench.experiment.breakdown_study import ENDPOINTS, NOOP, QUICK_ENDPOINTS

    if arguments.endpoints is None:
        return QUICK_ENDPOINTS if arguments.quick else ENDPOINTS
    known = {name.replace(",", "").replace(" ", "-"): name for name in ENDPOINTS}
    names = arguments.endpoints.split(",")
    if strange := [name for name in names if name not in known]:
        raise PlacebenchError(f"--endpoints names {strange[0]!r}: expected {', '.join(known)}, with commas between")
    return tuple(dict.fromkeys((NOOP, *(known[name] for name in names))))
