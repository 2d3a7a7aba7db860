"""Records the calls of timed cursors and connections as statements of the running recording; needs no SQLAlchemy.

The main class is `DriverRecorder`. A ContextVar holds the recording of this thread or task. If a hook fails, the figure
that it measures is missing: the failure is named in the recording, logged once, and never reaches the application.
"""

import functools
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from placebench.profiler.capture.account import CpuAccount
from placebench.profiler.capture.active_recording import (
    ActiveRecording,
    BackgroundRecording,
    CurrentRecording,
    ProcessRecording,
    ProgramRecording,
)
from placebench.profiler.capture.auto_explain import disable_plans, enable_plans, estimated_plan
from placebench.profiler.capture.call_sites import find_callers
from placebench.profiler.capture.connection_state import ConnectionState, driver_connection
from placebench.profiler.capture.later_work import begin_later, is_unseen
from placebench.profiler.capture.pending_statement import PendingStatement, guarded
from placebench.profiler.capture.signal_errors import is_from_signal
from placebench.profiler.capture.statistics_collector import StatisticsCollector, as_text
from placebench.profiler.capture.timed_cursor import TimedConnection, TimedCursor
from placebench.profiler.model.statement_facts import statement_facts

_LOG = logging.getLogger("placebench.profiler")
# psycopg 3 is pinged with an empty statement.
_PING = re.compile(r"\s*(?:select\s+1\s*)?(?:;\s*)?\Z", re.IGNORECASE)

MAX_PARAMETERS_LENGTH = 1000
# Steps on a connection that is in no transaction: of a pool, of MySQL's drivers, and with a transaction of another one.
_OUTSIDE = ("PING", "RESET", "AUTOCOMMIT", "COMMIT PREPARED", "ROLLBACK PREPARED")
_ENDS = ("COMMIT", "ROLLBACK", *_OUTSIDE)


def while_recording(hook: Callable[..., None]) -> Callable[..., None]:
    """Return a listener that calls *hook* with the running recording, if there is one, and never raises."""

    @functools.wraps(hook)
    def listener(self: "DriverRecorder", *args: Any) -> None:
        recording = self.current.get()
        if recording is None or recording.ended:
            return
        try:
            hook(self, recording, *args)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.report_failure(error)

    return listener


class DriverRecorder:
    """Records the work of timed cursors and connections; without effect if no recording runs.

    current: the recording that runs in this thread or task, or with *whole_process* in all of them.
    installed: whether new connections are timed, as they are until the profiler is removed.
    is_second: whether it was given connections that are timed for another profiler.
    running: all recordings that run in this process.
    unprofiled: whether this thread or task is left out on purpose.
    collector: counts every statement, recorded or not; None if nothing is counted.
    connecting: the CONNECT that runs in this thread or task.
    pool_request: the request for a pooled connection, from the pool's queue until the checkout.
    """

    def __init__(self, *, whole_process: bool = False) -> None:
        self.current: CurrentRecording = (
            ProcessRecording() if whole_process else ContextVar("placebench_recording", default=None)
        )
        self.connecting: ContextVar[PendingStatement | None] = ContextVar("placebench_connecting", default=None)
        self.pool_request: ContextVar[Any] = ContextVar("placebench_pool_request", default=None)
        self.timed_classes: dict[tuple[type, type], type] = {}
        self.installed: bool = False
        self.is_second: bool = False
        self.running: set[ActiveRecording] = set()
        self.unprofiled: ContextVar[bool] = ContextVar("placebench_unprofiled", default=False)
        self.collector: StatisticsCollector | None = None
        self._own: ContextVar[bool] = ContextVar("placebench_own", default=False)
        self._logged: set[str] = set()
        # Without the GIL an addition can be lost; the garbage collector may run a statement in the middle of it.
        self._counting = threading.RLock()
        self._cpu_account = CpuAccount()

    def report_failure(self, error: Exception) -> None:
        """Name the hook that failed with *error* in the recording of this thread or task, or in all; log it once.

        Raises the error of a signal's handler, which has only interrupted the hook.
        """
        if is_from_signal(error):
            raise error
        traceback = error.__traceback__
        inner = traceback.tb_next or traceback if traceback is not None else None
        hook = "?" if inner is None else inner.tb_frame.f_code.co_name.strip("_")
        failure = f"{hook}: {type(error).__name__}"
        recording = self.current.get()
        for each in tuple(self.running) if recording is None else (recording,):
            each.failed_hooks.add(failure)
        if failure not in self._logged:
            self._logged.add(failure)
            _LOG.warning("a hook of the SQL profiler failed, what it measures is missing: %s", failure, exc_info=error)

    def active_recording(self) -> ActiveRecording | None:
        """Return the recording to write into; None if nothing is being recorded."""
        recording = self.current.get()
        return None if recording is None or recording.ended else recording

    def recording_of_work(self) -> ActiveRecording | None:
        """Return the recording to write into, like `active_recording`; begin that of work whose cause has ended."""
        recording = self.current.get()
        if recording is None or not recording.ended:
            return recording
        return self._begin_later(recording)

    @guarded
    def _begin_later(self, ended: ActiveRecording) -> ActiveRecording | None:
        return begin_later(ended)

    def count_missed(self) -> None:
        """Count an unrecorded statement as missed in all running recordings, unless it is left out on purpose."""
        recording = self.current.get()
        if self.running and (recording is None or is_unseen(recording)) and not self.unprofiled.get():
            with self._counting:
                for recording in tuple(self.running):
                    recording.missed += 1

    @guarded
    def count_started(self, what: str) -> None:
        """Note in the recording of this thread or task that it has started a *what*, whose statements nobody sees.

        The command line counts the child processes of a program by itself, by their commands too. Below a command,
        processes and sub-interpreters record themselves.
        """
        recording = self.active_recording()
        seen = BackgroundRecording if what == "sub-interpreter" else ProgramRecording
        if recording is not None and not isinstance(self.current, seen):
            recording.started_unseen[what] += 1

    @guarded
    def driver_call(self, cursor: TimedCursor, sql: object, values: object = None) -> PendingStatement | None:
        """Return the statement of an execute: SQLAlchemy's, or a new one if the application uses the cursor itself."""
        pending = cursor.placebench_pending
        if pending is not None and pending.executing:
            pending.first_driver_call()
            return pending
        recording = self.recording_of_work()
        if recording is None:
            self.count_missed()
            cursor.placebench_pending = self.measure(sql, cursor)
            return cursor.placebench_pending
        # Statements that run while connecting are part of the CONNECT.
        connecting = self.connecting.get() is not None
        cursor.placebench_pending = None if connecting else self._start(recording, cursor, sql, values)
        return cursor.placebench_pending

    @guarded
    def driver_values(
        self, pending: PendingStatement, sql: str, values: object, cursor: TimedCursor | None = None
    ) -> None:
        """Compare a statement and its values with earlier ones; do nothing in mode light."""
        recording = pending.recording
        if recording is None or recording.options.mode == "light":  # a statement that is only counted has none
            return
        pending.compare(sql, values, statement_facts(sql, pending.dialect), cursor)
        if recording.options.parameters:
            pending.parameters = repr(values)[:MAX_PARAMETERS_LENGTH]

    @guarded
    def forget_reads(self) -> None:
        """Forget all reads so far: the connection may use another database now, so later reads are no repetitions."""
        recording = self.active_recording()
        if recording is not None:
            recording.duplicates.add_write(None)

    @contextmanager
    def waiting_for_pool(self) -> Iterator[Callable[[object], object]]:
        """Measure a wait for the connection of a pool; the caller passes the connection to the yielded function.

        For pools of drivers, without SQLAlchemy. The wait is charged to the connection's next statement, without the
        time in which the pool tests the connection.
        """
        recording = self.recording_of_work()
        if recording is None:
            yield lambda _connection: None
            return
        started, measured_s = recording.clock(), recording.sql_s()

        def end_wait(connection: object) -> None:
            try:
                state = recording.connection_state(connection)
                state.pool_wait_s = max(0.0, recording.clock() - started - (recording.sql_s() - measured_s))
                state.measured_s += state.pool_wait_s
            except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
                self.report_failure(error)

        try:
            yield end_wait
        except Exception as error:
            if type(error).__name__ == "PoolTimeout":
                pending = recording.start_statement(None, "POOL TIMEOUT", "POOL TIMEOUT")
                pending.started = pending.entered = started
                pending.set_error(error)
                pending.execute_returned(None)
            raise

    @guarded
    def driver_step(self, connection: TimedConnection, step: str) -> PendingStatement | None:
        """Start a transaction step; None for the pool's rollback without a transaction, and inside of a CONNECT."""
        # What closes a connection after the response is no work of its own.
        begins = step in ("BEGIN", "COMMIT")
        recording = self.recording_of_work() if begins else self.active_recording()
        if recording is None:
            ends = step in ("COMMIT", "ROLLBACK") and self.collector is not None and connection.in_a_transaction()
            return self.measure(step) if ends else None
        if self.connecting.get() is not None:
            return None
        state = recording.connection_state(connection)
        if connection.has_ended_alone():
            state.transaction = None
        if step == "BEGIN":
            self._begin_transaction(recording, state)
        elif step not in _OUTSIDE and state.transaction is None and not connection.in_a_transaction():
            return None
        pending = recording.start_statement(connection, step, step)
        # Statistics include the end of a driver transaction whether or not it is being recorded.
        pending.counted = self.collector is not None and not connection.in_a_transaction()
        if step in _ENDS:
            state.transaction = None
        return pending

    @contextmanager
    def connecting_step(self) -> Iterator[None]:
        """Record a driver's connect as a CONNECT, unless it is part of SQLAlchemy's."""
        pending = self._start_connecting()
        if pending is None:
            yield
            return
        self.connecting.set(pending)
        try:
            yield
        except BaseException as error:
            pending.set_error(error)
            raise
        finally:
            self.connecting.set(None)
            pending.execute_returned(None)

    @guarded
    def _start_connecting(self) -> PendingStatement | None:
        recording = self.recording_of_work()
        if recording is None or self.connecting.get() is not None:
            return None
        return recording.start_statement(None, "CONNECT", "CONNECT")

    @guarded
    def change(self, how: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Call *how* to make a connection, or the arguments of a connect, timed; do nothing after `remove`."""
        if self.installed:
            how(self, *args, **kwargs)

    def measure(self, sql: object, cursor: object = None) -> PendingStatement | None:
        """Start a statement that is only counted; None if statistics are off or the statement is the profiler's own."""
        if self.collector is None or self._own.get():
            return None
        dialect = getattr(cursor, "placebench_dialect", None)
        return self.collector.measure(sql if isinstance(sql, str) else as_text(sql, cursor), dialect)

    def _start(self, recording: ActiveRecording, cursor: Any, sql: object, values: object) -> PendingStatement:
        """Start a statement that did not come through SQLAlchemy: a pool's ping, or the application's own."""
        text = as_text(sql, cursor)
        # Between the pool's queue and its checkout event only the pool's test of a connection runs. The test of
        # psycopg's own pool is an empty statement.
        ping = not text or (self.pool_request.get() is not None and _PING.match(text))
        dialect = cursor.placebench_dialect
        facts = statement_facts(text, dialect)
        step = "PING" if ping else facts.step
        connection = cursor.connection
        if isinstance(connection, TimedConnection):
            pending = self._start_alone(recording, connection, text, step, facts.last_step)
        else:
            pending = recording.start_statement(connection, text, step)
        pending.compile_s = 0.0
        locate(pending, text, dialect)
        if step is None:
            self.driver_values(pending, text, values, cursor if isinstance(cursor, TimedCursor) else None)
        pending.first_driver_call()
        return pending

    def _start_alone(
        self,
        recording: ActiveRecording,
        connection: TimedConnection,
        text: str,
        step: str | None,
        last_step: str | None,
    ) -> PendingStatement:
        """Start a statement that SQLAlchemy does not run: the driver or the text itself begins the transaction.

        last_step: the last step of a text with several statements.
        """
        if recording.options.mode == "plans" and not connection.placebench_adopted:
            recording.note("no plans: only with SQLAlchemy does the profiler see when a connection is idle")
        state = recording.connection_state(connection)
        if connection.has_ended_alone():
            state.transaction = None
        if state.transaction is None and connection.begins(text):
            self._begin_transaction(recording, state)
            if not connection.has_begun():  # before the recording, or in the one around it
                recording.start_statement(connection, "BEGIN", "BEGIN")
        pending = recording.start_statement(connection, text, step)
        if step == "BEGIN" or (step == "SAVEPOINT" and state.transaction is None and connection.savepoints_begin):
            self._begin_transaction(recording, state)
            pending.number = state.transaction
        elif step in ("COMMIT", "ROLLBACK") or last_step in ("COMMIT", "ROLLBACK"):
            state.transaction = None
        elif last_step == "BEGIN":
            self._begin_transaction(recording, state)
        if step is None and state.pool_wait_s is not None:
            pending.pool_wait_s, state.pool_wait_s = state.pool_wait_s, 0.0  # once: the next statements get 0
        return pending

    @staticmethod
    def _begin_transaction(recording: ActiveRecording, state: ConnectionState) -> None:
        recording.transaction_count += 1
        state.transaction = recording.transaction_count

    def recording_started(self, recording: ActiveRecording) -> None:
        """Add a recording that runs from now on.

        Recordings that take turns on a thread, such as those of trio's tasks, have no CPU time of their own.
        """
        within, around = {recording}, recording.around
        while around is not None:
            within.add(around)
            around = around.around
        for other in tuple(self.running) if self.running else ():
            if other not in within and (other.thread == recording.thread or recording.measures_process):
                other.shares_cpu_time = recording.shares_cpu_time = True
        self.running.add(recording)
        self._cpu_account.begin(recording.process_started_s)

    def recording_ended(self, recording: ActiveRecording) -> None:
        """Remove a recording that has ended, and compare its CPU time with that of the process."""
        self.running.discard(recording)
        cpu_s = None if recording.around is not None else recording.cpu_s
        if (breach := self._cpu_account.end(cpu_s, recording.process_clock)) is not None:
            recording.cpu_s = None
            recording.breaches.append(breach)

    # Plans.

    def request_plans(self, recording: ActiveRecording, dbapi_connection: object) -> None:
        """Have this connection send its plans to *recording*, or note there why it cannot."""
        state = recording.connection_state(dbapi_connection)
        if state.plans is not None and state.plans.enabled:
            return
        connection = driver_connection(dbapi_connection)
        feed = connection.placebench_plans if isinstance(connection, TimedConnection) else None
        if not isinstance(connection, TimedConnection) or feed is None:
            recording.note(
                "no plans: only PostgreSQL by psycopg2 or psycopg 3 sends them, on connections made after SqlProfiler"
            )
        elif feed.refusal is None and not feed.enabled and connection.in_a_transaction():
            recording.note("no plans for a transaction that had begun before the recording")
        else:
            started = recording.clock()
            if not feed.enabled and feed.refusal is None:
                with self._unrecorded():
                    enable_plans(feed, dbapi_connection, cast(Any, connection).info.backend_pid)
            if feed.refusal is None:
                state.plans, state.quiet = feed, False
            else:
                recording.note(feed.refusal)
            recording.add_plan_setup(recording.clock() - started)

    def stop_plans(self, dbapi_connection: object) -> None:
        """Restore the settings of a connection that sends plans, unless it is in a transaction."""
        connection = driver_connection(dbapi_connection)
        if not isinstance(connection, TimedConnection):
            return
        feed = getattr(connection, "__dict__", {}).get("placebench_plans")  # the attribute would make a feed
        if feed is not None and feed.enabled and not connection.in_a_transaction():
            recording = self.active_recording()
            started = 0.0 if recording is None else recording.clock()
            with self._unrecorded():
                disable_plans(feed, dbapi_connection)
            if recording is not None:
                recording.add_plan_setup(recording.clock() - started)

    def explain(self, pending: PendingStatement, dbapi_connection: object, sql: str, parameters: object) -> None:
        """Have PostgreSQL estimate the plan of a statement that has just run."""
        connection = driver_connection(dbapi_connection)
        if isinstance(connection, TimedConnection) and connection.placebench_plans is not None:
            with self._unrecorded():
                pending.plan_text = estimated_plan(dbapi_connection, sql, parameters)

    @contextmanager
    def _unrecorded(self) -> Iterator[None]:
        """Keep the profiler's own statements out of recordings and statistics."""
        recording, unprofiled = self.current.get(), self.unprofiled.get()
        self.current.set(None)
        self.unprofiled.set(True)
        self._own.set(True)
        try:
            yield
        finally:
            self._own.set(False)
            self.current.set(recording)
            self.unprofiled.set(unprofiled)

    def garbage_collected(self, phase: str, details: dict[str, int]) -> None:
        """Measure a garbage collection; registered in `gc.callbacks`. No helpers: a request may have a hundred."""
        recording = self.current.get()
        if recording is None or recording.ended:
            return
        try:
            if phase == "start":
                recording.gc_started = recording.clock()
            elif recording.gc_started is not None:
                now = recording.clock()
                recording.gc_s += now - recording.gc_started
                recording.gc_collections += 1
                if recording.flame_graph is not None:
                    label = f"garbage collection, generation {details['generation']}"
                    recording.add_leaf(recording.gc_started, now, lambda: label, "gc")
                recording.gc_started = None
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.report_failure(error)


def locate(pending: PendingStatement, sql: str, dialect: str | None) -> None:
    """Note the fingerprint of a statement that SQLAlchemy did not prepare and, unless in mode light, its call site."""
    pending.executing = False
    pending.dialect = dialect
    pending.fingerprint = statement_facts(sql, dialect).fingerprint
    if pending.recording.options.mode != "light":
        pending.caller, pending.outer_caller = find_callers(sys._getframe(1), pending.recording.application)
