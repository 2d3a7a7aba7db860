"""The account of every recording: leaves, elapsed time, rows and CPU, in each mode and in each export.

Programs are generated, and run by a real driver with a clock that moves only when they say so. Each program counts by
itself what its driver did.
"""

import contextvars
import gc
import json
import re
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manual_clock import ManualClock

from placebench.profiler import (
    Clocks,
    Recording,
    SqlProfiler,
    write_firefox_profile,
    write_flame_page,
    write_otlp_metrics,
    write_otlp_traces,
    write_speedscope,
)
from placebench.profiler.analysis import merging
from placebench.profiler.analysis.budget import Budget
from placebench.profiler.capture import external_flame_graph, flame_graph, timeline
from placebench.profiler.capture.external_sampler import StackChange
from placebench.profiler.capture.pending_statement import PendingStatement
from placebench.profiler.capture.stack import Stacks, frames_of, root_of_thread

MODES = ("light", "full", "sampled", "external", "flame", "plans")
WITH_FLAME_GRAPH = MODES[2:]
TICK_S = 1e-9
"""The time by which a sum may differ for each interval in it."""

SECONDS = st.sampled_from([0.0, 1e-9, 3e-6, 19e-6, 20e-6, 0.0015, 0.25, 3.0])
FETCHES = st.sampled_from(["all", "one", "many", "for", "none", "some"])
LEAVES = st.one_of(
    st.tuples(st.just("work"), SECONDS),
    st.tuples(st.just("gap"), SECONDS),
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
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
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

    def _run_gap(self, seconds: float) -> None:
        self.clock.advance(seconds)

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
@settings(max_examples=100, deadline=None)
def test_every_recording_is_an_account_of_its_program(mode: str, program: Any, holds: bool) -> None:
    """In each mode: leaves, elapsed time, calls and rows are those that the program counted."""
    with pytest.MonkeyPatch.context() as patch, machine_of(patch, holds=holds) as machine:
        machine.record(mode, program)

        for recording, counts in machine.recordings:
            assert_account_holds(recording, counts)


@pytest.mark.parametrize("fetches_here", [False, True], ids=["one thread", "two threads"])
@pytest.mark.parametrize("fetch_s", [3e-6, 0.5], ids=["too short to be noted", "noted"])
def test_a_statement_of_another_thread_has_all_of_its_leaves(fetches_here: bool, fetch_s: float) -> None:
    """In mode external: its fetches too, whichever thread they ran in and however short they were."""
    with pytest.MonkeyPatch.context() as patch, machine_of(patch) as machine:
        cursor = machine.connection.cursor()

        def execute() -> None:
            cursor.execute(f"select tick('column_1', column1) as column_1 from (values (0.25), ({fetch_s!r}))")
            if not fetches_here:
                cursor.fetchall()

        with machine.profiler.record("program", "external") as recording:
            thread = threading.Thread(target=contextvars.copy_context().run, args=(execute,))
            thread.start()
            thread.join()
            if fetches_here:
                cursor.fetchall()
            machine.clock.advance(1.0)

    assert recording.breaches == ()
    assert by_name(recording.session)[1]["column_1"] == pytest.approx(0.25 + fetch_s)


@given(PROGRAMS)
@settings(max_examples=30, deadline=None)
def test_statistics_are_an_account_of_recorded_and_other_statements(program: Any) -> None:
    """Calls, rows and seconds of each statement, inside of recordings and outside, each once."""
    with pytest.MonkeyPatch.context() as patch, machine_of(patch) as machine:
        machine.profiler.collect_statistics()
        counts = Counts()
        machine.counts.append(counts)
        machine.run(program)
        statistics = machine.profiler.statistics()

    calls, rows, driver_s = Counter[str](), Counter[str](), Counter[str]()
    for each in statistics:
        if name := name_of(each.sql):
            calls[name] += each.count
            rows[name] += each.row_count or 0
            driver_s[name] += each.total_s
    assert (calls, rows) == (counts.calls, counts.rows)
    assert_equal(driver_s, counts.driver_s, TICK_S * 500)


def speedscope_s(path: Path) -> tuple[float, Counter[str]]:
    """The time of a file for speedscope, and that of each statement: between the events that open and close it."""
    document = json.loads(path.read_text())
    names = [frame["name"] for frame in document["shared"]["frames"]]
    (profile,) = document["profiles"]
    times: Counter[str] = Counter()
    opened: list[tuple[str, float]] = []
    for event in profile["events"]:
        if event["type"] == "O":
            opened.append((names[event["frame"]], event["at"]))
        else:
            name, began = opened.pop()
            times[name_of(name)] += event["at"] - began
    assert opened == []
    last = max((event["at"] for event in profile["events"]), default=0.0)
    assert profile["endValue"] == pytest.approx(last, abs=TICK_S * 500)
    return last, times


def firefox_s(path: Path) -> tuple[float, Counter[str], Counter[str]]:
    """The time of Python's track, that of each statement in it, and that of each in the tracks of connections."""
    document = json.loads(path.read_text())
    shared, (python, *connections) = document["shared"], document["threads"]
    texts, stacks = shared["stringArray"], shared["stackTable"]
    leaves: Counter[str] = Counter()
    for stack, weight in zip(python["samples"]["stack"], python["samples"]["weight"], strict=True):
        frames, below = [], stack
        while below is not None:
            function = shared["frameTable"]["func"][stacks["frame"][below]]
            frames.append(texts[shared["funcTable"]["name"][function]])
            below = stacks["prefix"][below]
        names = [name for frame in frames if (name := name_of(frame))]
        if names:
            leaves[names[0]] += weight / 1e3
    markers: Counter[str] = Counter()
    for track in connections:
        lengths = [
            0.0 if end is None else end - start
            for start, end in zip(track["markers"]["startTime"], track["markers"]["endTime"], strict=True)
        ]
        assert sum(track["samples"]["weight"]) == pytest.approx(sum(lengths), abs=TICK_S * 1e6)
        for data in track["markers"]["data"]:
            seconds = (data.get("execute") or 0.0) + (data.get("fetch") or 0.0)
            markers[name_of(texts[data["sql"]])] += seconds / 1e3
    return sum(python["samples"]["weight"]) / 1e3, leaves, markers


def otlp_s(folder: Path, recording: Recording) -> tuple[float, Counter[str], float, Counter[str]]:
    """The time of the requests' spans, that of each statement, the sum of all durations, and the number of spans."""
    write_otlp_traces(recording, folder / "traces.json")
    write_otlp_metrics(recording, folder / "metrics.json")
    requests_s, times, kinds = 0.0, Counter[str](), Counter[str]()
    for line in (folder / "traces.json").read_text().splitlines():
        for span in json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            seconds = (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e9
            texts = [each["value"]["stringValue"] for each in span["attributes"] if each["key"] == "db.query.text"]
            kinds["request" if "parentSpanId" not in span else "statement" if texts else span["name"]] += 1
            requests_s += 0.0 if "parentSpanId" in span else seconds
            for text in texts:
                times[name_of(text)] += seconds
    (metrics,) = (json.loads(line) for line in (folder / "metrics.json").read_text().splitlines())
    histograms = [
        point["sum"]
        for metric in metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
        if metric["name"] == "db.client.operation.duration"
        for point in metric["histogram"]["dataPoints"]
    ]
    return requests_s, times, sum(histograms), kinds


def page_s(path: Path, recording: Recording) -> tuple[float, Counter[str]]:
    """The time of the tree in a flame graph's page, and that of each statement."""
    write_flame_page(recording.session, path, title="program")
    data = re.findall(r'getElementById\("app"\), (.*)\);\n', path.read_text())[-1]
    times: Counter[str] = Counter()
    tree = json.loads(data)["frame_tree"]
    waiting = [tree] if tree else []
    while waiting:
        frame = waiting.pop()
        times[name_of(frame["identifier"] if "sql" in frame["identifier"].split("\0") else "")] += frame["time"]
        waiting += frame["children"]
    return (tree or {"time": 0.0})["time"], times


@given(st.sampled_from(MODES), PROGRAMS, PROGRAMS)
@settings(max_examples=15, deadline=None)
def test_every_export_has_the_sums_of_its_recordings(mode: str, first: Any, second: Any) -> None:
    """The recordings of two programs, and both as one: saved and read, in speedscope, Firefox, OTLP, a page, a diff."""
    with (
        TemporaryDirectory() as name,
        pytest.MonkeyPatch.context() as patch,
        machine_of(patch) as machine,
    ):
        folder = Path(name)
        before, after = machine.record(mode, first), machine.record(mode, second)
        merged = Recording.merge([before, after])
        assert merged.breaches == ()
        for each in (before, after, merged):
            each.save(folder / "saved.json")
            recording = Recording.load(folder / "saved.json")
            recording_s, tolerance_s = recording.elapsed_s / recording.requests, TICK_S * 1000
            driver_s: Counter[str] = Counter()
            for statement in recording.statements:
                driver_s[name_of(statement.sql)] += (statement.execute_s or 0.0) + (statement.fetch_s or 0.0)
            mean_s = Counter({name: seconds / recording.requests for name, seconds in driver_s.items()})

            requests_s, spans_s, sum_s, kinds = otlp_s(folder, recording)
            assert requests_s == pytest.approx(recording.elapsed_s, abs=tolerance_s)
            assert_equal(spans_s, driver_s, tolerance_s)
            assert sum_s == pytest.approx(driver_s.total(), abs=tolerance_s)
            assert (kinds["request"], kinds["statement"]) == (recording.requests, len(recording.statements))
            assert kinds["span"] == len(recording.spans)
            write_firefox_profile(recording, folder / "firefox.json")
            python_s, leaves_s, markers_s = firefox_s(folder / "firefox.json")
            assert_equal(markers_s, driver_s, tolerance_s)
            if mode in WITH_FLAME_GRAPH:
                write_speedscope(recording.session, folder / "speedscope.json")
                exact = (
                    by_name(recording.session),
                    speedscope_s(folder / "speedscope.json"),
                    (python_s, leaves_s),
                )
                for total_s, times in exact:
                    assert total_s == pytest.approx(recording_s, abs=tolerance_s)
                    assert_equal(times, mean_s, tolerance_s)
                # pyinstrument writes whole microseconds for each frame of a page.
                total_s, times = page_s(folder / "page.html", recording)
                assert total_s == pytest.approx(recording_s, abs=1e-6)
                assert_equal(times, mean_s, 1e-6 * len(recording.session.frame_records) + tolerance_s)

        difference = before.diff(after)
        assert difference.totals[0].before == pytest.approx(before.elapsed_s)
        seconds = [each.seconds for each in difference.statements]
        for side, recording in (("before", before), ("after", after)):
            total = sum(getattr(each, side) or 0.0 for each in seconds)
            assert total == pytest.approx(sum(each.elapsed_s for each in recording.statements), abs=TICK_S * 500)
            if mode in WITH_FLAME_GRAPH:
                frames = [getattr(each, f"{side}_s") for each in (*difference.frames, difference.other_frames)]
                assert sum(frames) == pytest.approx(recording.elapsed_s, abs=TICK_S * 500)


class TooManyRows:
    """Breaks one side of the law of rows."""

    @staticmethod
    def reported(patch: pytest.MonkeyPatch) -> None:
        """A statement reports one row more than it has fetched."""
        rows = PendingStatement.rows
        patch.setattr(PendingStatement, "rows", lambda each: (rows(each) or 0) + 1)

    @staticmethod
    def lost(patch: pytest.MonkeyPatch) -> None:
        """A row that is fetched by itself is not counted by its statement."""
        returned = PendingStatement.row_returned

        def row_returned(pending: PendingStatement, row: Any, seconds: float) -> None:
            returned(pending, row, seconds)
            pending.fetched_rows -= row is not None

        patch.setattr(PendingStatement, "row_returned", row_returned)

    @staticmethod
    def of_driver(patch: pytest.MonkeyPatch) -> None:
        """The driver says that there are fewer rows than it has handed out."""
        returned = PendingStatement.execute_returned

        def execute_returned(pending: PendingStatement, trips: int | None, rows: int | None = None) -> None:
            returned(pending, trips, rows)
            pending.row_count = 1

        patch.setattr(PendingStatement, "execute_returned", execute_returned)


TWO = [("statement", 1, [0.25, 0.0, 0.0], "one"), ("gap", 3.0), ("statement", 1, [3e-6, 3e-6, 3e-6], "all")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mutant", [TooManyRows.reported, TooManyRows.lost, TooManyRows.of_driver])
def test_rows_that_two_counts_do_not_agree_on_are_no_figure(mode: str, mutant: Any) -> None:
    """What a statement reports, what it has fetched, and what its driver has: a difference breaks the law."""
    with pytest.MonkeyPatch.context() as patch, machine_of(patch) as machine:
        with patch.context() as broken:
            mutant(broken)
            recording = machine.record(mode, TWO)
        whole = machine.record(mode, TWO)

    assert_is_noted(recording, "rows")
    assert (recording.row_count, {each.row_count for each in recording.statements}) == (None, {None})
    assert (whole.row_count, whole.breaches) == (6, ())


def _leaf_with_gap(patch: pytest.MonkeyPatch) -> None:
    """The time between two statements belongs to the first, and no sample corrects it."""
    patch.setattr(timeline, "_between", lambda left, _entered: left.stack)
    patch.setattr(timeline, "_estimate_gaps", lambda *_: None)


def _late_interval(patch: pytest.MonkeyPatch) -> None:
    """Intervals begin too late."""
    for module in (flame_graph, external_flame_graph):
        patch.setattr(module, "innermost", lambda *given: map(_begun_late, timeline.innermost(*given)))


def _begun_late(interval: timeline.StackInterval) -> timeline.StackInterval:
    return interval._replace(started=interval.started + 1e-6)


def _no_short_calls(patch: pytest.MonkeyPatch) -> None:
    """Calls too short to be noted are left out."""
    for module in (flame_graph, external_flame_graph):
        patch.setattr(module, "with_short_calls", lambda intervals, *_: intervals)


def _lost_record(patch: pytest.MonkeyPatch) -> None:
    """The last stack gets lost."""
    for module in (flame_graph, external_flame_graph):
        whole = module.timeline
        patch.setattr(module, "timeline", lambda *given, whole=whole, **named: whole(*given, **named)[:-1])


@pytest.mark.parametrize("mode", WITH_FLAME_GRAPH)
@pytest.mark.parametrize("mutant", [_leaf_with_gap, _late_interval, _no_short_calls, _lost_record])
def test_a_flame_graph_that_breaks_a_law_is_dropped(mode: str, mutant: Any) -> None:
    """Time that belongs to another leaf, to none, or to two."""
    with pytest.MonkeyPatch.context() as patch, machine_of(patch) as machine:
        with patch.context() as broken:
            mutant(broken)
            recording = machine.record(mode, [*TWO, ("work", 0.25)])
        whole = machine.record(mode, TWO)

    assert_is_noted(recording, "leaves")
    assert (recording.session, whole.session is None, whole.breaches) == (None, False, ())


@pytest.mark.parametrize("mode", WITH_FLAME_GRAPH)
@pytest.mark.parametrize("inner_s", [3e-6, 0.25])
def test_a_flame_graph_of_a_statement_inside_of_another_one_is_kept(mode: str, inner_s: float) -> None:
    """A function of SQLite, a row factory or a signal handler may run one: its time is that of both, as a note says."""
    with pytest.MonkeyPatch.context() as patch, machine_of(patch) as machine:
        inner = [("statement", 1, [inner_s], "all")]
        machine.connection.create_function("nested", 0, lambda: machine.run(inner))
        with machine.profiler.record("program", mode) as recording:
            machine.connection.execute("select tick('column_2', 0.25), nested()").fetchall()

    assert recording.session is not None
    assert (recording.breaches, timeline.OVERLAP_NOTE in recording.notes) == ((), True)
    assert by_name(recording.session)[0] == pytest.approx(recording.elapsed_s) == 0.25 + inner_s


def test_a_merged_flame_graph_that_loses_time_is_dropped() -> None:
    """A stack of each part gets lost: the sum, or that of one statement, differs."""
    with pytest.MonkeyPatch.context() as patch, machine_of(patch) as machine:
        parts = [machine.record("flame", TWO), machine.record("flame", TWO)]
        add = merging._Mean.add

        def lose(mean: Any, session: Any) -> None:
            session = copy(session)
            session.frame_records = session.frame_records[1:]
            add(mean, session)

        with patch.context() as broken:
            broken.setattr(merging._Mean, "add", lose)
            merged = Recording.merge(parts)

    assert_is_noted(merged, "leaves of the merged flame graph")
    assert merged.session is None


def test_recordings_cannot_use_more_cpu_than_the_process() -> None:
    """Two threads at the same time, by a clock that gives each what both have used."""
    used = [0.0]
    clocks = Clocks(cpu=lambda: used[0], process=lambda: used[0])
    profiler = SqlProfiler.for_drivers("sqlite3", clocks=clocks)
    recordings = []
    begun, go_on = threading.Barrier(3), threading.Barrier(3)

    def work() -> None:
        with profiler.record("one of two", "light") as recording:
            begun.wait()
            go_on.wait()
        recordings.append(recording)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait()
    used[0] += 2.0
    go_on.wait()
    for thread in threads:
        thread.join()
    profiler.remove()

    broken, whole = sorted(recordings, key=lambda each: each.cpu_s is not None)
    assert_is_noted(broken, "used 4.00 s of CPU, and the process 2.00 s meanwhile")
    assert (broken.cpu_s, whole.cpu_s, whole.breaches) == (None, 2.0, ())


def test_recordings_that_take_turns_on_a_thread_have_no_cpu_time() -> None:
    """As tasks of trio do, each in its own context; one inside of another has its own."""
    profiler = SqlProfiler.for_drivers("sqlite3")
    first, second = contextvars.Context(), contextvars.Context()
    one, two = profiler.record("one"), profiler.record("two")

    taking_turns = [context.run(record.__enter__) for context, record in ((first, one), (second, two))]
    for context, record in ((first, one), (second, two)):
        context.run(record.__exit__, None, None, None)
    with profiler.record("outer") as outer, profiler.record("inner") as inner:
        pass
    profiler.remove()

    assert [each.cpu_s for each in taking_turns] == [None, None]
    assert 0 <= inner.cpu_s <= outer.cpu_s
    assert [each.breaches for each in (*taking_turns, outer, inner)] == [()] * 4


def assert_is_noted(recording: Recording, text: str) -> None:
    """The breach is the first note, it is on the page and in the file, and it breaks each budget."""
    (breach,) = recording.breaches
    assert text in breach
    line = f"the account does not hold: {breach}"
    assert recording.notes[0] == line
    assert line in recording.gaps
    with TemporaryDirectory() as name:
        recording.write_page(Path(name) / "page.html")
        recording.save(Path(name) / "saved.json")
        assert escape(line, quote=True).replace("&#x27;", "&#39;") in (Path(name) / "page.html").read_text()
        loaded = Recording.load(Path(name) / "saved.json")
    assert (loaded.breaches, loaded.session) == ((breach,), None if "leaves" in text else loaded.session)
    assert line in Budget.at_most(statements=1000).broken_by(loaded)
    assert Recording.merge([recording, recording]).notes.count(line) == 1
