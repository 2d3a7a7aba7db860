"""A statement or transaction step whose times are still running, and the state that it shares with its recording.

The main classes are `PendingStatement`, `RecordingContext` (what all pending statements of one recording share) and
`_DuplicateDetector` (statements that run again with equal values, rows that are fetched again).
"""

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from placebench.profiler.capture.connection_state import ConnectionState
from placebench.profiler.capture.loop_origins import LoopOrigins, awaiting_chunk
from placebench.profiler.capture.options import Clock, Options
from placebench.profiler.capture.orm_frames import is_first_chunk, managed_tables
from placebench.profiler.capture.sent_values import UNKNOWN, comparable, count_values
from placebench.profiler.capture.stack import Frames
from placebench.profiler.model.plan import PlanNode, read_plan
from placebench.profiler.model.sql_tokens import MAX_REMEMBERED_LENGTH, literal_values, redacted
from placebench.profiler.model.statement import (
    Caller,
    DatabaseAddress,
    OrmLoad,
    Statement,
    Transaction,
    UnfrozenStatement,
)
from placebench.profiler.model.statement_facts import SECOND_STATEMENT, StatementFacts, statement_facts

if TYPE_CHECKING:
    from placebench.profiler.capture.external_flame_graph import ExternalFlameGraph
    from placebench.profiler.capture.flame_graph import FlameGraphRecorder

# Shorter intervals are left to the flame graph's sampler: a fetch of one row costs less than noting its stack.
_MIN_LEAF_S = 20e-6
_MAX_SQL_LENGTH = 4000
_MAX_SINGLE_ROWS = 100
_MAX_KEYS = 50_000
ROW_COUNT_UNKNOWN = 2**64 - 1


class _Guarded(Protocol):
    """A part of the profiler whose failures are reported, never raised."""

    def report_failure(self, error: Exception) -> None:
        """Note in the recording, and log once, that a hook failed with *error*."""


_Part = TypeVar("_Part", bound=_Guarded)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def guarded(method: Callable[Concatenate[_Part, _P], _T]) -> Callable[Concatenate[_Part, _P], _T | None]:
    """Keep failures of *method* from the application: report them, and return None."""

    def call(self: _Part, /, *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.report_failure(error)
            return None

    return call


class KeyColumn(NamedTuple):
    """The column of a result that holds the whole primary key of a table.

    others: positions of the primary keys of further tables, if there are two or more: their rows may multiply.
    """

    table: str
    position: int
    others: tuple[int, ...] = ()


class _DuplicateDetector:
    """Remembers the statements and the primary keys that one recording has seen."""

    def __init__(self) -> None:
        # Each read, by its text, values and database, with the state in which it found its relations.
        self._states: dict[int, int] = {}
        # Each primary key of a table of a database, with the statement that fetched it first.
        self._rows: dict[tuple[str, Hashable], dict[Any, int]] = {}
        self._kept = 0
        # How often each table was written, and how often anything was; writes of everything are under None.
        self._writes: dict[str | None, int] = {None: 0}
        self._changes = 0
        self.tables: set[str] = set()
        """Relations that are known to be tables: a write of another table leaves them as they are."""
        self._has_managed = False
        self._readers: set[int | None] = set()
        """The numbers of the connections that read."""

    def add_write(self, table: str | None, connection: ConnectionState | None = None) -> None:
        """Note that *table* was changed: all relations if it is None, none if it is empty.

        A relation that may be a view of the table changes with it. connection: whose transaction may undo the change.
        """
        if table == "":
            return
        self._changes += 1
        self._writes[table] = self._writes.get(table, 0) + 1
        if connection is not None:
            connection.written.add(table)
        for key in list(self._rows):
            name = key[0].rpartition(".")[2].lower()
            if table in (None, name) or not self._are_tables({name}):
                self._rows.pop(key, None)

    def end_writes(self, connection: ConnectionState, step: str) -> None:
        """Note a transaction step: what the connection wrote may be undone, or other connections may see it now."""
        is_undone = step in ("PREPARE", "ROLLBACK", "ROLLBACK TO")
        if step in ("COMMIT PREPARED", "ROLLBACK PREPARED") or (step == "ROLLBACK TO" and connection.has_changed):
            self.add_write(None)
        elif is_undone or (step == "COMMIT" and self._readers - {connection.number}):
            for table in tuple(connection.written):  # other threads may write on it
                self.add_write(table)
        if step in ("COMMIT", "PREPARE", "RESET", "ROLLBACK"):
            connection.written.clear()
            connection.end_settings(step)

    def _are_tables(self, relations: Iterable[str]) -> bool:
        """Return whether all these relations are known to be tables: by an ORM, or because they were written."""
        if not self._has_managed:
            self._has_managed = True
            self.tables |= managed_tables()
        return all(each in self._writes or each in self.tables for each in relations)

    def look_up(self, read: "PendingStatement", sql: str, values: bytes | str | None, facts: StatementFacts) -> None:
        """Note whether *read* ran with these values before, and whether its relations may have changed since.

        values: in a form that is equal for equal values; None if they are not known.
        """
        self._readers.add(read.connection.number)
        read.repeated = None
        if values is None:
            return
        state = -self._changes
        if state:
            calls = facts.unknown_function is not None and facts.unknown_function.endswith(")")
            if not calls and self._are_tables(facts.relations):
                state = self._writes[None] + sum(self._writes.get(each, 0) for each in facts.relations)
        key = hash((sql, values, read.identity))
        before = self._states.get(key)
        if before is None and len(self._states) >= _MAX_KEYS:
            return  # it may be one of those that are not remembered
        self._states[key] = state
        read.repeated = before == state
        if before not in (None, state):
            read.sequel = "again"

    def count_redundant(self, column: KeyColumn, rows: Sequence[Any], database: Hashable, statement: int) -> int:
        """Count the distinct keys of these rows that another statement had fetched before; 40 to 100 ns per row.

        database: another one has other rows. statement: a number that identifies the statement that fetched *rows*.
        """
        firsts = self._rows.setdefault((column.table, database), {})
        try:
            keys = set(map(itemgetter(column.position), rows))
        except (TypeError, KeyError, IndexError):  # rows of a user's own class
            return 0
        known = keys & firsts.keys() if firsts else set()
        if self._kept < _MAX_KEYS:
            new = keys - known if known else keys
            self._kept += len(new)
            firsts.update(dict.fromkeys(new, statement))
        return sum(firsts[key] != statement for key in known)


class _SendingCursor(Protocol):
    """A cursor that can return what it has sent."""

    def will_be_asked(self) -> None:
        """Prepare for a call of `sent` after the next execute."""

    def sent(self) -> bytes | str | None:
        """Return what the driver sent last, values included; None if the driver does not report it."""


class RecordingContext:
    """The state that the pending statements of one recording share.

    overhead_s: profiler overhead, by the profiler's own clock.
    row_breach: how many rows too many a statement has fetched; None if none has.
    application: folders and packages that are the application's own, even if they are installed.
    """

    application: tuple[str, ...] = ()

    def __init__(
        self,
        options: Options,
        clock: Clock,
        report_failure: Callable[[Exception], None],
        flame_graph: "FlameGraphRecorder | ExternalFlameGraph | None",
    ) -> None:
        self.options = options
        self.clock = clock
        self.report_failure = report_failure
        self.flame_graph = flame_graph
        self.duplicates: _DuplicateDetector = _DuplicateDetector()
        self.origins: LoopOrigins = LoopOrigins()
        self.overhead_s: float = 0.0
        self.notes: list[str] = []
        self.row_breach: str | None = None
        self.databases: dict[Hashable, int] = {}
        """The number of each database; a recording inside of another one has the other's."""

    def database_number(self, identity: Hashable, database: DatabaseAddress | None) -> int | None:
        """Return the number of the database with this identity, as in `Statement`."""
        is_sqlite = database is not None and database.system == "sqlite"
        if isinstance(identity, int) and not is_sqlite:  # one per connection, for lack of a name
            return None
        return self.databases.setdefault(identity, len(self.databases) + 1)

    def note(self, *remarks: str) -> None:
        """Note what this recording could not measure, each remark once."""
        self.notes.extend(remark for remark in remarks if remark not in self.notes)

    def add_leaf(
        self,
        started: float,
        ended: float,
        label: Callable[[], str],
        kind: str,
        pending: "PendingStatement | None" = None,
    ) -> None:
        """Add an interval below the running frame to the flame graph, if any, and below that the plan of *pending*.

        label: returns the text of the interval, and is called when the flame graph ends.
        """
        raise NotImplementedError


class PendingStatement:
    """One statement, or one transaction step if *step* is given, while its times are running.

    The methods that the driver's calls pass through are short and cannot fail: they run for every statement.
    """

    # What most statements have. The others are in a dict, which is shared as long as there are at most 30 names in it.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "bytes_received",
        "bytes_sent",
        "cache_hit",
        "caller",
        "clock",
        "compile_s",
        "connection",
        "dialect",
        "entered",
        "execute_s",
        "executing",
        "fetch_s",
        "fetched_rows",
        "fingerprint",
        "frames",
        "identity",
        "key",
        "number",
        "outer_caller",
        "place",
        "recording",
        "repeated",
        "round_trips",
        "row_count",
        "rows_come_alone",
        "sample",
        "sql",
        "started",
        "step",
        "value_count",
    )
    counted = False
    entities: list[set[Any]] | None = None
    parameters: str | None = None
    pool_wait_s: float | None = None
    single_rows: list[Any] | None = None
    redundant_rows: int | None = None
    sequel: str | None = None
    relationship: str | None = None
    load: OrmLoad | None = None
    origins: "tuple[tuple[PendingStatement, int], ...]" = ()
    """The statements among whose rows the values of this loop are, and the column that has them."""
    last_row: Any = None
    keeps_last_row = False
    """Whether the next page may begin behind its last row."""
    batch: int | None = None
    engine: int | None = None
    unsent: tuple[str, StatementFacts, _SendingCursor] | None = None
    """Text, facts and cursor of a read whose values can only be compared after they were sent."""
    executions = 1
    total_rows: int | None = None
    """Rows in all results, if the text holds several statements or runs in a pipeline."""
    iterated = 0
    """Rows fetched by iteration."""
    plans: int = 0
    plan_ms: float = -1.0
    plan_text: str | None = None
    awaits_plan = False
    is_cursor = False
    """Whether its plan came from the close of a server-side cursor, which may have been read in part."""
    dbapi_connection: object = None
    """The driver's connection that a CONNECT has made."""
    error: str | None = None

    def __init__(self, recording: RecordingContext, connection: ConnectionState, sql: str, step: str | None) -> None:
        self.recording = recording
        self.connection = connection
        self.sql: str = sql[:_MAX_SQL_LENGTH]
        self.fingerprint: str = ""
        self.dialect: str | None = None
        """SQLAlchemy's name of the dialect that the statement is written in."""
        self.step = step
        self.number: int | None = connection.transaction
        self.identity: Hashable = connection.identity
        self.caller: Caller | None = None
        self.outer_caller: Caller | None = None
        self.frames: Frames | None = None
        """The stack that called the dialect, while that runs; None if it is not known."""
        self.place: int = 0
        """A hash of the fingerprint and the lines that run it."""
        self.cache_hit: bool | None = None
        self.repeated: bool | None = None
        self.value_count: int | None = None
        self.executing: bool = True
        self.rows_come_alone: bool = False
        self.compile_s: float | None = None
        self.execute_s: float | None = None
        self.fetch_s: float | None = None
        self.row_count: int | None = None
        self.fetched_rows: int | None = None
        self.round_trips: int | None = None
        self.bytes_sent: int | None = None
        self.bytes_received: int | None = None
        self.key: KeyColumn | None = None
        self.sample: list[Any] | None = None
        """The first rows, while more may come; None if no rows are kept."""
        self.clock: Clock = recording.clock
        if connection.streaming is not None:
            connection.streaming.leave_stream()
        self.started: float = self.clock()
        self.entered: float = self.started

    def driver_called(self) -> None:
        """Start the driver clock: the driver is about to be called."""
        self.entered = self.recording.clock()

    def first_driver_call(self) -> None:
        """Start the driver clock for the first time; charge the time since creation to the profiler."""
        self.driver_called()
        if self.execute_s is None:
            self.recording.overhead_s += self.entered - self.started

    def execute_returned(self, round_trips: int | None, rows: int | None = None) -> None:
        """Record that the driver's execute has returned or raised.

        round_trips: None if the driver does not report them. rows: the driver's own count; negative, None or
            ROW_COUNT_UNKNOWN if it has none.
        """
        recording, connection = self.recording, self.connection
        now = recording.clock()
        seconds = now - self.entered
        connection.measured_s += seconds
        self.execute_s = seconds if self.execute_s is None else self.execute_s + seconds
        if recording.flame_graph is not None:
            if seconds >= _MIN_LEAF_S:
                recording.add_leaf(self.entered, now, self.leaf_text, "sql", self)
            self.frames = None
        if rows is not None and 0 <= rows < ROW_COUNT_UNKNOWN:
            self.row_count = rows
        if self.unsent is not None:
            self._compare_sent(*self.unsent)
        if round_trips is None:
            return
        if connection.quiet:
            self.round_trips = round_trips + (self.round_trips or 0)
        else:
            self._add_round_trips(round_trips)

    def fetch_returned(self, rows: Sequence[Any], round_trips: int | None) -> None:
        """Record that the driver's fetch has returned these rows; counting them is not charged to the statement."""
        recording = self.recording
        now = recording.clock()
        seconds = now - self.entered
        connection = self.connection
        connection.measured_s += seconds
        self.fetch_s = seconds if self.fetch_s is None else self.fetch_s + seconds
        if recording.flame_graph is not None and seconds >= _MIN_LEAF_S:
            # The server worked meanwhile only if there was a round trip: only then its plan's nodes belong below.
            recording.add_leaf(self.entered, now, self._fetch_text, "sql", self if round_trips else None)
        count = len(rows)
        self.fetched_rows = (self.fetched_rows or 0) + count
        connection.row_count += count  # a second count of the same rows: see `add_rows`
        if round_trips:
            self._add_round_trips(round_trips)
        if self.key is not None and rows:
            self._count_redundant(self.key, rows)
        if self.keeps_last_row and rows:
            self.last_row = rows[-1]
        if self.sample is not None and rows:
            recording.origins.fetched(self, self.sample, rows)

    def first_row_returned(self, row: Any, round_trips: int | None) -> None:
        """Record a row fetched by itself, the first of its statement or one that took a round trip."""
        self.fetch_returned(() if row is None else (row,), round_trips)
        self.rows_come_alone = not round_trips and row is not None

    def row_returned(self, row: Any, seconds: float) -> None:
        """Record one further row fetched by itself (hot path)."""
        connection = self.connection
        connection.measured_s += seconds
        if seconds >= _MIN_LEAF_S and self.recording.flame_graph is not None:
            now = self.clock()
            self.recording.add_leaf(now - seconds, now, self._fetch_text, "sql")
        self.fetch_s += seconds  # type: ignore[operator]  # the first row has set it, and the number of rows
        if row is None:
            self.count_redundant_rows()
            return
        self.fetched_rows += 1  # type: ignore[operator]
        connection.row_count += 1
        if self.keeps_last_row:
            self.last_row = row
        if self.sample is not None:
            self.recording.origins.fetched(self, self.sample, (row,))
        if self.key is not None:
            if self.single_rows is None:
                self.single_rows = []
            self.single_rows.append(row)
            if len(self.single_rows) >= _MAX_SINGLE_ROWS:
                self.count_redundant_rows()

    def add_rows(self, rows: int) -> None:
        """Count rows that the driver has handed out, or will hand out again if *rows* is negative.

        They are counted twice, for the statement and for its connection: the end of the recording compares the sums.
        """
        self.fetched_rows = (self.fetched_rows or 0) + rows
        self.connection.row_count += rows

    def count_redundant_rows(self) -> None:
        """Count the rows fetched one by one that another statement had fetched before."""
        if self.key is not None and self.single_rows:
            rows, self.single_rows = self.single_rows, None
            self._count_redundant(self.key, rows)

    def begin_stream(self) -> None:
        """Note that rows, and their bytes, will come from the socket after the execute."""
        if self.connection is not None:
            self.connection.streaming = self

    def end_stream(self) -> None:
        """Add the bytes of the rows if they have streamed: all have come."""
        if self.connection is not None and self.connection.streaming is self:
            self.connection.streaming = None
            self._add_bytes()

    def leave_stream(self) -> None:
        """Drop the bytes of rows of which some have come and were not fetched, as many as buffers hold."""
        self.end_stream()
        if self.bytes_received is not None:
            self.bytes_received = None
            self.recording.note("the bytes of results that were not read to the end are not measured")

    def set_row_count(self, rows: int | None) -> None:
        """Set the driver's own count of rows, if it is known only after the execute has returned."""
        if rows is not None and 0 <= rows < ROW_COUNT_UNKNOWN:
            self.row_count = rows

    def add_results(self, rows: int) -> None:
        """Add the rows of one more result of a text with several statements, or of a pipeline."""
        self.total_rows = (self.total_rows or 0) + rows

    def set_error(self, error: BaseException) -> None:
        """Record the driver's error, unless an earlier statement of a pipeline caused it.

        What was read before is forgotten: what follows may be another attempt, which must read it again. That is not so
        for values that the driver may have refused.
        """
        if getattr(error, "placebench_statement", self) is not self:
            return
        self.error = type(error).__name__
        if self.repeated is not None or self.step is not None:
            self.recording.duplicates.add_write(None)
        if not self.recording.options.parameters:  # a message may quote values
            return
        try:
            self.error += f": {str(error).strip()}"
        except Exception as broken:  # noqa: BLE001  the __str__ of an application's error may fail
            self.error += f": (its message cannot be shown: {type(broken).__name__})"

    def compare(self, sql: str, values: object, facts: StatementFacts, cursor: _SendingCursor | None = None) -> None:
        """Note what a write changes, or whether a read ran before with equal values.

        cursor: is asked for the values as the driver has sent them, if their classes are unknown here.
        """
        if facts.kind != "read":
            if facts.walks:
                self._note_walk(sql, values, facts.walks)
            self.recording.duplicates.add_write(facts.table, self.connection)
            self.repeated = False
            if self.batch is None and facts.kind in ("insert", "update"):
                self._count_chunk()
            if facts.setting is not None:
                value = (sql, comparable(values)) if facts.first_word not in ("reset", "discard") else None
                self.connection.change_setting(*facts.setting, value)
            return
        shown, self.value_count = comparable(values), count_values(values)
        if shown is None and cursor is not None:
            self.unsent = sql, facts, cursor
            cursor.will_be_asked()
        self.recording.duplicates.look_up(self, sql, shown, facts)
        self.sample = []
        if values is not UNKNOWN:  # those of a statement that is only prepared come with its execution
            self.recording.origins.executed(self, values)
            if facts.walks:
                self._note_walk(sql, values, facts.walks)

    def _note_walk(self, sql: str, values: object, walks: frozenset[str]) -> None:
        """Note whether the statement reads or writes the next part of a table; values may be written into its text."""
        if len(sql) <= MAX_REMEMBERED_LENGTH:
            given = list(values.values()) if isinstance(values, Mapping) else values
            if given is None or isinstance(given, list | tuple):
                literals = literal_values(sql, self.dialect)
                if self.recording.origins.goes_on(self, (*(given or ()), *literals), walks):
                    self.sequel = "next"

    def _count_chunk(self) -> None:
        """Number the statements of one call of an ORM's bulk_create or bulk_update."""
        is_first = awaiting_chunk.get()
        if is_first is None:
            is_first = is_first_chunk(sys._getframe(2))
        if is_first is not None:
            self.batch = self.connection.batch = 1 if is_first else self.connection.batch + 1

    def _compare_sent(self, sql: str, facts: StatementFacts, cursor: _SendingCursor) -> None:
        """Note whether this read ran before, by what the driver sent; skip an executemany, which sent several sets."""
        self.unsent = None  # or the cursor would live longer than in the application
        try:
            sent = cursor.sent()
            if self.error is None and self.executions == 1:
                self.recording.duplicates.look_up(self, sql, sent, facts)
        except Exception as error:  # noqa: BLE001  called inside of the application's own calls
            self.recording.report_failure(error)

    def add_plan(self, text: str, milliseconds: float) -> None:
        """Keep a plan that the server sent; of the plans of an executemany, the most expensive one."""
        self.plans += 1
        if milliseconds > self.plan_ms:
            self.plan_text, self.plan_ms = text, milliseconds

    def plan(self) -> PlanNode | None:
        """Return the plan that the server sent for this statement; None if it sent none."""
        if self.plan_text is None:
            return None
        feed = self.connection.plans
        keys = {} if feed is None else feed.unindexed_keys
        plan = read_plan(self.plan_text, values=self.recording.options.parameters, unindexed_keys=keys)
        return replace(plan, may_stop=True) if self.is_cursor else plan

    def _count_redundant(self, key: KeyColumn, rows: Sequence[Any]) -> None:
        redundant = self.recording.duplicates.count_redundant(key, rows, self.identity, id(self))
        self.redundant_rows = (self.redundant_rows or 0) + redundant
        if key.others:
            self._add_entities(key.position, key.others, rows)

    def _add_entities(self, first: int, others: tuple[int, ...], rows: Sequence[Any]) -> None:
        """Remember the primary keys of each further table in these rows, beside those of the first, up to a limit."""
        if self.entities is None:
            self.entities = [set() for _ in others]
        try:
            for keys, position in zip(self.entities, others, strict=True):
                if len(keys) < _MAX_KEYS:
                    keys.update((row[first], row[position]) for row in rows if row[position] is not None)
        except (TypeError, KeyError, IndexError, ValueError):  # rows of a user's own class
            self.entities = [set()]

    def _entity_count(self) -> int | None:
        """Return the number of entities that belong to those of the first table; None if there are too many."""
        if self.entities is None or max(map(len, self.entities)) >= _MAX_KEYS:
            return None
        return sum(map(len, self.entities)) or None

    def _add_round_trips(self, round_trips: int) -> None:
        """Add round trips, with their bytes and their plan if these are measured."""
        self.round_trips = (self.round_trips or 0) + round_trips
        self._add_bytes()
        if self.connection.plans is not None:
            self.connection.plans.assign(self)

    def _add_bytes(self) -> None:
        """Add the bytes that the connection has carried since they were last read, if they are measured."""
        carried = self.connection.read_bytes()
        if carried is not None:
            self.bytes_sent = (self.bytes_sent or 0) + carried[0]
            self.bytes_received = (self.bytes_received or 0) + carried[1]

    def _shown(self) -> str:
        """Return the text, without literals unless values are kept."""
        return self.sql if self.recording.options.parameters else redacted(self.sql, self.dialect)

    def leaf_text(self) -> str:
        """Return the text of its leaf in a flame graph: a ping's is not that of an equal statement."""
        shown = self._shown()
        is_named = self.step is None or shown[: len(self.step)].upper() == self.step
        return shown if is_named else f"{self.step} {shown}"

    def _fetch_text(self) -> str:
        return f"fetch {self.leaf_text()}"

    def to_statement(self, origin: float) -> Statement:
        """Return the statement with its time relative to *origin*, the start of the recording."""
        self.count_redundant_rows()
        if self.connection.streaming is self:
            self.leave_stream()
        statement = UnfrozenStatement(
            sql=self._shown(),
            fingerprint=self.fingerprint,
            started_s=self.started - origin,
            parameters=self.parameters,
            caller=self.caller,
            outer_caller=self.outer_caller,
            compile_s=self.compile_s,
            pool_wait_s=self.pool_wait_s,
            execute_s=self.execute_s,
            fetch_s=self.fetch_s,
            row_count=self.rows(),
            bytes_sent=self.bytes_sent,
            bytes_received=self.bytes_received,
            round_trips=self.round_trips,
            cache_hit=self.cache_hit,
            error=self.error,
            plan=self.plan(),
            transaction=self.number,
            redundant_rows=self.redundant_rows,
            # A result that may change is requested again on purpose.
            repeated=None if self.repeated and statement_facts(self.sql, self.dialect).volatile else self.repeated,
            sequel=self.sequel,
            relationship=self.relationship,
            batch=self.batch,
            connection=self.connection.number,
            database=self.connection.database,
            engine=self.engine,
            value_count=self.value_count if self.executions == 1 else self.executions or None,
            entity_count=self._entity_count(),
            database_number=self.recording.database_number(self.identity, self.connection.database),
            load=self.load,
            origins=tuple((each.started - origin, column) for each, column in self.origins),
        )
        statement.__class__ = Statement
        return statement

    def to_transaction(self, origin: float) -> Transaction:
        """Return the transaction step with its time relative to *origin*, the start of the recording."""
        parts = [part for part in (self.compile_s, self.execute_s, self.fetch_s) if part is not None]
        return Transaction(
            kind=self.step or "",
            started_s=self.started - origin,
            elapsed_s=sum(parts) if self.execute_s is not None else None,
            round_trips=self.round_trips,
            number=self.number,
            error=self.error,
            connection=self.connection.number,
            database=self.connection.database,
        )

    def holds_several(self) -> bool:
        """Return whether the text holds more than one statement."""
        return ";" in self.sql and SECOND_STATEMENT.search(redacted(self.sql, self.dialect)) is not None

    def rows(self) -> int | None:
        """Return the driver's own count of rows, or the fetched rows if it has none (SQLite, server-side cursors).

        None if one text holds several statements and the driver counts the rows of the last one only.
        """
        if self.total_rows is not None and self.error is None:
            return max(self.total_rows, self.fetched_rows or 0)
        if ";" in self.sql and self.holds_several():
            return None
        own, count = self.row_count, self.fetched_rows
        if count is None:
            count = own
        elif own is not None and own != count:
            is_more = 0 < own < count and self.recording is not None
            if is_more and statement_facts(self.sql, self.dialect).kind == "read":
                self.recording.row_breach = f"{count} rows were fetched of {own} that the driver has"
            count = max(own, count)
        return count if count or self.error is None else None
