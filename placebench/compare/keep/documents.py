"""Schemas of the command-specific parts of a run's files: the types that a run is checked against.

A head is one class whose `settings`, `receipt` and `manifest` are plain documents, because each command stores
different keys in them. The types here declare the keys that reports read; other keys are ignored, so that a command
may store more.

The main table is `RUNS`.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Generic, Literal, NotRequired, TypedDict, TypeVar

from placebench.decoding import Amount, AtLeastOne, Count, Meta
from placebench.errors import UsageError
from placebench.registries import Registry
from placebench.stats.calibration import MetricCalibration

_P = TypeVar("_P")
_S = TypeVar("_S")
_V = TypeVar("_V")
MAX_NAME_LENGTH: Final = 160
"""Maximum length of a variant's name, which is part of file names; those have at most 255 bytes."""
_FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.,+:=@~-]+$", max_length=MAX_NAME_LENGTH + 8)]
"""The name of a variant, or a name derived from it, that is used in file names."""
Metric = Literal[
    "",
    "cpu_s",
    "wall_s",
    "pss_bytes",
    "elapsed_s",
    "p50_s",
    "p95_s",
    "p99_s",
    "start_s",
    "start_cpu_s",
    "start_pss_bytes",
    "slow_share",
    "memory_growth",
    "late_slowdown",
    "statements",
    "rows",
    "round_trips",
    "bytes_sent",
    "bytes_received",
    "gc_s",
]


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
    left_out: dict[str, str]
    """Routes that were not measured, each with the difference of its responses."""
    varying: dict[str, list[str]]
    """Places of responses that are not compared, by route, because two responses of the first variant differ there."""
    changing_tables: list[str]
    """Tables that are not compared, because requests that only read change them in all variants alike."""


class CalibrationDocument(TypedDict):
    """The calibration of a machine, as `placebench.compare.keep.environment` keeps it."""

    format_version: NotRequired[int]
    made_at: str
    machine: str | None
    metrics: dict[str, MetricCalibration]
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
    """The keys that every command's head has in common."""

    receipt: _Receipt
    manifest: _Manifest


class _Step(TypedDict, total=False):
    adds: str
    why: str
    source: str
    shows_on: str
    shows_in: Metric


@dataclass(frozen=True)
class Trial:
    """One change that is tested: does *variant* perform better than *baseline*?"""

    name: str
    """The optimization's name, or the name that the plan file gives."""
    kind: str
    """One of step, alone, leave_one_out, alternative and own."""
    baseline: _FileName
    variant: _FileName
    why: str = ""
    shows_on: str = ""
    """The request on which the change should show, if that is known."""
    shows_in: Metric = ""
    """The metric in which the change should show first."""


def _max_steal() -> float:
    given = os.environ.get("PLACEBENCH_STEAL_AT_MOST", "0.25")
    with suppress(ValueError):
        if 0 <= (share := float(given)) <= 1:
            return share
    raise UsageError(f"PLACEBENCH_STEAL_AT_MOST is {given!r}: expected a share of the CPU time from 0 to 1")


@dataclass(frozen=True)
class Rules:
    """The limits within which a replicate is valid; they are part of the run's settings.

    Raises UsageError if $PLACEBENCH_STEAL_AT_MOST, by default 0.25, is not a number from 0 to 1.
    """

    steal_at_most: Amount = field(default_factory=_max_steal)
    """Maximum share of the machine's CPU time that its host may give to others."""
    load_rise_at_most_per_core: Amount = 2.0
    """Maximum rise of the one-minute load average per core between the start and the end of a replicate."""
    clock_step_at_most_s: Amount = 0.5
    """Maximum shift in seconds of the wall clock against the monotonic clock during a replicate."""
    client_cpu_at_most: Amount = 0.7
    """Maximum share of a core that the client may use while it waits for responses."""


class _WeightedRequest(TypedDict):
    request: str
    weight: AtLeastOne
    expected: str
    route: NotRequired[str]


class WorkloadDocument(TypedDict, total=False):
    """The requests that were sent, as `placebench.compare.what.workload.Workload` describes them."""

    script: str
    requests: list[_WeightedRequest]
    cycle: list[Count]
    """The order in which the requests are sent, as places in `requests`; missing in older runs."""
    login: list[str]
    same_responses: dict[str, Any]
    notes: list[str]
    digest: str


class _ControlDocument(TypedDict):
    """The change that a comparison injects into a copy of its baseline (`placebench.compare.keep.control`)."""

    kind: Literal["cpu", "wait", "statement"]
    amount: Amount
    is_default: NotRequired[bool]


class _Interleaved(TypedDict, total=False):
    """Settings of perfload and compare; an older run lacks some of them."""

    processes: Count
    threads: Count
    users: Count
    rate: Amount
    closed_s: Amount
    open_s: Amount
    counted_requests: Count
    profiled_requests: Count
    replicates: Count
    """The number of replicates; missing in a sequential run, which may be resumed with another number."""
    sequential: bool
    rounds: Count
    block_s: Amount
    control: _ControlDocument
    bound_s: Amount
    warmup: Count
    steps: dict[str, _Step]
    trials: list[Trial]
    rules: Rules
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
    """A valid measurement of a study: the measured point and its values."""

    point: _P
    values: _V


@dataclass(frozen=True)
class RunKind:
    """The file types of the runs that one command makes."""

    head: Any
    """The type of the head of such a run."""
    measurement: Any = None
    """The type of a valid measurement, for a study."""
    results: str = ""
    """The "module:function" that computes a study's results from a run (see `placebench.report.studies`)."""


OWN: Final[Mapping[str, RunKind]] = {"compare": RunKind(_InterleavedHead), "perfload": RunKind(_InterleavedHead)}

RUNS: Registry[RunKind] = Registry(
    "placebench.runs", "placebench.compare.keep.documents:OWN", "placebench.study:KINDS", "placebench.lab.studies:KINDS"
)
"""The kinds of runs, by the command that makes them."""
