"""`placebench lab study workers`: threads or processes? Throughput, CPU and memory of every mix of both."""

import os
import re
from argparse import ArgumentParser, Namespace

from placebench import limits
from placebench.commands import Command, options
from placebench.commands.lab.study import REPLICATES, add_study_options, is_quick, run_study, topology_of
from placebench.errors import PlacebenchError

_WORKLOADS = ("compute", "query", "state", "state-frozen")
_QUICK_WORKLOADS = _WORKLOADS[:3]
_MOST_CORES = 8
_MOST = 64


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--mixes", metavar="PxT,PxT", help="processes x threads, as 1x4,4x1,2x2 (default: by this machine's cores)"
    )
    parser.add_argument(
        "--workloads",
        metavar="W,W",
        help=f"workloads, of {', '.join(_WORKLOADS)} (default: all; --preset quick: without the last)",
    )
    parser.add_argument(
        "--requests",
        type=options.request_count,
        metavar="N",
        help="number of requests per measurement (default: 400; query: 40)",
    )
    parser.add_argument(
        "--users",
        type=options.whole(1, limits.USERS),
        metavar="N",
        help="number of users of the closed-loop load (default: the threads of the largest mix)",
    )
    parser.add_argument(
        "--variant", default="tuned", metavar="V", help="variant that serves the query (default: %(default)s)"
    )
    options.add_data(parser)
    add_study_options(parser)


def _run(arguments: Namespace) -> int:
    """Measure every workload with every mix."""
    from placebench.experiment.workers_study import QUICK_REQUESTS, REQUESTS, WorkersStudy
    from placebench.reference.variants import variant

    topology, mixes, workloads = topology_of(arguments), _mixes(arguments), _workloads(arguments)
    variant(arguments.variant)
    usual = QUICK_REQUESTS if is_quick(arguments) else REQUESTS
    study = WorkersStudy(
        mixes=mixes,
        workloads=workloads,
        requests={name: arguments.requests or usual[name] for name in workloads},
        users=arguments.users or max(processes * threads for processes, threads in mixes),
        request=arguments.request or topology.request,
        variant=arguments.variant,
    )
    return run_study(arguments, topology, study.spec(repeats=arguments.replicates or REPLICATES))


def _mixes(arguments: Namespace) -> tuple[tuple[int, int], ...]:
    if arguments.mixes is None:
        return default_mixes(os.cpu_count() or 1, quick=is_quick(arguments))
    found = [re.fullmatch(r"(\d+)x(\d+)", part) for part in arguments.mixes.split(",")]
    mixes = tuple(dict.fromkeys((int(each[1]), int(each[2])) for each in found if each))
    if not all(found) or not all(0 < processes * threads <= _MOST for processes, threads in mixes):
        raise PlacebenchError(
            f"--mixes {arguments.mixes!r}: expected processes x threads with commas between, such as 1x4,4x1,2x2, "
            f"of {_MOST} threads together at most"
        )
    return mixes


def default_mixes(cores: int, *, quick: bool) -> tuple[tuple[int, int], ...]:
    """One worker, as many threads as cores and twice as many, the same in processes, and the mix of both."""
    n = min(max(cores, 2), _MOST_CORES)
    if quick:
        return ((1, 2 * n), (2 * n, 1), (n, 2))
    return ((1, 1), (1, n), (1, 2 * n), (n, 1), (2 * n, 1), (n, 2))


def _workloads(arguments: Namespace) -> tuple[str, ...]:
    if arguments.workloads is None:
        return _QUICK_WORKLOADS if is_quick(arguments) else _WORKLOADS
    names = tuple(dict.fromkeys(arguments.workloads.split(",")))
    if strange := [name for name in names if name not in _WORKLOADS]:
        raise PlacebenchError(f"--workloads names {strange[0]!r}: expected {', '.join(_WORKLOADS)}")
    return names


COMMANDS = {"lab study workers": Command(_configure, _run)}
