"""The study of `placebench lab study network`: how latency and bandwidth change the duration of the same work.

`network_jobs` has the jobs; this module has the options. What a measurement is, and the report, are those of
`placebench.study.network`, which measures other applications and commands in the same way.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.decoding import AtLeastOne, Meta, Positive
from placebench.errors import PlacebenchError
from placebench.lab.studies.commands import LATENCIES_MS, PROTOCOL_JOBS, ByPreset, NetworkOptions
from placebench.lab.studies.study import run_study
from placebench.report.study_report import StudyResults
from placebench.results import Run
from placebench.study.behind_link import LinkedValues
from placebench.study.network_report import network_results
from placebench.study.session import study_kind

if TYPE_CHECKING:
    from placebench.lab.inventory.topology import Topology
    from placebench.lab.studies.network_jobs import NetworkStudy, ProtocolStudy


class _NetworkPoint(TypedDict):
    variant: str
    latency_ms: Annotated[float, Meta(ge=0, le=1e6)]
    compress: NotRequired[bool]


class _NetworkSettings(StudySettings[_NetworkPoint]):
    job: Literal["query", "tiny", "waits", "mixed", "http", "rows", "walk"]
    operations: AtLeastOne
    between: Literal["database", "client"]
    bytes_per_s: Positive | None
    proxies: AtLeastOne
    clients: NotRequired[AtLeastOne]


# --- the command


_QUICK_TINY_OPERATIONS = 40
_OPERATIONS_OF_PROTOCOLS = 20


def run(given: NetworkOptions) -> int:
    """Measure every variant at every latency."""
    from placebench.runtime.network.delay_queue import LinkProfile

    topology = given.topology()
    text = given.latency_ms or given.default(LATENCIES_MS)[given.job]
    try:
        latencies_ms = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError as error:
        raise PlacebenchError(
            f"--latency-ms {text!r}: expected milliseconds with commas between, such as 0,50"
        ) from error
    bytes_per_s = None if given.bandwidth_mbit is None else given.bandwidth_mbit * 1e6 / 8
    for latency_ms in latencies_ms:
        LinkProfile(latency_ms / 1e3, bytes_per_s)
    study = (
        _protocol_study(given, latencies_ms, bytes_per_s)
        if given.job in PROTOCOL_JOBS
        else _network_study(given, topology, latencies_ms, bytes_per_s)
    )
    return run_study(given, topology, study.spec(repeats=given.repeats))


def _network_study(
    given: NetworkOptions, topology: "Topology", latencies_ms: tuple[float, ...], bytes_per_s: float | None
) -> "NetworkStudy":
    from placebench.compare.what.variants import read_variant, require_servers
    from placebench.lab.studies.network_jobs import MIXED_OPERATIONS, TINY_OPERATIONS, WAITING_JOBS, NetworkStudy

    names = given.variants or ("naive", "tuned")
    variants = tuple(read_variant(name, python=given.placement_python) for name in names)
    for variant in variants:
        if variant.request:
            raise PlacebenchError(f"the variant {variant.name} uses no database: name variants, or placement")
        if not variant.ours and (given.job in WAITING_JOBS or given.compress):
            what = f"--job {given.job}" if given.job in WAITING_JOBS else "--compress"
            raise PlacebenchError(f"{what} needs the reference service: leave {variant.name} out of --variants")
    require_servers(variants)
    if given.compress and given.between != "client":
        raise PlacebenchError("--compress is for responses to the client: add --between client")
    operations = {"tiny": given.default(ByPreset(TINY_OPERATIONS, _QUICK_TINY_OPERATIONS)), "mixed": MIXED_OPERATIONS}
    return NetworkStudy(
        variants=variants,
        latencies_ms=latencies_ms,
        request=given.request or topology.request,
        job=given.job,
        operations=given.operations or operations.get(given.job, 1),
        between=given.between or "database",
        bytes_per_s=bytes_per_s,
        proxies=given.proxies,
        compress=given.compress,
        clients=given.clients or 1,
    )


def _protocol_study(
    given: NetworkOptions, latencies_ms: tuple[float, ...], bytes_per_s: float | None
) -> "ProtocolStudy":
    from placebench.lab.studies.network_jobs import PROTOCOLS, ProtocolStudy

    known = PROTOCOLS[given.job]
    for option in ("between", "clients", "compress", "request", "placement_python"):
        if getattr(given, option):
            raise PlacebenchError(f"--{option.replace('_', '-')} has no effect on --job {given.job}: leave it out")
    chosen = given.variants or known
    if wrong := [name for name in chosen if name not in known]:
        raise PlacebenchError(f"no protocol {wrong[0]!r} of --job {given.job}: expected {', '.join(known)}")
    operations = given.operations or _OPERATIONS_OF_PROTOCOLS
    return ProtocolStudy(given.job, chosen, latencies_ms, operations, bytes_per_s, given.proxies)


# --- the report


def results(run: Run) -> StudyResults:
    """Return the results of a network study, with a text on the job of this run."""
    limits = "Several clients at once: a request that waits for the network holds its thread."
    return network_results(run, _job(run.head.settings), (limits,))


def _job(settings: Mapping[str, Any]) -> str:
    clients = settings.get("clients", 1)
    by_service = (
        "by one client of one worker with one thread"
        if clients == 1
        else f"by each of {clients} clients at once, of as many workers; time is until the last response, and the "
        "rest is of all"
    )
    job = {
        "query": f"A job is the request, N per job, {by_service}",
        "tiny": f"A job is small reads one after the other (GET /resource_providers/UUID), N per job, {by_service}",
        "waits": "A job is the request after 250 ms of pg_sleep() in the database, one statement of the service, N per "
        f"job, {by_service}",
        "mixed": "A job is small reads, and after each four of them the request after 250 ms of pg_sleep(), N in all, "
        f"{by_service}",
        "http": "A job is N small reads (GET /resource_providers/UUID) of tuned under granian, one worker: connection "
        "opens one for each, keep-alive one for all, pipelining sends all requests before it reads a response",
        "rows": "A job writes N rows in a transaction, with psycopg 3 on an open connection: insert is an INSERT for "
        "each, pipeline the same in pipeline mode, multi-row one INSERT, copy a COPY",
        "walk": "A job follows a list of N rows, each with the key of the next, with psycopg 3 on an open connection: "
        "loop is a SELECT for each, recursive one WITH RECURSIVE, function a loop in PL/pgSQL",
    }[settings["job"]]
    return f"{job.replace('N ', units.count(settings['operations']) + ' ')}."


KIND = study_kind(__name__, _NetworkSettings, _NetworkPoint, LinkedValues)
