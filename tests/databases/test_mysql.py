"""PyMySQL and mysqlclient, with SQLAlchemy and alone, on MariaDB."""

from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, bindparam, create_engine, select, text
from sqlalchemy.engine import Engine, make_url

from placebench.profiler import Recording, SqlProfiler
from placebench.runtime.mariadb import MariaDbServer

_numbers = count(1)
TABLE = Table("placebench_profiled", MetaData(), Column("id", Integer, primary_key=True))


@pytest.fixture(params=["pymysql", "MySQLdb"])
def driver(request: pytest.FixtureRequest) -> Any:
    """The driver's module."""
    return pytest.importorskip(request.param)


@pytest.fixture
def engine(driver: Any, mariadb: MariaDbServer) -> Iterator[Engine]:
    """An engine with an empty table."""
    url = make_url(mariadb.database(f"alone_{next(_numbers)}")).set(drivername=f"mysql+{driver.__name__.lower()}")
    made = create_engine(url, future=True)
    TABLE.create(made)
    yield made
    made.dispose()


def statements(recording: Recording) -> list[tuple[int | None, int | None]]:
    """Each statement's rows and round trips."""
    return [(each.row_count, each.round_trips) for each in recording.statements]


def test_statements_of_sqlalchemy_have_times_rows_and_round_trips(engine: Engine) -> None:
    """An INSERT of many rows is one round trip, an UPDATE for each of two parameters two; a stream counts its rows."""
    profiler = SqlProfiler(engine)
    engine.dispose()
    with engine.connect():
        pass

    with profiler.record("mysql") as recording, engine.begin() as connection:
        connection.execute(TABLE.insert(), [{"id": number} for number in range(1, 6)])
        connection.execute(select(TABLE)).all()
        connection.execute(text("select 1")).fetchone()
        connection.execution_options(stream_results=True).execute(select(TABLE)).all()
        change = TABLE.update().where(TABLE.c.id == bindparam("old")).values(id=bindparam("new"))
        connection.execute(change, [{"old": 1, "new": 11}, {"old": 2, "new": 12}])

    profiler.remove()
    assert statements(recording) == [(5, 1), (5, 1), (1, 1), (5, 1), (2, 2)]
    assert [each.fetch_s is not None for each in recording.statements[1:4]] == [True, True, True]
    assert [(each.kind, each.round_trips) for each in recording.transactions][:2] == [("BEGIN", None), ("COMMIT", 1)]
    assert recording.notes == ()


def test_statements_of_the_driver_alone(driver: Any, engine: Engine) -> None:
    """Iterated, streamed and failed ones; COMMIT and ROLLBACK are sent each time."""
    url = engine.url
    place = {"host": url.host, "port": url.port, "user": url.username, "password": url.password}
    cursors = import_module(f"{driver.__name__}.cursors")
    profiler = SqlProfiler.for_drivers(driver.__name__)

    with profiler.record("alone") as recording, closing(driver.connect(database=url.database, **place)) as connection:
        cursor = connection.cursor()
        cursor.executemany(f"insert into {TABLE.name} values (%s)", [(number,) for number in range(1, 11)])
        connection.commit()
        cursor.execute(f"select id from {TABLE.name} where id >= %s", (0,))
        iterated = list(cursor)
        streaming = connection.cursor(cursors.SSCursor)
        streaming.execute(f"select id from {TABLE.name}")
        streamed = streaming.fetchall()
        with pytest.raises(driver.Error):
            cursor.execute("select nope")
        connection.rollback()

    profiler.remove()
    assert (len(iterated), len(streamed)) == (10, 10)
    assert statements(recording) == [(10, 1), (10, 1), (10, 1), (None, 1)]
    assert recording.statements[-1].error is not None
    assert [(each.kind, each.round_trips) for each in recording.transactions] == [
        ("CONNECT", None),
        *(("BEGIN", None), ("COMMIT", 1)),
        *(("BEGIN", None), ("ROLLBACK", 1)),
    ]
    assert {each.caller.function for each in recording.statements} == {"test_statements_of_the_driver_alone"}
