"""`placebench lab study network`: what latency, bandwidth and proxies cost each variant, in seconds and bytes."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from placebench import limits
from placebench.commands import Command, options
from placebench.errors import PlacebenchError
from placebench.lab.commands.study import REPLICATES, add_study_options, is_quick, run_study, topology_of

if TYPE_CHECKING:
    from placebench.compare.what.variants import Variant
    from placebench.lab.inventory.topology import Topology
    from placebench.lab.studies.network import NetworkStudy
    from placebench.lab.studies.protocol import ProtocolStudy

_OF_PROTOCOLS = ("http", "rows", "walk")
_JOBS = ("query", "tiny", "waits", *_OF_PROTOCOLS)
_EVERY, _SHORT, _PROTOCOLS = "0,0.5,5,26,50,180,250,370", "0,0.5,5", "0,10,100"
_LATENCIES = {"query": _EVERY, "tiny": _SHORT, "waits": _EVERY} | dict.fromkeys(_OF_PROTOCOLS, _PROTOCOLS)
_QUICK_LATENCIES = {"query": "0,50", "tiny": "0,5", "waits": "0,50"} | dict.fromkeys(_OF_PROTOCOLS, "0,50")
_QUICK_TINY_OPERATIONS = 40
_OPERATIONS_OF_PROTOCOLS = 20


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--latency-ms",
        metavar="MS,MS",
        help="round-trip times of the network, 0 to 370 ms (default: 0,0.5,5,26,50,180,250,370; --job tiny: 0,0.5,5; "
        "http, rows and walk: 0,10,100)",
    )
    parser.add_argument(
        "--variants",
        type=options.names,
        metavar="V,V",
        help="variants, the base first (default: naive,tuned; http, rows and walk: all protocols of the job)",
    )
    parser.add_argument(
        "--job",
        choices=_JOBS,
        default="query",
        help="query: the request; tiny: many small reads; waits: the request and 250 ms of pg_sleep(); http, rows and "
        "walk: small reads, writes and a loop, in several protocols (default: query)",
    )
    parser.add_argument(
        "--operations",
        type=options.whole(1, limits.OPERATIONS),
        metavar="N",
        help="number of requests, rows or steps per job (default: 1; tiny: 1000; http, rows and walk: 20)",
    )
    parser.add_argument(
        "--between",
        choices=("database", "client"),
        help="which side of the service is far away (default: database; the jobs http, rows and walk have one side)",
    )
    parser.add_argument(
        "--bandwidth-mbit",
        type=options.number(0, limits.BANDWIDTH_MBIT, above=True),
        metavar="X",
        help="bandwidth in each direction (default: no limit)",
    )
    parser.add_argument(
        "--proxies",
        type=options.whole(1, limits.PROXIES),
        default=1,
        metavar="N",
        help="number of proxies in between, each with that latency (default: 1)",
    )
    parser.add_argument(
        "--compress", action="store_true", help="with --between client: measure responses compressed by gzip too"
    )
    parser.add_argument(
        "--clients",
        type=options.whole(1, limits.CLIENTS),
        metavar="N",
        help="number of clients that do the job at once, each on connections of its own; as many workers serve them "
        "(default: 1)",
    )
    options.add_placement(parser)
    options.add_data(parser)
    add_study_options(parser)


def _run(arguments: Namespace) -> int:
    """Measure every variant at every latency."""
    from placebench.runtime.network.delay_queue import LinkProfile

    topology = topology_of(arguments)
    latencies_ms = _latencies_ms(arguments)
    bytes_per_s = None if arguments.bandwidth_mbit is None else arguments.bandwidth_mbit * 1e6 / 8
    for latency_ms in latencies_ms:
        LinkProfile(latency_ms / 1e3, bytes_per_s)
    of_job = _protocols if arguments.job in _OF_PROTOCOLS else _services
    study = of_job(arguments, topology, latencies_ms, bytes_per_s)
    return run_study(arguments, topology, study.spec(repeats=arguments.replicates or REPLICATES))


def _services(
    arguments: Namespace, topology: "Topology", latencies_ms: tuple[float, ...], bytes_per_s: float | None
) -> "NetworkStudy":
    from placebench.lab.studies.network import NetworkStudy

    return NetworkStudy(
        variants=_variants(arguments),
        latencies_ms=latencies_ms,
        request=arguments.request or topology.request,
        job=arguments.job,
        operations=_operations(arguments),
        between=arguments.between or "database",
        bytes_per_s=bytes_per_s,
        proxies=arguments.proxies,
        compress=_compress(arguments),
        clients=arguments.clients or 1,
    )


def _protocols(
    arguments: Namespace, _: "Topology", latencies_ms: tuple[float, ...], bytes_per_s: float | None
) -> "ProtocolStudy":
    from placebench.lab.studies.protocol import PROTOCOLS, ProtocolStudy

    job, known = arguments.job, PROTOCOLS[arguments.job]
    for option in ("between", "clients", "compress", "request", "placement_python"):
        if getattr(arguments, option):
            raise PlacebenchError(f"--{option.replace('_', '-')} has no effect on --job {job}: leave it away")
    chosen = tuple(arguments.variants or known)
    if wrong := [name for name in chosen if name not in known]:
        raise PlacebenchError(f"no protocol {wrong[0]!r} of --job {job}: expected {', '.join(known)}")
    operations = _OPERATIONS_OF_PROTOCOLS if arguments.operations is None else arguments.operations
    return ProtocolStudy(job, chosen, latencies_ms, operations, bytes_per_s, arguments.proxies)


def _latencies_ms(arguments: Namespace) -> tuple[float, ...]:
    """The latencies, each once."""
    default = _QUICK_LATENCIES if is_quick(arguments) else _LATENCIES
    text = arguments.latency_ms or default[arguments.job]
    try:
        return tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError as error:
        raise PlacebenchError(f"--latency-ms {text!r}: expected milliseconds with commas between, as 0,50") from error


def _variants(arguments: Namespace) -> "tuple[Variant, ...]":
    from placebench.compare.what.variants import read_variant, require_servers

    names = arguments.variants or ("naive", "tuned")
    variants = tuple(read_variant(name, placement_python=arguments.placement_python) for name in names)
    for variant in variants:
        if variant.request:
            raise PlacebenchError(f"the variant {variant.name} uses no database: name variants, or placement")
        if not variant.ours and (arguments.job == "waits" or arguments.compress):
            what = "--job waits" if arguments.job == "waits" else "--compress"
            raise PlacebenchError(f"{what} needs the reference service: leave {variant.name} out of --variants")
    require_servers(variants)
    return variants


def _operations(arguments: Namespace) -> int:
    from placebench.lab.studies.network import TINY_OPERATIONS

    usual = 1 if arguments.job != "tiny" else _QUICK_TINY_OPERATIONS if is_quick(arguments) else TINY_OPERATIONS
    return int(usual if arguments.operations is None else arguments.operations)


def _compress(arguments: Namespace) -> bool:
    if arguments.compress and arguments.between != "client":
        raise PlacebenchError("--compress is for responses to the client: add --between client")
    return bool(arguments.compress)


COMMANDS = {"lab study network": Command(_configure, _run, "network")}
