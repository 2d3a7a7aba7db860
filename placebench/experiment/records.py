"""What an experiment leaves behind: frozen dataclasses that save to and load from JSON files in a run folder.

    run.json                              RunHead: what was asked, where, on what, and how it ended
    blocks.jsonl                          Block, one line each, of the interleaved comparison
    measurements.jsonl                    Measurement, one line each, of a survey
    locust-<variant>-<closed|open>.json   LoadPass: one locust run against one variant
    locust-<variant>-open-invalid-<n>.json   one that does not count, because a rule set before the run said so
    wire-<variant>.json                   WirePass: a few requests counted on the way to PostgreSQL
    counted-<variant>.json                CountedPass: a few requests counted, not timed
    profile-<variant>.html, .speedscope.json   the flame of the profiled pass
    watched-<variant>.json                WatchedPass: how the flame of a comparison's arm came to be, or why not
    profile-<variant>.pyisession          the same flame as data, from which the report takes the difference of two

Raw samples are kept; everything else is computed later. Durations are seconds, sizes bytes.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from placebench.errors import RunFolderError
from placebench.experiment.accounts import Accounts

FORMAT_VERSION = 1
MEASURED = "measured"
"""What a manifest says of `server_cpu`, or why it is not."""


@dataclass(frozen=True)
class Record:
    """A dataclass that is one JSON file."""

    def save(self, path: Path) -> None:
        """Write atomically: a reader sees the old file or the new one, never half of it."""
        document = {"format_version": FORMAT_VERSION, **asdict(self)}
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(document, ensure_ascii=False))
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote; raises RunFolderError for a damaged file or a newer format."""
        try:
            return cls.from_json(json.loads(path.read_text()))
        except RunFolderError as error:
            raise RunFolderError(f"{path}: {error}") from error
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunFolderError(f"{path} cannot be read as {cls.__name__}: {error}") from error

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """The record that *document* describes; keys that this version does not know are left alone."""
        if document.get("format_version", FORMAT_VERSION) > FORMAT_VERSION:
            raise RunFolderError(
                f"format {document['format_version']} was written by a newer placebench, this one reads up to "
                f"{FORMAT_VERSION}: upgrade placebench"
            )
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in document.items() if name in known})


@dataclass(frozen=True)
class LoadResult(Record):
    """What one load run saw from the client's side; one entry in the lists for each completed request."""

    kind: str
    """closed (users wait for answers) or open (arrivals on a schedule)."""
    users: int
    rate_per_s: float | None
    """Intended arrivals per second of an open load."""
    seed: int
    elapsed_s: float
    """From the first start to the last end."""
    started_s: list[float]
    """Offset of each request from the start of the run; the intended start in an open load."""
    latency_s: list[float]
    """Until the body was read, from the (intended) start."""
    service_s: list[float]
    """The same from the moment the request was really sent."""
    body_bytes: list[int]
    statuses: dict[str, int]
    """How often each status came; errors without a status under their exception's name."""
    failures: int
    failure_messages: list[str]
    """A few different ones, in the order they came."""
    in_flight: int
    """Requests under way when the run ended; in none of the lists."""
    missed: int
    """Arrivals of an open load that the generator started late by more than 10 ms because it was full."""
    client_cpu_s: float
    accounts: Accounts | None = None
    """What became of the writes; None where there were none."""

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """As in Record, with the accounts inside."""
        accounts = document.get("accounts")
        return super().from_json({**document, "accounts": Accounts(**accounts) if accounts else None})

    @property
    def requests(self) -> int:
        """How many were completed, failed ones included."""
        return len(self.latency_s)

    @property
    def throughput_per_s(self) -> float:
        """Completed requests per second."""
        return self.requests / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True)
class Meters(Record):
    """What the server side took meanwhile, start and end of the same stretch apart."""

    worker_cpu_s: float
    backend_cpu_s: float | None
    """PostgreSQL's backends of this database; None where not all of it could be read."""
    peak_pss_bytes: int | None
    """Proportional set size of the service's processes together, the highest of the samples."""


@dataclass(frozen=True)
class LoadPass(Record):
    """One locust run against one variant, with the server's meters; never profiled."""

    variant: str
    result: LoadResult
    meters: Meters
    invalid: str | None = None
    """Why this pass does not count."""

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """As in Record, with the two records inside."""
        inside = {"result": LoadResult.from_json(document["result"]), "meters": Meters.from_json(document["meters"])}
        return super().from_json({**document, **inside})

    @property
    def cpu_s_per_request(self) -> float | None:
        """Server CPU seconds for each request, workers and backends; None where that of the backends is not known."""
        if self.meters.backend_cpu_s is None or not self.result.requests:
            return None
        return (self.meters.worker_cpu_s + self.meters.backend_cpu_s) / self.result.requests


@dataclass(frozen=True)
class CountedPass(Record):
    """A few requests of one variant counted by the profiler's light mode, not timed; totals over them."""

    variant: str
    requests: int
    statements: int
    rows: int
    body_bytes: int
    elapsed_s: float
    sql_s: float
    gc_s: float
    gc_collections: int
    gc_s_each: list[float] = field(default_factory=list)
    """Of each request by itself."""


@dataclass(frozen=True)
class StatementCount:
    """One statement of one mean request, as PostgreSQL counted it."""

    sql: str
    """Without values, on one line."""
    calls: float
    rows: float
    exec_s: float
    """In the server, planning left out."""


@dataclass(frozen=True)
class WirePass(Record):
    """A few requests of one arm counted from outside, not timed: by PostgreSQL and on the wire to it.

    One entry a request in each list; None where the server does not let us count.
    """

    variant: str
    statements: list[float] | None
    """As pg_stat_statements counts them, without BEGIN, COMMIT and ROLLBACK."""
    rows: list[float] | None
    """Read or written by them."""
    round_trips: list[float]
    """How often the service waited for the database."""
    bytes_sent: list[float]
    """From the service to the database."""
    bytes_received: list[float]
    body_bytes: list[float]
    """Of the answer to the client."""
    by_statement: list[StatementCount] = field(default_factory=list)
    """The dearest first; empty where the server does not let us count."""

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """As in Record, with the statements inside."""
        return super().from_json(
            {**document, "by_statement": [StatementCount(**each) for each in document.get("by_statement", ())]}
        )


@dataclass(frozen=True)
class WatchedPass(Record):
    """A few requests of one arm under the profiler, not timed: how the flame beside it came to be, or why not."""

    variant: str
    requests: int
    reason: str = ""
    """Why there is no flame."""


@dataclass(frozen=True)
class Block(Record):
    """One stretch of requests against one arm in the interleaved comparison; a line of blocks.jsonl."""

    replicate: int
    quad: int
    """The round: each arm twice, in a random order and then backwards."""
    position: int
    """0 to 3 in a round of two arms."""
    arm: str
    requests: int
    wall_s: list[float]
    """One entry a request, client side."""
    cpu_s: float | None
    """Server CPU of the whole block, workers and backends; None where it is not measured."""
    counters: dict[str, float] = field(default_factory=dict)
    invalid: str | None = None
    """Why this replicate does not count."""
    answers: list[str] = field(default_factory=list)
    """Canonical digest of each distinct answer."""


@dataclass(frozen=True)
class Measurement(Record):
    """One point of a survey measured once; a line of measurements.jsonl."""

    point: dict[str, Any]
    """Where: plain values by the names of the axes."""
    repeat: int
    """From 0; every point is measured once in each repeat."""
    values: dict[str, Any]
    """What was measured: seconds, bytes, counts; None where it is not measured."""
    invalid: str | None = None
    """Why it does not count; it is made again."""


def read_blocks(path: Path) -> list[Block]:
    """The blocks in blocks.jsonl; a last line that a kill cut short is left out, and a missing file is none."""
    return [Block.from_json(document) for document in _lines(path)]


def read_measurements(path: Path) -> list[Measurement]:
    """The measurements in measurements.jsonl, as `read_blocks` reads blocks."""
    return [Measurement.from_json(document) for document in _lines(path)]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


@dataclass(frozen=True)
class FailedPart:
    """A part of a run that failed, and was tried once more."""

    part: str
    """count, profile, open load or comparison."""
    variant: str
    """Empty for the comparison, which is of several."""
    reason: str
    """Of the last failure."""
    made_again: bool = False
    """Whether it was made all the same; where it was not, it is missing."""


@dataclass(frozen=True)
class RunHead(Record):
    """What was asked for, on what machine, with which data, and how it ended; run.json."""

    name: str
    started_at: str
    """UTC, ISO 8601."""
    status: str
    """running, complete (gone through to its end; `failed_parts` is what it lacks), interrupted or failed."""
    request: str
    topology: str
    trees: int
    seed: int
    variants: list[str]
    """In the order of the ladder, baseline first."""
    receipt: dict[str, Any]
    manifest: dict[str, Any]
    settings: dict[str, Any]
    """Users, times, processes, threads: what the passes were made with."""
    same_answers: dict[str, Any]
    """checked (variants), equal, allocation_requests, provider_summaries, difference; empty before the first answer."""
    elapsed_s: float = 0.0
    command: str = "perfload"
    """What made it: perfload, compare, or the name of a survey."""
    spent_s: dict[str, float] = field(default_factory=dict)
    """Where the time of a comparison's replicates went (`placebench.experiment.spent`), over all its sittings."""
    note: str = ""
    """One line about how it ended, for an interrupted or failed run."""
    failed_parts: list[FailedPart] = field(default_factory=list)
    """Those that failed without ending the run (`placebench.experiment.parts`)."""

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """As in Record, with the failed parts inside."""
        return super().from_json(
            {**document, "failed_parts": [FailedPart(**each) for each in document.get("failed_parts", ())]}
        )
