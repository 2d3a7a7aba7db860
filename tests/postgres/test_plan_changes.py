"""Statements whose plan differs between two variants, and variants that a command serves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from placebench import results
from placebench.cli import main
from placebench.runtime.postgres import Server

pytestmark = pytest.mark.long

SEED = """
import os
from sqlalchemy import create_engine, text
with create_engine(os.environ["SQLALCHEMY_DATABASE_URL"]).begin() as connection:
    run = lambda sql: connection.execute(text(sql))
    run("CREATE TABLE orders (id integer PRIMARY KEY, customer integer)")
    run("INSERT INTO orders SELECT each, each % 1000 FROM generate_series(1, 20000) AS each")
    run("CREATE INDEX orders_of_customer ON orders (customer)")
    run("CREATE TABLE notes (id integer PRIMARY KEY, text text)")
    run("INSERT INTO notes SELECT each, 'note' FROM generate_series(1, 2000) AS each")
    run("ANALYZE")
"""
FLASK = """
import os
from flask import Flask
from sqlalchemy import create_engine, text
engine = create_engine(os.environ["SQLALCHEMY_DATABASE_URL"])
app = Flask(__name__)

@app.get("/orders")
def orders():
    with engine.connect() as connection:
        found = connection.execute(text("SELECT id FROM orders WHERE customer = :customer"), {"customer": 7}).all()
        if os.environ.get("NOTES"):
            connection.execute(text("SELECT count(*) FROM notes WHERE text LIKE '%nothing%'")).scalar()
        return {"orders": sorted(id for id, in found)}
"""
FASTAPI = """
import os
import asyncpg
from fastapi import FastAPI
app = FastAPI()

@app.get("/orders")
async def orders():
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    found = await connection.fetch("SELECT id FROM orders WHERE customer = $1", 7)
    await connection.close()
    return {"orders": sorted(each["id"] for each in found)}
"""
PLAN = """
[tool.placebench]
setup = "python seed.py"
request = "/orders"

[tool.placebench.app]
APPLICATION

[tool.placebench.variants.one]

[tool.placebench.variants.two]
migrate = "python drop.py"
env = { NOTES = "1" }
"""
DROP = """
import os
from sqlalchemy import create_engine, text
with create_engine(os.environ["SQLALCHEMY_DATABASE_URL"]).begin() as connection:
    connection.execute(text("DROP INDEX orders_of_customer"))
"""
Compare = Callable[..., results.Run]


@pytest.fixture
def compare(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Compare:
    """Compare variants of a shop in one short replicate."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DATABASE_URL", raising=False)

    def run(source: str, application: str, *variants: str, replicates: int = 1) -> results.Run:
        (folder / "shop.py").write_text(source)
        (folder / "seed.py").write_text(SEED)
        (folder / "drop.py").write_text(DROP)
        (folder / "pyproject.toml").write_text(PLAN.replace("APPLICATION", application))
        out = tmp_path / "run"
        number = ["--rounds", "1", "-n", f"{replicates}"]
        code = main(["compare", *variants, "--server", server.url, *number, "-o", str(out)])
        printed = capsys.readouterr()
        assert code == 3 * replicates, printed.err  # one replicate decides nothing
        return results.load(out)

    return run


def where(run: results.Run) -> list[str]:
    """The sentences on what changed."""
    lines = (run.folder / "summary.md").read_text().splitlines()
    return [line.removeprefix("* ") for line in lines if "the plan of" in line]


def test_what_changed_in_plans_is_named_with_its_line(compare: Compare) -> None:
    """A variant misses an index that its migration has dropped, and sends a new statement, which scans a table."""
    run = compare(FLASK, 'app = "shop:app"', "one", "two")

    dropped, new = run.plans
    assert ("one", "two", "shop.py:11 orders") == (dropped.baseline, dropped.variant, dropped.place)
    assert "Bitmap Index Scan using orders_of_customer" in dropped.before
    assert ["Seq Scan on orders"] == dropped.after
    assert ([], ["Seq Scan on notes"]) == (new.before, new.after)
    assert "shop.py:13 orders" == new.place
    said = where(run)
    assert [True, True] == [
        said[0].endswith(" → Seq Scan on orders."),
        said[1].endswith(": Seq Scan on notes, in a new statement."),
    ]


def test_a_run_of_counts_compares_the_plans_that_postgresql_estimates(compare: Compare) -> None:
    """Nothing is served for it, so no line is known; the count of statements alone would not show the lost index."""
    run = compare(FLASK, 'app = "shop:app"', "one", "two", replicates=0)

    dropped, new = sorted(run.plans, key=lambda each: not each.before)
    assert "Bitmap Index Scan using orders_of_customer" in dropped.before
    assert (["Seq Scan on orders"], "") == (dropped.after, dropped.place)
    assert ([], ["Seq Scan on notes"]) == (new.before, new.after)
    assert 2 == len(where(run))
    assert [] == list((run.folder / "log").glob("planned-*"))


def test_a_command_is_profiled_and_its_plans_are_compared(compare: Compare) -> None:
    """Its processes record what they serve by themselves; asyncpg sends no plans, which EXPLAIN estimates."""
    run = compare(FASTAPI, 'command = "uvicorn shop:app --port {port}"', "one", "two")

    assert {"one": "", "two": ""} == {name: each.reason for name, each in run.profiled.items()}
    assert {"one", "two"} == {each.variant for each in run.profiled_replicates if each.frames}
    (changed,) = run.plans
    assert (["Seq Scan on orders"], "shop.py:10 orders") == (changed.after, changed.place)


def test_the_same_plans_are_no_change(compare: Compare) -> None:
    """Two instances of one application have the same plans, also under a server that a command starts."""
    run = compare(FLASK, 'command = "gunicorn --bind 127.0.0.1:{port} shop:app"', "one", "one")

    assert [] == run.plans
    assert {"": 2} == {reason: sum(each.reason == reason for each in run.profiled.values()) for reason in [""]}
