"""`placebench lab study workers`: threads, processes or event loops? Throughput, CPU and memory of every mix."""

import os
import re
from argparse import ArgumentParser, Namespace

from placebench import limits
from placebench.commands import Command, options
from placebench.commands.output import say
from placebench.errors import PlacebenchError
from placebench.lab.commands.study import REPLICATES, add_study_options, is_quick, run_study, topology_of

_USUAL_WORKLOADS = ("compute", "query", "state", "state-frozen")
_QUICK_WORKLOADS = _USUAL_WORKLOADS[:3]
_WORKLOADS = (*_USUAL_WORKLOADS, "database", "network", "subprocess")
_DRIVERS = ("asyncpg", "psycopg3_async")
_MOST_CORES = 8
_MOST = 64


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--mixes",
        metavar="PxT[@SERVER],…",
        help="processes x threads, as 1x4,4x1,2x2 (default: by this machine's cores); 1x4@uvicorn and 1x4@granian: "
        "event loops, each of 4 tasks on the database (default server: uwsgi)",
    )
    parser.add_argument(
        "--driver", choices=_DRIVERS, default=_DRIVERS[0], help="driver in an event loop (default: %(default)s)"
    )
    parser.add_argument(
        "--workloads",
        metavar="W,W",
        help=f"workloads, of {', '.join(_WORKLOADS)} (default: {','.join(_USUAL_WORKLOADS)}; --preset quick: "
        f"{','.join(_QUICK_WORKLOADS)})",
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
    from placebench.compare.what.pythons import free_threaded
    from placebench.lab.reference.variants import variant
    from placebench.lab.studies.workers import EVENT_LOOPS, QUICK_REQUESTS, REQUESTS, WorkersStudy

    topology, mixes, workloads = topology_of(arguments), _mixes(arguments), _workloads(arguments)
    variant(arguments.variant)
    if any(server in EVENT_LOOPS for *_, server in mixes):
        variant(f"{arguments.variant}+driver:{arguments.driver}")
        if strange := [name for name in workloads if name.startswith("state")]:
            raise PlacebenchError(f"--workloads {strange[0]}: memory shared by a fork, and event loops are not forked")
    usual = QUICK_REQUESTS if is_quick(arguments) else REQUESTS
    study = WorkersStudy(
        mixes=mixes,
        workloads=workloads,
        requests={name: arguments.requests or usual[name] for name in workloads},
        users=arguments.users or max(processes * threads for processes, threads, _ in mixes),
        request=arguments.request or topology.request,
        variant=arguments.variant,
        driver=arguments.driver,
    )
    if not arguments.resume:
        say(free_threaded())
    return run_study(arguments, topology, study.spec(repeats=arguments.replicates or REPLICATES))


def _mixes(arguments: Namespace) -> tuple[tuple[int, int, str], ...]:
    if arguments.mixes is None:
        return tuple((*mix, "uwsgi") for mix in default_mixes(os.cpu_count() or 1, quick=is_quick(arguments)))
    mix = r"([0-9]{1,4})x([0-9]{1,4})(?:@(uwsgi|uvicorn|granian))?"
    found = [re.fullmatch(mix, part) for part in arguments.mixes.split(",")]
    mixes = tuple(dict.fromkeys((int(each[1]), int(each[2]), each[3] or "uwsgi") for each in found if each))
    if not all(found) or not all(0 < processes * threads <= _MOST for processes, threads, _ in mixes):
        raise PlacebenchError(
            f"--mixes {arguments.mixes!r}: expected processes x threads with commas between, such as 1x4,4x1,2x2, "
            f"of {_MOST} threads together at most, each with @uvicorn or @granian for an event loop"
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


COMMANDS = {"lab study workers": Command(_configure, _run, "workers")}
