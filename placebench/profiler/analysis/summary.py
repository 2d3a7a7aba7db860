"""The sums of a recording and its statements by fingerprint, as data and as a table for a terminal."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from placebench import units
from placebench.profiler.model.recording_data import RecordingData, sum_of_measured
from placebench.profiler.model.shortened_sql import shortened
from placebench.profiler.model.statement import Caller, Statement


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
class RecordingSummary:
    """The time of a recording by its parts, in seconds, and its statements by fingerprint, most expensive first.

    Sums are over all requests; `str()` shows the mean request. connect_s: None if no connection was made.
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
    overhead_s: float | None
    plan_setup_s: float
    compile_s: float | None
    pool_wait_s: float | None
    connect_s: float | None
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
        """Return the summary as a small table for a terminal, with means per request."""
        of_many = f", mean of {self.requests} requests" if self.requests > 1 else ""
        plans = "; its times and bytes hold the sending of plans" if self.mode == "plans" else ""
        error = f"; ended with {self.error}" if self.error else ""
        statements, rows = units.average(self.mean(self.statements)), units.average(self.mean(self.row_count))
        dropped = f" · {units.count(self.dropped)} dropped" if self.dropped else ""
        lines = [
            f"{self.name}: {units.duration(self.mean(self.elapsed_s))}{of_many}{plans}{error}",
            self._times("cpu_s", "sql_s", "python_s", "gc_s", "overhead_s"),
            self._times(
                "compile_s",
                "pool_wait_s",
                *(["connect_s"] if self.connect_s is not None else []),
                "execute_s",
                "fetch_s",
                "transactions_s",
            ),
            f"  statements {statements} · rows {rows} · {' · '.join(self.network)}{dropped}",
        ]
        for group in self.groups[:_MAX_LINES]:
            failed = f"  ({units.average(group.errors / self.requests)} failed)" if group.errors else ""
            seconds = units.duration(group.elapsed_s / self.requests)
            calls = units.average(group.calls / self.requests)
            lines.append(f"  {seconds:>10}  {calls:>4} x  {shortened(group.sql, 90)}{failed}")
        if (more := len(self.groups) - _MAX_LINES) > 0:
            lines.append(f"  and {units.numbered(more, 'statement')} that took less")
        return "\n".join(lines)

    @property
    def network(self) -> tuple[str, ...]:
        """The round trips and the received bytes of the mean request, as text; one text if neither was measured."""
        if self.round_trips is None and self.bytes_received is None:
            return ("round trips and received bytes not measured",)
        trips, received = units.average(self.mean(self.round_trips)), units.size(self.mean(self.bytes_received))
        return f"round trips {trips}", f"received {received}"

    def mean(self, value: float | None) -> float | None:
        """Return *value*, a sum over all requests, per request; None stays None."""
        return None if value is None else value / self.requests

    def _times(self, *names: str) -> str:
        """Return one line with the named times of the mean request."""
        shown = (f"{_NAMES[name]} {units.duration(self.mean(getattr(self, name)))}" for name in names)
        return "  " + " · ".join(shown)


_MAX_LINES = 25
_NAMES = {
    "cpu_s": "cpu",
    "sql_s": "sql",
    "python_s": "python",
    "gc_s": "gc",
    "overhead_s": "profiler overhead",
    "compile_s": "compile",
    "pool_wait_s": "connection-pool wait",
    "connect_s": "connect",
    "execute_s": "execute",
    "fetch_s": "fetch",
    "transactions_s": "transactions",
}


def summarise(recording: RecordingData) -> RecordingSummary:
    """Return the summary of a recording; one pass over its statements."""
    statements = recording.statements
    sums: dict[str, Any] = {name: recording.sum(name) for name in ("compile_s", "pool_wait_s", "execute_s", "fetch_s")}
    unkept = recording.unkept
    connects = [unkept.connect_s, *(step.elapsed_s for step in recording.transactions if step.kind == "CONNECT")]
    steps = [step.elapsed_s for step in recording.transactions if step.kind != "CONNECT"]
    steps += [] if unkept.transactions_s is None else [unkept.transactions_s]
    sums["connect_s"] = sum_of_measured(connects)
    sums["transactions_s"] = sum_of_measured(steps) if steps else 0.0
    sums["statements"] = recording.statement_count
    sums["groups"] = group_statements(statements)
    names = (item.name for item in fields(RecordingSummary))
    return RecordingSummary(**sums, **{name: getattr(recording, name) for name in names if name not in sums})


def group_statements(statements: Iterable[Statement]) -> tuple[StatementGroup, ...]:
    """Group statements by fingerprint, the group with the most seconds first."""
    groups: dict[str, list[Statement]] = {}
    for statement in statements:
        groups.setdefault(statement.fingerprint, []).append(statement)
    return tuple(sorted(map(_group, groups.values()), key=lambda group: group.elapsed_s, reverse=True))


def _group(statements: list[Statement]) -> StatementGroup:
    uncounted = any(statement.is_uncounted for statement in statements)
    unknown_round_trips = any(statement.has_unknown_round_trips for statement in statements)
    return StatementGroup(
        fingerprint=statements[0].fingerprint,
        sql=statements[0].sql,
        calls=len(statements),
        elapsed_s=sum(statement.elapsed_s for statement in statements),
        compile_s=sum_of_measured(statement.compile_s for statement in statements),
        execute_s=sum_of_measured(statement.execute_s for statement in statements),
        fetch_s=sum_of_measured(statement.fetch_s for statement in statements),
        row_count=None if uncounted else sum_of_measured(statement.row_count for statement in statements),
        round_trips=None if unknown_round_trips else sum_of_measured(each.round_trips for each in statements),
        errors=sum(statement.error is not None for statement in statements),
        cache_misses=sum(statement.cache_hit is False for statement in statements),
        callers=tuple(dict.fromkeys(s.caller for s in statements if s.caller is not None)),
    )
