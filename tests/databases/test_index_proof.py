"""Indexes that are proposed were tried: PostgreSQL's own plans without and with them, and nothing stays behind."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.pool import NullPool
from sqlalchemy_version import since_2_0

from placebench.cli import main
from placebench.commands.profile.index_proof import ProvedIndex, prove_indexes
from placebench.errors import ProfilerError
from placebench.profiler import Recording, SqlProfiler

pytestmark = since_2_0


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with 20 000 items of 2000 orders."""
    made = create_engine(make_url(database_url).set(drivername="postgresql+psycopg2"), poolclass=NullPool)
    with made.begin() as connection:
        connection.exec_driver_sql(
            "create table items as select g as id, g %% 2000 as order_id, g %% 3 as colour, repeat('x', 50) as name "
            "from generate_series(1, 20000) g"
        )
        connection.exec_driver_sql("analyze items")
    yield made
    made.dispose()


def planned(profiler: SqlProfiler, engine: Engine, sql: str, **values: Any) -> Recording:
    """A recording of one statement with its plan."""
    with profiler.record("scan", mode="plans") as recording, engine.connect() as connection:
        connection.execute(text(sql), values).all()
    return recording


def catalogue(engine: Engine) -> list[tuple[Any, ...]]:
    """Every relation and prepared statement of the database."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "select relname, relkind from pg_class union select name, 'p' from pg_prepared_statements"
        )
        return sorted(map(tuple, rows))


def prove(recording: Recording, engine: Engine) -> tuple[ProvedIndex, ...]:
    """The indexes that are proved on the database itself."""
    return prove_indexes(recording, engine.url.render_as_string(hide_password=False))


def test_an_index_is_proved_and_does_not_stay(profiler: SqlProfiler, engine: Engine, tmp_path: Path) -> None:
    """The planner's cost and the time of a value fall by more than half; the index makes them fall as much for real."""
    recording = planned(profiler, engine, "select id, name from items where order_id = :order limit 100", order=7)
    before = catalogue(engine)

    (index,) = prove(recording, engine)

    assert catalogue(engine) == before
    assert index.ddl == "CREATE INDEX ON items (order_id)"
    assert index.cost_after < index.cost_before / 2
    recording.save(tmp_path / "recording.json")
    (again,) = prove(Recording.load(tmp_path / "recording.json"), engine)
    assert (again.ddl, again.cost_before, again.cost_after) == (index.ddl, index.cost_before, index.cost_after)
    with engine.begin() as connection:
        connection.exec_driver_sql(index.ddl)
    after = planned(profiler, engine, "select id, name from items where order_id = :order limit 100", order=7)
    assert prove(after, engine) == ()


def test_a_single_value_has_times(profiler: SqlProfiler, engine: Engine) -> None:
    """Three executions each, with a value of the table."""
    (index,) = prove(planned(profiler, engine, "select id from items where order_id = :order", order=7), engine)

    assert index.seconds_before is not None
    assert index.seconds_after is not None
    assert index.seconds_after < index.seconds_before
    assert str(index).splitlines()[0] == "index: CREATE INDEX ON items (order_id)"
    assert str(index).splitlines()[1].endswith("(created and rolled back)")


@pytest.mark.parametrize(
    ("sql", "ddl"),
    [
        ("select id from items where colour = :value", []),
        ("select id from items where upper(name) = upper(:name)", []),
        ("select id from items where order_id = :value and colour = 1", ["CREATE INDEX ON items (order_id)"]),
        ("select count(*) from items", []),
    ],
)
def test_what_an_index_does_not_help_has_no_proposal(
    profiler: SqlProfiler, engine: Engine, sql: str, ddl: list[str]
) -> None:
    """A third of the rows, an expression; and no column more than is needed."""
    values = {name: value for name, value in {"value": 1, "name": "x"}.items() if f":{name}" in sql}

    assert [each.ddl for each in prove(planned(profiler, engine, sql, **values), engine)] == ddl


def test_another_schema_has_no_proposal(profiler: SqlProfiler, engine: Engine) -> None:
    """The table is not on the database that was named."""
    recording = planned(profiler, engine, "select id from items where order_id = :order", order=7)
    with engine.begin() as connection:
        connection.exec_driver_sql("drop table items")

    assert prove(recording, engine) == ()


def test_the_command_prints_what_was_proved(
    profiler: SqlProfiler, engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text and as JSON, beside the recording's own figures; without the option there is none."""
    recording = planned(profiler, engine, "select id from items where order_id = :order", order=7)
    recording.save(tmp_path / "recording.json")
    show = ["profile", "show", str(tmp_path), "--json"]

    assert main(show) == 0
    assert "indexes" not in json.loads(capsys.readouterr().out)
    assert main([*show, "--prove-on", engine.url.render_as_string(hide_password=False)]) == 0
    (index,) = json.loads(capsys.readouterr().out)["indexes"]
    assert index["ddl"] == "CREATE INDEX ON items (order_id)"


@pytest.mark.parametrize("missing", ["psycopg", "psycopg2"])
def test_a_url_without_a_driver_takes_the_one_that_is_installed(
    profiler: SqlProfiler, engine: Engine, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy alone would read `postgresql://` as psycopg 3 or psycopg2 by its own version."""
    other = {"psycopg": "psycopg2", "psycopg2": "psycopg"}[missing]
    pytest.importorskip(other)
    pytest.importorskip(f"sqlalchemy.dialects.postgresql.{other}")
    recording = planned(profiler, engine, "select id from items where order_id = :order", order=7)
    monkeypatch.setitem(sys.modules, missing, None)

    (index,) = prove_indexes(recording, engine.url.set(drivername="postgresql").render_as_string(hide_password=False))

    assert index.ddl == "CREATE INDEX ON items (order_id)"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "expected its URL, saw sqlite"),
        ("postgresql+psycopg2://127.0.0.1:1/none", "--prove-on: the database cannot be used: "),
        ("nonsense", "--prove-on: the database cannot be used: "),
    ],
)
def test_a_database_that_cannot_prove_is_one_line(url: str, message: str) -> None:
    """Another system, no server, and what is not a URL."""
    with pytest.raises(ProfilerError, match=message) as raised:
        prove_indexes(Recording("r", "plans"), url)

    assert str(raised.value).count("\n") == 0
