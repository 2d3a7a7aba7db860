"""SQL on the flame: pieces cut at the edges of statements, time conserved, and the mean of many requests."""

import asyncio
import json
import math
import random
import statistics
import sys
import time
from bisect import bisect_left
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from flame_graphs import busy
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, text
from sqlalchemy.util import greenlet_spawn

from placebench.profiler import Recording, SqlProfiler
from placebench.profiler.capture import flame_graph
from placebench.profiler.capture import timed_cursor as base
from placebench.profiler.capture import timeline as timeline_module
from placebench.profiler.capture.sampling_thread import profile_function_defect
from placebench.profiler.capture.stack import frames_of, leaf
from placebench.profiler.capture.timeline import (
    StackInterval,
    common_frames,
    innermost,
    timeline,
    with_collections,
    without_profiler,
)

WITH_PROFILE_FUNCTION = pytest.mark.skipif(profile_function_defect() is not None, reason=str(profile_function_defect()))
SLOW = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 40000) select count(*) from n"


@pytest.fixture(params=[pytest.param(None, marks=WITH_PROFILE_FUNCTION, id="profile function"), 0.005])
def any_sampler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modes flame and plans by a profile function, where this Python may have one, and by a sampling thread."""
    monkeypatch.setattr(flame_graph, "thread_interval_s", lambda _mode: request.param)


def laid_out(samples: list[tuple[float, list[str]]], *edges: StackInterval, holds: bool = False) -> Any:
    """The time line of a record from 10 to 20 s that began in python."""
    return timeline(samples, innermost(edges), StackInterval(10.0, 20.0, ["python"], leaves=0), holds=holds)


def test_statements_have_their_own_time_and_the_samples_the_time_between() -> None:
    """a until 12 s, a statement until 15, another one from 16 to 17, then b; a sample inside of a statement counts not.

    Between the two nothing was sampled: a was, at the time that is nearest.
    """
    edges = [StackInterval(16.0, 17.0, ["python", "sql b"]), StackInterval(12.0, 15.0, ["python", "sql a"])]
    samples = [(12.0, ["python", "a"]), (14.0, ["driver"]), (20.0, ["python", "b"])]

    assert laid_out(samples, *edges) == [
        (["python", "a"], 2.0),
        (["python", "sql a"], 3.0),
        (["python", "a"], 1.0),
        (["python", "sql b"], 1.0),
        (["python", "b"], 3.0),
    ]


def test_a_fast_request_without_a_sample_is_not_empty() -> None:
    """Time that nobody sampled belongs to what the stacks on both sides have in common."""
    edges = [
        StackInterval(11.0, 12.0, ["python", "view", "load", "sql a"]),
        StackInterval(15.0, 16.0, ["python", "view", "sql b"]),
    ]

    assert laid_out([], *edges, holds=True) == [
        (["python"], 1.0),
        (["python", "view", "load", "sql a"], 1.0),
        (["python", "view"], 3.0),
        (["python", "view", "sql b"], 1.0),
        (["python"], 4.0),
    ]


def test_a_sample_tells_what_ran_after_it_only_where_a_thread_took_it() -> None:
    """f at 12 s, a statement at 14 s, f again at 17 s: a function that returned at 12 s did not run on."""
    samples, edge = [(12.0, ["python", "f"]), (17.0, ["python", "f"])], StackInterval(14.0, 15.0, ["python", "sql"])

    assert laid_out(samples, edge, holds=True) == [
        (["python", "f"], 2.0),
        (["python", "f"], 2.0),
        (["python", "sql"], 1.0),
        (["python", "f"], 2.0),
        (["python", "f"], 3.0),
    ]
    assert laid_out(samples, edge)[1::3] == [(["python"], 2.0), (["python"], 3.0)]


def test_of_nested_edges_the_inner_one_counts() -> None:
    """A collection of garbage inside of a fetch is the collector's time, not the fetch's."""
    edges = [StackInterval(0.0, 10.0, ["fetch"]), StackInterval(4.0, 6.0, ["gc"])]

    assert [(edge.started, edge.ended, edge.stack[0]) for edge in innermost(edges)] == [
        (0.0, 4.0, "fetch"),
        (4.0, 6.0, "gc"),
        (6.0, 10.0, "fetch"),
    ]


LOOP = ["main\x00<thread>\x001", "view\x00/app.py\x001\x01l7"]
CALLS = [*LOOP, "execute\x00/site-packages/orm.py\x003\x01l3", f"execute\x00{base.__file__}\x004\x01l9"]
STACKS = [LOOP, [*LOOP, "serialise\x00/app.py\x009\x01l9"], CALLS, [*CALLS, "commit\x00/app.py\x002"]]
DURATIONS = st.floats(0.001, 5.0)


@given(
    st.lists(st.tuples(DURATIONS, st.integers(0, 3), DURATIONS, DURATIONS, DURATIONS), min_size=1, max_size=12),
    st.lists(st.tuples(st.floats(0, 200), st.sampled_from(STACKS)), max_size=30),
    st.booleans(),
)
def test_a_statements_leaves_are_its_execute_and_fetch(
    executions: list[tuple[float, int, float, float, float]],
    samples: list[tuple[float, list[str]]],
    holds: bool,
) -> None:
    """Of a loop over four statements with gaps of any length, whatever was sampled; all leaves are the elapsed time."""
    now, edges, expected = 0.0, [], [0.0] * 4
    for gap, number, execute, between, fetch in executions:
        owner, started = object(), now + gap
        stack = [*CALLS, leaf(f"statement {number}", "sql")]
        edges.append(StackInterval(started, started + execute, stack, owner=owner))
        now = started + execute + between + fetch
        edges.append(StackInterval(now - fetch, now, stack, owner=owner))
        expected[number] += execute + fetch
    whole = StackInterval(0.0, now + 1.0, LOOP, leaves=0)

    records = timeline(sorted(samples), innermost(edges), whole, holds=holds)

    assert math.isclose(sum(seconds for _, seconds in records), now + 1.0)
    for number, seconds in enumerate(expected):
        on_leaves = [each for stack, each in records if stack[-1].startswith(f"statement {number}")]
        assert math.isclose(sum(on_leaves), seconds, abs_tol=1e-9)
    sampled = {tuple(stack) for _, stack in samples}
    python = {tuple(stack) for stack, _ in records if not stack[-1].startswith("statement")}
    assert python <= sampled | {tuple(CALLS[:depth]) for depth in (2, 3, 4)}


def test_a_loop_over_one_statement_is_not_the_statement() -> None:
    """Two statements of 0.1 s with 7.9 s between them, from one line through an ORM: the 7.9 s are the view's."""
    stack = [*CALLS, leaf("select 1", "sql")]
    edges = [StackInterval(11.0, 11.1, stack, owner=1), StackInterval(19.0, 19.1, stack, owner=2)]

    between = laid_out([], *edges)[2]

    assert between == (LOOP, pytest.approx(7.9))


def test_what_lies_between_two_places_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the statements of a loop, however many, and behind the last one."""
    pairs, search = [], timeline_module._between
    monkeypatch.setattr(timeline_module, "_between", lambda *pair: pairs.append(pair) or search(*pair))
    stack = [*LOOP, "sql\x00sql\x000"]

    laid_out([], *(StackInterval(started, started + 0.5, stack) for started in range(11, 19)))

    assert len(pairs) == 2


def test_the_nodes_of_a_plan_do_not_get_the_time_after_their_statement() -> None:
    """Two executions that end in the same node: the second between them is the view's."""
    planned = [*LOOP, leaf("select 1", "sql"), leaf("Seq Scan on t", "plan")]
    edges = [StackInterval(11.0, 12.0, planned, leaves=2), StackInterval(13.0, 14.0, planned, leaves=2)]

    assert laid_out([], *edges)[1:4] == [(planned, 1.0), (LOOP, 1.0), (planned, 1.0)]


@pytest.mark.parametrize("holds", [True, False])
def test_a_sample_each_tenth_gap_finds_the_shares_of_all_gaps(*, holds: bool) -> None:
    """A thousand loops of 1 ms, sampled every 10 ms: render has 60 % and decode 20 %, within 4 standard errors.

    The statements take 0.1 ms each: one of the view, and then two of its function load, which decodes between them.
    """
    view, load, render, decode = (
        f"{name}\x00/app.py\x00{line}\x01l{line}" for line, name in enumerate(("view", "load", "render", "decode"))
    )
    statement, whole = leaf("select 1", "sql"), StackInterval(0.0, 1.0, ["python"], leaves=0)
    chance = random.Random(1)
    shares: dict[str, list[float]] = {render: [], decode: []}
    edges, ran = [], []
    for number in range(1000):
        at = number / 1000
        for start_s, frames in ((0.0, [view]), (0.0007, [view, load]), (0.00095, [view, load])):
            stack = ["python", *frames, statement]
            edges.append(StackInterval(at + start_s, at + start_s + 0.00005, stack, owner=(number, start_s)))
        ran += [(at + 0.00065, [view, render]), (at + 0.0007, [view]), (at + 0.00095, [view, load, decode])]
        ran.append((at + 0.001, []))
    statements = list(innermost(edges))
    for _ in range(40):
        first = chance.uniform(0, 0.01)
        taken = [first + 0.01 * number + chance.uniform(0, 0.001) for number in range(99)]
        samples = [(at, ["python", *ran[bisect_left(ran, at, key=itemgetter(0))][1]]) for at in taken]
        records = timeline(samples, statements, whole, holds=holds)
        for frame, found in shares.items():
            found.append(sum(seconds for stack, seconds in records if frame in stack))

    for frame, expected in ((render, 0.6), (decode, 0.2)):
        assert statistics.fmean(shares[frame]) == pytest.approx(
            expected, abs=4 * math.sqrt(expected * (1 - expected) / 99 / 40)
        )


def test_a_loop_of_requests_is_not_their_views() -> None:
    """Requests of 1 ms, sampled every 10 ms: view has the first 0.4 ms with its statement, then the server runs."""
    server, view = (f"{name}\x00/app.py\x00{line}\x01l{line}" for line, name in enumerate(("server", "view")))
    statement, whole = leaf("select 1", "sql"), StackInterval(0.0, 1.0, ["python"], leaves=0)
    chance = random.Random(1)
    found = []
    for _ in range(40):
        edges = [
            StackInterval(n / 1000, n / 1000 + 0.0001, ["python", server, view, statement], owner=n)
            for n in range(1000)
        ]
        taken = [0.01 * n + chance.uniform(0, 0.01) for n in range(100)]
        samples = [(at, ["python", server, *([view] if at % 0.001 < 0.0004 else [])]) for at in taken]
        records = timeline(samples, innermost(edges), whole, holds=True)
        found.append(sum(seconds for stack, seconds in records if view in stack))

    assert statistics.fmean(found) == pytest.approx(0.4, abs=4 * math.sqrt(0.4 * 0.6 / 90 / 40))


def test_frames_below_another_line_are_other_calls() -> None:
    """Two calls of one function from two lines have in common only what called it."""
    first, second = ([LOOP[0], f"view\x00/app.py\x001\x01l{line}", *CALLS[2:]] for line in (7, 8))

    assert common_frames(first, second) == first[:2]


INTERVALS = st.lists(st.tuples(st.floats(0, 100), st.floats(0.001, 20)), max_size=12)


@given(st.lists(st.floats(-10, 110)), INTERVALS, st.booleans())
def test_time_is_conserved(taken: list[float], intervals: list[tuple[float, float]], holds: bool) -> None:
    """The records last 60 s for any samples and statements, even if these overlap or lie outside the session."""
    samples = [(at, [f"f{number}"]) for number, at in enumerate(sorted(taken))]
    edges = [StackInterval(start, start + seconds, ["sql"]) for start, seconds in intervals]

    records = timeline(samples, innermost(edges), StackInterval(20.0, 80.0, ["python"], leaves=0), holds=holds)

    assert math.isclose(sum(seconds for _, seconds in records), 60.0, abs_tol=1e-9)
    assert all(seconds > 0 for _, seconds in records)


@given(st.lists(st.floats(0.001, 5), min_size=1, max_size=12), INTERVALS)
def test_short_collections_take_their_time_from_the_stacks_that_they_interrupted(
    seconds: list[float], intervals: list[tuple[float, float]]
) -> None:
    """Each stack and the collections below it last as long as the stack alone; no pause is lost, or counted twice."""
    records = [([f"f{number}"], each) for number, each in enumerate(seconds)]
    collections = sorted((20.0 + start / 2, 20.0 + start / 2 + length, "gc") for start, length in intervals)

    found = list(with_collections(records, collections, 20.0))

    assert all(each > 0 for _, each in found)
    for stack, length in records:
        assert math.isclose(sum(each for part, each in found if part[:1] == stack), length, abs_tol=1e-9)
    paused, reach, until = 0.0, 20.0, 20.0 + sum(seconds)
    for start, end, _ in collections:
        paused += max(0.0, min(end, until) - max(start, reach))
        reach = max(reach, end)
    assert math.isclose(sum(each for part, each in found if part[-1] == "gc"), paused, abs_tol=1e-9)


def test_a_short_collection_in_a_statement_is_below_it() -> None:
    """Two pauses in one stretch are one leaf."""
    records = [(["view"], 1.0), (["view", "select"], 2.0)]

    found = list(with_collections(records, [(0.5, 1.25, "gc"), (2.0, 2.5, "gc")], 0.0))

    expected = [(["view"], 0.5), (["view", "gc"], 0.5), (["view", "select"], 1.25), (["view", "select", "gc"], 0.75)]
    assert expected == found


@given(INTERVALS)
def test_edges_become_disjoint_and_cover_the_same(intervals: list[tuple[float, float]]) -> None:
    """In order of time, none over another."""
    flat = list(innermost([StackInterval(start, start + seconds, ["sql"]) for start, seconds in intervals]))

    assert all(edge.started < edge.ended for edge in flat)
    assert all(before.ended <= after.started for before, after in pairwise(flat))
    ends = sorted((start, start + seconds) for start, seconds in intervals)
    covered, reach = 0.0, float("-inf")
    for start, end in ends:
        covered += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    assert math.isclose(sum(edge.ended - edge.started for edge in flat), covered, abs_tol=1e-9)


def test_a_leaf_is_one_short_line() -> None:
    """pyinstrument's separators cannot come from a statement's text."""
    frame = leaf("select\n  1\x00\x01" + "x" * 500, "sql")

    function, kind, line = frame.split("\x00")
    assert (function[:9], len(function), kind, line) == ("select 1 ", 161, "sql", "0")


def test_the_profilers_own_frames_are_taken_out() -> None:
    """What they did themselves is a leaf; a built-in that they called is the driver."""
    import placebench.profiler.capture.timed_cursor as ours

    own, app, built_in = f"_run\x00{ours.__file__}\x001", "view\x00/app.py\x001", "execute\x00<built-in>\x000"

    assert without_profiler([own, app]) == [app]
    assert without_profiler([app, own]) == [app, "profiler overhead\x00profiler\x000"]
    assert without_profiler([app, own, built_in]) == [app, built_in]


def test_what_ran_before_a_statement_is_not_the_drivers() -> None:
    """A look at the end of a statement stands for the code before it too, of which only the caller is known."""
    samples_taken = [(11.0, ["python", "loading", "rows"]), (19.0, ["python", "loading", "execute"])]
    edge = StackInterval(13.0, 20.0, ["python", "loading", "execute", "sql"])

    assert laid_out(samples_taken, edge) == [
        (["python", "loading", "rows"], 1.0),
        (["python", "loading"], 2.0),
        (["python", "loading", "execute", "sql"], 7.0),
    ]


def test_a_flame_is_as_long_as_its_record() -> None:
    """Samples and statements that begin before it or end after it are cut."""
    samples = [(9.0, ["before"]), (12.0, ["a"]), (21.0, ["after"])]

    assert laid_out(samples, StackInterval(8.0, 11.0, ["sql a"]), StackInterval(19.0, 22.0, ["sql b"]), holds=True) == [
        (["sql a"], 1.0),
        (["a"], 1.0),
        (["a"], 7.0),
        (["sql b"], 1.0),
    ]


@WITH_PROFILE_FUNCTION
def test_a_long_record_keeps_so_many_samples_and_all_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight samples of a second each, where four have room, the older ones stand for more."""
    from placebench.profiler.capture import profile_function

    monkeypatch.setattr(profile_function, "_MAX_SAMPLES", 4)
    made = profile_function.Sampler(lambda: 10.0, pytest.fail, interval_s=1000.0)
    for _ in range(8):
        made.add(frames_of(sys._getframe()), [], 1.0, None)

    assert [taken for taken, _ in made.samples()] == [14.0, 16.0, 17.0, 18.0]


@WITH_PROFILE_FUNCTION
def test_samples_are_not_later_than_what_they_saw(monkeypatch: pytest.MonkeyPatch, make_profiler: Any) -> None:
    """On a busy machine to start sampling takes long; the last call of a record was then sampled after its end."""
    from placebench.profiler.capture import profile_function

    start = profile_function.Sampler.start

    def start_slowly(sampler: Any) -> None:
        for step in (lambda: None, lambda: start(sampler), lambda: None):
            busy(0.05, time.perf_counter)
            step()

    monkeypatch.setattr(profile_function.Sampler, "start", start_slowly)

    with make_profiler(create_engine("sqlite://")).record("wait", mode="flame") as recording:
        time.sleep(0.1)

    assert sum(s for stack, s in recording.session.frame_records if stack[-1].startswith("sleep\x00")) >= 0.1


@WITH_PROFILE_FUNCTION
def test_a_sample_that_fails_is_not_the_applications(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, make_profiler: Any
) -> None:
    """It is named in the recording and logged once, as for hooks; the profiler goes on."""
    from placebench.profiler.capture import profile_function

    profiler = make_profiler(create_engine("sqlite://"))
    monkeypatch.setattr(profile_function, "awaiting_frames", lambda: 1 / 0)

    with profiler.record("broken", mode="flame") as recording:
        busy(0.01)

    assert {hook.partition(": ")[2] for hook in recording.failed_hooks} == {"ZeroDivisionError"}
    assert {record.name for record in caplog.records} == {"placebench.profiler"}


@WITH_PROFILE_FUNCTION
def test_a_flame_inside_of_a_flame_and_of_pyinstrument(make_profiler: Any) -> None:
    """All three see the function; the user's own profiler goes on with samples of its own."""
    import pyinstrument

    profiler = make_profiler(create_engine("sqlite://"))

    with (
        pyinstrument.Profiler(async_mode="disabled") as users,
        profiler.record("outer", mode="flame") as outer,
        profiler.record("inner", mode="flame") as inner,
    ):
        busy(0.02)

    seen = [
        any(frame.startswith("busy\x00") for stack, _ in session.frame_records for frame in stack)
        for session in (users.last_session, outer.session, inner.session)
    ]
    assert seen == [True, True, True]


@pytest.mark.usefixtures("any_sampler")
def test_under_asyncio_all_stands_below_the_task(make_profiler: Any) -> None:
    """SQLAlchemy works in a greenlet, whose own stack holds none of the application's frames."""

    def view() -> None:
        busy(0.05)

    async def application(profiler: SqlProfiler) -> Any:
        with profiler.record("task", mode="flame") as recording:
            await greenlet_spawn(view)
        return recording

    profiler = make_profiler(create_engine("sqlite://"))
    recording = asyncio.run(application(profiler))

    stacks = [[frame.partition("\x00")[0] for frame in stack] for stack, _ in recording.session.frame_records]
    below = [stack for stack in stacks if "busy" in stack]
    assert below
    assert all(stack.index("application") < stack.index("view") < stack.index("busy") for stack in below)


@pytest.mark.usefixtures("any_sampler")
def test_time_of_other_tasks_is_on_a_whole_frame(make_profiler: Any, tmp_path: Path) -> None:
    """The profile function of pyinstrument writes it as a name alone, which no export could show."""

    async def other() -> None:
        busy(0.05)

    async def application(profiler: SqlProfiler) -> Recording:
        task = asyncio.create_task(other())
        with profiler.record("task", mode="flame") as recording:
            await task
        return recording

    recording = asyncio.run(application(make_profiler(create_engine("sqlite://"))))

    assert recording.session is not None
    assert all(frame.count("\x00") == 2 for stack, _ in recording.session.frame_records for frame in stack)
    recording.write_flame(tmp_path / "flame.speedscope.json")
    assert json.loads((tmp_path / "flame.speedscope.json").read_text())["shared"]["frames"]


@pytest.mark.usefixtures("any_sampler")
def test_a_flames_statements_have_the_time_of_its_recording() -> None:
    """On the frame that ran them; the session's total is the record's elapsed time."""
    engine = create_engine("sqlite://")
    profiler = SqlProfiler(engine)

    def view() -> None:
        with engine.connect() as connection:
            connection.execute(text(SLOW)).all()

    engine.connect().close()
    with profiler.record("flame", mode="flame") as recording:
        view()
    profiler.remove()
    engine.dispose()

    records = recording.session.frame_records
    on_leaves = [(stack, s) for stack, s in records if stack[-1].removeprefix("fetch ").startswith("with recursive")]
    statement = recording.statements[0]
    sql_s = statement.execute_s + statement.fetch_s
    assert math.isclose(sum(seconds for _, seconds in on_leaves), sql_s, abs_tol=1e-8)
    assert math.isclose(sum(seconds for _, seconds in records), recording.elapsed_s, rel_tol=1e-6)
    assert all("view" in "".join(stack[:-1]) for stack, _ in on_leaves)


@pytest.mark.processes
@pytest.mark.usefixtures("any_sampler")
@pytest.mark.parametrize("mode", ["flame", "sampled", "external"])
def test_an_n_plus_one_has_in_each_mode_the_time_of_its_statements(mode: str) -> None:
    """Sixty fast statements with five times as much Python after each: what is not SQL is not on their leaves."""
    engine = create_engine("sqlite://")
    profiler = SqlProfiler(engine)
    statement = text(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000) select sum(i) from n"
    )

    with engine.connect() as connection, profiler.record("loop", mode=mode) as recording:
        for _ in range(60):
            connection.execute(statement).all()
            busy(0.001)
    profiler.remove()
    engine.dispose()

    records = recording.session.frame_records
    on_leaves = sum(seconds for stack, seconds in records if "with recursive" in stack[-1])
    exact = sum(each.execute_s + each.fetch_s for each in recording.statements)
    # A garbage collection inside of a call has its own leaf below the statement's.
    assert exact - recording.gc_s - 1e-6 <= on_leaves <= exact + 1e-6
    assert (recording.breaches, recording.gaps) == ((), ())
    assert math.isclose(sum(seconds for _, seconds in records), recording.elapsed_s, rel_tol=1e-6)


@WITH_PROFILE_FUNCTION
def test_of_flame_graphs_at_once_on_one_event_loop_one_is_exact(make_profiler: Any) -> None:
    """Each of twenty profile functions took a sample whenever one task was continued: 2 s became 76 s."""
    profiler = make_profiler(create_engine("sqlite://"))

    async def one() -> Recording:
        with profiler.record("one", mode="flame") as recording:
            for _ in range(5):
                busy(0.001)
                await asyncio.sleep(0.001)
        return recording

    async def all_at_once() -> list[Recording]:
        return await asyncio.gather(*(one() for _ in range(20)))

    recordings = asyncio.run(all_at_once())

    estimated = [any("estimated by a sampling thread" in note for note in each.notes) for each in recordings]
    assert estimated == [False] + [True] * 19
    for recording in recordings:
        seconds = sum(seconds for _, seconds in recording.session.frame_records)
        assert seconds == pytest.approx(recording.elapsed_s, rel=0.05)
