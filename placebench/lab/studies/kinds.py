"""What the records of each study hold: its settings, its points and their values."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from msgspec import Meta

from placebench.compare.keep.documents import MeasuredPoint, RunKind, StudyHead, StudySettings
from placebench.decoding import Amount, Count, Positive

_Share = Annotated[float, Meta(ge=0, le=1)]
_AtLeastOne = Annotated[int, Meta(ge=1, le=2**53)]


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


class _PublishedSettings(StudySettings[_PublishedPoint]):
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


class _HerdSettings(StudySettings[_HerdPoint]):
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


class _SaturationSettings(StudySettings[_SaturationPoint]):
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


class _OperatorsSettings(StudySettings[_OperatorsPoint]):
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


class _NetworkSettings(StudySettings[_NetworkPoint]):
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


class _MatrixSettings(StudySettings[_MatrixJob]):
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


class _WorkersSettings(StudySettings[_WorkersPoint]):
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


class _ScaleOutSettings(StudySettings[_ScaleOutPoint]):
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


def _kind(command: str, settings: Any, point: Any, values: Any) -> RunKind:
    results = f"placebench.lab.studies.reports.{command}:results"
    return RunKind(StudyHead[settings], MeasuredPoint[point, values], results)


KINDS: Final[Mapping[str, RunKind]] = {
    "breakdown": _kind("breakdown", StudySettings[_BreakdownPoint], _BreakdownPoint, _BreakdownValues),
    "published": _kind("published", _PublishedSettings, _PublishedPoint, _PublishedValues),
    "herd": _kind("herd", _HerdSettings, _HerdPoint, _HerdValues),
    "saturation": _kind("saturation", _SaturationSettings, _SaturationPoint, _SaturationValues),
    "operators": _kind("operators", _OperatorsSettings, _OperatorsPoint, _OperatorsValues),
    "network": _kind("network", _NetworkSettings, _NetworkPoint, _NetworkValues),
    "matrix": _kind("matrix", _MatrixSettings, _MatrixJob, _MatrixValues),
    "workers": _kind("workers", _WorkersSettings, _WorkersPoint, _WorkersValues),
    "scaleout": _kind("scaleout", _ScaleOutSettings, _ScaleOutPoint, _ScaleOutValues),
}
"""By the command of the study."""
