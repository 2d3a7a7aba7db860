"""The account of every recording: leaves, elapsed time, rows and CPU, in each mode and in each export.

Programs are generated, and run by a real driver with a clock that moves only when they say so. Each program counts by
itself what its driver did.
"""

import gc
import re
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manual_clock import ManualClock

from placebench.profiler import Clocks, Recording, SqlProfiler
from placebench.profiler.capture import external_flame_graph, flame_graph
from placebench.profiler.capture.external_sampler import StackChange
from placebench.profiler.capture.stack import Stacks, frames_of, root_of_thread

MODES = ("light", "full", "sampled", "external", "flame", "plans")
WITH_FLAME_GRAPH = MODES[2:]
TICK_S = 1e-9
"""The time by which a sum may differ for each interval in it."""

SECONDS = st.sampled_from([0.0, 1e-9, 3e-6, 19e-6, 20e-6, 0.0015, 0.25, 3.0])
FETCHES = st.sampled_from(["all", "one", "many", "for", "none", "some"])
LEAVES = st.one_of(
    st.tuples(st.just("work"), SECONDS),
    st.tuples(st.just("statement"), st.integers(0, 3), st.lists(SECONDS, min_size=1, max_size=4), FETCHES),
    st.tuples(st.just("collection"), SECONDS),
    st.tuples(st.just("inside"), st.integers(0, 3), SECONDS, SECONDS),
    st.tuples(st.just("failed"), SECONDS),
    st.tuples(st.just("sample")),
)


def _nested(programs: Any) -> Any:
    several = st.lists(programs, max_size=4)
    return st.one_of(
        st.tuples(st.just("span"), several),
        st.tuples(st.just("record"), st.sampled_from(MODES), several),
        st.tuples(st.just("rows"), st.integers(0, 3), st.lists(SECONDS, min_size=1, max_size=3), several),
    )


PROGRAMS = st.lists(st.recursive(LEAVES, _nested, max_leaves=12), min_size=1, max_size=6)


@dataclass(eq=False)
class Counts:
    """What a driver did while something was recorded: seconds and rows by statement, and the whole time."""

    driver_s: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    began: float = 0.0
    elapsed_s: float = 0.0


class ManualSamples:
    """Samples that a program takes when it says so, in place of a profile function or a thread."""

    interval_s = 0.001

    def __init__(self, machine: "Machine", *, holds: bool) -> None:
        self.holds = holds
        self.taken: list[tuple[float, Any]] = []
        self._machine = machine
        machine.sources.append(self)

    def samples(self) -> list[tuple[float, list[str]]]:
        """Stop, and return the samples."""
        self._machine.sources.remove(self)
        stacks = Stacks(root_of_thread())
        return [(at, stacks(frames)) for at, frames in self.taken]


class ManualSampler:
    """Stands for the process that samples this one."""

    def __init__(self, machine: "Machine") -> None:
        self._machine = machine
        self._sources: dict[int, ManualSamples] = {}

    def add(self, graph: object) -> None:
        """Start sampling."""
        self._sources[id(graph)] = ManualSamples(self._machine, holds=True)

    def end(self, graph: Any, *, wait: bool) -> None:  # noqa: ARG002  the sampler's own signature
        """Hand the samples to the flame graph."""
        changes = [StackChange(at, tuple(stack[1:])) for at, stack in self._sources.pop(id(graph)).samples()]
        graph.take({threading.get_ident(): changes}, is_last=True)


class Machine:
    """Runs programs on SQLite; counts what the driver does and hands out."""

    def __init__(self, profiler: SqlProfiler, clock: ManualClock) -> None:
        self.profiler = profiler
        self.clock = clock
        self.sources: list[ManualSamples] = []
        self.counts: list[Counts] = []
        self.recordings: list[tuple[Recording, Counts]] = []
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.create_function("tick", 2, self._tick)
        self.connection.create_function("collect", 2, self._collect)
        self._collection_s = 0.0

    def _tick(self, name: str, seconds: float) -> float:
        self.clock.advance(seconds)
        for each in self.counts:
            each.driver_s[name] += seconds
        return seconds

    def _collect(self, name: str, seconds: float) -> float:
        for each in self.counts:
            each.driver_s[name] += seconds
        self.collect(seconds)
        return seconds

    def collect(self, seconds: float) -> None:
        """Collect garbage, which takes so long by the clock."""
        self._collection_s = seconds
        gc.collect(0)

    def in_collection(self, phase: str, _details: object) -> None:
        """Let the time of a collection pass: the garbage collector calls this."""
        if phase == "start":
            self.clock.advance(self._collection_s)
            self._collection_s = 0.0

    def sample(self) -> None:
        """Take a sample for all flame graphs."""
        for source in self.sources:
            source.taken.append((self.clock.now, frames_of(sys._getframe(1))))

    def record(self, mode: str, program: Any) -> Recording:
        """Run a program in a recording."""
        counts = Counts(began=self.clock.now)
        self.counts.append(counts)
        try:
            with self.profiler.record("program", mode) as recording:
                self.run(program)
        finally:
            self.counts.remove(counts)
        counts.elapsed_s = self.clock.now - counts.began
        self.recordings.append((recording, counts))
        return recording

    def run(self, program: Any) -> None:
        """Run the steps of a program."""
        for step, *arguments in program:
            getattr(self, f"_run_{step}")(*arguments)

    def _run_work(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.sample()

    def _run_sample(self) -> None:
        self.sample()

    def _run_collection(self, seconds: float) -> None:
        self.collect(seconds)

    def _run_span(self, program: Any) -> None:
        with self.profiler.timed("span"):
            self.run(program)

    def _run_record(self, mode: str, program: Any) -> None:
        self.record(mode, program)

    def _select(self, number: int, seconds: list[float]) -> tuple[str, sqlite3.Cursor]:
        name = f"column_{number}"
        values = ", ".join(f"({each!r})" for each in seconds)
        cursor = self.connection.cursor()
        cursor.execute(f"select tick('{name}', column1) as {name} from (values {values})")
        self._count(name, 0)
        return name, cursor

    def _count(self, name: str, rows: int) -> None:
        for each in self.counts:
            each.rows[name] += rows
            each.calls[name] += not rows

    def _run_statement(self, number: int, seconds: list[float], how: str) -> None:
        name, cursor = self._select(number, seconds)
        if how == "all":
            rows = cursor.fetchall()
        elif how == "many":
            rows = [*cursor.fetchmany(2), *cursor.fetchmany(2)]
        elif how == "one":
            rows = []
            while (row := cursor.fetchone()) is not None:
                rows.append(row)
        elif how == "for":
            rows = list(cursor)
        else:
            rows = [cursor.fetchone()] if how == "some" else []
        if rows:
            self._count(name, len(rows))

    def _run_rows(self, number: int, seconds: list[float], program: Any) -> None:
        name, cursor = self._select(number, seconds)
        for _row in cursor:
            self._count(name, 1)
            self.run(program)

    def _run_inside(self, number: int, before_s: float, collection_s: float) -> None:
        name = f"column_{number}"
        sql = f"select tick('{name}', {before_s!r}), collect('{name}', {collection_s!r}) as {name}"
        rows = self.connection.execute(sql).fetchall()
        self._count(name, 0)
        self._count(name, len(rows))

    def _run_failed(self, seconds: float) -> None:
        with pytest.raises(sqlite3.OperationalError):
            self.connection.execute(f"select no_column, tick('none', {seconds!r}) from sqlite_master")


@contextmanager
def machine_of(monkeypatch: pytest.MonkeyPatch, *, holds: bool = False) -> Iterator[Machine]:
    """A machine whose profiler and samplers go by its own clock."""
    clock = ManualClock()
    profiler = SqlProfiler.for_drivers("sqlite3", clocks=Clocks(elapsed=clock, cpu=lambda: 0.0))
    machine = Machine(profiler, clock)
    is_enabled = gc.isenabled()
    gc.disable()
    gc.callbacks.append(machine.in_collection)
    with monkeypatch.context() as patch:
        patch.setattr(flame_graph, "_start_sampler", lambda *_: ManualSamples(machine, holds=holds))
        times = SimpleNamespace(perf_counter=clock, process_time=lambda: 0.0)
        patch.setattr(external_flame_graph, "time", times)
        sampler = ManualSampler(machine)
        patch.setattr(external_flame_graph, "external_sampler", lambda: sampler)
        try:
            yield machine
        finally:
            gc.callbacks.remove(machine.in_collection)
            if is_enabled:
                gc.enable()
            machine.connection.close()
            profiler.remove()


def name_of(text: str) -> str:
    """The name of the column that a statement selects: the statement's own in a program."""
    found = re.search(r"column_\d", text)
    return found[0] if found else ""


def by_name(session: Any) -> tuple[float, Counter[str]]:
    """The seconds of all leaves, and those of each statement with what is below it."""
    times: Counter[str] = Counter()
    for stack, seconds in session.frame_records:
        found = [frame for frame in stack if "\x00sql\x00" in frame]
        assert len(found) < 2
        if found:
            times[name_of(found[0])] += seconds
    return sum(seconds for _, seconds in session.frame_records), times


def assert_equal(found: Counter[str], expected: Counter[str], tolerance_s: float) -> None:
    """The same seconds of each statement."""
    for name in {*found, *expected} - {"", "none"}:
        assert found[name] == pytest.approx(expected[name], abs=tolerance_s), name


def assert_account_holds(recording: Recording, counts: Counts) -> None:
    """What the recording says is what its program has counted."""
    tolerance_s = TICK_S * 500
    assert (recording.breaches, recording.gaps) == ((), ())
    assert recording.elapsed_s == pytest.approx(counts.elapsed_s, abs=tolerance_s)
    rows, calls, driver_s = Counter[str](), Counter[str](), Counter[str]()
    for each in recording.statements:
        name = name_of(each.sql)
        rows[name] += each.row_count or 0
        calls[name] += 1
        driver_s[name] += (each.execute_s or 0.0) + (each.fetch_s or 0.0)
    assert {name: rows[name] for name in counts.calls} == {name: counts.rows[name] for name in counts.calls}
    assert {name: calls[name] for name in counts.calls} == dict(counts.calls)
    assert_equal(driver_s, counts.driver_s, tolerance_s)
    parts = [each.elapsed_s or 0.0 for each in (*recording.statements, *recording.transactions)]
    assert recording.sql_s == pytest.approx(sum(parts), abs=tolerance_s)
    assert (recording.session is not None) == (recording.mode in WITH_FLAME_GRAPH)
    if recording.session is not None:
        total, leaves = by_name(recording.session)
        assert total == pytest.approx(recording.elapsed_s, abs=tolerance_s)
        assert_equal(leaves, driver_s, tolerance_s)


@given(st.sampled_from(MODES), PROGRAMS, st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_recording_is_an_account_of_its_program(mode: str, program: Any, holds: bool) -> None:
    """In each mode: leaves, elapsed time, calls and rows are those that the program counted."""
    with pytest.MonkeyPatch.context() as patch, machine_of(patch, holds=holds) as machine:
        machine.record(mode, program)

        for recording, counts in machine.recordings:
            assert_account_holds(recording, counts)
