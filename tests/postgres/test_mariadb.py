"""MariaDB beside PostgreSQL: a server of our own, the same rows in both, and the same responses in the matrix."""

import json
import resource
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from claimants import contend, provide, wrong_in_the_tables
from reports import document_of
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import IntegrityError

from placebench import results
from placebench.cli import main
from placebench.compare.keep.records import WirePass
from placebench.compare.keep.run_folder import claim_folder
from placebench.errors import DatabaseError, PlacebenchError
from placebench.lab.inventory.seeding import data_digest, find_topology, seed
from placebench.lab.reference.store.database import Database
from placebench.lab.studies.matrix_plan import Job, Matrix
from placebench.lab.studies.matrix_run import combine, matrix_study
from placebench.lab.studies.study import StudyRun
from placebench.meters.meters import Backends, inspect_backends
from placebench.profiler import Recording, SqlProfiler
from placebench.runtime.application_servers import serve
from placebench.runtime.mariadb import MariaDbServer, temporary_mariadb
from placebench.runtime.postgres import Server
from placebench.runtime.running_server import ServerSpec

TOPOLOGY = find_topology("nested-perfload", trees=3, seed=1, utilization=0.5)


def test_a_failed_installation_shows_its_cause(mariadb: MariaDbServer) -> None:
    """The error has the server's message that its files could not grow, without the advice that follows it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(DatabaseError, match=r"mariadb-install-db failed: .*; File size limit exceeded$"):
            temporary_mariadb().__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_server_is_gone_with_its_folder(mariadb: MariaDbServer) -> None:
    """The one process of all its databases is ours to meter while it runs, is not root's, and ends with the block."""
    with temporary_mariadb() as server:
        url = server.database("mine")
        seen = inspect_backends(url)
        assert isinstance(seen, Backends)
        ((pid, cpu_s),) = seen.cpu_s.items()
        process = psutil.Process(pid)
        folder = Path(
            next(each for each in process.cmdline() if each.startswith("--datadir=")).partition("=")[2]
        ).parent
        users = process.uids()
        assert folder.is_dir()

    assert cpu_s > 0
    assert 0 not in users
    assert not psutil.pid_exists(pid)
    assert not folder.exists()
    with pytest.raises(DatabaseError):
        inspect_backends(url)
    assert inspect_backends(mariadb.database("another")) != seen


def test_a_server_starts_where_only_the_caller_may_write_temporary_files(
    mariadb: MariaDbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that root starts runs as another user."""
    assert mariadb.url  # or the test is skipped
    tmp_path.chmod(0o700)
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    with temporary_mariadb() as server:
        assert server.database("one").endswith("/one")


def test_the_same_rows_as_in_postgresql(mariadb: MariaDbServer, database_url: str) -> None:
    """Seeded by SQL, read back with one digest; the second time nothing is done."""
    url = mariadb.database("seeded")
    receipt = seed(TOPOLOGY, url, loader="sql")

    assert receipt == seed(TOPOLOGY, url, loader="sql")
    assert receipt.digest == data_digest(url) == seed(TOPOLOGY, database_url).digest


@pytest.mark.long
def test_the_matrix_compares_it(mariadb: MariaDbServer, server: Server, tmp_path: Path) -> None:
    """naive and tuned respond as on PostgreSQL, and what the server's process takes is in the CPU of a row."""
    axes = {"service": ["naive", "tuned", "cached"], "server": ["wsgiref"], "database": ["mariadb"]}
    matrix = Matrix("mine", "What?", axes, {"database": "postgresql"}, [Job(2, 3)])
    spec = matrix_study(matrix, combine(matrix), request=TOPOLOGY.request, repeats=1)

    StudyRun(spec, TOPOLOGY, claim_folder(tmp_path / "run"), server).run(lambda _: None)
    document = document_of(run := results.load(tmp_path / "run"))
    rows = document["rows"]

    assert [("naive", "mariadb"), ("naive", "postgresql"), ("tuned", "mariadb"), ("tuned", "postgresql")] == [
        (row["service"], row["database"]) for row in rows if row["service"] != "cached"
    ]
    assert all(row["reason"] is None and row["cpu_s"] > 0 for row in rows)
    assert rows[0]["versions"]["driver"].startswith("PyMySQL ")
    assert rows[0]["overhead_per_request_s"] == rows[0]["overhead_s"] / 2
    assert ["cached runs on PostgreSQL alone"] == [each["reason"] for each in document["impossible"]]
    assert run.head.same_responses["equal"] is True


def counters(mariadb: MariaDbServer, name: str) -> tuple[str, Database]:
    """The URL of a new database with two counters at 0, and what writes there; a lock is waited for 1 s."""
    url = mariadb.database(name)
    engine = create_engine(url, connect_args={"init_command": "SET innodb_lock_wait_timeout = 1"})
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE counters (id INT PRIMARY KEY, n INT) ENGINE = InnoDB"))
        connection.execute(text("INSERT INTO counters VALUES (1, 0), (2, 0)"))
    return url, Database(engine)


def test_a_write_that_was_refused_in_a_deadlock_is_tried_again(mariadb: MariaDbServer) -> None:
    """Two writers that lock two rows in opposite orders: MariaDB refuses one, and both are done in the end."""
    url, database = counters(mariadb, "deadlock")
    both_hold_one, attempts = threading.Barrier(2), []

    def write(first: int, second: int) -> None:
        begun: list[int] = []

        def work(connection: Connection) -> None:
            attempts.append(first)
            connection.execute(text("UPDATE counters SET n = n + 1 WHERE id = :id"), {"id": first})
            if not begun:
                begun.append(first)
                both_hold_one.wait(60)
            connection.execute(text("UPDATE counters SET n = n + 1 WHERE id = :id"), {"id": second})

        database.write(work)

    threads = [threading.Thread(target=write, args=order) for order in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with create_engine(url).connect() as connection:
        counted = connection.scalars(text("SELECT n FROM counters")).all()

    assert [2, 2] == counted
    assert 3 <= len(attempts)


def test_a_write_that_waited_too_long_for_a_lock_is_tried_again(mariadb: MariaDbServer) -> None:
    """MariaDB gives up after 1 s; the lock is released then, and the second attempt writes."""
    url, database = counters(mariadb, "waits")
    attempts: list[int] = []
    with create_engine(url).connect() as holder:
        holder.execute(text("UPDATE counters SET n = 5 WHERE id = 1"))

        def work(connection: Connection) -> None:
            attempts.append(1)
            if len(attempts) == 2:
                holder.rollback()
            connection.execute(text("UPDATE counters SET n = n + 1 WHERE id = 1"))

        database.write(work)
        counted = holder.scalar(text("SELECT n FROM counters WHERE id = 1"))

    assert (2, 1) == (len(attempts), counted)


@pytest.mark.long
def test_claims_that_race_see_no_error(mariadb: MariaDbServer) -> None:
    """Six clients and the last units of three providers: 200, 204 and 409 alone, and the tables hold what was said."""
    url = mariadb.database("claims")
    provide(url)

    with serve(ServerSpec(database_url=url, variant="tuned", processes=2)) as server:
        outcome = contend(server.url, clients=6, seconds=1.5)
    engine = create_engine(url)
    wrong = wrong_in_the_tables(engine, outcome)
    engine.dispose()

    assert [] == wrong
    assert set(outcome.statuses) <= {"GET 200", "PUT 204", "PUT 409"}
    assert outcome.statuses["PUT 204"] > 5


def test_a_named_database_is_seeded(mariadb: MariaDbServer, capsys: pytest.CaptureFixture[str]) -> None:
    """`mysql://` without a driver is enough; the loader is the one that MariaDB has, and --reset empties it."""
    url = mariadb.database("named").replace("mysql+pymysql://", "mysql://")

    def seeded(*options: str) -> Any:
        assert 0 == main(["lab", "seed", "--db", url, "--trees", "3", "--json", *options])
        return json.loads(capsys.readouterr().out)

    first, second = seeded(), seeded("--utilization", "0.5", "--reset")

    assert ("sql", 3, 0) == (first["loader"], first["trees"], first["consumers"])
    assert second["consumers"] > 0
    assert second["digest"] == data_digest(url.replace("mysql://", "mysql+pymysql://"))


@pytest.mark.long
def test_a_comparison_runs_on_it(mariadb: MariaDbServer, tmp_path: Path) -> None:
    """naive and tuned respond alike; round trips and statements are counted, of which tuned takes fewer."""
    assert mariadb.url  # or the test is skipped
    options = ("--database", "mariadb", "--trees", "3", "-n", "0", "--out", str(tmp_path / "run"), "-q")

    exit_code = main(["compare", "naive", "tuned", *options])
    run = results.load(tmp_path / "run")
    naive, tuned = (WirePass.load(tmp_path / "run" / f"wire-{name}.json") for name in ("naive", "tuned"))

    assert 0 == exit_code
    assert run.head.same_responses["equal"] is True
    assert naive.round_trips[0] > tuned.round_trips[0] > 0
    assert (naive.statements or [0])[0] > (tuned.statements or [0])[0] > 0
    assert "MariaDB" in run.head.manifest["mariadb"]["version"]


OWN = {
    "seed.py": """
import os, random
from sqlalchemy import create_engine, text
with create_engine(os.environ["SQLALCHEMY_DATABASE_URL"]).begin() as connection:
    connection.execute(text("CREATE TABLE orders (id integer PRIMARY KEY, name text)"))
    for number in range(10):
        connection.execute(text("INSERT INTO orders VALUES (:id, :name)"), {"id": number, "name": str(random.random())})
""",
    "shop.py": """
import os
from sqlalchemy import create_engine, text
engine = create_engine(os.environ["SQLALCHEMY_DATABASE_URL"])
def app(environ, start_response):
    with engine.begin() as connection:
        if os.environ["AT_ONCE"] == "yes":
            names = connection.scalars(text("SELECT name FROM orders ORDER BY id")).all()
        else:
            one = text("SELECT name FROM orders WHERE id = :id")
            names = [connection.scalar(one, {"id": number}) for number in range(10)]
    assert os.environ["DATABASE_URL"].startswith("mysql://")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return ["\\n".join(names).encode()]
""",
    "pyproject.toml": """
[tool.placebench]
database = "mariadb"
setup = "python seed.py"
request = "/"
[tool.placebench.app]
app = "shop:app"
[tool.placebench.variants.one]
env = { AT_ONCE = "no" }
[tool.placebench.variants.two]
env = { AT_ONCE = "yes" }
""",
}


@pytest.mark.long
def test_an_application_of_the_user_runs_on_it(
    mariadb: MariaDbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each variant has a copy of the data that setup filled once, with its random values: the responses are equal."""
    assert mariadb.url  # or the test is skipped
    for name, content in OWN.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)

    assert 0 == main(["compare", "one", "two", "-n", "0", "--out", "run", "-q"])

    run = results.load(tmp_path / "run")
    passes = [WirePass.load(tmp_path / "run" / f"wire-{name}.json") for name in ("one", "two")]
    assert run.head.same_responses["equal"] is True
    assert [[10.0, 10.0], [1.0, 10.0]] == [[(each.statements or [])[0], (each.rows or [])[0]] for each in passes]
    assert 9 == passes[0].round_trips[0] - passes[1].round_trips[0]


def test_a_copy_has_keys_views_triggers_and_bytes(mariadb: MariaDbServer) -> None:
    """And a dropped one is gone."""
    source = create_engine(mariadb.database("whole"))
    with source.begin() as connection:
        for statement in (
            "CREATE TABLE parent (id integer PRIMARY KEY AUTO_INCREMENT, body blob, twice integer AS (2 * id))",
            "CREATE TABLE child (id integer, parent integer REFERENCES parent (id))",
            "CREATE VIEW large AS SELECT * FROM parent WHERE id > 1",
            "CREATE TRIGGER filled BEFORE INSERT ON child FOR EACH ROW SET NEW.id = 7",
            "INSERT INTO parent (body) VALUES (x'00ff27'), (NULL)",
        ):
            connection.execute(text(statement))

    copied = create_engine(mariadb.copy("whole", "copied"))
    with copied.begin() as connection:
        connection.execute(text("INSERT INTO child VALUES (1, 2)"))
        rows = connection.execute(text("SELECT * FROM parent")).all()
        large, child = (connection.execute(text(f"SELECT id FROM {name}")).scalar_one() for name in ("large", "child"))
        with pytest.raises(IntegrityError):
            connection.execute(text("INSERT INTO child VALUES (1, 3)"))
    copied.dispose()
    mariadb.drop("copied")
    with source.connect() as connection:
        databases = connection.scalars(text("SHOW DATABASES")).all()
    source.dispose()

    assert [(1, b"\x00\xff'", 2), (2, None, 4)] == rows
    assert (2, 7) == (large, child)
    assert "copied" not in databases


def test_a_template_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the way on."""
    monkeypatch.chdir(tmp_path)
    for name, content in OWN.items():
        (tmp_path / name).write_text(content)

    assert 2 == main(["compare", "one", "two", "--template-db", "sqlite:///shop.db", "--out", "run"])
    assert "or fill the database by setup" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_recording_of_pymysql_is_saved(mariadb: MariaDbServer, tmp_path: Path) -> None:
    """With the name of its database as text, which the driver has as bytes once it is connected."""
    engine = create_engine(mariadb.database("recorded"))
    profiler = SqlProfiler(engine)
    with profiler.record("one") as recording, engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    profiler.remove()
    engine.dispose()

    recording.save(tmp_path / "one.recording.json")
    (statement,) = Recording.load(tmp_path / "one.recording.json").statements

    assert statement.database is not None
    assert ("mariadb", "recorded") == (statement.database.system, statement.database.name)


def test_a_variant_that_mariadb_cannot_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is started."""
    exit_code = main(["compare", "naive", "cached", "--database", "mariadb", "--out", str(tmp_path / "run")])

    assert PlacebenchError.exit_code == exit_code
    assert "variant cached" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
