"""`placebench workers`: threads or processes? Throughput, CPU and memory of every mix of both."""

import os
import re
from argparse import ArgumentParser, Namespace

from placebench import limits
from placebench.commands import values
from placebench.commands.asking import add_asking_options, ask, topology_asked
from placebench.errors import PlacebenchError

HELP = "ask whether threads or processes serve better: throughput, CPU and memory of every mix"
_WORKLOADS = ("compute", "query", "state", "state-frozen")
_QUICK_WORKLOADS = _WORKLOADS[:3]
_MOST_CORES = 8
_MOST = 64


def configure(parser: ArgumentParser) -> None:
    """The options of `workers`."""
    parser.add_argument(
        "--mixes", metavar="PxT,PxT", help="processes x threads, such as 1x4,4x1,2x2 (default: by this machine's cores)"
    )
    parser.add_argument(
        "--workloads", metavar="W,W", help=f"of {', '.join(_WORKLOADS)} (default: all; --quick: without the last)"
    )
    parser.add_argument("--requests", type=values.requests, metavar="N", help="a measurement (default: 400; query: 40)")
    parser.add_argument(
        "--users",
        type=values.whole(1, limits.USERS),
        metavar="N",
        help="who wait for answers (default: the largest mix)",
    )
    parser.add_argument("--variant", default="tuned", metavar="V", help="that answers the query (default: %(default)s)")
    add_asking_options(parser)


def run(arguments: Namespace) -> int:
    """Measure every workload with every mix."""
    from placebench.experiment.workers_study import QUICK_REQUESTS, REQUESTS, WorkersStudy
    from placebench.reference.variants import variant

    topology, mixes, workloads = topology_asked(arguments), _mixes(arguments), _workloads(arguments)
    variant(arguments.variant)
    usual = QUICK_REQUESTS if arguments.quick else REQUESTS
    asked = WorkersStudy(
        mixes=mixes,
        workloads=workloads,
        requests={name: arguments.requests or usual[name] for name in workloads},
        users=arguments.users or max(processes * threads for processes, threads in mixes),
        request=arguments.request or topology.request,
        variant=arguments.variant,
    )
    ask(arguments, topology, asked.spec(repeats=arguments.repeats))
    return 0


def _mixes(arguments: Namespace) -> tuple[tuple[int, int], ...]:
    if arguments.mixes is None:
        return usual_mixes(os.cpu_count() or 1, quick=arguments.quick)
    found = [re.fullmatch(r"(\d+)x(\d+)", part) for part in arguments.mixes.split(",")]
    mixes = tuple(dict.fromkeys((int(each[1]), int(each[2])) for each in found if each))
    if not all(found) or not all(0 < processes * threads <= _MOST for processes, threads in mixes):
        raise PlacebenchError(
            f"--mixes {arguments.mixes!r}: expected processes x threads with commas between, such as 1x4,4x1,2x2, "
            f"of {_MOST} threads together at most"
        )
    return mixes


def usual_mixes(cores: int, *, quick: bool) -> tuple[tuple[int, int], ...]:
    """One worker, as many threads as cores and twice as many, the same in processes, and the mix of both."""
    n = min(max(cores, 2), _MOST_CORES)
    if quick:
        return ((1, 2 * n), (2 * n, 1), (n, 2))
    return ((1, 1), (1, n), (1, 2 * n), (n, 1), (2 * n, 1), (n, 2))


def _workloads(arguments: Namespace) -> tuple[str, ...]:
    if arguments.workloads is None:
        return _QUICK_WORKLOADS if arguments.quick else _WORKLOADS
    names = tuple(dict.fromkeys(arguments.workloads.split(",")))
    if strange := [name for name in names if name not in _WORKLOADS]:
        raise PlacebenchError(f"--workloads names {strange[0]!r}: expected {', '.join(_WORKLOADS)}")
    return names
