"""The options of the commands `placebench lab study …`; a study's module is imported only when its command runs.

This way, --help and completion load no code that measures or reports. Each study has a function that adds its options
to a parser, and a frozen dataclass with the options, which is passed to the function `run` of the study's module.
Defaults that the help names are defined here.
"""

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar

from placebench import limits
from placebench.commands import STARTS_SERVERS, Command, options

if TYPE_CHECKING:
    from placebench.lab.inventory.topology import Topology

_T = TypeVar("_T")
_QUICK_TREES = 50


class ByPreset(NamedTuple, Generic[_T]):
    """The default of an option for --preset default and quick."""

    usual: _T
    quick: _T


@dataclass(frozen=True)
class StudyOptions(options.RunCommandOptions):
    """The options that every study has."""

    replicates: int | None
    preset: str | None

    @property
    def is_quick(self) -> bool:
        """Whether --preset quick was given, which measures little."""
        return self.preset == "quick"

    @property
    def repeats(self) -> int:
        """The number of replicates of a study for which all presets have the same."""
        return self.replicates or options.STUDY_REPLICATES

    def default(self, of: ByPreset[_T]) -> _T:
        """Return the default for the given preset."""
        return of.quick if self.is_quick else of.usual

    def trees_or_preset(self, given: int | None) -> int | None:
        """Return --trees, else the number of trees of the preset; None if the topology decides."""
        return _QUICK_TREES if self.is_quick and given is None else given


@dataclass(frozen=True)
class InventoryStudyOptions(StudyOptions):
    """The options of a study with one request on one inventory data set."""

    data: options.DataOptions
    request: str | None

    def topology(self) -> "Topology":
        """Return the inventory data set that the options select."""
        from placebench.lab.inventory.seeding import find_topology

        data = self.data
        trees = self.trees_or_preset(data.trees)
        return find_topology(data.topology, trees=trees, seed=data.seed, utilization=data.utilization)


def _add_study_options(parser: ArgumentParser, *, replicates: int | str = options.STUDY_REPLICATES) -> None:
    parser.add_argument(
        "-n",
        "--replicates",
        type=options.whole(1, limits.REPEATS),
        metavar="N",
        help=f"number of replicates per point (default: {replicates})",
    )
    options.add_preset(parser, quick=f"about a minute, on {_QUICK_TREES} trees unless --trees is given", default="all")
    options.add_run(parser)
    options.add_output(parser, markdown=True, page=True)


# --- network


_FAR_MS, _NEAR_MS, _PROTOCOLS_MS = "0,0.5,5,26,50,180,250,370", "0,0.5,5", "0,10,100"
PROTOCOL_JOBS: Final = ("http", "rows", "walk")
JOBS: Final = ("query", "tiny", "waits", "mixed", *PROTOCOL_JOBS)
LATENCIES_MS: Final = ByPreset(
    {
        "query": _FAR_MS,
        "tiny": _NEAR_MS,
        "waits": _FAR_MS,
        "mixed": _FAR_MS,
        **dict.fromkeys(PROTOCOL_JOBS, _PROTOCOLS_MS),
    },
    {**dict.fromkeys(JOBS, "0,50"), "tiny": "0,5"},
)
"""Latencies in milliseconds, by job."""


@dataclass(frozen=True)
class NetworkOptions(InventoryStudyOptions):
    """The options of `placebench lab study network`."""

    latency_ms: str | None
    variants: tuple[str, ...] | None
    job: str
    operations: int | None
    between: Literal["database", "client"] | None
    bandwidth_mbit: float | None
    proxies: int
    compress: bool
    clients: int | None
    placement_python: Path | None


def _configure_network(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--latency-ms",
        metavar="MS,MS",
        help=f"round-trip times of the network, 0 to 370 ms (default: {_FAR_MS}; --job tiny: {_NEAR_MS}; "
        f"http, rows and walk: {_PROTOCOLS_MS})",
    )
    parser.add_argument(
        "--variants",
        type=options.names,
        metavar="V,V",
        help="variants, the base first (default: naive,tuned; http, rows and walk: all protocols of the job)",
    )
    parser.add_argument(
        "--job",
        choices=JOBS,
        metavar="JOB",
        default="query",
        help="query: the request; tiny: many small reads; waits: the request and 250 ms of pg_sleep(); mixed: small "
        "reads, and after each four of them the same as waits; http, rows and walk: small reads, writes and "
        "a loop, in several protocols (default: query)",
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
    _add_study_options(parser)


# --- workers


WORKLOADS: Final = ByPreset(("compute", "query", "state", "state-frozen"), ("compute", "query", "state"))
ALL_WORKLOADS: Final = (*WORKLOADS.usual, "database", "network", "subprocess")
_ASYNC_DRIVERS = ("asyncpg", "psycopg3_async")


@dataclass(frozen=True)
class WorkersOptions(InventoryStudyOptions):
    """The options of `placebench lab study workers`."""

    mixes: str | None
    driver: str
    workloads: str | None
    requests: int | None
    users: int | None
    variant: str


def _configure_workers(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--mixes",
        metavar="PxT[@SERVER],…",
        help="processes x threads, such as 1x4,4x1,2x2 (default: by this machine's cores); 1x4@uvicorn and "
        "1x4@granian: event loops, each of 4 tasks on the database (default server: uwsgi)",
    )
    parser.add_argument(
        "--driver",
        choices=_ASYNC_DRIVERS,
        default=_ASYNC_DRIVERS[0],
        help="driver in an event loop (default: %(default)s)",
    )
    parser.add_argument(
        "--workloads",
        metavar="W,W",
        help=f"workloads, of {', '.join(ALL_WORKLOADS)} (default: {','.join(WORKLOADS.usual)}; --preset quick: "
        f"{','.join(WORKLOADS.quick)})",
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
    _add_study_options(parser)


# --- matrix


@dataclass(frozen=True)
class MatrixOptions(StudyOptions):
    """The options of `placebench lab study matrix`."""

    data: options.PlanDataOptions
    request: str | None
    placement_python: Path | None
    matrix: str = field(metadata=options.MAY_BE_FILE)


def _configure_matrix(parser: ArgumentParser) -> None:
    parser.add_argument(
        "matrix",
        nargs="?",
        default="stack",
        metavar="NAME|FILE",
        help="latency, mariadb, profiler, pythons, sqlite, stack or a .toml file (default: stack)",
    )
    options.add_placement(parser)
    options.add_data(parser, plan="matrix", utilization=False)
    _add_study_options(parser, replicates=f"the matrix's, or {options.STUDY_REPLICATES}")


# --- breakdown


LOAD_S: Final = ByPreset(3.0, 0.5)
_MAX_PROCESSES = 64


@dataclass(frozen=True)
class BreakdownOptions(InventoryStudyOptions):
    """The options of `placebench lab study breakdown`."""

    variant: str
    processes: int
    endpoints: str | None
    time: float | None


def _configure_breakdown(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--variant", default="tuned", metavar="V", help="variant that serves the requests (default: %(default)s)"
    )
    parser.add_argument(
        "--processes",
        type=options.whole(1, _MAX_PROCESSES),
        default=2,
        metavar="N",
        help="number of worker processes, and of users (default: 2)",
    )
    parser.add_argument(
        "--endpoints", metavar="E,E", help="endpoints beside the no-op (default: all; --preset quick: two)"
    )
    parser.add_argument(
        "--time", type=options.seconds, metavar="S", help=f"seconds of each load (default: {LOAD_S.usual:g})"
    )
    options.add_data(parser)
    _add_study_options(parser)


# --- operators


@dataclass(frozen=True)
class OperatorsOptions(StudyOptions):
    """The options of `placebench lab study operators`."""

    inventories: tuple[str, ...] | None
    requests: int
    timeout: float
    plan: Path | None
    placement_python: Path | None
    trees: int | None
    seed: int


def _configure_operators(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--inventories",
        type=options.names,
        metavar="NAME,NAME",
        help="inventory data sets (default: cern,flat-hosts,gpu-hosts)",
    )
    parser.add_argument(
        "--requests",
        type=options.request_count,
        default=2,
        metavar="N",
        help="number of requests of each of four clients per measurement (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=options.seconds,
        default=60.0,
        metavar="S",
        help="seconds that a client waits for a response (default: 60)",
    )
    parser.add_argument(
        "--plan",
        type=options.path,
        metavar="FILE",
        help="TOML file with other inventories and settings (default: those of the documentation)",
    )
    options.add_placement(parser)
    options.add_size(parser)
    _add_study_options(parser)


# --- herd


HERD_SCHEDULERS: Final = ByPreset((1, 2, 5, 10, 20, 40), (1, 10))
HERD_CLAIMS: Final = ByPreset(80, 20)
_MAX_SCHEDULERS = 40


@dataclass(frozen=True)
class HerdOptions(StudyOptions):
    """The options of `placebench lab study herd`."""

    schedulers: tuple[int, ...] | None
    claims: int | None
    placement_python: Path | None
    trees: int | None
    seed: int


def _configure_herd(parser: ArgumentParser) -> None:
    usual, quick = (",".join(map(str, numbers)) for numbers in HERD_SCHEDULERS)
    parser.add_argument(
        "--schedulers",
        type=options.wholes(1, _MAX_SCHEDULERS),
        metavar="N,N",
        help=f"numbers of schedulers, up to {_MAX_SCHEDULERS} (default: {usual}; --preset quick: {quick})",
    )
    parser.add_argument(
        "--claims",
        type=options.whole(1, limits.TREES),
        metavar="N",
        help=f"number of claims per measurement (default: {HERD_CLAIMS.usual}; --preset quick: {HERD_CLAIMS.quick})",
    )
    options.add_placement(parser)
    options.add_size(parser)
    _add_study_options(parser)


# --- saturation


SATURATION_VARIANTS: Final = ByPreset(("naive", "tuned", "dedup", "cached"), ("naive", "cached"))
STEP_S: Final = ByPreset(5.0, 1.0)
FEWER_REPLICATES: Final = ByPreset(options.STUDY_REPLICATES, 1)
"""Default numbers of replicates for studies whose measurements take long."""
_RESPONSE_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class SaturationOptions(InventoryStudyOptions):
    """The options of `placebench lab study saturation`."""

    variants: tuple[str, ...] | None
    slo: str
    time: float | None
    response_timeout: float
    processes: int
    threads: int
    placement_python: Path | None


def _configure_saturation(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--variants",
        type=options.names,
        metavar="V,V",
        help=f"variants, of which placement needs --placement-python (default: "
        f"{','.join(SATURATION_VARIANTS.usual)}; --preset quick: "
        f"{','.join(SATURATION_VARIANTS.quick)})",
    )
    parser.add_argument(
        "--slo",
        default="p95 <= 500ms",
        metavar="EXPR",
        help="what has to hold for an instance, from its arrival to its claim (default: %(default)s)",
    )
    parser.add_argument(
        "--time",
        type=options.seconds,
        metavar="S",
        help=f"seconds of each step, at least (default: {STEP_S.usual:g}; --preset quick: {STEP_S.quick:g})",
    )
    parser.add_argument(
        "--response-timeout",
        type=options.seconds,
        default=_RESPONSE_TIMEOUT_S,
        metavar="S",
        help=f"seconds after which a client gives a request up (default: {_RESPONSE_TIMEOUT_S:g})",
    )
    for name, default in (("processes", 4), ("threads", 1)):
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
    _add_study_options(parser, replicates=f"{FEWER_REPLICATES.usual}; --preset quick: {FEWER_REPLICATES.quick}")


# --- scaleout


SIZES: Final = ByPreset("1x1,2x1,3x1,4x1,2x2,2x3,2x4", "1x1,2x1")
MAX_HOSTS: Final = 16
SCALEOUT_REQUESTS: Final = ByPreset(100, 40)


@dataclass(frozen=True)
class ScaleOutOptions(InventoryStudyOptions):
    """The options of `placebench lab study scaleout`."""

    sizes: str | None
    requests: int | None
    users: int | None
    processes: int
    variant: str


def _configure_scaleout(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--sizes",
        metavar="HxR,…",
        help=f"service hosts x replicas, up to {MAX_HOSTS} each; x0: the primary is read from (default: {SIZES.usual}; "
        f"--preset quick: {SIZES.quick})",
    )
    parser.add_argument(
        "--requests",
        type=options.request_count,
        metavar="N",
        help=f"number of requests per measurement (default: {SCALEOUT_REQUESTS.usual}; --preset quick: "
        f"{SCALEOUT_REQUESTS.quick})",
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
    parser.add_argument("--variant", default="dedup", metavar="V", help="variant that serves (default: %(default)s)")
    options.add_data(parser)
    _add_study_options(parser)


# --- published


@dataclass(frozen=True)
class PublishedOptions(StudyOptions):
    """The options of `placebench lab study published`."""

    variants: tuple[str, ...] | None
    placement_python: Path | None
    trees: int | None
    seed: int


def _configure_published(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--variants",
        type=options.names,
        metavar="V,V",
        help="variants (default: naive, tuned, dedup, cached, placement)",
    )
    options.add_placement(parser)
    options.add_size(parser)
    _add_study_options(parser, replicates=f"{FEWER_REPLICATES.usual}; --preset quick: {FEWER_REPLICATES.quick}")


def _run(name: str, given: StudyOptions) -> int:
    code: int = import_module(f"placebench.lab.studies.{name}").run(given)
    return code


_COMMANDS: Mapping[str, tuple[Callable[[ArgumentParser], None], type[StudyOptions]]] = {
    "network": (_configure_network, NetworkOptions),
    "workers": (_configure_workers, WorkersOptions),
    "matrix": (_configure_matrix, MatrixOptions),
    "breakdown": (_configure_breakdown, BreakdownOptions),
    "operators": (_configure_operators, OperatorsOptions),
    "herd": (_configure_herd, HerdOptions),
    "saturation": (_configure_saturation, SaturationOptions),
    "scaleout": (_configure_scaleout, ScaleOutOptions),
    "published": (_configure_published, PublishedOptions),
}
COMMANDS: dict[str, Command[Any]] = {
    f"lab study {name}": Command(configure, partial(_run, name), kind, name, needs_linux=STARTS_SERVERS)
    for name, (configure, kind) in _COMMANDS.items()
}
