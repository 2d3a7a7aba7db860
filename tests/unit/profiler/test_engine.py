"""While nothing is recorded SQLAlchemy calls its own methods, and whoever else listens is never cut off."""

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    func,
    literal,
    or_,
    select,
    text,
)
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool, QueuePool
from sqlalchemy.sql import visitors

from placebench.profiler import SqlProfiler
from placebench.profiler.capture.options import Clocks


def query(engine: Engine) -> None:
    """One statement."""
    with engine.connect() as connection:
        connection.exec_driver_sql("select 1")


def query_text(engine: Engine) -> None:
    """One that SQLAlchemy compiles."""
    with engine.connect() as connection:
        connection.execute(text("select :n"), {"n": 1})


def exchanged(engine: Engine, connection: Connection) -> tuple[bool, bool]:
    """Whether the dialect's methods, and the connection's, are the profiler's."""
    return "do_execute" in vars(engine.dialect), "exec_driver_sql" in vars(type(connection))


def test_an_idle_profiler_is_not_asked(profiler: SqlProfiler, engine: Engine) -> None:
    """Only while a record runs, on this engine alone, and never by its events, which cost more than all else."""
    with engine.connect() as connection:
        before = exchanged(engine, connection)
        with profiler.record("awake"), profiler.record("again"):
            during, made = exchanged(engine, connection), exchanged(engine, engine.connect())
        after = exchanged(engine, connection)

    assert (before, during, made, after) == ((False, False), (True, True), (True, True), (False, False))
    assert not engine._has_events


def test_a_connection_from_before_the_record_is_seen(profiler: SqlProfiler, engine: Engine) -> None:
    """It was checked out while the profiler rested."""
    with engine.connect() as connection, profiler.record("awake") as recording:
        connection.exec_driver_sql("select 1")

    assert recording.statement_count == 1


def test_an_engine_with_options_is_the_same_engine(profiler: SqlProfiler, engine: Engine) -> None:
    """It names a class of connections of its own: the first statement has no compile time, the others do."""
    of_the_same = engine.execution_options(logging_token="token")
    own = type(engine)._connection_cls
    with profiler.record("options") as recording:
        for _ in range(2):
            with of_the_same.connect() as connection:
                connection.execute(text("select 1"))
                connection.execute(text("select 1"))

    assert [each.compile_s is None for each in recording.statements] == [True, False, False, False]
    profiler.remove()
    assert of_the_same._connection_cls is engine._connection_cls is own


def test_connections_in_use_before_a_profiler_of_every_engine_are_seen(make_engine: Any) -> None:
    """Nothing tells of them but their next statement; only the compile time of the first one is unknown."""
    with make_engine().connect() as connection:
        profiler = SqlProfiler()
        with profiler.record("late") as recording:
            for _ in range(2):
                connection.execute(text("select 1"))
        profiler.remove()

    assert [each.compile_s is None for each in recording.statements] == [True, False]


def test_scalar_is_compiled_too(profiler: SqlProfiler, engine: Engine) -> None:
    """It does not pass through `execute`."""
    with profiler.record("scalar") as recording, engine.connect() as connection:
        assert connection.scalar(select(literal(1))) == 1

    assert recording.statements[0].compile_s is not None


def test_a_connect_that_came_to_nothing_takes_no_statements(make_engine: Any, make_profiler: Any) -> None:
    """A listener fails on the second connection: what runs on the first one afterwards is not a part of its CONNECT."""
    engine = make_engine(poolclass=NullPool)
    profiler, connections = make_profiler(engine), []

    @event.listens_for(engine, "connect")
    def refuse(_connection: object, _record: object) -> None:
        connections.append(1)
        if len(connections) > 1:
            raise LookupError

    with profiler.record("refused") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))
        with pytest.raises(LookupError):
            engine.connect()
        connection.execute(text("select 2"))
    with profiler.record("next") as following, pytest.raises(LookupError):
        engine.connect()

    assert [len(each.statements) for each in (recording, following)] == [2, 0]
    assert [step.kind for step in recording.transactions] == ["CONNECT", "BEGIN", "CONNECT", "ROLLBACK"]


def test_a_reconnect_is_no_compilation(make_engine: Any, make_profiler: Any, clock: Any) -> None:
    """It is a CONNECT, and its time is charged once."""
    engine = make_engine(poolclass=NullPool)
    profiler = make_profiler(engine, clocks=Clocks(elapsed=clock))
    event.listen(engine, "do_connect", lambda *_: clock.advance(5) and None)

    with profiler.record("again") as recording, engine.connect() as connection:
        connection.invalidate()
        connection.execute(text("select 1"))

    assert (recording.statements[0].compile_s, recording.sql_s, recording.elapsed_s) == (0.0, 10.0, 10.0)


def test_a_static_method_of_a_dialect_stays_one(profiler: SqlProfiler, engine: Engine) -> None:
    """It gets its own arguments, and no dialect."""

    class Dialect(type(engine.dialect)):  # type: ignore[misc]
        supports_statement_cache = True

        @staticmethod
        def do_execute(cursor: Any, statement: str, parameters: Any, _context: Any = None) -> None:
            cursor.execute(statement, parameters)

    engine.dialect.__class__ = Dialect
    with profiler.record("static") as recording:
        query_text(engine)

    assert recording.statement_count == 1


def test_profilers_that_follow_each_other_leave_no_layers(engine: Engine) -> None:
    """Each is made before the one before it is removed."""
    own = type(engine)._connection_cls
    profiler = SqlProfiler(engine)
    for _ in range(3):
        following = SqlProfiler(engine)
        profiler.remove()
        profiler = following
    layers = len(engine._connection_cls.__mro__) - len(own.__mro__)
    profiler.remove()

    assert (layers <= 4, "_connection_cls" in vars(engine)) == (True, False)


def test_what_covered_a_method_may_go(profiler: SqlProfiler, engine: Engine) -> None:
    """Whoever takes an exchanged method away while a recording runs leaves the later ones whole."""
    own = engine.dialect.do_execute
    engine.dialect.do_execute = lambda *args: own(*args)  # type: ignore[method-assign]
    with profiler.record("during"):
        del engine.dialect.do_execute
    with profiler.record("after") as recording:
        query_text(engine)

    assert recording.statement_count == 1


def test_methods_that_somebody_else_has_exchanged_stay_theirs(profiler: SqlProfiler, engine: Engine) -> None:
    """Before a recording, which calls them and gives them back, and while it runs."""
    called: list[str] = []

    def exchange(name: str) -> Any:
        inner = engine.dialect.do_execute

        def do_execute(*args: Any) -> None:
            called.append(name)
            inner(*args)

        engine.dialect.do_execute = do_execute  # type: ignore[method-assign]
        return do_execute

    first = exchange("first")
    with profiler.record("first") as before:
        query_text(engine)
    given_back = engine.dialect.do_execute is first
    with profiler.record("second") as during:
        second = exchange("second")
        query_text(engine)
    with profiler.record("third") as after:
        query_text(engine)

    assert (given_back, engine.dialect.do_execute is second) == (True, True)
    assert called == ["first", "second", "first", "second", "first"]
    assert [each.statement_count for each in (before, during, after)] == [1, 1, 1]


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
    with profiler.record("one") as recording:
        engine = create_engine("sqlite://")
        query(engine)
    with engine.connect() as connection:
        resting = exchanged(engine, connection)
    profiler.remove()
    engine.dispose()

    assert (recording.statement_count, resting, Engine._connection_cls) == (1, (False, False), Connection)


def test_two_profilers_of_one_engine_wake_and_rest_together(engine: Engine) -> None:
    """The end of one's record does not make the other's deaf; a statement of both has a time in both."""
    first, second = SqlProfiler(engine), SqlProfiler(engine)
    with second.record("long") as recording:
        with first.record("short") as short:
            query(engine)
        query(engine)
        first.remove()
        query(engine)
    second.remove()

    assert recording.statement_count == 3
    assert None not in [each.execute_s for each in (*recording.statements, *short.statements)]
    assert "do_execute" not in vars(engine.dialect)


def test_nothing_keeps_an_engine_that_is_gone() -> None:
    """An application that makes many engines leaks none of them."""
    engine = create_engine("sqlite://")
    gone = weakref.ref(engine), weakref.ref(engine.dialect)
    profiler = SqlProfiler(engine)
    with profiler.record("once"):
        query(engine)
    profiler.remove()
    engine.dispose()
    del engine, profiler
    gc.collect()

    assert [each() for each in gone] == [None, None]


@pytest.mark.parametrize(("mode", "most"), [("light", 11), ("full", 21)])
def test_a_recorded_statement_takes_few_function_calls(engine: Engine, mode: str, most: int) -> None:
    """In Python, over those of an idle profiler; as listeners to SQLAlchemy's events they were 18 and 24."""
    profiler = SqlProfiler(engine)

    def count_calls(connection: Connection) -> int:
        calls = 0

        def count(_frame: object, kind: str, _arg: object) -> None:
            nonlocal calls
            calls += kind == "call"

        gc.disable()  # a collection calls the profiler too
        for _ in range(8):  # the first one compiles, and the first five are looked into as a loop
            calls = 0
            sys.setprofile(count)
            connection.execute(text("select 1")).all()
            sys.setprofile(None)
        gc.enable()
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


def test_the_search_for_tables_does_not_grow_with_the_values_of_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement of thousands of values that is compiled anew each time; its table is found."""
    metadata, visited = MetaData(), Counter[int]()
    item = Table("item", metadata, Column("id", Integer, primary_key=True), Column("name", String, default="a"))
    Table("other", metadata, Column("id", Integer))
    iterate = visitors.iterate

    def counted(statement: Any) -> Iterator[Any]:
        for element in iterate(statement):
            visited[values] += 1
            yield element

    monkeypatch.setattr(visitors, "iterate", counted)
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    profiler = SqlProfiler(engine)
    known = []
    for values in (10, 900):
        wanted = select(func.count(), item.c.name).where(or_(*(item.c.id == number for number in range(values))))
        with profiler.record("search") as recording, engine.connect() as connection:
            for statement in (wanted, text("delete from other"), wanted):
                connection.execute(statement).close()
        known.append([each.repeated for each in recording.statements])

    assert known == [[False, False, True]] * 2
    assert 0 < visited[900] == visited[10] < 20


@pytest.mark.parametrize(("order", "is_restored"), [([1, 0], True), ([0, 1], False)])
def test_a_pool_connects_by_its_own_method_when_its_profilers_are_removed(order: list[int], is_restored: bool) -> None:
    """The last one first; a layer below that of another profiler stays, without effect, until the pool is replaced."""
    engine = create_engine("sqlite://", poolclass=QueuePool)
    profilers = [SqlProfiler(engine), SqlProfiler(engine)]
    assert "connect" in vars(engine.pool)

    for number in order:
        profilers[number].remove()

    assert ("connect" not in vars(engine.pool)) == is_restored
    with engine.connect() as connection:
        assert connection.execute(text("select 1")).scalar() == 1
    engine.dispose()
    assert "connect" not in vars(engine.pool)
