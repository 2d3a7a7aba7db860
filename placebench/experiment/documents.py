"""What the free parts of a run's records hold, by the command that made them: the types that a run is checked against.

A head is one class with `settings` and more as plain documents, because each command keeps something else there. What
the reports read of them is declared here; further keys are left alone, so that a command may keep what it likes.

The key pieces are `HEADS` and `MEASUREMENTS`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from msgspec import Meta

from placebench.decoding import Amount, Count, Positive

LONGEST_NAME: Final = 160
"""Letters of a variant's name: it is part of the names of files, which have 255 bytes at most."""
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.,+:=@-]+$", max_length=LONGEST_NAME + 8)]
"""The name of a variant that files are called after."""
Metric = Literal[
    "", "cpu_s", "wall_s", "pss_bytes", "statements", "rows", "round_trips", "bytes_sent", "bytes_received", "gc_s"
]
Share = Annotated[float, Meta(ge=0, le=1)]
AtLeastOne = Annotated[int, Meta(ge=1, le=2**53)]
LogRatio = Annotated[float, Meta(ge=-100, le=100)]
PlainPoint = dict[str, bool | int | float | str | None]


class Answered(TypedDict, total=False):
    """What the gate of the same answers has seen so far."""

    checked: list[str]
    equal: bool
    allocation_requests: Count | None
    provider_summaries: Count | None
    digest: str | None
    difference: str | None


class Calibrated(TypedDict):
    """One metric of a calibration, as `placebench.stats.calibration.Calibration` has it."""

    metric: Literal["cpu_s", "wall_s", "pss_bytes"]
    replicates: AtLeastOne
    estimate: LogRatio
    low: LogRatio
    high: LogRatio
    margin: Amount
    passed: bool
    runs_of_six: Count
    false_positives: Count
    power: dict[str, dict[Annotated[str, Meta(pattern=r"^0?\.\d+$")], Share]]
    detectable: dict[str, LogRatio]


class Calibration(TypedDict):
    """What `placebench.experiment.calibration_store` keeps of a machine."""

    format_version: NotRequired[int]
    made_at: str
    machine: str | None
    metrics: dict[str, Calibrated]
    rounds: NotRequired[Count]


class _Receipt(TypedDict, total=False):
    providers: Count
    inventories: Count
    provider_traits: Count
    provider_aggregates: Count
    digest: str


class _Manifest(TypedDict, total=False):
    machine: dict[str, Any]
    python: dict[str, Any]
    packages: dict[str, Any]
    postgresql: dict[str, Any]
    server_cpu: str
    calibration: Calibration | None


class Head(TypedDict):
    """What every run has."""

    receipt: _Receipt
    manifest: _Manifest


class _Step(TypedDict, total=False):
    adds: str
    why: str
    source: str
    shows_on: str
    shows_in: Metric


class _Trial(TypedDict):
    name: str
    kind: str
    baseline: FileName
    variant: FileName
    why: NotRequired[str]
    shows_on: NotRequired[str]
    shows_in: NotRequired[Metric]


class _Rules(TypedDict, total=False):
    steal_at_most: Amount
    load_rise_at_most_per_core: Amount
    clock_step_at_most_s: Amount
    client_cpu_at_most: Amount


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
    rounds: Count
    block_s: Amount
    confidence: Annotated[float, Meta(ge=0.5, lt=1)]
    steps: dict[str, _Step]
    trials: list[_Trial]
    rules: _Rules


class _InterleavedHead(Head):
    variants: Annotated[list[FileName], Meta(min_length=1)]
    settings: _Interleaved


class _Impossible(TypedDict):
    point: PlainPoint
    reason: str


class _Survey(TypedDict):
    repeats: Count
    impossible: list[_Impossible]


class _BreakdownPoint(TypedDict):
    endpoint: str


class _BreakdownSettings(_Survey):
    points: list[_BreakdownPoint]


class _BreakdownHead(Head):
    settings: _BreakdownSettings


class _BreakdownValues(TypedDict):
    path: str
    requests: Count
    throughput_per_s: Positive
    client_cpu_share: Amount
    shares: Annotated[list[Share], Meta(min_length=1)]
    chi_square: Amount
    client_s: float
    way_in_s: float
    way_out_s: float
    framework_s: float
    python_s: float
    pool_s: float
    database_s: float
    statements: Amount


class _BreakdownMeasurement(TypedDict):
    point: _BreakdownPoint
    values: _BreakdownValues


class _PublishedPoint(TypedDict):
    service: str
    topology: str
    clients: Count


class _PublishedFigure(TypedDict):
    topology: str
    clients: Count
    before_per_s: Positive
    after_per_s: Positive


class _PublishedSettings(_Survey):
    points: list[_PublishedPoint]
    processes: Count
    threads: Count
    published: list[_PublishedFigure]
    published_trees: Count
    published_source: str
    published_machine: str


class _PublishedHead(Head):
    settings: _PublishedSettings


class _PublishedValues(TypedDict):
    elapsed_s: Positive
    rate_per_s: Positive
    latency_s_median: Amount
    cpu_s: Amount | None
    body_bytes: Amount


class _PublishedMeasurement(TypedDict):
    point: _PublishedPoint
    values: _PublishedValues


class _NetworkPoint(TypedDict):
    variant: str
    latency_ms: Annotated[float, Meta(ge=0, le=1e6)]
    compress: NotRequired[bool]


class _NetworkSettings(_Survey):
    points: list[_NetworkPoint]
    job: Literal["query", "tiny", "waits"]
    operations: AtLeastOne
    between: Literal["database", "client"]
    bytes_per_s: Positive | None
    proxies: AtLeastOne


class _NetworkHead(Head):
    settings: _NetworkSettings


class _Trace(TypedDict):
    bin_s: Positive
    sent: list[Count]
    received: list[Count]


class _NetworkValues(TypedDict):
    elapsed_s: Positive
    cpu_s: Amount | None
    starved_s: Amount
    round_trips: Count
    connections: Count
    bytes_sent: Count
    bytes_received: Count
    in_transit_s: Amount
    proxy_cpu_s: Amount
    body_bytes: Count
    trace: _Trace


class _NetworkMeasurement(TypedDict):
    point: _NetworkPoint
    values: _NetworkValues


class _MatrixPoint(TypedDict, total=False):
    service: str
    server: str
    client: str
    database: str
    python: str
    version: str
    sqlalchemy: str
    driver: str
    users: AtLeastOne
    threads: AtLeastOne
    processes: AtLeastOne
    profiler: str


class _MatrixJob(_MatrixPoint):
    requests: AtLeastOne
    trees: AtLeastOne


class _MatrixVersions(TypedDict):
    point: _MatrixJob
    python: str | None
    service: str | None
    sqlalchemy: str | None
    driver: str | None


class _MatrixSettings(_Survey):
    points: list[_MatrixJob]
    title: str
    control: _MatrixPoint
    usual: _MatrixPoint
    versions: list[_MatrixVersions]


class _MatrixHead(Head):
    settings: _MatrixSettings


class _MatrixValues(TypedDict):
    duration_s: Positive
    cpu_s: Amount | None
    body_bytes: Amount
    results: Count


class _MatrixMeasurement(TypedDict):
    point: _MatrixJob
    values: _MatrixValues


class _WorkersPoint(TypedDict):
    workload: Literal["compute", "query", "state", "state-frozen"]
    processes: AtLeastOne
    threads: AtLeastOne


class _WorkersSettings(_Survey):
    points: list[_WorkersPoint]
    users: Count
    variant: str


class _WorkersHead(Head):
    settings: _WorkersSettings


class _WorkersValues(TypedDict):
    elapsed_s: Positive
    requests: AtLeastOne
    throughput_per_s: Positive
    latency_s: Amount
    worker_cpu_s: Amount
    backend_cpu_s: Amount | None
    client_cpu_s: Amount
    pss_bytes: AtLeastOne
    uss_bytes: Count
    rss_bytes: Count
    lost_bytes: int
    memory: Annotated[list[tuple[Amount, Count, Count, Count, int]], Meta(min_length=1)]


class _WorkersMeasurement(TypedDict):
    point: _WorkersPoint
    values: _WorkersValues


HEADS: Final[Mapping[str, Any]] = {
    "perfload": _InterleavedHead,
    "compare": _InterleavedHead,
    "breakdown": _BreakdownHead,
    "published": _PublishedHead,
    "network": _NetworkHead,
    "matrix": _MatrixHead,
    "workers": _WorkersHead,
}
"""What stands in the head of a run, by its command."""
MEASUREMENTS: Final[Mapping[str, Any]] = {
    "breakdown": _BreakdownMeasurement,
    "published": _PublishedMeasurement,
    "network": _NetworkMeasurement,
    "matrix": _MatrixMeasurement,
    "workers": _WorkersMeasurement,
}
"""What a measurement that counts has, by the command of the survey."""
