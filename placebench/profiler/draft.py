"""What is being watched right now: a statement or transaction step whose times are still running.

The key piece is `Draft`. Drafts belong to one recording and are reached through the cursor that runs them, never
through a pooled connection: a statement that fails leaves nothing behind.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from placebench.profiler.fingerprint import redacted
from placebench.profiler.statement import Caller, Statement, Transaction

if TYPE_CHECKING:
    from placebench.profiler.tape import Tape

_LONGEST_SQL = 4000


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
    """

    __slots__ = ("compiling", "measured_s", "pool_wait_s", "transaction")

    def __init__(self) -> None:
        self.compiling: deque[tuple[float, float]] = deque(maxlen=16)
        self.measured_s = 0.0
        self.pool_wait_s: float | None = None
        self.transaction: int | None = None

    def compiled(self, now: float) -> float:
        """Seconds since the innermost before_execute, without what other statements took meanwhile; 0 if none."""
        if not self.compiling:
            return 0.0
        started, measured_s = self.compiling.pop()
        seconds = max(0.0, now - started - (self.measured_s - measured_s))
        self.measured_s += seconds
        return seconds

    def waited(self) -> float | None:
        """The wait of this checkout, once: its first statement bears it and the next ones get 0."""
        wait_s = self.pool_wait_s
        if wait_s:
            self.pool_wait_s = 0.0
        return wait_s


class Draft:
    """One statement, or with *step* one transaction step, while its times are running."""

    __slots__ = (
        "cache_hit",
        "caller",
        "compile_s",
        "entered",
        "error",
        "execute_s",
        "fetch_s",
        "fetched_rows",
        "fingerprint",
        "flow",
        "number",
        "parameters",
        "pool_wait_s",
        "round_trips",
        "row_count",
        "running",
        "sql",
        "started",
        "step",
        "tape",
    )

    def __init__(self, tape: "Tape", flow: Flow, sql: str, *, step: str | None, started: float) -> None:
        self.tape = tape
        self.flow = flow
        self.sql = sql[:_LONGEST_SQL]
        self.step = step
        self.started = self.entered = started
        self.number = flow.transaction
        self.running = True
        self.fingerprint = ""
        self.caller: Caller | None = None
        self.parameters: str | None = None
        self.compile_s: float | None = None
        self.pool_wait_s: float | None = None
        self.execute_s: float | None = None
        self.fetch_s: float | None = None
        self.row_count: int | None = None
        self.fetched_rows: int | None = None
        self.round_trips: int | None = None
        self.cache_hit: bool | None = None
        self.error: str | None = None

    def give_up(self, error: Exception) -> None:
        """Switch the profiler off."""
        self.tape.give_up(error)

    @guarded
    def enter(self) -> None:
        """The driver is about to be called."""
        self.entered = self.tape.clock()

    @guarded
    def leave_execute(self, round_trips: int | None) -> None:
        """The driver's execute has ended, well or not."""
        self.execute_s = (self.execute_s or 0.0) + self._spent("")
        self._travelled(round_trips)

    @guarded
    def leave_fetch(self, rows: int, round_trips: int | None) -> None:
        """The driver's fetch has ended with so many rows."""
        self.fetch_s = (self.fetch_s or 0.0) + self._spent("fetch ")
        self.fetched_rows = (self.fetched_rows or 0) + rows
        self._travelled(round_trips)

    @guarded
    def failed(self, error: BaseException) -> None:
        """The driver raised."""
        name = type(error).__name__
        # A message may quote values: it is kept only where values were asked for.
        self.error = f"{name}: {error}".strip() if self.tape.options.parameters else name

    def _spent(self, verb: str) -> float:
        """Seconds since `enter`, charged to the connection and, for a flame, put on the frame that ran the driver."""
        now = self.tape.clock()
        seconds = now - self.entered
        self.flow.measured_s += seconds
        if self.tape.flame is not None:
            self.tape.flame.add(self.entered, now, f"{verb}{self._shown()}")
        return seconds

    def _travelled(self, round_trips: int | None) -> None:
        """Add round trips; a driver that cannot count them leaves None."""
        if round_trips is not None:
            self.round_trips = (self.round_trips or 0) + round_trips

    def _shown(self) -> str:
        """The text for people: without literals unless they were asked for."""
        return self.sql if self.tape.options.parameters else redacted(self.sql)

    def statement(self, origin: float) -> Statement:
        """What the recording that started at *origin* holds of a statement."""
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
            round_trips=self.round_trips,
            cache_hit=self.cache_hit,
            error=self.error,
            transaction=self.number,
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
