"""Plans of the actual execution, by psycopg2, psycopg 3 and psycopg 3 under asyncio."""

import re
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest
from sqlalchemy import create_engine, exc, text
from sqlalchemy.engine import Engine, make_url
from sqlalchemy_version import since_2_0

from placebench.profiler import Recording, SqlProfiler
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.link import open_database_link
from placebench.runtime.postgres import Server

_TABLE = re.compile(r"\b(?:from|update) ([abc])\b")
DRIVERS = ("psycopg2", pytest.param("psycopg", marks=since_2_0))


@pytest.fixture(params=DRIVERS)
def engine(database_url: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine of each driver on a database with a table of 5000 rows."""
    made = create_engine(make_url(database_url).set(drivername=f"postgresql+{request.param}"), future=True)
    with made.begin() as connection:
        connection.exec_driver_sql("create table big as select g as id, 'secret' as t from generate_series(1, 5000) g")
    made.dispose()
    yield made
    made.dispose()


@pytest.fixture
def plain_role(database_url: str, server: Server) -> Iterator[str]:
    """The URL of a role without rights of its own."""
    url = make_url(database_url)
    with psycopg2.connect(url.set(drivername="postgresql").render_as_string(hide_password=False)) as connection:
        connection.cursor().execute(
            "create role placebench_plain login password 'p'; create table plain (id int); "
            "grant all on all tables in schema public to placebench_plain"
        )
    yield url.set(username="placebench_plain", password="p").render_as_string(hide_password=False)
    with psycopg2.connect(url.set(drivername="postgresql").render_as_string(hide_password=False)) as connection:
        connection.cursor().execute("drop owned by placebench_plain; drop role placebench_plain")


def shapes(recording: Recording) -> list[str | None]:
    """The shape of each statement's plan."""
    return [None if each.plan is None else each.plan.shape for each in recording.statements]


def notes_of_plans(recording: Recording) -> list[str]:
    """What it notes about plans; on a Python below 3.11.3 it also notes that another sampler stands in."""
    return [note for note in recording.notes if note.startswith("no plans")]


def test_reads_and_writes_have_the_plan_that_ran(profiler: SqlProfiler, engine: Engine) -> None:
    """A write is not run a second time: its rows are touched once."""
    with profiler.record("plans", mode="plans") as recording, engine.begin() as connection:
        connection.execute(text("select id from big where t = 'secret' order by id")).all()
        connection.execute(text("update big set id = id + 1 where id <= :n"), {"n": 500})
        largest = connection.execute(text("select max(id) from big")).scalar_one()

    read, write, _ = recording.statements
    assert shapes(recording)[:2] == ["Sort (Seq Scan on big)", "Update on big (Seq Scan on big)"]
    assert (read.plan.rows, write.plan.children[0].rows, largest) == (5000, 500, 5000)
    assert 0 < read.plan.elapsed_s <= read.execute_s
    assert read.plan.children[0].condition == "(t = ?::text)"
    assert notes_of_plans(recording) == []


@pytest.mark.parametrize(
    ("sql", "kind", "count"),
    [
        ("select id from big order by id limit 10 offset 4000", "skipped rows", 4000),
        ("select id from big order by id limit 10 offset 900", "skipped rows", None),
        ("select id from big order by id limit 10", "skipped rows", None),
        ("select (select id from big order by id limit 1) offset 0", "skipped rows", None),
        ("select big.id from big join few on big.id + 0 = few.id + 0", "join filter", 100_000),
        ("select big.id from big join few on big.id + 0 <> few.id + 0", "join filter", None),
        ("select big.id from big, few", "join filter", None),
    ],
)
def test_rows_that_are_read_for_nothing_are_found(
    profiler: SqlProfiler, engine: Engine, sql: str, kind: str, count: int | None
) -> None:
    """Those before a page, and pairs that a nested loop compares: 5000 rows beside 20. Pages at hand are none."""
    with engine.begin() as connection:
        connection.exec_driver_sql("create table few as select g * 250 as id from generate_series(1, 20) g")
    with profiler.record("for nothing", mode="plans") as recording, engine.connect() as connection:
        connection.exec_driver_sql("set enable_hashjoin = off; set enable_mergejoin = off")
        connection.execute(text(sql)).all()

    found = {finding.kind: finding.count for finding in recording.findings()}
    assert found.get(kind) == count


def test_a_partitioned_table_without_an_index_is_one_finding(profiler: SqlProfiler, engine: Engine) -> None:
    """Four partitions of 5000 rows."""
    with engine.begin() as connection:
        connection.exec_driver_sql("create table parted (id int, t text) partition by hash (id)")
        for part in range(4):
            connection.exec_driver_sql(
                f"create table parted_{part} partition of parted for values with (modulus 4, remainder {part})"
            )
        connection.exec_driver_sql("insert into parted select g, g::text from generate_series(1, 20000) g")
    with profiler.record("partitions", mode="plans") as recording, engine.connect() as connection:
        connection.execute(text("select p.id from parted p where p.t = :t"), {"t": "77"}).all()

    (found,) = (each for each in recording.findings() if each.kind == "sequential scan")
    assert found.count == 20_000


def test_a_selective_inner_scan_is_no_estimate_error(profiler: SqlProfiler, engine: Engine) -> None:
    """5000 loops over an index of 20 rows, all of which were expected as they came."""
    with engine.begin() as connection:
        connection.exec_driver_sql("create table few as select g * 250 as big_id from generate_series(1, 20) g")
        connection.exec_driver_sql("create index on few (big_id); analyze few; analyze big")
    with profiler.record("inner scan", mode="plans") as recording, engine.connect() as connection:
        connection.exec_driver_sql("set enable_hashjoin = off; set enable_mergejoin = off; set enable_material = off")
        read = connection.execute(text("select big.id from big join few on big_id = big.id")).all()

    plan = recording.statements[-1].plan
    assert len(read) == plan.rows == 20
    assert "row-estimate error" not in {finding.kind for finding in recording.findings()}


def test_rows_that_nobody_needed_are_no_estimate_error(profiler: SqlProfiler, engine: Engine) -> None:
    """5000 loops that stop at the third row on average, which is the only match; and a cursor that is closed early."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "create unique index on big (id); create table few as select mod(id, 5) + 1 as big_id from big"
        )
        connection.exec_driver_sql("analyze big, few")
    with profiler.record("unread", mode="plans") as recording, engine.connect() as connection:
        connection.exec_driver_sql(
            "set enable_hashjoin = off; set enable_mergejoin = off; set enable_indexscan = off; "
            "set enable_indexonlyscan = off; set enable_bitmapscan = off; set enable_material = off; "
            "set enable_memoize = off; set max_parallel_workers_per_gather = 0"
        )
        connection.execute(text("select big.id from few join big on big_id = big.id")).all()
        slow = text("select id, pg_sleep(0.0005) from big")
        with closing(connection.execution_options(stream_results=True, max_row_buffer=5).execute(slow)) as rows:
            rows.fetchmany(5)

    loop, cursor = (each.plan for each in recording.statements[-2:])
    inner = loop.children[1]
    assert inner.rows / inner.loops == 3
    assert cursor.rows < cursor.rows_expected / 10
    assert min(inner.elapsed_s, cursor.elapsed_s) > 0.001
    assert "row-estimate error" not in {finding.kind for finding in recording.findings()}


def test_results_that_are_stored_on_disk_are_spills(profiler: SqlProfiler, engine: Engine) -> None:
    """A CTE that is read twice, and the rows of a window; PostgreSQL tells so since version 17."""
    cte = (
        "with x as materialized (select id, repeat('y', 100) as t from big) "
        "select count(*) from x a, x b where a.id = b.id"
    )
    window = (
        "select max(s) from "
        "(select sum(id) over (rows between unbounded preceding and unbounded following) as s from big) q"
    )
    with profiler.record("stored", mode="plans") as recording, engine.connect() as connection:
        if connection.dialect.server_version_info < (17,):
            pytest.skip("PostgreSQL tells the storage of these nodes since 17")
        connection.exec_driver_sql("set work_mem = '64kB'")
        for statement in (cte, window):
            connection.execute(text(statement)).all()

    spilled = [{node.kind: node.spilled_kb for _, node in each.plan.walk()} for each in recording.statements[-2:]]
    assert spilled[0]["CTE Scan"] > 500
    assert spilled[1]["WindowAgg"] > 50
    assert [finding.kind for finding in recording.findings()].count("spill") >= 2


def test_the_plan_of_a_server_side_cursor_comes_when_it_closes(profiler: SqlProfiler, engine: Engine) -> None:
    """With the rows of all fetches."""
    with profiler.record("stream", mode="plans") as recording, engine.connect() as connection:
        numbers = connection.execution_options(yield_per=1000).execute(text("select * from big"))
        read = sum(1 for _ in numbers)

    assert (read, recording.statements[0].plan.rows) == (5000, 5000)


def test_the_plans_nodes_are_in_the_flame(profiler: SqlProfiler, engine: Engine) -> None:
    """Below the statement, and the whole is as long as before."""
    with profiler.record("flame", mode="plans") as recording, engine.connect() as connection:
        connection.execute(text("select pg_sleep(0.02) from big limit 1")).all()

    nodes = [
        (stack[-2], seconds) for stack, seconds in recording.session.frame_records if stack[-1].startswith("Limit")
    ]
    assert nodes
    assert nodes[0][0].startswith("select pg_sleep(?)")
    assert sum(seconds for _, seconds in recording.session.frame_records) == pytest.approx(recording.elapsed_s)


def test_the_session_has_its_own_settings_back(profiler: SqlProfiler, engine: Engine) -> None:
    """The next recording on the same connection is sent nothing, and has no plans."""
    with profiler.record("plans", mode="plans"), engine.connect() as connection:
        connection.execute(text("select 1"))

    with profiler.record("full") as recording, engine.connect() as connection:
        setting = connection.exec_driver_sql("show auto_explain.log_min_duration").scalar_one()

    assert (setting, shapes(recording)) == ("-1", [None])


def test_more_notices_than_psycopg2_keeps_lose_no_plan(profiler: SqlProfiler, engine: Engine) -> None:
    """A statement that raises 120 notices of its own."""
    loud = "do $$ begin for i in 1..120 loop raise notice 'n'; end loop; end $$"
    with profiler.record("loud", mode="plans") as recording, engine.connect() as connection:
        connection.exec_driver_sql(loud)
        connection.execute(text("select * from big where id = 1")).all()

    assert shapes(recording) == [None, "Seq Scan on big"]


def test_a_transaction_from_before_has_no_plans_and_says_so(profiler: SqlProfiler, engine: Engine) -> None:
    """A setting made inside of it would be undone by its rollback, and a refusal would break it."""
    with engine.connect() as connection:
        connection.execute(text("select 1"))
        with profiler.record("late", mode="plans") as recording:
            connection.execute(text("select 2"))
            connection.commit()
            connection.execute(text("select 3"))

    assert shapes(recording) == [None, "Result"]
    assert notes_of_plans(recording) == ["no plans for a transaction that had begun before the recording"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_plain_role_works_on_without_plans_and_is_told_why(plain_role: str, driver: str) -> None:
    """One clear line; set in the connect options, auto_explain would have locked it out."""
    engine = create_engine(make_url(plain_role).set(drivername=f"postgresql+{driver}"), future=True)
    profiler = SqlProfiler(engine)

    with profiler.record("plain", mode="plans") as recording, engine.begin() as connection:
        connection.execute(text("insert into plain values (1)"))
        count = connection.execute(text("select count(*) from plain")).scalar_one()

    profiler.remove()
    engine.dispose()
    assert (count, shapes(recording)) == (1, [None, None])
    (note,) = notes_of_plans(recording)
    assert note.startswith('no plans: permission denied to set parameter "auto_explain.')


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_role_that_may_not_time_triggers_has_plans(plain_role: str, database_url: str, driver: str) -> None:
    """The profiler asks for that time if a foreign key has no index; the server's own settings are back after it."""
    words = ["min_duration", "analyze", "buffers", "timing", "format", "level", "nested_statements"]
    granted = ", ".join(f"auto_explain.log_{each}" for each in words)
    owner = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg2.connect(owner) as connection:
        connection.cursor().execute(
            "load 'auto_explain'; alter role placebench_plain set session_preload_libraries = 'auto_explain'; "
            f"grant set on parameter {granted}, auto_explain.sample_rate to placebench_plain; "
            "alter table plain add primary key (id); create table referring (id int references plain)"
        )
    engine = create_engine(make_url(plain_role).set(drivername=f"postgresql+{driver}"), future=True)
    profiler = SqlProfiler(engine)
    with profiler.record("plain", mode="plans") as recording, engine.connect() as connection:
        connection.execute(text("select count(*) from plain"))

    with engine.connect() as connection:
        kept = connection.execute(text("show auto_explain.log_min_duration")).scalar_one()

    profiler.remove()
    engine.dispose()
    assert (shapes(recording), notes_of_plans(recording), kept) == (["Aggregate (Seq Scan on plain)"], [], "-1")


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_plain_role_has_estimates_if_it_asks(plain_role: str, driver: str) -> None:
    """By EXPLAIN, which runs nothing: one row is inserted, not two."""
    engine = create_engine(make_url(plain_role).set(drivername=f"postgresql+{driver}"), future=True)
    profiler = SqlProfiler(engine)

    with profiler.record("plain", mode="plans", explain=True) as recording, engine.begin() as connection:
        connection.execute(text("insert into plain values (:n)"), {"n": 1})
        count = connection.execute(text("select count(*) from plain where id = :n"), {"n": 1}).scalar_one()

    profiler.remove()
    engine.dispose()
    assert (count, shapes(recording)) == (1, ["Insert on plain (Result)", "Aggregate (Seq Scan on plain)"])
    assert recording.statements[0].plan.rows is None


def test_sqlite_sends_no_plans_and_says_so() -> None:
    """In one line."""
    engine = create_engine("sqlite://", future=True)
    profiler = SqlProfiler(engine)

    with profiler.record("sqlite", mode="plans") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))

    profiler.remove()
    engine.dispose()
    assert [note[:32] for note in notes_of_plans(recording)] == ["no plans: only PostgreSQL by psy"]


def tables_of_plans(recording: Recording) -> list[tuple[str, str | None]]:
    """The table that each statement names, and the one whose plan it has."""
    return [
        (
            _TABLE.findall(each.sql)[-1],
            each.plan and next(node for _, node in each.plan.walk() if node.relation).relation,
        )
        for each in recording.statements
    ]


@pytest.fixture
def three_tables(engine: Engine) -> None:
    """Tables a, b and c."""
    with engine.begin() as connection:
        for name in "abc":
            connection.exec_driver_sql(f"create table {name} as select g as id from generate_series(1, 10) g")
    engine.dispose()


@pytest.mark.usefixtures("three_tables")
@pytest.mark.parametrize("autocommit", [False, True])
def test_each_statement_with_parameters_has_its_own_plan(
    profiler: SqlProfiler, engine: Engine, *, autocommit: bool
) -> None:
    """The server sends a plan when its portal is closed: for psycopg 3 with the next statement, or the COMMIT."""
    sent = "select count(*) from (select 1 from {} where id < :n) where :n > 0"
    isolated = engine.execution_options(isolation_level="AUTOCOMMIT") if autocommit else engine
    with profiler.record("own", mode="plans") as recording, isolated.begin() as connection:
        for name in "aabcacb":
            connection.execute(text(sent.format(name)), {"n": 5}).all()
        connection.execute(text("select count(*) from c")).all()
        connection.execute(text(sent.format("a")), {"n": 5}).all()

    seen = tables_of_plans(recording)
    assert [named for named, _ in seen] == list("aabcacbca")
    assert [planned for _, planned in seen] == list("aabcacbca")
    assert notes_of_plans(recording) == []


@pytest.mark.usefixtures("three_tables")
def test_plans_around_an_error_a_savepoint_and_an_executemany(profiler: SqlProfiler, engine: Engine) -> None:
    """What failed has no plan, and nobody gets another one's."""
    with profiler.record("mixed", mode="plans") as recording, engine.connect() as connection:
        connection.execute(text("select :n from a"), {"n": 1}).all()
        with pytest.raises(exc.DBAPIError), connection.begin_nested():
            connection.execute(text("select 1 / :n from b"), {"n": 0})
        connection.execute(text("select :n from b"), {"n": 1}).all()
        connection.execute(text("update c set id = :n where id = :n and 'from' != 'c'"), [{"n": 1}, {"n": 2}])
        connection.execute(text("update c set id = :n where id = :n and 'from' != 'c'"), {"n": 3})
        connection.execute(text("select :n from a"), {"n": 2}).all()
        connection.rollback()

    relations = [planned for _, planned in tables_of_plans(recording)]
    assert relations == ["a", None, "b", "c", "c", "a"]


@pytest.mark.usefixtures("three_tables")
def test_a_plan_that_comes_after_the_recording_is_noted(profiler: SqlProfiler, engine: Engine) -> None:
    """The transaction goes on: with psycopg 3 the last plan is on its way, and no other recording gets it."""
    with engine.connect() as connection:
        with profiler.record("first", mode="plans") as first:
            connection.execute(text("select :n from a"), {"n": 1}).all()
        with profiler.record("second", mode="plans") as second:
            connection.execute(text("select :n from a where id = 0"), {"n": 2}).all()
            connection.rollback()

    late = engine.dialect.driver == "psycopg"
    assert ([each.plan is None for each in first.statements], len(notes_of_plans(first))) == ([late], int(late))
    (plan,) = (each.plan for each in second.statements)
    assert plan.condition == "(id = ?)"


@pytest.mark.usefixtures("three_tables")
def test_the_set_up_of_plans_is_the_profilers_time(engine: Engine) -> None:
    """Behind a network of 100 ms it is three round trips per checkout, which are neither SQL's nor Python's."""
    with open_database_link(engine.url.render_as_string(hide_password=False)) as link:
        distant = create_engine(link.url)
        profiler = SqlProfiler(distant)
        distant.connect().close()
        link.set_profile(LinkProfile(latency_s=0.1))
        before = link.traffic()
        with profiler.record("distant", mode="plans") as recording, distant.connect() as connection:
            connection.execute(text("select :n from a"), {"n": 1}).all()
        trips = link.traffic().since(before).round_trips
        profiler.remove()
        distant.dispose()

    assert trips == recording.round_trips + 3
    assert recording.python_s < 0.3 <= recording.plan_setup_s <= recording.overhead_s
