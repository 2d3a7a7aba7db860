"""Timed drivers without SQLAlchemy: what their cursors and connections write into the running recording."""

import gc
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from placebench.profiler import SqlProfiler
from placebench.profiler.capture import loop_origins, pending_statement, sent_values
from placebench.profiler.capture.active_recording import ActiveRecording
from placebench.profiler.capture.loop_origins import LoopOrigins
from placebench.profiler.capture.options import Clocks, Options
from placebench.profiler.capture.pending_statement import PendingStatement

ALONE = """
import sqlite3
import sys

sys.modules["sqlalchemy"] = None  # an import of it fails

from placebench.profiler.capture.active_recording import ActiveRecording
from placebench.profiler.capture.driver_recorder import DriverRecorder
from placebench.profiler.capture.options import Clocks, Options
from placebench.profiler.drivers.driver_hooks import use_timed_classes
from placebench.profiler.recording import Recording

recorder, arguments = DriverRecorder(), {}
use_timed_classes(recorder, "pysqlite", arguments)
connection = sqlite3.connect(":memory:", **arguments)
connection.execute("create table unseen (id)")
active = ActiveRecording("alone", Options(), Clocks(), recorder.report_failure)
recorder.current.set(active)
cursor = connection.cursor()
for number in range(5):
    cursor.execute("select ?", (number,)).fetchall()
cursor.execute("insert into unseen values (1)")
connection.commit()
recorder.current.set(None)
active.end()
recording = Recording("alone", "full")
active.fill(recording, measured=True)
for each in recording.statements[-2:]:
    print(each.sql, each.row_count, each.caller.line > 0, each.fetch_s is not None)
print([step.kind for step in recording.transactions], len(active.failed_hooks), len(recording.statements))
print([finding.kind for finding in recording.findings()], recording.sql_s > 0)
"""


@pytest.mark.processes
def test_a_program_without_sqlalchemy_is_recorded(tmp_path: Path) -> None:
    """Statements with rows, call site and fetch, BEGIN and COMMIT, and findings; nothing imports SQLAlchemy."""
    program = tmp_path / "alone.py"
    program.write_text(ALONE)

    printed = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)

    assert (printed.stderr, printed.stdout.splitlines()) == (
        "",
        [
            "select ? 1 True True",
            "insert into unseen values (?) 1 True False",
            "['BEGIN', 'COMMIT'] 0 6",
            "['n+1'] True",
        ],
    )


def test_a_garbage_collection_inside_of_the_sum_of_the_driver_times_does_not_break_it() -> None:
    """It drops connections while their states are read, which `dict.copy()` of CPython 3.11 does not survive."""

    class Connection:
        """One that only the garbage collector frees."""

        def __init__(self) -> None:
            self.me = self

    thresholds, held = gc.get_threshold(), [dict[str, str]() for _ in range(200)]  # none is left to be used again
    try:
        for first in range(1, 20):
            active = ActiveRecording("collected", Options(), Clocks(), print)
            for _ in range(4):
                active.connection_state(Connection()).measured_s = 0.25
            held += [{} for _ in range(200)]
            gc.set_threshold(gc.get_count()[0] + first)
            seconds = active.sql_s()
            gc.set_threshold(*thresholds)

            assert 1.0 == seconds
    finally:
        gc.set_threshold(*thresholds)


class TimeLimitError(Exception):
    """What a signal's handler raises, as Celery's does at its soft time limit."""


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (PendingStatement, "compare"),
        (pending_statement, "count_values"),
        (LoopOrigins, "executed"),
        (loop_origins, "_short_cells"),
        (sent_values, "marshal"),
    ],
)
def test_the_error_of_a_signals_handler_is_the_applications(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """A signal may come while the profiler works: a time limit holds all the same, and no hook has failed."""

    def exceed(*_: object) -> None:
        raise TimeLimitError

    class Interrupted:
        def __getattr__(self, _name: str) -> Any:
            return signal.raise_signal(signal.SIGINT)

        def __call__(self, *_: object) -> Any:
            return signal.raise_signal(signal.SIGINT)

    profiler = SqlProfiler.for_drivers("sqlite3")
    connection = sqlite3.connect(":memory:")

    def run() -> None:
        connection.execute("select 7 as number").fetchall()
        monkeypatch.setattr(owner, name, Interrupted())
        for number in range(3):
            connection.execute("select ?", (number,)).fetchall()

    before = signal.signal(signal.SIGINT, exceed)
    try:
        with profiler.record("request") as recording, pytest.raises(TimeLimitError):
            run()
    finally:
        signal.signal(signal.SIGINT, before)
        profiler.remove()

    assert recording.failed_hooks == ()
