"""`placebench lab study scaleout`: throughput, latency and CPU per request by the number of hosts and replicas."""

import re
from argparse import ArgumentParser, Namespace

from placebench import limits
from placebench.commands import Command, options
from placebench.errors import PlacebenchError
from placebench.lab.commands.study import REPLICATES, add_study_options, is_quick, run_study, topology_of

_SIZES = "1x1,2x1,3x1,4x1,2x2,2x3,2x4"
_QUICK_SIZES = "1x1,2x1"
_MOST = 16
_REQUESTS, _QUICK_REQUESTS = 100, 40
_VARIANT = "dedup"


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--sizes",
        metavar="HxR,…",
        help=f"service hosts x replicas, up to {_MOST} each; x0: the primary is read from (default: {_SIZES}; "
        f"--preset quick: {_QUICK_SIZES})",
    )
    parser.add_argument(
        "--requests",
        type=options.request_count,
        metavar="N",
        help=f"number of requests per measurement (default: {_REQUESTS}; --preset quick: {_QUICK_REQUESTS})",
    )
    parser.add_argument(
        "--users",
        type=options.whole(1, limits.USERS),
        metavar="N",
        help="number of users of the closed-loop load (default: twice the processes of the most hosts)",
    )
    parser.add_argument(
        "--processes", type=options.worker_count, default=1, metavar="N", help="processes of each host (default: 1)"
    )
    parser.add_argument("--variant", default=_VARIANT, metavar="V", help="variant that serves (default: %(default)s)")
    options.add_data(parser)
    add_study_options(parser)


def _run(arguments: Namespace) -> int:
    """Measure every size."""
    from placebench.lab.reference.variants import variant
    from placebench.lab.scaleout.cluster import nginx_program
    from placebench.lab.studies.scaleout import ScaleOutStudy

    topology, sizes, chosen = topology_of(arguments), _sizes(arguments), variant(arguments.variant)
    nginx_program()
    study = ScaleOutStudy(
        sizes=sizes,
        requests=arguments.requests or (_QUICK_REQUESTS if is_quick(arguments) else _REQUESTS),
        users=arguments.users or 2 * arguments.processes * max(hosts for hosts, _ in sizes),
        request=arguments.request or topology.request,
        variant=chosen.name,
        revisions=tuple(chosen.revisions),
        processes=arguments.processes,
    )
    return run_study(arguments, topology, study.spec(repeats=arguments.replicates or REPLICATES))


def _sizes(arguments: Namespace) -> tuple[tuple[int, int], ...]:
    given = arguments.sizes or (_QUICK_SIZES if is_quick(arguments) else _SIZES)
    found = [re.fullmatch(r"([0-9]{1,2})x([0-9]{1,2})", part) for part in given.split(",")]
    sizes = tuple(dict.fromkeys((int(each[1]), int(each[2])) for each in found if each))
    if not all(found) or not all(0 < hosts <= _MOST and replicas <= _MOST for hosts, replicas in sizes):
        raise PlacebenchError(
            f"--sizes {given!r}: expected hosts x replicas with commas between, such as 1x1,2x1,2x2, from 1x0 to "
            f"{_MOST}x{_MOST}"
        )
    return sizes


COMMANDS = {"lab study scaleout": Command(_configure, _run, "scaleout")}
