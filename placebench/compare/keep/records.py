"""The records of an experiment: frozen dataclasses that save to and load from JSON files in a run folder.

    run.json                              RunHead: what was measured, on what, and how it ended
    blocks.jsonl                          Block, one line each, of the interleaved comparison
    measurements.jsonl                    Measurement, one line each, of a study
    locust-<variant>-<closed|open>.json   LoadPass: one locust run against one variant
    locust-<variant>-open-invalid-<n>.json   LoadPass that was discarded by a rule set before the run
    wire-<variant>.json                   WirePass: a few requests counted on the way to PostgreSQL
    counted-<variant>.json                CountedPass: a few requests counted, not timed
    profile-<variant>.html, .speedscope.json   the flame graph of the profiled pass
    executed.json                         ExecutedChange, one line each: which changes between two commits are executed
    plans.jsonl                           ChangedPlan, one line each: statements whose plan differs from the baseline's
    profiled-<variant>.json                ProfiledPass: how that flame graph came to be, or why there is none
    profile-<variant>.pyisession          the same flame graph as data, from which the report computes differences

Raw samples are stored and everything else is computed later, except the outcome of a load's writes (`WriteCheck`).
Durations are seconds, sizes bytes.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, Self, TypedDict

from placebench import __version__, decoding
from placebench.compare.keep.documents import RUNS, Head, SameResponsesDocument
from placebench.decoding import Amount, Count, Meta, Positive, Seed, check, read_json, read_lines
from placebench.errors import RunFolderError
from placebench.masking import mask_document
from placebench.meters.readings import Meters, RunCost
from placebench.profiler.model.files import write_whole

_FORMAT_VERSION = 2
MEASURED = "measured"
"""The value of `server_cpu` in a manifest if the servers' CPU is measured; otherwise the value is the reason."""


@dataclass(frozen=True)
class Record:
    """A dataclass that is stored as a JSON file or as a line of one, with secrets masked (`placebench.masking`)."""

    def save(self, path: Path) -> None:
        """Write atomically: a reader sees the old file or the new one, never half of it."""
        document = {"format_version": _FORMAT_VERSION, **mask_document(asdict(self))}
        write_whole(path, json.dumps(document, ensure_ascii=False), private=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote; raises RunFolderError for a damaged file or another format.

        Keys that this version does not know are ignored.
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
    """The key that is read first, because a file of a newer format may not match the record's type."""

    format_version: int


@dataclass(frozen=True)
class WriteCheck:
    """The outcome of a load's writes, as counts; `found` and the counts after it are None if `reason` says why."""

    sent: int
    statuses: dict[str, int]
    """Number of writes by response status; writes without a response are under `no response`."""
    acknowledged: int
    refused: int
    in_doubt: int
    found: int | None = None
    """Number of acknowledged writes that are in the tables."""
    lost: int | None = None
    """Number of acknowledged writes that are not in the tables."""
    doubled: int | None = None
    """Number of claims that are in the tables more than once."""
    refused_and_found: int | None = None
    in_doubt_and_found: int | None = None
    reason: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether no write was lost, doubled or stored although it was refused; None if the tables were not read."""
        if self.lost is None:
            return None
        return not (self.lost or self.doubled or self.refused_and_found)


@dataclass(frozen=True)
class LoadWorker:
    """One of several load generators that make a load together."""

    name: str
    """Host and number of the generator."""
    requests: Count | None
    """Number of requests that the generator sent; None if it was lost, and its samples with it."""
    client_cpu_s: Amount | None
    clock_error_s: Amount | None
    """Upper bound in seconds of its clock's offset from the master's during the run; None if it is not known."""


@dataclass(frozen=True)
class LoadResult(Record):
    """One load run as the client saw it; the lists have one entry per successful request."""

    kind: str
    """"closed" (loop: users wait for responses) or "open" (arrivals on a schedule)."""
    users: Count
    rate_per_s: Amount | None
    """Intended arrivals per second of an open-loop load."""
    seed: Seed
    elapsed_s: Amount
    """Time from the start of the first request to the end of the last."""
    started_s: list[float]
    """Offset of each request's start from the start of the run; in an open-loop load, of its intended start."""
    latency_s: list[Amount]
    """Time of each request from its (in an open-loop load: intended) start until its body was read."""
    service_s: list[Amount]
    """Time of each request from the moment it was really sent until its body was read."""
    body_bytes: list[Count]
    statuses: dict[str, Count]
    """Number of responses by status; requests without a status count under the name of their exception."""
    failures: Count
    failure_messages: list[str]
    """A few different messages, in the order in which they occurred."""
    in_flight: Count
    """Number of requests under way when the run ended; they are in none of the lists."""
    missed: Count
    """Number of arrivals in an open-loop load that started over 10 ms late because the generator was full."""
    client_cpu_s: Amount
    repeats: Count = 0
    """Number of requests that were sent again because the server had closed the kept connection."""
    failed_started_s: list[float] = field(default_factory=list)
    """Like started_s, for the failed requests; older files have their starts in started_s."""
    failed_latency_s: list[Amount] = field(default_factory=list)
    failed_service_s: list[Amount] = field(default_factory=list)
    write_check: WriteCheck | None = None
    """Outcome of the writes; None if the load had none."""
    workers: list[LoadWorker] = field(default_factory=list)
    """The generators that made the load, if there were several."""

    @property
    def requests(self) -> int:
        """Number of requests that ended, failed ones included."""
        return len(self.latency_s) + len(self.failed_latency_s)

    @property
    def lost_workers(self) -> int:
        """Number of generators that delivered no samples."""
        return sum(each.requests is None for each in self.workers)

    @property
    def throughput_per_s(self) -> float:
        """Successful requests per second."""
        return len(self.latency_s) / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True)
class LoadPass(Record):
    """One locust run against one variant, with the server's meters; never profiled."""

    variant: str
    result: LoadResult
    meters: Meters
    invalid: str | None = None
    """Why this pass is discarded; None if it is valid."""

    @property
    def cpu_s_per_request(self) -> float | None:
        """Server CPU seconds per request, workers and backends; None if the backends' CPU is not known."""
        cpu_s = self.meters.cpu_s
        return None if cpu_s is None or not self.result.requests else cpu_s / self.result.requests


@dataclass(frozen=True)
class CountedPass(Record):
    """A few requests to one variant, counted and not timed, by the profiler's light mode; the fields are totals."""

    variant: str
    requests: Count
    statements: Count
    rows: Count
    body_bytes: Count
    elapsed_s: Amount
    sql_s: Amount
    """Time in the driver, execute and fetch; in runs of earlier versions with compilation and pool waits."""
    gc_s: Amount
    gc_collections: Count
    gc_s_each: list[Amount] = field(default_factory=list)
    """Total GC pause of each request, in seconds."""


@dataclass(frozen=True)
class StatementCount:
    """One statement of an average request, as PostgreSQL counted it."""

    sql: str
    """The statement's text, without values, on one line."""
    calls: Amount
    rows: Amount
    exec_s: Amount
    """Execution time in the server, without planning."""


@dataclass(frozen=True)
class WirePass(Record):
    """A few requests to one variant counted from outside, not timed: by PostgreSQL and on the connection to it.

    Each list has one entry per request; None if the server does not give access to its counts.
    """

    variant: str
    statements: list[Amount] | None
    """Statements as pg_stat_statements counts them, without BEGIN, COMMIT and ROLLBACK."""
    rows: list[Amount] | None
    """Rows that these statements read or wrote."""
    round_trips: list[Amount]
    """Number of times that the service waited for the database."""
    bytes_sent: list[Amount]
    """Bytes from the service to the database."""
    bytes_received: list[Amount]
    body_bytes: list[Amount]
    """Size of the response to the client, in bytes."""
    by_statement: list[StatementCount] = field(default_factory=list)
    """Counts by statement, the most expensive first; empty if the server does not give access to its counts."""
    table_statements: Amount | None = None
    """Statements on tables per request, without the statements that a driver sends to connect."""
    first_statements: Amount | None = None
    """Statements on tables that the start and the first requests sent beyond `table_statements` per request."""
    timed_statements: Amount | None = None
    """Statements on tables per request while the replicates were timed, after the warm-up; None if unknown.

    If the server does not count them: statements of a request after some hundred others, as the profiler sees them.
    """
    uncounted: str = ""
    """Why statements and rows are unknown; empty if they are counted, or without a database."""


@dataclass(frozen=True)
class ProfiledPass(Record):
    """A few requests to one variant under the profiler, not timed: how its flame graph was made, or why not."""

    variant: str
    requests: Count
    reason: str = ""
    """Why there is no flame graph; empty if there is one."""
    notes: list[str] = field(default_factory=list)
    """Notes of the recordings that a reader of the flame graph must know."""


class FrameTime(NamedTuple):
    """Self time of a frame in the average request of a profiled replicate."""

    name: str
    """Name of the function, or the text of a statement."""
    place: str
    """The function's file, or "sql", "plan" or "gc"."""
    self_s: Amount


@dataclass(frozen=True)
class ProfiledReplicate(Record):
    """Some requests to one variant under the profiler, in turn with the other variants; a line of profiled.jsonl."""

    replicate: Count
    variant: str
    requests: Count
    frames: list[FrameTime]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Block(Record):
    """Consecutive requests to one variant in the interleaved comparison; a line of blocks.jsonl."""

    replicate: Count
    round: Count
    """Number of the round, in which each variant has two blocks: one in a random order, one in the reverse order."""
    position: Count
    """Position of the block in its round: 0 to 3 for two variants."""
    variant: str
    requests: Count
    wall_s: list[Positive]
    """Duration of each request, measured by the client."""
    cpu_s: Amount | None
    """Server CPU seconds of the whole block: workers and backends, including work after the responses.

    None if they are not measured.
    """
    counters: dict[str, Amount] = field(default_factory=dict)
    invalid: str | None = None
    """Why this block's replicate is discarded; None if it is valid."""
    responses: dict[str, list[str]] = field(default_factory=dict)
    """Canonical digests of the distinct responses, by request."""
    cycle: Annotated[int, Meta(ge=1, le=2**53)] = 1
    """Number of requests after which the sequence repeats."""
    error_responses: Count = 0
    """Number of requests whose response was not accepted."""


@dataclass(frozen=True)
class ExecutedChange(Record):
    """What of the change from one commit to another is executed by a run's requests; a line of executed.json."""

    baseline: str
    variant: str
    files: list[str]
    """The files that differ, relative to the top of the repository."""
    read: list[str]
    """Those that the application opens or executes anything of."""
    executed: list[str]
    """Changed lines that are executed, as file:line; a file that is not Python, if it is read."""
    requests: Count
    """The number of requests that were watched."""
    is_read: bool = True
    """Whether anything that the application reads, or may have read unseen, differs by more than comments and
    docstrings."""
    unseen: list[str] = field(default_factory=list)
    """Why files may have been used unseen; nothing is concluded then from what was not seen."""

    @classmethod
    def save_all(cls, folder: Path, changes: Iterable[Self]) -> None:
        """Write the changes of a run into its folder."""
        rewrite_lines(folder / "executed.json", changes)


def read_executed(folder: Path) -> list[ExecutedChange]:
    """Return the changes in a run's folder; empty if none was watched."""
    return read_lines(folder / "executed.json", ExecutedChange, error=RunFolderError)


@dataclass(frozen=True)
class ChangedPlan(Record):
    """A statement whose plan in a variant differs from that in the baseline; a line of plans.jsonl."""

    baseline: str
    variant: str
    sql: str
    """The statement's text, without values, on one line."""
    place: str
    """The line of the variant's code that runs it, as file:line function; empty if it is not known."""
    before: list[str]
    """The nodes of the baseline's plan that the variant's has not; empty if the baseline does not run the statement."""
    after: list[str]
    """The nodes of the variant's plan that the baseline's has not."""

    @classmethod
    def save_all(cls, folder: Path, changes: Iterable[Self]) -> None:
        """Write the changes of a run into its folder."""
        rewrite_lines(folder / "plans.jsonl", changes)


def read_changed_plans(folder: Path) -> list[ChangedPlan]:
    """Return the changed plans in a run's folder; empty if none was compared."""
    return read_lines(folder / "plans.jsonl", ChangedPlan, error=RunFolderError)


@dataclass(frozen=True)
class Measurement(Record):
    """One measurement of one point of a study; a line of measurements.jsonl."""

    point: dict[str, Any]
    """The measured point: plain values by the names of the axes."""
    repeat: Count
    """Number of the repeat, from 0; every point is measured once per repeat."""
    values: dict[str, Any]
    """The measured values: seconds, bytes, counts; None for a value that could not be measured."""
    invalid: str | None = None
    """Why the measurement is discarded and repeated; None if it is valid."""


def append_lines(path: Path, records: Iterable[Record]) -> None:
    """Append one line per record and sync it to disk, so that a kill loses at most the record being written."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    masked = (mask_document(asdict(each)) for each in records)
    decoding.append_lines(path, (json.dumps(each, ensure_ascii=False).encode() for each in masked))


def rewrite_lines(path: Path, records: Iterable[Record]) -> None:
    """Replace the lines of *path* by *records* atomically."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    append_lines(partial, records)
    partial.replace(path)


def read_blocks(path: Path) -> list[Block]:
    """Return the blocks in blocks.jsonl, without a last line that a kill cut short; empty for a missing file."""
    return read_lines(path, Block, error=RunFolderError)


def read_profiled(path: Path) -> list[ProfiledReplicate]:
    """Return the lines of profiled.jsonl; incomplete and missing files are treated as in `read_blocks`."""
    return read_lines(path, ProfiledReplicate, error=RunFolderError)


def read_measurements(path: Path, command: str | None = None) -> list[Measurement]:
    """Return the measurements in measurements.jsonl; incomplete and missing files are treated as in `read_blocks`.

    command: the study whose types points and values must match; None: they are not checked.
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
    """A part of a run that failed and was retried once."""

    part: str
    """count, profile, open-loop load or comparison."""
    variant: str
    """The variant's name; empty for the comparison, which has several variants."""
    reason: str
    """Reason of the last failure."""
    made_again: bool = False
    """True if a retry succeeded; otherwise the part is missing from the run."""

    def is_of(self, part: str, variant: str) -> bool:
        """Return whether this is the part *part* of the variant *variant*."""
        return (self.part, self.variant) == (part, variant)


class DataDescription(Protocol):
    """The description of the data in a run's head: an inventory data set, or the user's data."""

    @property
    def title(self) -> str:
        """Title of the data, for people."""

    @property
    def trees(self) -> int:
        """Number of provider trees of an inventory data set; 0 for other data."""

    @property
    def seed(self) -> int:
        """The seed of every random choice."""


@dataclass(frozen=True)
class RunHead(Record):
    """The head of a run, run.json: what is measured, on what machine, with which data, and how the run ended."""

    name: str
    started_at: str
    """UTC, ISO 8601."""
    status: str
    """running, complete (`failed_parts` lists what is missing), interrupted or failed."""
    request: str
    topology: str
    trees: Count
    seed: Seed
    variants: list[str]
    """Names of the variants, baseline first."""
    receipt: dict[str, Any]
    manifest: dict[str, Any]
    settings: dict[str, Any]
    """The settings of the passes: users, times, processes, threads."""
    same_responses: SameResponsesDocument
    """State of the comparison of responses; empty before the first one."""
    elapsed_s: Amount = 0.0
    cost: RunCost | None = None
    """CPU and energy of all the run's processes; None for a run of a version that did not measure them."""
    plan: dict[str, Any] = field(default_factory=dict)
    """The keys of a plan file that reproduces a comparison (`placebench.compare.published_plan`)."""
    gates: list[str] = field(default_factory=list)
    """The conditions of --gate, so that each later report of the run has them."""
    command: str = "perfload"
    """The command that made the run: perfload, compare, or the name of a study."""
    spent_s: dict[str, Amount] = field(default_factory=dict)
    """Seconds by phase, over all sessions: data, count, profile, closed_load, open_load, comparison, measurements.

    In a comparison, `replicates` is the time of its replicates; `start`, `requests` and `stop` are parts of that.
    """
    note: str = ""
    """One line about the end of an interrupted or failed run."""
    failed_parts: list[FailedPart] = field(default_factory=list)
    """Parts that failed without ending the run (`run_optional_part` of `placebench.compare.keep.run_folder`)."""
    scratch_marks: list[str] = field(default_factory=list)
    """Marks of the scratch databases of the last session, and of earlier sessions that may have left some."""

    @property
    def is_comparable(self) -> bool:
        """Whether speeds may be compared: responses are equal, or the plan turns their comparison off."""
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
        """Read a head as `Record.load` does, and check the parts whose types its command declares."""
        head = super().load(path)
        kind = RUNS.get(head.command)
        try:
            check(vars(head), kind.head if kind else Head, str(path), error=RunFolderError)
        except RunFolderError as error:
            version = head.manifest.get("placebench", __version__)
            if version == __version__:
                raise
            raise RunFolderError(
                f"{error}; placebench {version} wrote it, and this is {__version__}: make the run again, or read it "
                "with that version"
            ) from error
        return head
