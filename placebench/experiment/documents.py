"""What the free parts of a run's records hold, by the command that made them: the types that a run is checked against.

A head is one class with `settings` and more as plain documents, because each command keeps something else there. What
the reports read of them is declared here; further keys are left alone, so that a command may keep what it likes.

The main tables are `HEADS` and `MEASUREMENTS`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Generic, Literal, NotRequired, TypedDict, TypeVar

from msgspec import Meta

from placebench.decoding import Amount, Count, Positive

_P = TypeVar("_P")
_S = TypeVar("_S")
_V = TypeVar("_V")
LONGEST_NAME: Final = 160
"""Letters of a variant's name: it is part of the names of files, which have 255 bytes at most."""
_FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.,+:=@~-]+$", max_length=LONGEST_NAME + 8)]
"""The name of a variant that files are called after."""
_Metric = Literal[
    "", "cpu_s", "wall_s", "pss_bytes", "statements", "rows", "round_trips", "bytes_sent", "bytes_received", "gc_s"
]
_Share = Annotated[float, Meta(ge=0, le=1)]
_AtLeastOne = Annotated[int, Meta(ge=1, le=2**53)]
_LogRatio = Annotated[float, Meta(ge=-100, le=100)]
_PlainPoint = dict[str, bool | int | float | str | None]


class SameResponsesDocument(TypedDict, total=False):
    """What the comparison of the variants' responses has seen so far."""

    checked: list[str]
    equal: bool | None
    allocation_requests: Count | None
    provider_summaries: Count | None
    digest: str | None
    difference: str | None
    off: str
    """Why nothing is compared; empty where it is."""


class _CalibratedMetric(TypedDict):
    """One metric of a calibration, as `placebench.stats.calibration.Calibration` has it."""

    metric: Literal["cpu_s", "wall_s", "pss_bytes"]
    replicates: _AtLeastOne
    estimate: _LogRatio
    low: _LogRatio
    high: _LogRatio
    margin: Amount
    passed: bool
    runs_of_six: Count
    false_positives: Count
    power: dict[str, dict[Annotated[str, Meta(pattern=r"^0?\.\d+$")], _Share]]
    detectable: dict[str, _LogRatio]


class CalibrationDocument(TypedDict):
    """What `placebench.experiment.environment` keeps of a machine."""

    format_version: NotRequired[int]
    made_at: str
    machine: str | None
    metrics: dict[str, _CalibratedMetric]
    rounds: NotRequired[Count]


class _Receipt(TypedDict, total=False):
    providers: Count
    inventories: Count
    provider_traits: Count
    provider_aggregates: Count
    digest: str
    tables: Count
    rows: Count
    unchecked_tables: list[str]


class _Manifest(TypedDict, total=False):
    machine: dict[str, Any]
    python: dict[str, Any]
    packages: dict[str, Any]
    postgresql: dict[str, Any]
    mariadb: dict[str, Any]
    server_cpu: str
    calibration: CalibrationDocument | None


class Head(TypedDict):
    """What every run has."""

    receipt: _Receipt
    manifest: _Manifest


class _Step(TypedDict, total=False):
    adds: str
    why: str
    source: str
    shows_on: str
    shows_in: _Metric


class _Trial(TypedDict):
    name: str
    kind: str
    baseline: _FileName
    variant: _FileName
    why: NotRequired[str]
    shows_on: NotRequired[str]
    shows_in: NotRequired[_Metric]


class _Rules(TypedDict, total=False):
    steal_at_most: Amount
    load_rise_at_most_per_core: Amount
    clock_step_at_most_s: Amount
    client_cpu_at_most: Amount


class _WeightedRequest(TypedDict):
    request: str
    weight: _AtLeastOne
    expected: str


class WorkloadDocument(TypedDict, total=False):
    """What is sent, as `placebench.experiment.workload.Workload` describes it."""

    script: str
    requests: list[_WeightedRequest]
    login: list[str]
    same_responses: dict[str, Any]
    notes: list[str]
    digest: str


class _Interleaved(TypedDict, total=False):
    """Of perfload and compare; an older run does not name all of it."""

    processes: Count
    threads: Count
    users: Count
    closed_s: Amount
    open_s: Amount
    counted_requests: Count
    profiled_requests: Count
    replicates: Count
    """Missing in a sequential run, which may go on with another number."""
    sequential: bool
    rounds: Count
    block_s: Amount
    steps: dict[str, _Step]
    trials: list[_Trial]
    rules: _Rules
    workload: WorkloadDocument


class _InterleavedHead(Head):
    variants: Annotated[list[_FileName], Meta(min_length=1)]
    settings: _Interleaved


class _Impossible(TypedDict):
    point: _PlainPoint
    reason: str


class _Study(TypedDict, Generic[_P]):
    points: list[_P]
    repeats: Count
    impossible: list[_Impossible]


class _StudyHead(Head, Generic[_S]):
    settings: _S


class _Measured(TypedDict, Generic[_P, _V]):
    point: _P
    values: _V


class _BreakdownPoint(TypedDict):
    endpoint: str


class _BreakdownValues(TypedDict):
    path: str
    requests: Count
    throughput_per_s: Positive
    client_cpu_share: Amount
    shares: Annotated[list[_Share], Meta(min_length=1)]
    chi_square: Amount
    client_s: float
    way_in_s: float
    way_out_s: float
    framework_s: float
    python_s: float
    pool_s: float
    database_s: float
    statements: Amount


class _PublishedPoint(TypedDict):
    service: str
    topology: str
    clients: Count


class _PublishedFigure(TypedDict):
    topology: str
    clients: Count
    before_per_s: Positive
    after_per_s: Positive


class _PublishedSettings(_Study[_PublishedPoint]):
    processes: Count
    threads: Count
    published: list[_PublishedFigure]
    published_trees: Count
    published_source: str
    published_machine: str


class _PublishedValues(TypedDict):
    elapsed_s: Positive
    rate_per_s: Positive
    latency_s_median: Amount
    cpu_s: Amount | None
    body_bytes: Amount


class _HerdPoint(TypedDict):
    topology: str
    schedulers: _AtLeastOne
    randomized: bool


class _HerdSettings(_Study[_HerdPoint]):
    claims: _AtLeastOne
    processes: Count
    threads: Count


class _HerdValues(TypedDict):
    claims: _AtLeastOne
    requests: Count
    conflicts: Count
    updates: Count
    exhausted: Count
    hosts: _AtLeastOne
    overcommitted: Count


class _SaturationPoint(TypedDict):
    variant: str


class _SaturationSettings(_Study[_SaturationPoint]):
    objective: str
    processes: _AtLeastOne
    threads: _AtLeastOne
    step_s: Positive
    timeout_s: Positive


class _SaturationStep(TypedDict):
    rate_per_s: Positive
    outcome: Literal["held", "broken", "generator"]
    why: str
    requests: _AtLeastOne
    failures: Count
    statuses: dict[str, Count]
    elapsed_s: Positive
    client_cpu: Amount
    latency_s: Annotated[list[Amount], Meta(min_length=1)]


class _SaturationValues(TypedDict):
    steps: Annotated[list[_SaturationStep], Meta(min_length=1)]
    knee_per_s: Positive | None
    broken_per_s: Positive | None
    overload: _SaturationStep | None


class _OperatorsPoint(TypedDict):
    topology: str
    setting: str


class _OperatorsSettings(_Study[_OperatorsPoint]):
    clients: Count
    timeout_s: Positive
    base: str
    trees: dict[str, Count]


class _OperatorsValues(TypedDict):
    requests: _AtLeastOne
    unanswered: Count
    candidates: Count | None
    hosts: Count | None
    elapsed_s: Positive | None
    latency_s: Positive | None
    cpu_s: Positive | None


class _NetworkPoint(TypedDict):
    variant: str
    latency_ms: Annotated[float, Meta(ge=0, le=1e6)]
    compress: NotRequired[bool]


class _NetworkSettings(_Study[_NetworkPoint]):
    job: Literal["query", "tiny", "waits", "http", "rows", "walk"]
    operations: _AtLeastOne
    between: Literal["database", "client"]
    bytes_per_s: Positive | None
    proxies: _AtLeastOne
    clients: NotRequired[_AtLeastOne]


class _Trace(TypedDict):
    bin_s: Positive
    sent: list[Count]
    received: list[Count]


class _NetworkValues(TypedDict):
    elapsed_s: Positive
    cpu_s: Amount | None
    client_cpu_s: NotRequired[Amount | None]
    starved_s: Amount
    round_trips: Count
    connections: Count
    bytes_sent: Count
    bytes_received: Count
    in_transit_s: Amount
    proxy_cpu_s: Amount
    body_bytes: Count
    trace: _Trace


class _MatrixPoint(TypedDict, total=False):
    service: str
    server: str
    client: str
    database: str
    python: str
    version: str
    sqlalchemy: str
    driver: str
    users: _AtLeastOne
    threads: _AtLeastOne
    processes: _AtLeastOne
    latency_ms: Amount
    proxies: _AtLeastOne
    profiler: str


class _MatrixJob(_MatrixPoint):
    requests: _AtLeastOne
    trees: _AtLeastOne


class _MatrixVersions(TypedDict):
    point: _MatrixJob
    python: str | None
    service: str | None
    sqlalchemy: str | None
    driver: str | None


class _MatrixSettings(_Study[_MatrixJob]):
    title: str
    control: _MatrixPoint
    usual: _MatrixPoint
    versions: list[_MatrixVersions]


class _MatrixValues(TypedDict):
    duration_s: Positive
    cpu_s: Amount | None
    client_cpu_s: NotRequired[Amount | None]
    body_bytes: Amount
    results: Count


class _WorkersPoint(TypedDict):
    workload: Literal["compute", "database", "network", "query", "state", "state-frozen", "subprocess"]
    processes: _AtLeastOne
    threads: _AtLeastOne
    server: NotRequired[Literal["uvicorn", "granian"]]


class _WorkersSettings(_Study[_WorkersPoint]):
    users: Count
    variant: str


class _WorkersValues(TypedDict):
    elapsed_s: Positive
    requests: _AtLeastOne
    throughput_per_s: Positive
    latency_s: Amount
    worker_cpu_s: Amount
    backend_cpu_s: Amount | None
    client_cpu_s: Amount
    pss_bytes: _AtLeastOne
    uss_bytes: Count
    rss_bytes: Count
    unshared_bytes: int
    memory: Annotated[list[tuple[Amount, Count, Count, Count, int]], Meta(min_length=1)]


class _ScaleOutPoint(TypedDict):
    hosts: _AtLeastOne
    replicas: Count


class _ScaleOutSettings(_Study[_ScaleOutPoint]):
    requests: _AtLeastOne
    users: _AtLeastOne
    variant: str
    processes: _AtLeastOne
    cpus_per_host: Count


class _ScaleOutCpu(TypedDict):
    nginx: Amount
    hosts: Amount
    primary: Amount
    replicas: Amount


class _ScaleOutValues(TypedDict):
    elapsed_s: Positive
    requests: _AtLeastOne
    throughput_per_s: Positive
    latency_s: Amount
    latency_s_p99: Amount
    client_cpu_s: Amount
    cpu_s: _ScaleOutCpu


HEADS: Final[Mapping[str, Any]] = {
    "perfload": _InterleavedHead,
    "compare": _InterleavedHead,
    "breakdown": _StudyHead[_Study[_BreakdownPoint]],
    "published": _StudyHead[_PublishedSettings],
    "herd": _StudyHead[_HerdSettings],
    "saturation": _StudyHead[_SaturationSettings],
    "operators": _StudyHead[_OperatorsSettings],
    "network": _StudyHead[_NetworkSettings],
    "matrix": _StudyHead[_MatrixSettings],
    "workers": _StudyHead[_WorkersSettings],
    "scaleout": _StudyHead[_ScaleOutSettings],
}
"""The head of a run, by its command."""
MEASUREMENTS: Final[Mapping[str, Any]] = {
    "breakdown": _Measured[_BreakdownPoint, _BreakdownValues],
    "published": _Measured[_PublishedPoint, _PublishedValues],
    "herd": _Measured[_HerdPoint, _HerdValues],
    "saturation": _Measured[_SaturationPoint, _SaturationValues],
    "operators": _Measured[_OperatorsPoint, _OperatorsValues],
    "network": _Measured[_NetworkPoint, _NetworkValues],
    "matrix": _Measured[_MatrixJob, _MatrixValues],
    "workers": _Measured[_WorkersPoint, _WorkersValues],
    "scaleout": _Measured[_ScaleOutPoint, _ScaleOutValues],
}
"""A valid measurement, by the command of the study."""
