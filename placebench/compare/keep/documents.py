"""Schemas of the command-specific parts of a run's files: the types that a run is checked against.

A head is one class with `settings` and more as plain documents, because each command keeps something else there. What
the reports read of them is declared here; further keys are left alone, so that a command may keep what it likes.

The main table is `RUNS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Literal, NotRequired, TypedDict, TypeVar

from placebench.decoding import Amount, AtLeastOne, Count, Meta, Share
from placebench.registries import Registry

_P = TypeVar("_P")
_S = TypeVar("_S")
_V = TypeVar("_V")
LONGEST_NAME: Final = 160
"""Maximum length of a variant's name, which is part of file names; those have at most 255 bytes."""
_FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.,+:=@~-]+$", max_length=LONGEST_NAME + 8)]
"""The name of a variant that files are called after."""
_Metric = Literal[
    "", "cpu_s", "wall_s", "pss_bytes", "statements", "rows", "round_trips", "bytes_sent", "bytes_received", "gc_s"
]
_LogRatio = Annotated[float, Meta(ge=-100, le=100)]


class SameResponsesDocument(TypedDict, total=False):
    """The state of the comparison of the variants' responses."""

    checked: list[str]
    equal: bool | None
    allocation_requests: Count | None
    provider_summaries: Count | None
    digest: str | None
    difference: str | None
    off: str
    """Why responses are not compared; empty if they are."""


class _CalibratedMetric(TypedDict):
    """One metric of a calibration, as `placebench.stats.calibration.Calibration` has it."""

    metric: Literal["cpu_s", "wall_s", "pss_bytes"]
    replicates: AtLeastOne
    estimate: _LogRatio
    low: _LogRatio
    high: _LogRatio
    margin: Amount
    passed: bool
    runs_of_six: Count
    false_positives: Count
    power: dict[str, dict[Annotated[str, Meta(pattern=r"^0?\.\d+$")], Share]]
    detectable: dict[str, _LogRatio]


class CalibrationDocument(TypedDict):
    """The calibration of a machine, as `placebench.compare.keep.environment` keeps it."""

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
    """The parts of a head that every run has."""

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
    weight: AtLeastOne
    expected: str


class WorkloadDocument(TypedDict, total=False):
    """The requests that were sent, as `placebench.compare.what.workload.Workload` describes them."""

    script: str
    requests: list[_WeightedRequest]
    login: list[str]
    same_responses: dict[str, Any]
    notes: list[str]
    digest: str


class _Interleaved(TypedDict, total=False):
    """Settings of perfload and compare; an older run lacks some of them."""

    processes: Count
    threads: Count
    users: Count
    closed_s: Amount
    open_s: Amount
    counted_requests: Count
    profiled_requests: Count
    replicates: Count
    """Missing in a sequential run, which may continue with another number."""
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


class Impossible(TypedDict):
    """A point of a study that cannot be measured."""

    point: dict[str, bool | int | float | str | None]
    reason: str


class StudySettings(TypedDict, Generic[_P]):
    """The settings that every study has."""

    points: list[_P]
    repeats: Count
    impossible: list[Impossible]


class StudyHead(Head, Generic[_S]):
    """The head of a study with its settings."""

    settings: _S


class MeasuredPoint(TypedDict, Generic[_P, _V]):
    """A valid measurement of a study: a point of it, and its values."""

    point: _P
    values: _V


@dataclass(frozen=True)
class RunKind:
    """What is known of the runs that one command makes."""

    head: Any
    """The type of the head of such a run."""
    measurement: Any = None
    """The type of a valid measurement, for a study."""
    results: str = ""
    """For a study, what makes its results from a run, as "module:function"; see `placebench.report.studies`."""


OWN: Final[Mapping[str, RunKind]] = {"compare": RunKind(_InterleavedHead), "perfload": RunKind(_InterleavedHead)}

RUNS: Registry[RunKind] = Registry(
    "placebench.runs", "placebench.compare.keep.documents:OWN", "placebench.lab.studies:KINDS"
)
"""The kinds of runs, by the command that makes them."""
