"""The sums of a recording and its statements by fingerprint, as data and as a table for a terminal."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from placebench import units
from placebench.profiler.model.fingerprint import one_line
from placebench.profiler.model.statement import Caller, Statement

if TYPE_CHECKING:
    from placebench.profiler.model.recording import Recording

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class StatementGroup:
    """All executions of one fingerprint; a sum is None if no execution was measured."""

    fingerprint: str
    sql: str
    calls: int
    elapsed_s: float
    compile_s: float | None
    execute_s: float | None
    fetch_s: float | None
    row_count: int | None
    round_trips: int | None
    errors: int
    cache_misses: int
    callers: tuple[Caller, ...]


@dataclass(frozen=True)
class Summary:
    """Where the time of a recording went, in seconds, and its statements by fingerprint, dearest first.

    Sums are of all requests; `str()` shows the mean one.
    """

    name: str
    mode: str
    requests: int
    error: str | None
    elapsed_s: float
    cpu_s: float | None
    sql_s: float | None
    python_s: float | None
    gc_s: float | None
    own_s: float | None
    compile_s: float | None
    pool_wait_s: float | None
    execute_s: float | None
    fetch_s: float | None
    transactions_s: float | None
    statements: int
    row_count: int | None
    round_trips: int | None
    bytes_sent: int | None
    bytes_received: int | None
    dropped: int
    groups: tuple[StatementGroup, ...]

    def __str__(self) -> str:
        """The summary as a small table for a terminal: means of one request."""
        lines = [
            self._headline(),
            self._times("cpu_s", "sql_s", "python_s", "gc_s", "own_s"),
            self._times("compile_s", "pool_wait_s", "execute_s", "fetch_s", "transactions_s"),
            self._counts(),
        ]
        return "\n".join([*lines, *(_line(group, self.requests) for group in self.groups)])

    def mean(self, value: float | None) -> float | None:
        """One of the sums as that of one request."""
        return None if value is None else value / self.requests

    def _headline(self) -> str:
        """What it is, and what has to be known of it."""
        of_many = f", mean of {self.requests} requests" if self.requests > 1 else ""
        plans = "; its times and bytes hold the sending of plans" if self.mode == "plans" else ""
        error = f"; ended with {self.error}" if self.error else ""
        return f"{self.name}: {units.duration(self.mean(self.elapsed_s))}{of_many}{plans}{error}"

    def _times(self, *names: str) -> str:
        """Some of the times on one line, each with its name."""
        shown = (f"{_NAMES[name]} {units.duration(self.mean(getattr(self, name)))}" for name in names)
        return "  " + " · ".join(shown)

    def _counts(self) -> str:
        """What came and went, on one line."""
        statements, rows = units.average(self.mean(self.statements)), units.average(self.mean(self.row_count))
        trips, received = units.average(self.mean(self.round_trips)), units.size(self.mean(self.bytes_received))
        dropped = f" · {units.count(self.dropped)} dropped" if self.dropped else ""
        return f"  statements {statements} · rows {rows} · round trips {trips} · received {received}{dropped}"


_NAMES = {
    "cpu_s": "cpu",
    "sql_s": "sql",
    "python_s": "python",
    "gc_s": "gc",
    "own_s": "profiler",
    "compile_s": "compile",
    "pool_wait_s": "pool wait",
    "execute_s": "execute",
    "fetch_s": "fetch",
    "transactions_s": "transactions",
}


def summarise(recording: "Recording") -> Summary:
    """The summary of a recording: one pass over its statements."""
    statements = recording.statements
    return Summary(
        name=recording.name,
        mode=recording.mode,
        error=recording.error,
        requests=recording.requests,
        elapsed_s=recording.elapsed_s,
        cpu_s=recording.cpu_s,
        sql_s=recording.sql_s,
        python_s=recording.python_s,
        gc_s=recording.gc_s,
        own_s=recording.own_s,
        compile_s=total(statement.compile_s for statement in statements),
        pool_wait_s=total(statement.pool_wait_s for statement in statements),
        execute_s=total(statement.execute_s for statement in statements),
        fetch_s=total(statement.fetch_s for statement in statements),
        transactions_s=total(transaction.elapsed_s for transaction in recording.transactions),
        statements=len(statements),
        row_count=recording.row_count,
        round_trips=recording.round_trips,
        bytes_sent=recording.bytes_sent,
        bytes_received=recording.bytes_received,
        dropped=recording.dropped,
        groups=grouped(statements),
    )


def grouped(statements: Iterable[Statement]) -> tuple[StatementGroup, ...]:
    """Statements by fingerprint, the group with the most seconds first."""
    groups: dict[str, list[Statement]] = {}
    for statement in statements:
        groups.setdefault(statement.fingerprint, []).append(statement)
    return tuple(sorted(map(_group, groups.values()), key=lambda group: group.elapsed_s, reverse=True))


def total(values: Iterable[Number | None]) -> Number | None:
    """The sum of those that were measured; None if none was."""
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def total_of_all(values: Iterable[Number | None]) -> Number | None:
    """The sum, or None if one of them was not measured."""
    every = list(values)
    return None if None in every else total(every)


def _group(statements: list[Statement]) -> StatementGroup:
    """The sums of statements that share a fingerprint."""
    return StatementGroup(
        fingerprint=statements[0].fingerprint,
        sql=statements[0].sql,
        calls=len(statements),
        elapsed_s=sum(statement.elapsed_s for statement in statements),
        compile_s=total(statement.compile_s for statement in statements),
        execute_s=total(statement.execute_s for statement in statements),
        fetch_s=total(statement.fetch_s for statement in statements),
        row_count=total(statement.row_count for statement in statements),
        round_trips=total(statement.round_trips for statement in statements),
        errors=sum(statement.error is not None for statement in statements),
        cache_misses=sum(statement.cache_hit is False for statement in statements),
        callers=tuple(dict.fromkeys(s.caller for s in statements if s.caller is not None)),
    )


def _line(group: StatementGroup, requests: int) -> str:
    """One fingerprint on one line, as in one request."""
    failed = f"  ({units.average(group.errors / requests)} failed)" if group.errors else ""
    seconds, calls = units.duration(group.elapsed_s / requests), units.average(group.calls / requests)
    return f"  {seconds:>10}  {calls:>4} x  {one_line(group.sql)[:90]}{failed}"
