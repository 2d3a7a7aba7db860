"""The plan of the actual execution, without a second run: auto_explain sends it to the client as a message.

The main class is `PlanFeed`, one connection's plans. `enable_plans` switches auto_explain on for the session after it
has connected (as a connect option it would lock out a role without the right), and tests that a plan comes;
`disable_plans` gives the server's settings back. Both need a connection outside of a transaction, whose end could undo
them.

If a pooler such as pgbouncer shares a server process between clients, settings of a session reach the other clients. So
`enable_plans` sets nothing unless it runs in the server process that the connection was given at its connect.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from placebench.profiler.model.plan import UnindexedKey
from placebench.profiler.model.statement_facts import statement_facts

# INFO reaches the client whatever its client_min_messages is, and by default does not reach the server's log.
_SETTINGS = {
    "log_min_duration": "0",
    "log_analyze": "on",
    "log_buffers": "on",
    "log_timing": "on",
    "log_format": "json",
    "log_level": "info",
    # A foreign key's check is a nested statement: an INSERT of a thousand rows would send a thousand plans.
    "log_nested_statements": "off",
    "sample_rate": "1",
}
_SET = "; ".join(f"SET auto_explain.{name} = '{value}'" for name, value in _SETTINGS.items())
_RESET = "; ".join(f"RESET auto_explain.{name}" for name in _SETTINGS)
# Foreign keys for which a changed or deleted parent makes PostgreSQL read the whole referring table. An index helps if
# it begins with one of the columns; "is not null" is what every search for a value implies. If there are any, plans
# have the time of their checks from now on; a role without that right gets an error, and plans without these times.
_UNINDEXED_KEYS = """select set_config('auto_explain.log_triggers', 'on', false), t.tgname, c.conrelid::regclass::text,
    (select string_agg(a.attname, ', ' order by a.attnum) from pg_attribute a
        where a.attrelid = c.conrelid and a.attnum = any(c.conkey)),
    case when r.reltuples > 0 then r.reltuples else pg_relation_size(r.oid) / 100 end
from pg_constraint c join pg_class r on r.oid = c.conrelid
    join pg_trigger t on t.tgconstraint = c.oid and t.tgrelid = c.confrelid and t.tgname like 'RI_ConstraintTrigger_a_%'
where c.contype = 'f' and not exists (
    select from pg_index i join pg_class x on x.oid = i.indexrelid join pg_am m on m.oid = x.relam
    where i.indrelid = c.conrelid and i.indisvalid and i.indkey[0] = any(c.conkey) and m.amname in ('btree', 'hash')
        and (i.indpred is null or pg_get_expr(i.indpred, i.indrelid) ilike '%is not null%'))
"""
_MESSAGE = re.compile(r"duration: ([\d.]+) ms  plan:\s*(?=\{)")
_QUERY_TEXT = re.compile(r'"Query Text":\s*(?=")')
_CURSOR = re.compile(r"\s*declare\b.*?\bfor\b", re.IGNORECASE | re.DOTALL)
_PLANNABLE = frozenset({"select", "insert", "update", "delete", "merge", "with", "values"})
_POOLED = (
    "no plans: a connection pooler such as pgbouncer is between this program and PostgreSQL, and its other clients "
    "would be sent them too; connect to PostgreSQL itself; record(..., explain=True) gets estimates from EXPLAIN"
)
_HOW_TO = (
    "connect as a superuser, or load auto_explain on the server and GRANT SET ON PARAMETER "
    "auto_explain.log_min_duration and its siblings to this role; record(..., explain=True) gets estimates from EXPLAIN"
)


class Planned(Protocol):
    """A statement, or a transaction step if `step` is set, for which the server may send plans.

    executions: how many plans the server will send; 0 if that is not known. plans: how many have come.
    awaits_plan: whether the last one is still to come.
    """

    fingerprint: str
    step: str | None
    sql: str
    error: str | None
    executions: int
    plans: int
    awaits_plan: bool

    def add_plan(self, text: str, milliseconds: float) -> None:
        """Take a plan of this statement; the most expensive one is kept."""


class PlanFeed:
    """The plans that one connection has received; they belong to the statement that has just run.

    unindexed_keys: the foreign keys without an index at the time of the connect, by the triggers that check them.
    This assignment is right if the server gets statements as simple queries, as from psycopg2.
    """

    def __init__(self) -> None:
        self.enabled = False
        self.refusal: str | None = None
        self.unindexed_keys: Mapping[str, UnindexedKey] = {}
        self._arrived: list[tuple[float, str]] = []

    def offer(self, message: str) -> bool:
        """Keep a message of the server if it is a plan; return whether it is one."""
        found = _MESSAGE.search(message) if self.enabled else None
        if found is None or message.rstrip()[-1:] != "}":
            return False
        self._arrived.append((float(found[1]), message[found.end() :]))
        return True

    def take(self) -> list[tuple[float, str]]:
        """Return the plans since the last call in order, each with its milliseconds."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def assign(self, planned: Planned) -> None:
        """Give this statement the plans that arrived in its call."""
        for milliseconds, text in self.take():
            planned.add_plan(text, milliseconds)

    def forget(self) -> None:
        """Drop the plans that have arrived or are on their way."""
        self.take()


class DelayedPlanFeed(PlanFeed):
    """The plans of a connection that sends parameters apart from the statement, as psycopg 3 does.

    In a transaction the server ends such a statement, and sends its plan, only when the next one is bound, or at the
    COMMIT. At most one plan is on its way.
    """

    def __init__(self, in_transaction: Callable[[], bool]) -> None:
        super().__init__()
        self._in_transaction = in_transaction
        self._open: Planned | None = None

    def assign(self, planned: Planned) -> None:
        """Assign the plans that arrived in this statement's call: the first may belong to the statement before."""
        for milliseconds, text in self.take():
            before = self._open
            if before is not None and before is not planned and _belongs_to_earlier(before, planned, text):
                before.add_plan(text, milliseconds)
                self._close()
            elif planned.step is None:
                planned.add_plan(text, milliseconds)
        if planned.step is not None and self._in_transaction():  # a SAVEPOINT, which may have been sent before
            return
        self._close()
        awaited = planned.executions == 0 or planned.plans < planned.executions
        if planned.step is None and planned.error is None and awaited and self._in_transaction():
            self._open = planned
            planned.awaits_plan = _is_plannable(planned.sql)

    def forget(self) -> None:
        """Drop the plans that have arrived or are on their way."""
        super().forget()
        self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._open.awaits_plan = False
            self._open = None


def _belongs_to_earlier(before: Planned, planned: Planned, text: str) -> bool:
    """Return whether a plan belongs to the earlier statement *before*; its plan comes first if both have one text."""
    found = _QUERY_TEXT.search(text)
    sent = "" if found is None else str(json.JSONDecoder().raw_decode(text, found.end())[0])
    cursor = _CURSOR.match(sent)
    sent = sent if cursor is None else sent[cursor.end() :]
    seen = [statement_facts(each, "postgresql").fingerprint for each in (sent.replace("%", "%%"), sent)]
    return before.fingerprint in seen or planned.step is not None or planned.fingerprint not in seen


class NoticeList(list[str]):
    """psycopg2's list of notices without the plans: psycopg2 itself keeps only the last 50 notices."""

    def __init__(self, feed: PlanFeed, notices: list[str]) -> None:
        super().__init__(notices)
        self._feed = feed

    def append(self, notice: str) -> None:
        """Add a notice, or hand it to the feed if it is a plan."""
        if not self._feed.offer(notice):
            super().append(notice)


def enable_plans(feed: PlanFeed, connection: Any, backend_pid: int) -> None:
    """Have this session send its plans, or note in `feed.refusal` why it cannot; two or three round trips.

    A refusal is final. connection: as SQLAlchemy's events give it, outside of a transaction.
    backend_pid: the server process that the driver was given at the connect.
    """
    feed.enabled = True
    # A pooler gives its clients other process numbers. All statements are one message, which runs on one server process
    # and ends at its first error: nothing is set before it is known whose process that is.
    check = f"SELECT 1 / (pg_backend_pid() = {backend_pid})::int"
    reason = _refusal(connection, f"{check}; LOAD 'auto_explain'; {_SET}; SELECT 1")
    # A plain role may not LOAD a library that the server has loaded already.
    if reason not in (None, _POOLED):
        reason = _refusal(connection, f"{check}; {_SET}; SELECT 1")
    if not feed.take() and reason is None:
        reason = "the server has not loaded auto_explain"
    if reason is not None:
        feed.enabled = False
        feed.refusal = reason if reason == _POOLED else f"no plans: {reason}; {_HOW_TO}"
        return
    keys: list[Any] = []
    _refusal(connection, _UNINDEXED_KEYS, keys)
    feed.unindexed_keys = {str(trigger): UnindexedKey(*key) for _, trigger, *key in keys}
    feed.take()


def disable_plans(feed: PlanFeed, connection: Any) -> None:
    """Restore the session's own settings of auto_explain; one round trip."""
    feed.enabled = False
    _refusal(connection, f"{_RESET}; RESET auto_explain.log_triggers" if feed.unindexed_keys else _RESET)
    feed.forget()


def estimated_plan(connection: Any, sql: str, parameters: Any) -> str | None:
    """Return the plan that PostgreSQL estimates, without running the statement; None if it has no plan.

    EXPLAIN runs inside of a savepoint, so that a refusal leaves the application's transaction as it was: three round
    trips.
    """
    if not _is_plannable(sql):
        return None
    nested = not connection.autocommit
    cursor = connection.cursor()
    try:
        if nested:
            cursor.execute("SAVEPOINT placebench_explain")
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", parameters)
        plan = cursor.fetchone()[0]
        return plan if isinstance(plan, str) else json.dumps(plan)
    finally:
        if nested:
            cursor.execute("ROLLBACK TO SAVEPOINT placebench_explain")
        cursor.close()


def _is_plannable(sql: str) -> bool:
    return statement_facts(sql, "postgresql").first_word in _PLANNABLE


def _refusal(connection: Any, sql: str, rows: list[Any] | None = None) -> str | None:
    """Run *sql* in autocommit; return the first line of the server's error, _POOLED behind a pooler, else None.

    rows: takes the result of *sql*.
    """
    autocommit = connection.autocommit
    connection.autocommit = True
    cursor = connection.cursor()
    try:
        cursor.execute(sql)
        if rows is not None:
            rows += cursor.fetchall()
    except Exception as error:  # noqa: BLE001  the class is the driver's, which is not imported here
        if type(error).__name__ == "DivisionByZero":
            return _POOLED
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    finally:
        cursor.close()
        connection.autocommit = autocommit
    return None
