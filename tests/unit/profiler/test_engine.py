"""While nothing is recorded SQLAlchemy prepares nothing for us, and whoever else listens is never cut off."""

import gc
import sys
import weakref
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import QueuePool

from placebench.profiler import SqlProfiler


def query(engine: Engine) -> None:
    """One statement."""
    with engine.connect() as connection:
        connection.exec_driver_sql("select 1")


def test_an_idle_profiler_is_not_asked(profiler: SqlProfiler, engine: Engine) -> None:
    """Only while a record runs, on this engine alone."""
    before = engine._has_events
    with profiler.record("awake"):
        during = bool(engine._has_events)

    assert (before, during, engine._has_events, Engine._has_events) == (False, True, False, False)


def test_a_connection_from_before_the_record_is_seen(profiler: SqlProfiler, engine: Engine) -> None:
    """It was checked out while the profiler rested."""
    with engine.connect() as connection, profiler.record("awake") as recording:
        connection.exec_driver_sql("select 1")

    assert recording.statement_count == 1


_STEPS = ("before_execute", "before_cursor_execute", "after_cursor_execute", "after_execute")


@pytest.mark.parametrize("begins", ["before", "during"])
@pytest.mark.parametrize("options", [{}, {"logging_token": "with options"}])
def test_others_who_listen_are_called_in_their_order(
    profiler: SqlProfiler, engine: Engine, begins: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once each, on the connection before its engine before all engines, also those that begin in a recording."""
    monkeypatch.setattr(Engine, "_has_events", False)  # which a listener to every engine leaves behind
    called: list[str] = []
    ours = engine.execution_options(**options) if options else engine
    targets: dict[str, Any] = {"every engine": Engine, "engine": engine}

    def listen() -> None:
        for name in targets:
            for each in _STEPS:
                heard[name, each] = lambda *_, step=f"{name} {each}": called.append(step)
                event.listen(targets[name], each, heard[name, each])

    heard: dict[tuple[str, str], Any] = {}
    with ours.connect() as connection:
        if not options:  # before SQLAlchemy 2.1 nobody can listen to a connection of an engine with options
            targets = {"connection": connection, **targets}
        if begins == "before":
            listen()
        with profiler.record("ordered") as recording:
            connection.execute(text("select 1"))
            if begins == "during":
                listen()
            called.clear()
            connection.execute(text("select 2"))
    for each in _STEPS:
        event.remove(Engine, each, heard["every engine", each])

    assert called == [f"{name} {step}" for step in _STEPS for name in targets]
    assert recording.statement_count == 2


@pytest.mark.parametrize("when", ["before", "resting", "awake"])
def test_others_who_listen_are_never_cut_off(when: str, make_engine: Any) -> None:
    """Whether they began before the profiler, while it rested or while it recorded."""
    engine: Engine = make_engine()
    heard: list[str] = []

    def listen() -> None:
        event.listen(engine, "before_cursor_execute", lambda *_: heard.append("heard"))

    if when == "before":
        listen()
    profiler = SqlProfiler(engine)
    if when == "resting":
        listen()
    with profiler.record("one"):
        if when == "awake":
            listen()
        query(engine)
    query(engine)
    with profiler.record("two") as recording:
        query(engine)
    query(engine)
    profiler.remove()
    query(engine)

    assert heard == ["heard"] * 5
    assert recording.statement_count == 1


def test_a_profiler_of_every_engine_rests_too() -> None:
    """And wakes for engines that are made meanwhile."""
    profiler = SqlProfiler()
    resting = Engine._has_events
    with profiler.record("one") as recording:
        engine = create_engine("sqlite://")
        query(engine)
    profiler.remove()
    engine.dispose()

    assert (resting, recording.statement_count, Engine._has_events) == (False, 1, False)


def test_two_profilers_of_one_engine_wake_and_rest_together(engine: Engine) -> None:
    """The end of one's record does not make the other's deaf."""
    first, second = SqlProfiler(engine), SqlProfiler(engine)
    with second.record("long") as recording:
        with first.record("short"):
            query(engine)
        query(engine)
        first.remove()
        query(engine)
    second.remove()

    assert recording.statement_count == 3
    assert not engine._has_events


def test_nothing_keeps_an_engine_that_is_gone() -> None:
    """An application that makes many engines leaks none of them."""
    engine = create_engine("sqlite://")
    gone = weakref.ref(engine)
    SqlProfiler(engine).remove()
    engine.dispose()
    del engine
    gc.collect()

    assert gone() is None


@pytest.mark.parametrize(("mode", "most"), [("light", 18), ("full", 24)])
def test_a_recorded_statement_takes_few_function_calls(engine: Engine, mode: str, most: int) -> None:
    """In Python, over those of an idle profiler; with SQLAlchemy's nested listeners they were 38 and 46."""
    profiler = SqlProfiler(engine)

    def count_calls(connection: Connection) -> int:
        calls = 0

        def count(_frame: object, kind: str, _arg: object) -> None:
            nonlocal calls
            calls += kind == "call"

        for _ in range(2):  # the first one compiles
            calls = 0
            sys.setprofile(count)
            connection.execute(text("select 1")).all()
            sys.setprofile(None)
        return calls

    with engine.connect() as connection:
        idle = count_calls(connection)
        with profiler.record("counted", mode=mode):
            recorded = count_calls(connection)

    profiler.remove()
    assert recorded - idle <= most


def test_two_profilers_of_one_pool_are_removed_in_any_order(make_engine: Any) -> None:
    """Both see a checkout, and the one that is left still does."""
    engine: Engine = make_engine(poolclass=QueuePool)
    first, second = SqlProfiler(engine), SqlProfiler(engine)
    waits = []
    for profiler in (first, second):
        with profiler.record("checkout") as recording:
            query(engine)
        waits.append(recording.checkouts[0].wait_s)
        if profiler is first:
            first.remove()
    second.remove()
    query(engine)

    assert None not in waits
