"""`pytest --sql` on a suite that works on PostgreSQL: one engine for all tests, savepoints, drivers alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

SUITE = """
import asyncio
import os

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text

URL = os.environ["SUITE_URL"]


@pytest.fixture(scope="session")
def engine():
    engine = create_engine(URL.replace("postgresql:", "postgresql+psycopg2:"))
    with engine.connect() as connection:
        connection.execute(text("select 'before the first test'"))
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine):
    with engine.connect() as connection, connection.begin() as transaction:
        yield connection
        transaction.rollback()


def test_rolled_back(connection):
    connection.execute(text("create temporary table items (item int)"))
    with connection.begin_nested():
        connection.execute(text("insert into items values (:item)"), [{"item": -1}, {"item": -2}])
    for item in (-1, -2):
        assert connection.execute(text("select item from items where item = :item"), {"item": item}).all() == [(item,)]


def test_server_side_cursor(connection):
    rows = connection.execution_options(stream_results=True).execute(text("select generate_series(1, 2000)"))
    assert len(rows.all()) == 2000


def test_failed_statement(connection):
    with pytest.raises(Exception, match="nowhere"):
        connection.execute(text("select item from nowhere"))


def test_psycopg():
    with psycopg.connect(URL) as connection:
        for item in range(6):
            connection.execute("select %s::int", (item,)).fetchall()


def test_asyncpg():
    async def work():
        connection = await asyncpg.connect(URL)
        await connection.fetch("select $1::int", 1)
        await connection.close()

    asyncio.run(work())
"""


def test_the_statements_of_a_suite_on_postgres_are_counted(database_url: str, tmp_path: Path) -> None:
    """Those of each test, on what its fixtures have opened too; statements whose values differ are not duplicates."""
    (tmp_path / "test_items.py").write_text(SUITE)
    options = ("-p", "no:cacheprovider", "--sql-baseline", "sql.json", "--sql-update")
    command = [sys.executable, "-m", "pytest", "-q", *options]
    variables = {**os.environ, "SUITE_URL": database_url.replace("+psycopg2", "")}

    run = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    assert "5 passed" in run.stdout, run.stdout
    tests = json.loads((tmp_path / "sql.json").read_text())["tests"]
    assert {name.rpartition("::")[2]: sorted(test["statements"].values()) for name, test in tests.items()} == {
        "test_rolled_back": [1, 1, 2],
        "test_server_side_cursor": [1],
        "test_failed_statement": [1],
        "test_psycopg": [6],
        "test_asyncpg": [1],
    }
    findings = {name: set(test) - {"statements"} for name, test in tests.items() if set(test) != {"statements"}}
    assert findings == {"test_items.py::test_psycopg": {"n_plus_one"}}
    assert run.returncode == 0
