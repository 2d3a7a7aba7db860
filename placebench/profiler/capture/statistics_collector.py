"""Statistics of every statement of a process, without recordings: `StatisticsCollector`.

If nothing is recorded, the timed cursors get a `_MeasuredStatement` instead of a pending one. It is counted when it is
deleted, with its cursor or at the cursor's next statement, or when it fails. No listener of SQLAlchemy is needed.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from placebench.profiler.capture.options import Clock
from placebench.profiler.capture.pending_statement import ROW_COUNT_UNKNOWN, PendingStatement, guarded
from placebench.profiler.model.sql_tokens import redacted
from placebench.profiler.model.statement_facts import statement_facts
from placebench.profiler.model.statement_statistics import OTHER, StatementStatistics

_MAX_SQL_LENGTH = 1000
_MAX_TEXTS = 4096
_COUNTED_STEPS = ("COMMIT", "ROLLBACK")


class StatisticsCollector:
    """Counts statements by fingerprint, in bounded memory; threads may share it, and a forked process starts from zero.

    max_fingerprints: the number of fingerprints counted separately; all later ones are counted together as "other".
    report_failure: called with an error instead of raising it.
    """

    def __init__(self, max_fingerprints: int, clock: Clock, report_failure: Callable[[Exception], None]) -> None:
        self.max_fingerprints = max_fingerprints
        self.clock = clock
        self.report_failure = report_failure
        self._start_anew()

    def measure(self, sql: str, dialect: str | None = None) -> PendingStatement:
        """Start a statement that is not part of a recording."""
        return _MeasuredStatement(self, sql, dialect)

    def add_measured(self, measured: "_MeasuredStatement") -> None:
        """Count a statement that has ended and is not part of a recording."""
        measured.counted = True
        rows, failed = measured.rows(), measured.error is not None
        try:
            key = hash(measured.sql)
            if os.getpid() != self._pid:
                self._start_anew()
            try:
                statistics = self._by_text[key]
            except KeyError:
                statistics = self._find(measured.sql, measured.dialect)
                if len(self._by_text) >= _MAX_TEXTS:
                    self._by_text.clear()
                self._by_text[key] = statistics
            if statistics is not None:
                with self._lock:
                    statistics.add(measured.seconds, rows, failed=failed)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.report_failure(error)

    @guarded
    def add_recorded(self, statements: Iterable[PendingStatement], steps: Iterable[PendingStatement]) -> None:
        """Count the statements and transaction steps of a recording that has ended, each once."""
        if os.getpid() != self._pid:
            self._start_anew()
        ended = [(each, each.fingerprint, each.sql) for each in statements if not each.step]
        ended += [(each, each.step, each.step) for each in steps if each.step in _COUNTED_STEPS]
        for each, name, text in ended:
            if not each.counted and each.execute_s is not None:
                each.counted = True
                statistics, seconds = self._named(name, text, each.dialect), each.execute_s + (each.fetch_s or 0.0)
                with self._lock:
                    statistics.add(seconds, each.rows(), failed=each.error is not None)

    def statistics(self) -> Sequence[StatementStatistics]:
        """Return the statistics of this process so far, the most expensive first and "other" last."""
        if os.getpid() != self._pid:
            self._start_anew()
        with self._lock:
            every = [each.copy() for each in self._by_fingerprint.values()]
        return sorted(every, key=lambda each: (each.fingerprint == OTHER, -each.total_s))

    def _start_anew(self) -> None:
        """Start from zero, with a new lock: another process may hold an inherited one."""
        # Reentrant: the garbage collector may delete a statement while another one is counted.
        self._lock = threading.RLock()
        self._by_text: dict[int, StatementStatistics | None] = {}
        self._by_fingerprint: dict[str, StatementStatistics] = {}
        self._pid = os.getpid()

    def _find(self, text: str, dialect: str | None) -> StatementStatistics | None:
        """Return the counter for *text*, or None for transaction steps other than COMMIT and ROLLBACK."""
        facts = statement_facts(text, dialect)
        step = facts.step if text else "PING"  # psycopg's pool tests a connection with no text
        if step is None:
            return self._named(facts.fingerprint, text, dialect)
        return self._named(step, step, dialect) if step in _COUNTED_STEPS else None

    def _named(self, name: str, text: str, dialect: str | None) -> StatementStatistics:
        with self._lock:
            found = self._by_fingerprint.get(name)
            if found is None:
                if len(self._by_fingerprint) >= self.max_fingerprints:
                    name, text = OTHER, ""
                shown = redacted(text[:_MAX_SQL_LENGTH], dialect)
                found = self._by_fingerprint.setdefault(name, StatementStatistics(name, shown))
            return found


class _MeasuredStatement(PendingStatement):
    """A statement that is only counted: its seconds, its rows and whether it failed."""

    # What a statement of a recording sets when it begins, and this one does not.
    executing = rows_come_alone = False
    bytes_received = bytes_sent = fetched_rows = round_trips = row_count = value_count = None
    compile_s = execute_s = fetch_s = None
    caller = outer_caller = frames = cache_hit = identity = key = number = repeated = sample = step = None
    fingerprint, place, started = "", 0, 0.0
    connection: Any = None
    recording: Any = None
    seconds = 0.0
    _executed = False

    def __init__(self, collector: StatisticsCollector, sql: str, dialect: str | None) -> None:
        self._collector = collector
        self.sql = sql
        self.dialect = dialect
        self.clock = clock = collector.clock
        self.entered = clock()

    def __del__(self) -> None:
        if not self.counted:
            self._collector.add_measured(self)

    def driver_called(self) -> None:
        """Start the driver clock: the driver is about to be called."""
        self.entered = self.clock()

    def execute_returned(self, _round_trips: int | None, rows: int | None = None) -> None:
        """Record that the driver's execute has returned or raised."""
        self.seconds += self.clock() - self.entered
        self._executed = True
        if rows is not None and 0 <= rows < ROW_COUNT_UNKNOWN:
            self.row_count = rows
        if self.error is not None:
            self._collector.add_measured(self)

    def fetch_returned(self, rows: Sequence[Any], _round_trips: int | None) -> None:
        """Record that the driver's fetch has returned these rows."""
        self.seconds += self.clock() - self.entered
        self.add_rows(len(rows))

    def row_returned(self, row: Any, seconds: float) -> None:
        """Record one further row fetched by itself."""
        self.seconds += seconds
        if row is not None:
            self.add_rows(1)

    def add_rows(self, rows: int) -> None:
        """Count rows that the driver has handed out; there is no recording whose sums could be compared."""
        self.fetched_rows = rows + (self.fetched_rows or 0)

    def set_error(self, error: BaseException) -> None:
        """Record the driver's error, unless an earlier statement of a pipeline caused it."""
        if getattr(error, "placebench_statement", self) is not self:
            return
        self.error = type(error).__name__
        # The traceback keeps the cursor, and with it this statement, as long as the error lives.
        if self._executed and not self.counted:
            self._collector.add_measured(self)


def as_text(sql: Any, cursor: object) -> str:
    """Return a statement as text; a `Composed` of psycopg needs the *cursor* to quote its names."""
    if isinstance(sql, str):
        return sql
    if isinstance(sql, bytes):
        return sql.decode(errors="replace")
    try:
        return str(sql.as_string(cursor))
    except Exception:  # noqa: BLE001  the driver refuses it too, and says why
        return str(sql)
