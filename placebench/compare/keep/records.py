"""The records of an experiment: frozen dataclasses that save to and load from JSON files in a run folder.

    run.json                              RunHead: what was measured, on what, and how it ended
    blocks.jsonl                          Block, one line each, of the interleaved comparison
    measurements.jsonl                    Measurement, one line each, of a study
    locust-<variant>-<closed|open>.json   LoadPass: one locust run against one variant
    locust-<variant>-open-invalid-<n>.json   one that was discarded by a rule set before the run
    wire-<variant>.json                   WirePass: a few requests counted on the way to PostgreSQL
    counted-<variant>.json                CountedPass: a few requests counted, not timed
    profile-<variant>.html, .speedscope.json   the flame graph of the profiled pass
    profiled-<variant>.json                ProfiledPass: how that flame graph came to be, or why there is none
    profile-<variant>.pyisession          the same flame graph as data, from which the report takes differences

Raw samples are kept; everything else is computed later, but what became of the writes of a load (`WriteCheck`).
Durations are seconds, sizes bytes.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, Self, TypedDict

from placebench import decoding
from placebench.compare.keep.documents import RUNS, Head, SameResponsesDocument
from placebench.decoding import Amount, Count, Meta, Positive, Seed, check, read_json, read_lines
from placebench.errors import RunFolderError
from placebench.masking import mask_document
from placebench.meters.readings import Meters, RunCost
from placebench.profiler.model.files import write_whole

_FORMAT_VERSION = 2
MEASURED = "measured"
"""The value of `server_cpu` in a manifest if it is measured; otherwise the manifest has the reason."""


@dataclass(frozen=True)
class Record:
    """A dataclass that is one JSON file, or a line of one, in which secrets are masked (`placebench.masking`)."""

    def save(self, path: Path) -> None:
        """Write atomically: a reader sees the old file or the new one, never half of it."""
        document = {"format_version": _FORMAT_VERSION, **mask_document(asdict(self))}
        write_whole(path, json.dumps(document, ensure_ascii=False), private=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote; raises RunFolderError for a damaged file or another format.

        Keys that this version does not know are left alone.
        """
        written = read_json(path, _Format, error=RunFolderError).get("format_version", _FORMAT_VERSION)
        if written > _FORMAT_VERSION:
            raise RunFolderError(
                f"{path}: format {written} was written by a newer placebench, this one reads "
                f"{_FORMAT_VERSION}: upgrade placebench"
            )
        if written < _FORMAT_VERSION:
            raise RunFolderError(
                f"{path}: format {written} was written by an older placebench, this one reads {_FORMAT_VERSION}: "
                "make the run again, or read it with the placebench that its manifest names"
            )
        return read_json(path, cls, error=RunFolderError)


class _Format(TypedDict, total=False):
    """The key that is read first: a file of a newer format need not fit anything else here."""

    format_version: int


@dataclass(frozen=True)
class WriteCheck:
    """Writes counted; `reason` says why they could not be looked for, and then what was found is None."""

    sent: int
    statuses: dict[str, int]
    """Statuses of the responses to writes; `no response` for those without."""
    acknowledged: int
    refused: int
    in_doubt: int
    found: int | None = None
    """Acknowledged writes that are in the tables."""
    lost: int | None = None
    """Acknowledged writes that are not in the tables."""
    doubled: int | None = None
    """Claims that are there more than once."""
    refused_and_found: int | None = None
    in_doubt_and_found: int | None = None
    reason: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether nothing is lost, doubled or there against the response; None if nobody could look."""
        if self.lost is None:
            return None
        return not (self.lost or self.doubled or self.refused_and_found)


@dataclass(frozen=True)
class LoadWorker:
    """One of several generators of a load."""

    name: str
    """Host and number of the generator."""
    requests: Count | None
    """Number of requests that it sent; None if it was lost, and its samples with it."""
    client_cpu_s: Amount | None
    clock_error_s: Amount | None
    """Upper bound of its clock offset from the master during the run; None if it is not known."""


@dataclass(frozen=True)
class LoadResult(Record):
    """One load run as the client saw it; the lists have one entry per successful request."""

    kind: str
    """closed (loop: users wait for responses) or open (arrivals on a schedule)."""
    users: Count
    rate_per_s: Amount | None
    """Intended arrivals per second of an open-loop load."""
    seed: Seed
    elapsed_s: Amount
    """From the first start to the last end."""
    started_s: list[float]
    """Offset of each request from the start of the run; the intended start in an open-loop load."""
    latency_s: list[Amount]
    """Until the body was read, from the (intended) start."""
    service_s: list[Amount]
    """Until the body was read, from the moment the request was really sent."""
    body_bytes: list[Count]
    statuses: dict[str, Count]
    """How often each status came; errors without a status under their exception's name."""
    failures: Count
    failure_messages: list[str]
    """A few different ones, in the order they came."""
    in_flight: Count
    """Requests under way when the run ended; in none of the lists."""
    missed: Count
    """Arrivals of an open-loop load that the generator started late by more than 10 ms because it was full."""
    client_cpu_s: Amount
    repeats: Count = 0
    """How often a request was sent again: the server had closed the kept connection that it was sent on."""
    failed_started_s: list[float] = field(default_factory=list)
    """As started_s, for each request that failed; older files have those in started_s."""
    failed_latency_s: list[Amount] = field(default_factory=list)
    failed_service_s: list[Amount] = field(default_factory=list)
    write_check: WriteCheck | None = None
    """The fate of the writes; None if there were none."""
    workers: list[LoadWorker] = field(default_factory=list)
    """The processes that made the load, if there were several."""

    @property
    def requests(self) -> int:
        """How many were completed, failed ones included."""
        return len(self.latency_s) + len(self.failed_latency_s)

    @property
    def lost_workers(self) -> int:
        """Number of generators that delivered no samples."""
        return sum(each.requests is None for each in self.workers)

    @property
    def throughput_per_s(self) -> float:
        """Requests per second that succeeded."""
        return len(self.latency_s) / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True)
class LoadPass(Record):
    """One locust run against one variant, with the server's meters; never profiled."""

    variant: str
    result: LoadResult
    meters: Meters
    invalid: str | None = None
    """Why this pass is discarded."""

    @property
    def cpu_s_per_request(self) -> float | None:
        """Server CPU seconds for each request, workers and backends; None if that of the backends is not known."""
        cpu_s = self.meters.cpu_s
        return None if cpu_s is None or not self.result.requests else cpu_s / self.result.requests


@dataclass(frozen=True)
class CountedPass(Record):
    """A few requests of one variant counted by the profiler's light mode, not timed; totals over them."""

    variant: str
    requests: Count
    statements: Count
    rows: Count
    body_bytes: Count
    elapsed_s: Amount
    sql_s: Amount
    gc_s: Amount
    gc_collections: Count
    gc_s_each: list[Amount] = field(default_factory=list)
    """GC pauses of each request."""


@dataclass(frozen=True)
class StatementCount:
    """One statement of one mean request, as PostgreSQL counted it."""

    sql: str
    """Without values, on one line."""
    calls: Amount
    rows: Amount
    exec_s: Amount
    """In the server, planning left out."""


@dataclass(frozen=True)
class WirePass(Record):
    """A few requests of one variant counted from outside, not timed: by PostgreSQL and on the wire to it.

    Each list has one entry per request; None if the server does not let us count.
    """

    variant: str
    statements: list[Amount] | None
    """As pg_stat_statements counts them, without BEGIN, COMMIT and ROLLBACK."""
    rows: list[Amount] | None
    """Read or written by them."""
    round_trips: list[Amount]
    """How often the service waited for the database."""
    bytes_sent: list[Amount]
    """From the service to the database."""
    bytes_received: list[Amount]
    body_bytes: list[Amount]
    """Size of the response to the client."""
    by_statement: list[StatementCount] = field(default_factory=list)
    """The most expensive first; empty if the server does not let us count."""
    table_statements: Amount | None = None
    """Statements on tables, per request: without those of a driver that connects."""
    first_statements: Amount | None = None
    """Extra statements of its start and first requests, compared with as many later requests."""
    timed_statements: Amount | None = None
    """Statements per request while the replicates were timed, after the warm-up; None if unknown."""


@dataclass(frozen=True)
class ProfiledPass(Record):
    """A few requests of one variant under the profiler, not timed: how its flame graph was made, or why not."""

    variant: str
    requests: Count
    reason: str = ""
    """Why there is no flame graph."""
    notes: list[str] = field(default_factory=list)
    """Notes of its recordings that a reader of the flame graph must know."""


class FrameTime(NamedTuple):
    """Self time of a frame in the mean request of a profiled replicate."""

    name: str
    """Function, or the text of a statement."""
    place: str
    """The function's file, or "sql", "plan" or "gc"."""
    self_s: Amount


@dataclass(frozen=True)
class ProfiledReplicate(Record):
    """Some requests of one variant under the profiler, beside the other variants; a line of profiled.jsonl."""

    replicate: Count
    variant: str
    requests: Count
    frames: list[FrameTime]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Block(Record):
    """One stretch of requests against one variant in the interleaved comparison; a line of blocks.jsonl."""

    replicate: Count
    round: Count
    """The round: each variant twice, in a random order and then backwards."""
    position: Count
    """0 to 3 in a round of two variants."""
    variant: str
    requests: Count
    wall_s: list[Positive]
    """One entry per request, measured by the client."""
    cpu_s: Amount | None
    """Server CPU of the whole block, workers and backends, with what they still do after the responses; None where it
    is not measured."""
    counters: dict[str, Amount] = field(default_factory=dict)
    invalid: str | None = None
    """Why this replicate is discarded."""
    responses: dict[str, list[str]] = field(default_factory=dict)
    """By request: the canonical digest of each distinct response."""
    cycle: Annotated[int, Meta(ge=1, le=2**53)] = 1
    """Number of requests after which the sequence repeats."""
    error_responses: Count = 0
    """Number of requests whose response was not accepted."""


@dataclass(frozen=True)
class Measurement(Record):
    """One point of a study measured once; a line of measurements.jsonl."""

    point: dict[str, Any]
    """The measured point: plain values by the names of the axes."""
    repeat: Count
    """Number of the repeat, from 0; every point is measured once in each."""
    values: dict[str, Any]
    """What was measured: seconds, bytes, counts; None where it is not measured."""
    invalid: str | None = None
    """Why it is discarded; it is made again."""


def append_lines(path: Path, records: Iterable[Record]) -> None:
    """Append one line per record, on the disk when this returns: a kill loses only the record under way."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    masked = (mask_document(asdict(each)) for each in records)
    decoding.append_lines(path, (json.dumps(each, ensure_ascii=False).encode() for each in masked))


def rewrite_lines(path: Path, records: Iterable[Record]) -> None:
    """Replace the lines of *path* by those of *records*, in one step."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    append_lines(partial, records)
    partial.replace(path)


def read_blocks(path: Path) -> list[Block]:
    """The blocks in blocks.jsonl; a last line that a kill cut short is left out, and a missing file is none."""
    return read_lines(path, Block, error=RunFolderError)


def read_profiled(path: Path) -> list[ProfiledReplicate]:
    """The lines of profiled.jsonl, as `read_blocks` reads blocks."""
    return read_lines(path, ProfiledReplicate, error=RunFolderError)


def read_measurements(path: Path, command: str | None = None) -> list[Measurement]:
    """The measurements in measurements.jsonl, as `read_blocks` reads blocks.

    command: of the study, whose points and values they have to hold; None: whatever they are.
    """
    made = read_lines(path, Measurement, error=RunFolderError)
    study = RUNS.get(command) if command else None
    declared = study.measurement if study and study.measurement else Any
    for number, each in enumerate(made, start=1):
        kind = declared if each.invalid is None else Any
        check(vars(each), kind, f"{path}: line {number}", error=RunFolderError)
    return made


@dataclass(frozen=True)
class FailedPart:
    """A part of a run that failed, and was tried once more."""

    part: str
    """count, profile, open-loop load or comparison."""
    variant: str
    """The variant's name; empty for the comparison, which is of several."""
    reason: str
    """Reason of the last failure."""
    made_again: bool = False
    """True if a retry succeeded; otherwise the part is missing from the run."""

    def is_of(self, part: str, variant: str) -> bool:
        """Return whether this is that part of that variant."""
        return (self.part, self.variant) == (part, variant)


class DataDescription(Protocol):
    """What a run's head says of its data: an inventory data set, or data of the user."""

    @property
    def title(self) -> str:
        """What the data is."""

    @property
    def trees(self) -> int:
        """Trees of an inventory data set; 0 for other data."""

    @property
    def seed(self) -> int:
        """The seed of every random choice."""


@dataclass(frozen=True)
class RunHead(Record):
    """What a run measures, on what machine, with which data, and how it ended; run.json."""

    name: str
    started_at: str
    """UTC, ISO 8601."""
    status: str
    """running, complete (gone through to its end; `failed_parts` is what it lacks), interrupted or failed."""
    request: str
    topology: str
    trees: Count
    seed: Seed
    variants: list[str]
    """Baseline first."""
    receipt: dict[str, Any]
    manifest: dict[str, Any]
    settings: dict[str, Any]
    """Users, times, processes, threads: what the passes were made with."""
    same_responses: SameResponsesDocument
    """State of the comparison of responses; empty before the first one."""
    elapsed_s: Amount = 0.0
    cost: RunCost | None = None
    """CPU of all its processes, and energy; None in a run that was made before it was metered."""
    plan: dict[str, Any] = field(default_factory=dict)
    """The keys of a plan file that makes a comparison again (`placebench.compare.published_plan`)."""
    command: str = "perfload"
    """The command that made it: perfload, compare, or the name of a study."""
    spent_s: dict[str, Amount] = field(default_factory=dict)
    """Seconds by phase, over all sessions: data, count, profile, closed_load, open_load, comparison, measurements.

    Of a comparison, `replicates` are its replicates, and of those `start`, `requests` and `stop` are parts.
    """
    note: str = ""
    """One line about how it ended, for an interrupted or failed run."""
    failed_parts: list[FailedPart] = field(default_factory=list)
    """Parts that failed without ending the run (`run_optional_part` of `placebench.compare.keep.run_folder`)."""
    scratch_marks: list[str] = field(default_factory=list)
    """Marks of the scratch databases of the last session, and of earlier ones that may have left some."""

    @property
    def is_comparable(self) -> bool:
        """Whether speeds may be compared: responses are equal, or the plan does not compare them."""
        return bool(self.same_responses.get("equal") or self.same_responses.get("off"))

    @classmethod
    def begin(
        cls,
        folder: Path,
        data: DataDescription,
        *,
        command: str,
        request: str,
        variants: Iterable[str],
        settings: dict[str, Any],
    ) -> Self:
        """Return the head of a run that begins now."""
        return cls(
            name=folder.name,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            status="running",
            request=request,
            topology=data.title,
            trees=data.trees,
            seed=data.seed,
            variants=list(variants),
            receipt={},
            manifest={},
            settings=settings,
            same_responses={},
            command=command,
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a head as `Record.load` does, and check the parts that its command declares."""
        head = super().load(path)
        kind = RUNS.get(head.command)
        check(vars(head), kind.head if kind else Head, str(path), error=RunFolderError)
        return head
