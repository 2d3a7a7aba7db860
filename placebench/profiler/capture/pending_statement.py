"""A statement or transaction step whose times are still running, and what one recording asked for twice.

The main classes are `Draft`, `Flow` (the state of one connection) and `Repetition` (equal values, rows fetched again).
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from placebench.profiler.capture.tcp_info import WireMeter
from placebench.profiler.model.fingerprint import redacted
from placebench.profiler.model.plan import PlanNode, read_plan
from placebench.profiler.model.statement import Caller, Statement, Transaction

if TYPE_CHECKING:
    from placebench.profiler.capture.active_recording import Tape
    from placebench.profiler.capture.auto_explain import PlanFeed


# What is shorter is left to the flame's sampler: a fetch of one row costs less than noting its stack.
SHORTEST_LEAF_S = 20e-6
_LONGEST_SQL = 4000
_MOST_SINGLE_ROWS = 1000


class CanGiveUp(Protocol):
    """A part of the profiler that can switch the whole profiler off."""

    def give_up(self, error: Exception) -> None:
        """Switch the profiler off because of *error*, and say so once."""


Part = TypeVar("Part", bound=CanGiveUp)
P = ParamSpec("P")
T = TypeVar("T")


def guarded(method: Callable[Concatenate[Part, P], T]) -> Callable[Concatenate[Part, P], T | None]:
    """*method* with its failures kept from the application: the profiler switches itself off and None comes back."""

    def call(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.give_up(error)
            return None

    return call


class Flow:
    """What one pooled connection did within one recording.

    compiling: (start, measured_s then) of each statement between SQLAlchemy's before_execute and its cursor; a Python
        default that queries nests there. A failed compilation fires no further event, hence the limited length.
    measured_s: all seconds charged to anything on this connection, so that nested statements are not counted twice.
    feed: where the server's plans arrive; None if none will.
    quiet: whether there is nothing to read after a round trip: no bytes, no plans.
    """

    __slots__ = ("_meter", "_read", "compiling", "feed", "measured_s", "pool_wait_s", "quiet", "transaction")

    def __init__(self, meter: WireMeter | None) -> None:
        self._meter = meter
        self._read = (0, 0)
        self.quiet = meter is None
        self.carried()
        self.compiling: deque[tuple[float, float]] = deque(maxlen=16)
        self.feed: PlanFeed | None = None
        self.measured_s = 0.0
        self.pool_wait_s: float | None = None
        self.transaction: int | None = None

    def postpone(self, seconds: float) -> None:
        """Leave the profiler's own work out of the compilation that is running."""
        if self.compiling:
            started, measured_s = self.compiling.pop()
            self.compiling.append((started + seconds, measured_s))

    def compiled(self, now: float) -> float:
        """Seconds since the innermost before_execute, without what other statements took meanwhile; 0 if none."""
        if not self.compiling:
            return 0.0
        started, measured_s = self.compiling.pop()
        seconds = max(0.0, now - started - (self.measured_s - measured_s))
        self.measured_s += seconds
        return seconds

    def carried(self) -> tuple[int, int] | None:
        """Bytes sent and received since it was last asked; None if they cannot be measured."""
        if self._meter is None:
            return None
        try:
            now = self._meter.read()
        except OSError:
            self._meter = None  # the connection is gone
            return None
        before, self._read = self._read, now
        return now[0] - before[0], now[1] - before[1]

    def waited(self) -> float | None:
        """The wait of this checkout, once: its first statement bears it and the next ones get 0."""
        wait_s = self.pool_wait_s
        if wait_s:
            self.pool_wait_s = 0.0
        return wait_s


class Draft:
    """One statement, or with *step* one transaction step, while its times are running.

    The methods that the driver's calls pass through are short and cannot fail: they run for every statement.
    """

    fingerprint = ""
    running = True
    rows_come_alone = False
    caller: Caller | None = None
    parameters: str | None = None
    compile_s: float | None = None
    pool_wait_s: float | None = None
    execute_s: float | None = None
    fetch_s: float | None = None
    row_count: int | None = None
    fetched_rows: int | None = None
    rows_again: int | None = None
    repeated: bool | None = None
    key: "KeyColumn | None" = None
    relationship: str | None = None
    batch: int | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    round_trips: int | None = None
    cache_hit: bool | None = None
    plan_text: str | None = None
    error: str | None = None

    def __init__(self, tape: "Tape", flow: Flow, sql: str, step: str | None) -> None:
        self.tape = tape
        self.flow = flow
        self.sql = sql[:_LONGEST_SQL]
        self.step = step
        self.single_rows: list[Any] = []
        self.number = flow.transaction
        self.clock = tape.clock
        self.started = self.entered = tape.clock()

    def enter(self) -> None:
        """The driver is about to be called."""
        self.entered = self.tape.clock()

    def hand_over(self) -> None:
        """The same for the first time: what passed since the draft was made is the profiler's own work."""
        self.enter()
        self.tape.own_s += self.entered - self.started

    def leave_execute(self, round_trips: int | None) -> None:
        """The driver's execute has ended, well or not; round_trips is None if the driver cannot tell."""
        tape, flow = self.tape, self.flow
        now = tape.clock()
        seconds = now - self.entered
        flow.measured_s += seconds
        self.execute_s = seconds if self.execute_s is None else self.execute_s + seconds
        if tape.flame is not None and seconds >= SHORTEST_LEAF_S:
            tape.leaf(self.entered, now, self._shown(), "sql", self)
        if round_trips is None:
            return
        if flow.quiet:
            self.round_trips = round_trips + (self.round_trips or 0)
        else:
            self._travelled(round_trips)

    def leave_fetch(self, rows: Sequence[Any], round_trips: int | None) -> None:
        """The driver's fetch has ended with these rows; what is done with them takes none of the statement's time."""
        tape = self.tape
        now = tape.clock()
        seconds = now - self.entered
        self.flow.measured_s += seconds
        self.fetch_s = seconds if self.fetch_s is None else self.fetch_s + seconds
        if tape.flame is not None and seconds >= SHORTEST_LEAF_S:
            # The server worked meanwhile only if it was asked: only then belong its plan's nodes below.
            tape.leaf(self.entered, now, f"fetch {self._shown()}", "sql", self if round_trips else None)
        self.fetched_rows = (self.fetched_rows or 0) + len(rows)
        if round_trips:
            self._travelled(round_trips)
        if self.key is not None and rows:
            self.rows_again = (self.rows_again or 0) + self.tape.repetition.seen(self.key, rows, id(self))

    def leave_one(self, row: Any, round_trips: int | None) -> None:
        """The driver's fetchone has ended, as the first of its statement or with a round trip."""
        self.leave_fetch(() if row is None else (row,), round_trips)
        self.rows_come_alone = not round_trips and row is not None

    def leave_row(self, row: Any, seconds: float) -> None:
        """The same for each row after it, in one short call."""
        self.flow.measured_s += seconds
        if seconds >= SHORTEST_LEAF_S and self.tape.flame is not None:
            now = self.clock()
            self.tape.leaf(now - seconds, now, f"fetch {self._shown()}", "sql")
        self.fetch_s += seconds  # type: ignore[operator]  # the first row has set it, and the number of rows
        if row is None:
            self.recognise()
            return
        self.fetched_rows += 1  # type: ignore[operator]
        if self.key is not None:
            self.single_rows.append(row)
            if len(self.single_rows) >= _MOST_SINGLE_ROWS:
                self.recognise()

    def recognise(self) -> None:
        """Look for the rows that came one by one among those of other statements."""
        if self.key is not None and self.single_rows:
            rows, self.single_rows = self.single_rows, []
            self.rows_again = (self.rows_again or 0) + self.tape.repetition.seen(self.key, rows, id(self))

    def count(self, rows: int) -> None:
        """The driver's own count of rows; negative if it has none."""
        if rows >= 0:
            self.row_count = rows

    def failed(self, error: BaseException) -> None:
        """The driver raised."""
        self.error = type(error).__name__
        # A message may quote values: it is kept only where values were asked for.
        if self.tape.options.parameters:
            self.error = f"{self.error}: {_message(error)}"

    def plan(self) -> PlanNode | None:
        """The plan that the server sent for it, if it did."""
        return None if self.plan_text is None else read_plan(self.plan_text, values=self.tape.options.parameters)

    def _travelled(self, round_trips: int) -> None:
        """Add round trips and, where the recording asks for them, the bytes that they carried."""
        self.round_trips = (self.round_trips or 0) + round_trips
        carried = self.flow.carried()
        if carried is not None:
            self.bytes_sent = (self.bytes_sent or 0) + carried[0]
            self.bytes_received = (self.bytes_received or 0) + carried[1]
        if self.flow.feed is not None:
            self.plan_text = self.flow.feed.take() or self.plan_text

    def _shown(self) -> str:
        """The text for people: without literals unless they were asked for."""
        return self.sql if self.tape.options.parameters else redacted(self.sql)

    def statement(self, origin: float) -> Statement:
        """What the recording that started at *origin* holds of a statement."""
        self.recognise()
        return Statement(
            sql=self._shown(),
            fingerprint=self.fingerprint,
            started_s=self.started - origin,
            parameters=self.parameters,
            caller=self.caller,
            compile_s=self.compile_s,
            pool_wait_s=self.pool_wait_s,
            execute_s=self.execute_s,
            fetch_s=self.fetch_s,
            row_count=self._rows(),
            bytes_sent=self.bytes_sent,
            bytes_received=self.bytes_received,
            round_trips=self.round_trips,
            cache_hit=self.cache_hit,
            error=self.error,
            plan=self.plan(),
            transaction=self.number,
            rows_again=self.rows_again,
            repeated=self.repeated,
            relationship=self.relationship,
            batch=self.batch,
        )

    def transaction(self, origin: float) -> Transaction:
        """What the recording that started at *origin* holds of a transaction step."""
        parts = [part for part in (self.compile_s, self.execute_s, self.fetch_s) if part is not None]
        return Transaction(
            kind=self.step or "",
            started_s=self.started - origin,
            elapsed_s=sum(parts) if self.execute_s is not None else None,
            round_trips=self.round_trips,
            number=self.number,
            error=self.error,
        )

    def _rows(self) -> int | None:
        """Rows by the driver's own count, or as fetched where it gives none (SQLite, server-side cursors)."""
        known = [count for count in (self.row_count, self.fetched_rows) if count is not None]
        return max(known) if known else None


def _message(error: BaseException) -> str:
    """The message of an error of any driver's, or of an application's whose __str__ fails."""
    try:
        return str(error).strip()
    except Exception as broken:  # noqa: BLE001  it is not ours, and its text is not worth a failure
        return f"(its message cannot be shown: {type(broken).__name__})"


_MOST = 50_000


class KeyColumn(NamedTuple):
    """Which column of a result holds the whole primary key of a table."""

    table: str
    position: int


class Repetition:
    """The statements and rows that one record has seen."""

    def __init__(self) -> None:
        self._statements: set[int] = set()
        # By table: each primary key with the statement that fetched it first.
        self._rows: dict[str, dict[Any, int]] = {}
        self._kept = 0

    def ran(self, sql: str, parameters: Any) -> bool | None:
        """Whether this text ran with these values before; None for values that cannot be compared."""
        values = tuple(parameters.values()) if isinstance(parameters, dict) else parameters
        try:
            key = hash((sql, tuple(values) if isinstance(values, list) else values))
        except TypeError:
            return None
        before = key in self._statements
        if not before and len(self._statements) < _MOST:
            self._statements.add(key)
        return before

    def seen(self, column: KeyColumn, rows: Sequence[Any], statement: int) -> int:
        """How many distinct keys of these rows another statement had fetched before; 50 to 100 ns a row.

        statement: a number of the one that fetched them now.
        """
        firsts = self._rows.setdefault(column.table, {})
        try:
            keys = {row[column.position] for row in rows}
        except (TypeError, KeyError, IndexError):  # rows of a user's own class
            return 0
        known = keys & firsts.keys()
        if self._kept < _MOST:
            new = keys - known
            self._kept += len(new)
            firsts.update(dict.fromkeys(new, statement))
        return sum(firsts[key] != statement for key in known)
