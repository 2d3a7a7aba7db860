"""`placebench link`: what a slow link costs each variant, in seconds, turnarounds and bytes."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from placebench import limits
from placebench.commands import values
from placebench.commands.asking import add_asking_options, ask, topology_asked
from placebench.errors import PlacebenchError

if TYPE_CHECKING:
    from placebench.experiment.variants import Variant

HELP = "ask what a slow link costs: latency, bandwidth and proxies between service and database, or client and service"
_JOBS = ("query", "tiny", "waits")
_LATENCIES = {"query": "0,0.5,5,26,50,180,250,370", "tiny": "0,0.5,5", "waits": "0,0.5,5,26,50,180,250,370"}
_QUICK_LATENCIES = {"query": "0,50", "tiny": "0,5", "waits": "0,50"}
_QUICK_TINY_OPERATIONS = 40


def configure(parser: ArgumentParser) -> None:
    """The options of `link`."""
    parser.add_argument(
        "--latency-ms",
        metavar="MS,MS",
        help="round trips of the link, 0 to 370 ms (default: 0,0.5,5,26,50,180,250,370; tiny: 0,0.5,5)",
    )
    parser.add_argument(
        "--variants", default="naive,tuned", metavar="V,V", help="baseline first; placement too (default: %(default)s)"
    )
    parser.add_argument(
        "--job", choices=_JOBS, default="query", help="the request; small reads; the request and 250 ms of pg_sleep()"
    )
    parser.add_argument(
        "--operations",
        type=values.whole(1, limits.OPERATIONS),
        metavar="N",
        help="requests a job (default: 1; tiny: 1000)",
    )
    parser.add_argument(
        "--between", choices=("database", "client"), default="database", help="which side of the service is far away"
    )
    parser.add_argument(
        "--bandwidth-mbit",
        type=values.number(0, limits.BANDWIDTH_MBIT, above=True),
        metavar="X",
        help="in each direction (default: no limit)",
    )
    parser.add_argument(
        "--proxies",
        type=values.whole(1, limits.PROXIES),
        default=1,
        metavar="N",
        help="links in a row, each with that latency",
    )
    parser.add_argument(
        "--compress", action="store_true", help="also with answers in gzip; with --between client, where they pass"
    )
    parser.add_argument(
        "--placement-python", type=values.path, metavar="PATH", help="of the environment of the variant placement"
    )
    add_asking_options(parser)


def run(arguments: Namespace) -> int:
    """Measure every variant at every latency."""
    from placebench.experiment.network_study import NetworkStudy
    from placebench.runtime.network.delay_queue import LinkProfile

    topology = topology_asked(arguments)
    latencies_ms = _numbers(arguments)
    bytes_per_s = None if arguments.bandwidth_mbit is None else arguments.bandwidth_mbit * 1e6 / 8
    for latency_ms in latencies_ms:
        LinkProfile(latency_ms / 1e3, bytes_per_s)
    asked = NetworkStudy(
        variants=_variants(arguments),
        latencies_ms=latencies_ms,
        request=arguments.request or topology.request,
        job=arguments.job,
        operations=_operations(arguments),
        between=arguments.between,
        bytes_per_s=bytes_per_s,
        proxies=arguments.proxies,
        compress=_compress(arguments),
    )
    ask(arguments, topology, asked.spec(repeats=arguments.repeats))
    return 0


def _numbers(arguments: Namespace) -> tuple[float, ...]:
    """The latencies, each once."""
    default = _QUICK_LATENCIES if arguments.quick else _LATENCIES
    text = arguments.latency_ms or default[arguments.job]
    try:
        return tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError as error:
        raise PlacebenchError(f"--latency-ms {text!r}: expected milliseconds with commas between, as 0,50") from error


def _variants(arguments: Namespace) -> "tuple[Variant, ...]":
    from placebench.experiment.variants import read_variant, require_uwsgi

    names = arguments.variants.split(",")
    if len(set(names)) < len(names):
        raise PlacebenchError(f"--variants {arguments.variants}: each once is enough, a point is repeated by --repeats")
    variants = tuple(read_variant(name, arguments.placement_python) for name in names)
    for variant in variants:
        if variant.request:
            raise PlacebenchError(f"the variant {variant.name} asks no database: name variants, or placement")
        if not variant.ours and (arguments.job == "waits" or arguments.compress):
            what = "--job waits" if arguments.job == "waits" else "--compress"
            raise PlacebenchError(f"{what} is made in the reference service: leave {variant.name} out of --variants")
    require_uwsgi(variants)
    return variants


def _operations(arguments: Namespace) -> int:
    from placebench.experiment.network_study import TINY_OPERATIONS

    usual = 1 if arguments.job != "tiny" else _QUICK_TINY_OPERATIONS if arguments.quick else TINY_OPERATIONS
    return int(usual if arguments.operations is None else arguments.operations)


def _compress(arguments: Namespace) -> bool:
    if arguments.compress and arguments.between != "client":
        raise PlacebenchError("--compress packs answers to the client: say --between client, where they pass the link")
    return bool(arguments.compress)
