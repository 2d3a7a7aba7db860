"""The profiler of drivers alone, on sqlite3; the drivers of PostgreSQL are in tests/databases."""

import gc
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any

import pytest
from sqlalchemy import create_engine

from placebench.errors import ProfilerError
from placebench.profiler import Recording, SqlProfiler
from placebench.profiler.drivers.driver_hooks import ImportWatch

# Python 3.13 warns of connections that nobody closed.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """It warns of them here, and not in the test of another file."""
    yield
    gc.collect()


@pytest.fixture
def profiler() -> Iterator[SqlProfiler]:
    """A profiler of sqlite3."""
    made = SqlProfiler.for_drivers("sqlite3")
    yield made
    made.remove()


def steps(recording: Recording) -> list[tuple[str, int | None]]:
    """Each transaction step with the number of its transaction."""
    return [(step.kind, step.number) for step in recording.transactions]


def test_each_statement_has_its_times_rows_and_line(profiler: SqlProfiler) -> None:
    """Of cursors and of the connection's shortcuts; rows that are iterated are fetched."""
    with profiler.record("sqlite3") as recording:
        connection = sqlite3.connect(":memory:")
        connection.execute("create table t (i)")
        connection.executemany("insert into t values (?)", [(1,), (2,), (3,)])
        iterated = list(connection.execute("select i from t"))
        fetched = connection.cursor().execute("select i from t").fetchall()
        connection.executescript("select 1; select 2")

    assert iterated == fetched == [(1,), (2,), (3,)]
    assert [each.sql.split()[0] for each in recording.statements] == ["create", "insert", "select", "select", "select"]
    assert [each.row_count for each in recording.statements[1:4]] == [3, 3, 3]
    assert [each.fetch_s is not None for each in recording.statements[1:4]] == [False, True, True]
    assert {each.caller.function for each in recording.statements} == {
        "test_each_statement_has_its_times_rows_and_line"
    }


def test_an_imported_driver_without_hooks_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its statements are in no figure; whoever names the drivers to be recorded knows that."""
    monkeypatch.setitem(sys.modules, "oracledb", ModuleType("oracledb"))
    notes = []
    for made in (SqlProfiler.for_drivers(), SqlProfiler(), SqlProfiler.for_drivers("sqlite3")):
        with made.record("driver") as recording:
            pass
        made.remove()
        notes.append(recording.notes)

    told = ("statements by oracledb without SQLAlchemy are not measured: placebench has no hooks there",)
    assert notes == [told, told, ()]


def test_a_dialect_that_another_thread_is_importing_fails_no_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module is there while it has no class yet: the connection is of another driver, and is recorded."""
    monkeypatch.setitem(sys.modules, "sqlalchemy.dialects.postgresql.asyncpg", ModuleType("asyncpg"))
    monkeypatch.setitem(sys.modules, "psycopg2.extensions", ModuleType("extensions"))
    made = SqlProfiler()

    with made.record("connect") as recording:
        engine = create_engine("sqlite://")
        with engine.connect() as connection:
            connection.exec_driver_sql("select 1").all()
    made.remove()
    engine.dispose()

    assert (recording.failed_hooks, recording.row_count) == ((), 1)


def test_nothing_of_ours_keeps_a_connection(profiler: SqlProfiler) -> None:
    """One that is dropped open goes when it would without the profiler: Python 3.13 warns of it then.

    sqlite3's cache of statements refers to its connection, which therefore waits for the garbage collector anyway.
    """

    class Connection(sqlite3.Connection):
        """One that is not profiled."""

    def referrers(connect: Callable[[str], sqlite3.Connection]) -> list[str]:
        connection = connect(":memory:")
        connection.execute("create table t (i)")
        connection.execute("select i from t").fetchall()
        return sorted(type(each).__name__ for each in gc.get_referrers(connection) if not isinstance(each, FrameType))

    untimed = referrers(Connection)
    with profiler.record("dropped"):
        timed = referrers(sqlite3.connect)

    assert timed == untimed


def test_transactions_are_steps(profiler: SqlProfiler) -> None:
    """What the driver begins by itself, and ends in C where the connection is used as a block."""
    with profiler.record("transactions") as recording:
        connection = sqlite3.connect(":memory:")
        connection.execute("create table t (i)")
        with connection:
            connection.execute("insert into t values (1)")
        connection.execute("insert into t values (2)")
        connection.rollback()

    assert steps(recording) == [("CONNECT", None), ("BEGIN", 1), ("COMMIT", 1), ("BEGIN", 2), ("ROLLBACK", 2)]
    assert [each.transaction for each in recording.statements] == [None, 1, 2]


@pytest.mark.filterwarnings("ignore:Passing more than 1 positional argument:DeprecationWarning")
def test_a_connection_class_of_the_users_is_kept(profiler: SqlProfiler) -> None:
    """Given by its name, or by its position up to Python 3.14; its cursors too."""

    class Own(sqlite3.Connection):
        """Its own."""

    class OwnCursor(sqlite3.Cursor):
        """Its own."""

    with profiler.record("own") as recording:
        named = sqlite3.connect(":memory:", factory=Own)
        placed = (
            sqlite3.connect(":memory:", 5.0, 0, None, True, Own)
            if sys.version_info < (3, 15)
            else sqlite3.connect(":memory:", timeout=5.0, factory=Own)
        )
        named.cursor(OwnCursor).execute("select 1")
        placed.execute("select 2")

    assert [isinstance(each, Own) for each in (named, placed)] == [True, True]
    assert isinstance(named.cursor(OwnCursor), OwnCursor)
    assert len(recording.statements) == 2


class _Counting(sqlite3.Cursor):
    """Counts its statements."""

    calls = 0

    def execute(self, *arguments: Any) -> Any:
        self.calls += 1
        return super().execute(*arguments)


class _CursorByDefault(sqlite3.Connection):
    """Chooses the class of its cursors by a default value."""

    def cursor(self, factory: Any = _Counting) -> Any:
        return super().cursor(factory)


class _CursorWithoutArgument(sqlite3.Connection):
    """Makes cursors of one class, and its method takes no argument."""

    def cursor(self) -> Any:  # type: ignore[override]
        return super().cursor(_Counting)


class _Rewriting(sqlite3.Connection):
    """Changes each statement before it runs, and runs another one at a commit."""

    def execute(self, sql: str, *arguments: Any) -> Any:
        return super().execute(sql.replace("$table", "item"), *arguments)

    def executemany(self, sql: str, rows: Any) -> Any:
        return super().executemany(sql.replace("$table", "item"), rows)

    def executescript(self, sql: str) -> Any:
        return super().executescript(sql.replace("$table", "item"))

    def commit(self) -> None:
        super().execute("insert into item values (9)")
        super().commit()


@pytest.mark.parametrize("chosen", [_CursorByDefault, _CursorWithoutArgument])
def test_a_connection_class_chooses_its_cursors_as_without_the_profiler(
    profiler: SqlProfiler, chosen: type[sqlite3.Connection]
) -> None:
    """`cursor` of the user's class is called as the program calls it; sqlite3's own shortcuts do not call it."""
    with profiler.record("own") as recording:
        connection = sqlite3.connect(":memory:", factory=chosen)
        connection.execute("select 1").fetchall()
        cursor = connection.cursor()
        cursor.execute("select 2").fetchall()
        cursor.execute("select 3").fetchall()

    assert (isinstance(cursor, _Counting), cursor.calls) == (True, 2)
    assert [each.row_count for each in recording.statements] == [1, 1, 1]


def test_the_methods_of_a_connection_class_run_as_without_the_profiler(profiler: SqlProfiler) -> None:
    """What they send is recorded, and agrees with what sqlite3 itself traces."""
    sent = list[str]()

    with profiler.record("own") as recording:
        connection = sqlite3.connect(":memory:", factory=_Rewriting)
        connection.set_trace_callback(sent.append)
        connection.executescript("create table $table (i)")
        connection.executemany("insert into $table values (?)", [(1,)])
        rows = connection.execute("select i from $table").fetchall()
        connection.commit()
        rows += connection.execute("select i from $table").fetchall()

    assert rows == [(1,), (1,), (9,)]
    assert [each.sql for each in recording.statements] == [
        "create table item (i)",
        "insert into item values (?)",
        "select i from item",
        "insert into item values (?)",
        "select i from item",
    ]
    assert [each.split()[0] for each in sent] == ["create", "BEGIN", "insert", "select", "insert", "COMMIT", "select"]
    assert steps(recording)[1:] == [("BEGIN", 1), ("COMMIT", 1)]


def test_a_factory_that_is_no_connection_class_is_called_as_it_is(profiler: SqlProfiler) -> None:
    """sqlite3 takes any callable."""

    class Wrapper:
        """Keeps a path."""

        def __init__(self, path: str, **_: Any) -> None:
            self.path = path

    with profiler.record("other"):
        made = sqlite3.connect(":memory:", factory=Wrapper)  # type: ignore[type-var]

    assert (type(made), made.path) == (Wrapper, ":memory:")


def test_errors_are_the_applications() -> None:
    """Of a statement and of a connect; the recording names them."""
    profiler = SqlProfiler.for_drivers("sqlite3")

    with profiler.record("errors") as recording:
        with pytest.raises(sqlite3.OperationalError):
            sqlite3.connect("/nowhere/at/all.db")
        with pytest.raises(sqlite3.OperationalError):
            sqlite3.connect(":memory:").execute("select nope")

    profiler.remove()
    assert recording.transactions[0].error == "OperationalError"
    assert recording.statements[0].error == "OperationalError"


def test_the_drivers_have_their_own_functions_back() -> None:
    """After the profiler is removed; twice is harmless, and open connections still work."""
    before = sqlite3.connect, sqlite3.dbapi2.connect
    profiler = SqlProfiler.for_drivers("sqlite3")
    open_one = sqlite3.connect(":memory:")

    profiler.remove()
    profiler.remove()

    assert (sqlite3.connect, sqlite3.dbapi2.connect) == before
    assert open_one.execute("select 1").fetchall() == [(1,)]
    assert type(sqlite3.connect(":memory:")) is sqlite3.Connection


def test_an_unknown_driver_is_refused() -> None:
    """With the names that there are."""
    with pytest.raises(ProfilerError, match="sqlite3"):
        SqlProfiler.for_drivers("oracle")


def test_peewee_has_its_line(profiler: SqlProfiler) -> None:
    """The nearest line outside of peewee."""
    peewee = pytest.importorskip("peewee")
    database = peewee.SqliteDatabase(":memory:")

    class Thing(peewee.Model):
        """A row."""

        name = peewee.CharField()

        class Meta:
            """peewee's."""

            database = None

    Thing.bind(database)
    with profiler.record("peewee") as recording:
        database.create_tables([Thing])
        Thing.create(name="x")
        assert [each.name for each in Thing.select()] == ["x"]

    last = recording.statements[-1]
    assert (last.row_count, last.caller.function.split(".")[0]) == (1, "test_peewee_has_its_line")


@pytest.mark.processes
@pytest.mark.parametrize("profiler", ["SqlProfiler()", "SqlProfiler.for_drivers('sqlite3')"])
def test_no_sqlalchemy_is_needed(profiler: str) -> None:
    """Recording, summary and findings work where it is not installed."""
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "import sqlite3\n"
        "from placebench.profiler import SqlProfiler\n"
        f"with {profiler}.record('alone') as recording:\n"
        "    connection = sqlite3.connect(':memory:')\n"
        "    for number in range(5): connection.execute('select ?', (number,)).fetchall()\n"
        "print(len(recording.statements), str(recording.summary())[:0], [each.kind for each in recording.findings()])"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.split()[0] == "5"
    assert "n+1" in printed


@pytest.mark.processes
def test_two_profilers_wait_for_a_driver_to_be_imported() -> None:
    """Each is called back, and the module has its own loader's work done once."""
    program = (
        "import sys\n"
        "from placebench.profiler import SqlProfiler\n"
        "profilers = SqlProfiler.for_drivers(), SqlProfiler.for_drivers()\n"
        "assert 'sqlite3' not in sys.modules\n"
        "import sqlite3\n"
        "patched = sqlite3.connect\n"
        "for profiler in reversed(profilers): profiler.remove()\n"
        "print(sqlite3.connect is not patched, sqlite3.connect.__module__, len(sys.meta_path))"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (printed.stderr, printed.stdout.split()[:2]) == ("", ["True", "_sqlite3"])


def test_watches_of_imports_do_not_repeat_the_calls_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each adds one call of the finders after it; a watch for another module in between changes nothing."""
    calls = []

    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            calls.append(name)

    monkeypatch.setattr(sys, "meta_path", [Finder()])
    found = []
    for _ in range(5):
        ImportWatch(print).begin({"other_driver"})
        ImportWatch(print).begin({"missing_driver"})
        assert find_spec("missing_driver") is None
        found.append(len(calls))
        calls.clear()

    assert found == [2, 3, 4, 5, 6]


def test_plans_need_sqlalchemy(profiler: SqlProfiler) -> None:
    """A note says so, once."""
    with profiler.record("plans", mode="plans") as recording:
        for _ in range(2):
            sqlite3.connect(":memory:").execute("select 1").fetchall()

    assert sum("SQLAlchemy" in note for note in recording.notes) == 1
