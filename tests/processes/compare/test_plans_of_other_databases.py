"""Statements of SQLite and MariaDB whose plan differs between two variants: a dropped index is named."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine

from placebench import results
from placebench.cli import main
from placebench.compare.measure.plan_changes import compare_plans
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.what.variants import Variant
from placebench.lab.placement_api import placement_workload
from placebench.runtime.mariadb import MariaDbServer

SEED = """
import os
from sqlalchemy import create_engine, text
with create_engine(os.environ["SQLALCHEMY_DATABASE_URL"]).begin() as connection:
    run = lambda sql, *rows: connection.execute(text(sql), *rows)
    run("CREATE TABLE orders (id integer PRIMARY KEY, customer integer, name varchar(20))")
    rows = [{"id": each, "customer": each % 1000, "name": f"n{each % 900}"} for each in range(1, 5001)]
    run("INSERT INTO orders VALUES (:id, :customer, :name)", rows)
    run("CREATE INDEX orders_of_customer ON orders (customer)")
    run("CREATE TABLE notes (id integer PRIMARY KEY, text varchar(20))")
    run("INSERT INTO notes VALUES (:id, 'note')", [{"id": each} for each in range(1, 101)])
with create_engine(os.environ["SQLALCHEMY_DATABASE_URL"]).begin() as connection:
    connection.execute(text("ANALYZE" if connection.dialect.name == "sqlite" else "ANALYZE TABLE orders"))
"""
DROP = """
import os
from sqlalchemy import create_engine, text
with create_engine(os.environ["SQLALCHEMY_DATABASE_URL"]).begin() as connection:
    of = "" if connection.dialect.name == "sqlite" else " ON orders"
    connection.execute(text(f"DROP INDEX orders_of_customer{of}"))
"""
SHOP = """
import os
from flask import Flask
from sqlalchemy import create_engine, text
engine = create_engine(os.environ["SQLALCHEMY_DATABASE_URL"])
app = Flask(__name__)

@app.get("/orders")
def orders():
    with engine.connect() as connection:
        query = "SELECT id FROM orders WHERE customer = :customer AND name <> 'it''s 5 %'"
        found = connection.execute(text(query), {"customer": 7}).all()
        connection.execute(text("SELECT name FROM orders WHERE id = :id"), {"id": 7}).all()
        if os.environ.get("NOTES"):
            connection.execute(text("SELECT count(*) FROM notes WHERE text LIKE '%nothing%'")).scalar()
        return {"orders": sorted(id for id, in found)}
"""
PLAN = """
[tool.placebench]
database = "sqlite"
setup = "python seed.py"
request = "/orders"

[tool.placebench.app]
app = "shop:app"

[tool.placebench.variants.one]

[tool.placebench.variants.two]
migrate = "python drop.py"
env = { NOTES = "1" }
"""
Compare = Callable[..., results.Run]


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Compare:
    """Compare variants of a shop in one short replicate."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)

    def run(*variants: str) -> results.Run:
        for name, text in (("shop.py", SHOP), ("seed.py", SEED), ("drop.py", DROP)):
            (tmp_path / name).write_text(text)
        (tmp_path / "pyproject.toml").write_text(PLAN)
        code = main(["compare", *variants, "--rounds", "1", "-n", "1", "-o", str(tmp_path / "run")])
        printed = capsys.readouterr()
        assert code == 3, printed.err  # one replicate decides nothing
        return results.load(tmp_path / "run")

    return run


@pytest.mark.long
def test_what_changed_in_plans_of_sqlite_is_named_with_its_line(compare: Compare) -> None:
    """A lookup that scans the table for want of an index, but not that by primary key; a new statement that scans."""
    dropped, new = compare("one", "two").plans

    assert ("one", "two", "shop.py:12 orders") == (dropped.baseline, dropped.variant, dropped.place)
    assert (["SEARCH using orders_of_customer on orders"], ["SCAN on orders"]) == (dropped.before, dropped.after)
    assert ([], ["SCAN on notes"]) == (new.before, new.after)


@pytest.mark.long
def test_an_index_that_mariadb_misses_is_named_with_its_line(mariadb: MariaDbServer, tmp_path: Path) -> None:
    """The plan is that for the values of the request, which the server has logged while nothing was timed."""
    for name, text in (("shop.py", SHOP), ("seed.py", SEED), ("drop.py", DROP)):
        (tmp_path / name).write_text(text)
    urls = {name: mariadb.database(f"plans_{name}") for name in ("one", "two")}
    for name, programs in (("one", ["seed.py"]), ("two", ["seed.py", "drop.py"])):
        for program in programs:
            environment = {**os.environ, "SQLALCHEMY_DATABASE_URL": urls[name]}
            subprocess.run([sys.executable, str(tmp_path / program)], env=environment, check=True)
    served = Variant("one", module="shop:app", variables={"PYTHONPATH": str(tmp_path)}, server="gunicorn")
    variants = (served, replace(served, name="two", migrate="python drop.py"))
    prepared = PreparedVariants(variants, urls, placement_workload("/orders"), tmp_path, block_s=0.1)

    (changed,) = compare_plans(prepared, [("one", "two")])

    assert ("one", "two", "shop.py:12 orders") == (changed.baseline, changed.variant, changed.place)
    assert (["ref using orders_of_customer on orders"], ["ALL on orders"]) == (changed.before, changed.after)
    with create_engine(mariadb.url, poolclass=NullPool).connect() as connection:
        log = connection.exec_driver_sql("SELECT @@GLOBAL.general_log, @@GLOBAL.log_output").one()
    assert (0, "FILE") == tuple(log)
