"""`placebench lab scaleout`: nginx, service hosts, a primary and its replicas on this machine, from packages alone."""

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from placebench import units
from placebench.commands import Command, options
from placebench.commands.interrupts import stop_event
from placebench.commands.output import print_result, say, steps
from placebench.errors import ServerError

if TYPE_CHECKING:
    from placebench.reference.variants import ReferenceVariant
    from placebench.runtime.scale_out import ScaleOut

_HOSTS, _REPLICAS, _MOST = 2, 1, 16
_CHECK_EVERY_S = 0.5
_STEPS = 5


def _configure(parser: ArgumentParser) -> None:
    count = options.whole(1, _MOST)
    parser.add_argument(
        "--hosts", type=count, default=_HOSTS, metavar="N", help=f"number of service hosts (default: {_HOSTS})"
    )
    parser.add_argument(
        "--replicas",
        type=options.whole(0, _MOST),
        default=_REPLICAS,
        metavar="N",
        help=f"number of replicas of the primary, which requests that only read go to (default: {_REPLICAS})",
    )
    parser.add_argument(
        "--synchronous",
        action="store_true",
        help="respond to a write when all replicas show it (default: when the primary has it)",
    )
    parser.add_argument("--variant", metavar="V", help="variant (default: dedup; without replicas cached)")
    parser.add_argument(
        "--port",
        type=options.whole(0, 65_535),
        default=8000,
        metavar="P",
        help="port that nginx listens on; 0: a free one (default: 8000)",
    )
    for name in ("processes", "threads"):
        parser.add_argument(
            f"--{name}",
            type=options.worker_count,
            metavar="N",
            help=f"number of {name} of each host (default: the variant's, or 1)",
        )
    options.add_data(parser, requests=False)
    options.add_output(parser)


def _run(arguments: Namespace) -> int:
    """Serve until a signal stops it; nginx that ends, ends it."""
    chosen = _variant(arguments)
    with _stand_up(arguments, chosen) as scaled:
        stopped = stop_event()
        say(f"{chosen.name} is served at {scaled.url}; Ctrl-C stops it")
        if arguments.json:
            print_result(json.dumps(_document(scaled, chosen.name)))
        _watch(scaled, stopped.wait)
    return 0


def _variant(arguments: Namespace) -> "ReferenceVariant":
    from placebench.reference.deployment import NO_CACHE_ON_REPLICAS
    from placebench.reference.variants import variant

    chosen = variant(arguments.variant or ("dedup" if arguments.replicas else "cached"))
    if arguments.replicas and chosen.algorithm == "cached":
        raise ServerError(NO_CACHE_ON_REPLICAS)
    if arguments.synchronous and not arguments.replicas:
        raise ServerError("--synchronous with --replicas 0: there is no replica to wait for")
    return chosen


@contextmanager
def _stand_up(arguments: Namespace, chosen: "ReferenceVariant") -> "Iterator[ScaleOut]":
    from placebench.runtime.running_server import ServerSpec
    from placebench.runtime.scale_out import ScaleOut
    from placebench.seeding import find_topology, migrate_options, seed

    topology = find_topology(
        arguments.topology, trees=arguments.trees, seed=arguments.seed, utilization=arguments.utilization
    )

    def fill(url: str) -> None:
        seed(topology, url)
        migrate_options(url, chosen.revisions)

    processes, threads = chosen.worker.workers or (1, 1)
    spec = ServerSpec(
        database_url="",
        variant=chosen.name,
        port=arguments.port,
        processes=arguments.processes or processes,
        threads=arguments.threads or threads,
        grace_s=5.0,
    )
    began_s = time.monotonic()
    with steps("scale-out", _STEPS) as announce:
        scaled = ScaleOut(
            spec,
            fill,
            hosts=arguments.hosts,
            replicas=arguments.replicas,
            synchronous=arguments.synchronous,
            announce=announce,
        )
    with scaled:
        say(f"the first response came after {units.duration(time.monotonic() - began_s)}")
        yield scaled


def _document(scaled: "ScaleOut", variant_name: str) -> dict[str, Any]:
    databases = {node.name: scaled.cluster.url(node) for node in scaled.cluster.nodes}
    return {"url": scaled.url, "variant": variant_name, "pids": scaled.pids(), "databases": databases}


def _watch(scaled: "ScaleOut", wait: Callable[[float], bool]) -> None:
    """Report each part that ends, until `wait` says that it is enough; raises ServerError when nginx does."""
    running = scaled.pids().keys()
    while not wait(_CHECK_EVERY_S):
        scaled.balancer.check()
        now = scaled.pids().keys()
        for name in sorted(running - now):
            say(f"{name} has ended")
        running = now


COMMANDS = {"lab scaleout": Command(_configure, _run)}
