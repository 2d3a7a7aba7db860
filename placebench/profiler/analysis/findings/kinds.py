"""The kinds of findings, a finding with its place and advice, and the limits above which it is reported.

The main classes are `Finding` and `Limits`. The finders share the functions below them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from placebench import units
from placebench.errors import ProfilerError
from placebench.profiler.analysis.findings.parents import Parents
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.shortened_sql import shortened
from placebench.profiler.model.statement import Caller, Statement, UnkeptStatements

Statements = Sequence[Statement]
Unkept = Sequence[UnkeptStatements]
Kind = Literal[
    "n+1",
    "duplicate",
    "redundant fetch",
    "cartesian product",
    "wide rows",
    "statement-cache miss",
    "connection-pool wait",
    "connection-pool timeout",
    "sequential scan",
    "join filter",
    "unindexed foreign key",
    "skipped rows",
    "row-estimate error",
    "spill",
    "idle in transaction",
    "blocked event loop",
]
DESCRIPTIONS: Mapping[Kind, str] = {
    "n+1": "One line runs the same statement many times in one request.",
    "duplicate": "A read runs again with the same values in one request.",
    "redundant fetch": "Rows are fetched that another statement of the request had fetched.",
    "cartesian product": "A join pairs each row of one collection with every row of another.",
    "wide rows": "Rows have more bytes than a page of results needs.",
    "statement-cache miss": "SQLAlchemy compiles a statement again and again.",
    "connection-pool wait": "A request waits for a connection of the pool.",
    "connection-pool timeout": "No connection of the pool came in time.",
    "sequential scan": "PostgreSQL reads a whole table for few of its rows.",
    "join filter": "PostgreSQL compares every row of one table with every row of another.",
    "unindexed foreign key": "PostgreSQL reads a whole table for each parent that is deleted or gets another key.",
    "skipped rows": "An OFFSET throws away the rows before a page.",
    "row-estimate error": "PostgreSQL expects far more or fewer rows than there are.",
    "spill": "A sort or a hash is written to disk.",
    "idle in transaction": "A transaction is open while the application does something else.",
    "blocked event loop": "A request holds its event loop without an await, and others wait.",
}
"""Each kind of finding in one sentence."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One pattern at one place in the code.

    kind: the name of the pattern, such as "n+1". count: the number of occurrences, or of rows.
    seconds: the time of the statements concerned.
    requests: the number of requests over which count and seconds are summed; `str()` shows seconds per request.
    parents: for an N+1, the statement whose rows the loop runs over; None if it is not known.
    """

    kind: Kind
    title: str
    advice: str
    count: int
    seconds: float
    sql: str | None = None
    caller: Caller | None = None
    fingerprint: str | None = None
    requests: int = 1
    outer_caller: Caller | None = None
    parents: Parents | None = None

    def __str__(self) -> str:
        """Return the finding as three to five lines for a terminal."""
        lines = [f"{self.kind}: {self.title} ({units.duration(self.mean_s)})"]
        parents = "" if self.parents is None else f"parents: {self.parents}"
        lines.extend(f"    {line}" for line in (self.place, self.shortened_sql, parents) if line)
        return "\n".join([*lines, f"    → {self.advice}"])

    @property
    def mean_s(self) -> float:
        """The seconds of the finding per request."""
        return self.seconds / self.requests

    @property
    def place(self) -> str:
        """The call site as text, with the function that called it; empty in mode "light", which has no call sites."""
        callers = [each for each in (self.caller, self.outer_caller) if each is not None]
        if len(callers) < 2 or any(each.function == "<module>" for each in callers):
            return str(self.caller or "")
        return f"{self.caller}, called from {self.outer_caller}"

    @property
    def shortened_sql(self) -> str:
        """The SQL of the finding's statement, on one line of at most 160 characters; empty if it has none."""
        return shortened(self.sql or "", 160)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for json.dump."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds above which a pattern is reported, per request.

    Raises ProfilerError for a limit that is not above 0.
    """

    repeats: int = 5
    duplicates: int = 1
    redundant_rows: int = 100
    bytes_per_row: int = 2_000
    cache_misses: int = 3
    pool_wait_s: float = 0.010
    scanned_rows: int = 10_000
    idle_s: float = 0.050
    estimate_error: float = 10.0
    estimated_rows: int = 100
    estimated_s: float = 0.001
    spilled_kb: int = 1
    # From here on new ones are last: a call that gives limits by their places goes on to mean the same.
    batch_size: int = 50
    multiplied_rows: int = 1_000
    poll_s: float = 0.050
    kept_share: float = 0.1
    skipped_rows: int = 1_000
    blocked_s: float = 0.050

    def __post_init__(self) -> None:
        """Raise ProfilerError for a limit that every recording would reach."""
        for name, limit in asdict(self).items():
            if not limit > 0:
                raise ProfilerError(f"limit {name} is {limit}: expected more than 0; a large one finds nothing")


def finding_at(
    kind: Kind,
    title: str,
    advice: str,
    statements: Sequence[Statement],
    *,
    count: int | None = None,
    seconds: float | None = None,
) -> Finding:
    """Return a finding with the SQL and the call sites of the first of *statements*."""
    first = statements[0]
    return Finding(
        kind=kind,
        title=title,
        advice=advice,
        count=len(statements) if count is None else count,
        seconds=sum(statement.elapsed_s for statement in statements) if seconds is None else seconds,
        sql=first.sql,
        caller=first.caller,
        outer_caller=first.outer_caller,
        fingerprint=first.fingerprint,
    )


def where(recording: RecordingData) -> str:
    """Return " in one request", or nothing for a single recording, which may be of a script and not of a request."""
    return " in one request" if recording.requests > 1 else ""


def times(number: int) -> str:
    """Return the number of times, as text."""
    return "once" if number == 1 else f"{number} times"


def in_one_request(number: int, recording: RecordingData) -> str:
    """Return how often something happened in the mean request, if more than once."""
    mean = number / recording.requests
    return f", {units.average(mean)} times{where(recording)}" if mean > 1 else ""
