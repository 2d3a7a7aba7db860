"""`placebench compare` on applications and data of one's own: small shops with a schema of their own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from git_repository import commit_all
from sqlalchemy import create_engine, make_url, text

from placebench import results
from placebench.cli import main
from placebench.runtime.postgres import Server

SEED = """
import os
from sqlalchemy import create_engine, text
with create_engine(os.environ["SQLALCHEMY_DATABASE_URL"]).begin() as connection:
    made_at = "made_at timestamp DEFAULT CURRENT_TIMESTAMP"
    connection.execute(text(f"CREATE TABLE orders (id integer PRIMARY KEY, {made_at})"))
    connection.execute(text("CREATE TABLE items (id integer PRIMARY KEY, order_id integer, name text)"))
    for number in range(30):
        connection.execute(text("INSERT INTO orders (id) VALUES (:id)"), {"id": number})
        connection.execute(text("INSERT INTO items VALUES (:id, :id, 'pear')"), {"id": number})
"""
FASTAPI = """
import os
from fastapi import FastAPI
from sqlalchemy import create_engine, text
engine = create_engine(os.environ["SQLALCHEMY_DATABASE_URL"])
app = FastAPI()

@app.get("/orders")
def orders():
    with engine.begin() as connection:
        {body}
"""
FLASK = """
import os
from flask import Flask
from sqlalchemy import create_engine, text
engine = create_engine(os.environ["SQLALCHEMY_DATABASE_URL"])
app = Flask(__name__)

@app.get("/orders")
def orders():
    with engine.begin() as connection:
        {body}
"""
WRITING = """if "WRITES" in os.environ:
            connection.execute(text("UPDATE items SET name = name || 's'"))
        return "2\""""
ONE_BY_ONE = """ids = connection.scalars(text("SELECT id FROM orders ORDER BY id LIMIT 10")).all()
        by_order = text("SELECT name FROM items WHERE order_id = :id")
        return {str(each): connection.scalar(by_order, {"id": each}) for each in ids}"""
AT_ONCE = """joined = text("SELECT orders.id, name FROM orders JOIN items ON order_id = orders.id ORDER BY 1 LIMIT 10")
        return {str(id): name for id, name in connection.execute(joined)}"""
MIGRATION = """
import os
from sqlalchemy import create_engine, text
with create_engine(os.environ["SQLALCHEMY_DATABASE_URL"]).begin() as connection:
    connection.execute(text("CREATE INDEX by_order ON items (order_id)"))
"""
PLAN = """
[tool.placebench]
setup = "python seed.py"
request = "/orders"

[tool.placebench.app]
app = "shop:app"
"""
TWO = """
[tool.placebench.variants.one]

[tool.placebench.variants.two]
"""
Compare = Callable[..., tuple[int, str, results.Run | None]]


def write_shop(folder: Path, framework: str = FLASK, body: str = ONE_BY_ONE, plan: str = PLAN) -> None:
    """A shop, its seed and its plan."""
    (folder / "shop.py").write_text(framework.replace("{body}", body))
    (folder / "seed.py").write_text(SEED)
    (folder / "pyproject.toml").write_text(plan)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; nothing in the environment names a database."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    return folder


@pytest.fixture
def compare(server: Server, tmp_path: Path, shop: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    """The command with these arguments, on the tests' server unless the plan has SQLite: exit code, last line, run."""

    def run(*arguments: str) -> tuple[int, str, results.Run | None]:
        out, is_on_sqlite = tmp_path / "run", 'database = "sqlite"' in (shop / "pyproject.toml").read_text()
        where = [] if is_on_sqlite else ["--server", server.url]
        code = main(["compare", *arguments, *where, "--rounds", "1", "-o", str(out)])
        last = capsys.readouterr().err.strip().splitlines()[-1]
        return code, last, results.load(out) if (out / "run.json").is_file() else None

    return run


def statements(run: results.Run | None) -> dict[str, list[float] | None]:
    """What was counted for each request, by variant."""
    assert run is not None
    return {name: each.statements for name, each in run.wire.items()}


@pytest.mark.long
def test_two_revisions_of_a_fastapi_shop_on_its_own_data(shop: Path, compare: Compare) -> None:
    """The N+1 of ten orders costs 11 statements, the join 1; uvicorn serves, and both are profiled."""
    write_shop(shop, FASTAPI)
    commit_all(shop, "slow", tag="slow")
    write_shop(shop, FASTAPI, AT_ONCE)
    commit_all(shop, "quick", tag="quick")

    code, _, run = compare("slow", "quick", "-n", "1", "--gate", "statements < 1x")

    assert run is not None
    assert code == 3  # one replicate decides nothing
    assert statements(run) == {"slow": [11.0] * 12, "quick": [1.0] * 12}
    assert (run.head.receipt["tables"], run.head.receipt["rows"]) == (2, 60)
    assert run.head.topology == "setup: python seed.py"
    assert all(block.cpu_s and block.counters["pss_bytes"] > 0 for block in run.blocks if not block.invalid)
    assert {name: each.reason for name, each in run.profiled.items()} == {"slow": "", "quick": ""}
    assert not (run.folder / "data.dump").exists()


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_each_variant_has_a_copy_that_it_migrates(database: str, shop: Path, compare: Compare) -> None:
    """PostgreSQL counts statements itself, for SQLite the profiler does; what SQLite has not stays unknown."""
    plan = PLAN.replace("[tool.placebench]", f'[tool.placebench]\ndatabase = "{database}"')
    (shop / "migrate.py").write_text(MIGRATION)
    write_shop(shop, plan=f'{plan}{TWO}migrate = "python migrate.py"\n')

    code, last, run = compare("-n", "0", "--gate", "statements <= 11", "--gate", "round_trips <= 14")

    assert run is not None
    assert run.head.same_responses["equal"] is True
    assert statements(run) == {"one": [11.0] * 12, "two": [11.0] * 12}
    if database == "postgresql":
        assert code == 0
    else:
        assert code == 3
        assert "gate 'round_trips <= 14' inconclusive for two: not measured" in last
    assert not (run.folder / "databases").exists()


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_an_application_that_ignores_the_database_is_refused(database: str, shop: Path, compare: Compare) -> None:
    """It would count 0 statements and pass: one line, exit code 1, and no gate passes."""
    plan = PLAN.replace("[tool.placebench]", f'[tool.placebench]\ndatabase = "{database}"')
    own = f"sqlite:///{shop / 'own.db'}"
    write_shop(shop, plan=plan + TWO)
    subprocess.run([sys.executable, "seed.py"], env={"SQLALCHEMY_DATABASE_URL": own}, check=True)
    ignoring = FLASK.replace('os.environ["SQLALCHEMY_DATABASE_URL"]', f'"{own}"')
    (shop / "shop.py").write_text(ignoring.replace("{body}", AT_ONCE))

    code, last, run = compare("-n", "0", "--gate", "statements <= 1")

    assert run is not None
    assert code == 1
    assert "one never connected to the database that it was given" in last
    assert run.head.status == "failed"
    assert "**passed**" not in (run.folder / "summary.md").read_text().partition("same responses")[2]


@pytest.mark.long
def test_requests_that_change_data_are_named(shop: Path, compare: Compare) -> None:
    """With the table and the variant, unless that table may change."""
    plan = f"{PLAN}{TWO}env = {{ WRITES = '1' }}\n"
    write_shop(shop, body=WRITING, plan=plan)

    code, last, run = compare("-n", "0")

    assert run is not None
    assert code == 1
    assert "the data of two changed, in items: 30 rows, " in last
    assert "may_change" in last
    assert run.head.same_responses["equal"] is False


def test_a_setup_that_fails_is_one_line(shop: Path, compare: Compare) -> None:
    """With the end of what it printed."""
    write_shop(shop, plan=PLAN.replace("python seed.py", "echo no pears; exit 5") + TWO)

    code, last, _ = compare("-n", "0")

    assert code == 2
    assert "setup 'echo no pears; exit 5' ended with exit code 5; the end of its log: no pears" in last


@pytest.mark.long
def test_a_template_is_copied_and_stays(shop: Path, compare: Compare, database_url: str) -> None:
    """With what a setup command adds to the copy; somebody may be connected to the template meanwhile."""
    add = "psql -qc 'DELETE FROM items WHERE id = 3'"
    write_shop(shop, plan=PLAN.replace('"python seed.py"', f'"{add}"') + TWO)
    subprocess.run([sys.executable, "seed.py"], env={"SQLALCHEMY_DATABASE_URL": database_url}, check=True)
    engine = create_engine(database_url)

    with engine.connect() as connection:
        rows = connection.scalar(text("SELECT count(*) FROM items"))
        connection.commit()
        code, _, run = compare("-n", "0", "--template-db", database_url)
        after = connection.scalar(text("SELECT count(*) FROM items"))
    engine.dispose()

    assert run is not None
    assert (code, rows, after, run.head.receipt["rows"]) == (0, 30, 30, 59)
    assert str(make_url(database_url).database) in run.head.topology
    assert "password" not in run.head.topology


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("setup = 3", "tool.placebench.setup: expected a string"),
        (
            'database = "mysql"',
            "tool.placebench.database: expected one of mariadb, none, postgresql, sqlite, saw 'mysql'",
        ),
        ('[tool.placebench.variants.x]\ncommand = "serve"', "the command of x has no {port} to serve at"),
        ('setup = "x"\ntrees = 3\nrequest = "/"', "setup is for data of your own, and there is trees"),
        ('setup = "x"', "no request: give --request"),
        ('template_db = "mysql://x/y"\nrequest = "/"', "the database URL begins with mysql://"),
    ],
)
def test_a_wrong_plan_is_one_line(plan: str, expected: str, shop: Path, compare: Compare) -> None:
    """Key, what was seen, what was expected; nothing was begun."""
    write_shop(shop, plan=f'[tool.placebench]\n{plan}\n[tool.placebench.app]\napp = "shop:app"\n{TWO}')

    code, last, run = compare("-n", "0")

    assert (code, run) == (2, None)
    assert expected in last
