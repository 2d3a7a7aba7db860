"""Findings about connections: waits for one, and transactions that hold one while nothing runs."""

from collections.abc import Iterator

from placebench import units
from placebench.profiler.analysis.findings.kinds import Finding, Limits, Statements, finding_at, times
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.statement import Caller, Statement


def pool_waits(statements: Statements, _recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find waits for a pooled connection while others hold all connections."""
    waited = [statement for statement in statements if (statement.pool_wait_s or 0.0) >= limits.pool_wait_s]
    if waited:
        waits_s = [statement.pool_wait_s or 0.0 for statement in waited]
        yield finding_at(
            "connection-pool wait",
            f"waited for a connection {times(len(waited))}, up to {units.duration(max(waits_s))}",
            "hold connections for a shorter time (no work between the statements of a transaction), or raise "
            "pool_size to the number of threads",
            waited,
            seconds=sum(waits_s),
        )


def pool_timeouts(recording: RecordingData) -> Iterator[Finding]:
    """Find requests to a pool that got no connection in time."""
    waits_s = [step.elapsed_s or 0.0 for step in recording.transactions if step.kind == "POOL TIMEOUT"]
    if waits_s:
        yield Finding(
            kind="connection-pool timeout",
            title=f"no connection came {times(len(waits_s))}, after up to {units.duration(max(waits_s))}",
            advice="hold fewer connections at once and for a shorter time, look for some that are never returned, or "
            "raise pool_size",
            count=len(waits_s),
            seconds=sum(waits_s),
        )


def idle_in_transaction(recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find transactions that hold a connection and its locks while the application does something else."""
    places: dict[tuple[str, Caller | None], list[tuple[Statement, float]]] = {}
    for statement, idle_s in _idle(recording):
        if idle_s >= limits.idle_s:
            places.setdefault((statement.fingerprint, statement.caller), []).append((statement, idle_s))
    for found in places.values():
        longest = max(idle_s for _, idle_s in found)
        yield finding_at(
            "idle in transaction",
            f"a transaction waited for the application {times(len(found))}, up to {units.duration(longest)} in all; "
            "the longest part came after this statement",
            "compute before or after the transaction: read what is needed, commit, then work",
            [statement for statement, _ in found],
            seconds=sum(idle_s for _, idle_s in found),
        )


def _idle(recording: RecordingData) -> Iterator[tuple[Statement, float]]:
    """Yield for each transaction the statement before its longest wait, and the seconds in which no statement ran.

    A transaction of SQLite counts from its first write on: before that it holds no lock between its statements.
    """
    ends = {
        (step.request, step.number): step.started_s
        for step in recording.transactions
        if step.kind in ("COMMIT", "ROLLBACK") and step.number is not None
    }
    lasts = {number: each.elapsed_s for number, each in enumerate(recording.timeline, 1)}
    ends |= {key: lasts[key[0]] for key in recording.open_transactions if key[0] in lasts}
    inside: dict[tuple[int, int | None], list[Statement]] = {}
    for statement in recording.statements:
        key = statement.request, statement.transaction
        on_sqlite = statement.database is not None and statement.database.system == "sqlite"
        if key in inside or not on_sqlite or statement.kind not in ("read", "setting"):
            inside.setdefault(key, []).append(statement)
    for key, statements in inside.items():
        if key in ends:
            statements.sort(key=lambda statement: statement.started_s)
            next_starts = [*(each.started_s for each in statements[1:]), ends[key]]
            waits = [
                start - each.started_s - (each.execute_s or 0.0) - (each.fetch_s or 0.0)
                for each, start in zip(statements, next_starts, strict=True)
            ]
            yield statements[waits.index(max(waits))], sum(waits)
