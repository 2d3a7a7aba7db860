"""Drivers without hooks of placebench: what a recording has of them through SQLAlchemy, and that it names them."""

import json
import os
import subprocess
import sys
from ctypes.util import find_library
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from placebench.runtime.mariadb import MariaDbServer

WORK = """
import asyncio, sys

from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, select, text

NUMBER = Column("id", Integer, primary_key=True, autoincrement=False)
ITEM = Table("item", MetaData(), NUMBER, Column("name", String(20)))


def work(connection):
    # Sends eight statements, and counts the rows that it was handed.
    ITEM.create(connection, checkfirst=False)
    connection.execute(ITEM.insert(), [{"id": number, "name": "a"} for number in range(25)])
    connection.commit()
    rows = len(connection.execute(select(ITEM)).all())
    rows += len(connection.execute(select(ITEM)).fetchmany(10))
    for number in range(3):
        rows += connection.execute(select(ITEM.c.name).where(ITEM.c.id == number)).first() is not None
    rows += connection.execute(text("select id from item where id > 100")).one_or_none() is not None
    return rows


async def work_awaited(url):
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url)
    async with engine.connect() as connection:
        rows = await connection.run_sync(work)
    await engine.dispose()
    return rows


url = sys.argv[1]
if url.startswith(("mysql+aiomysql", "mysql+asyncmy")):
    print(asyncio.run(work_awaited(url)))
else:
    engine = create_engine(url)
    with engine.connect() as connection:
        print(work(connection))
    engine.dispose()
"""
ALONE = """
import asyncio, sqlite3, sys

for name in sys.argv[1:]:
    __import__(name)
sqlite3.connect(":memory:").execute("select 1")
"""
DRIVERS = ("aiomysql", "asyncmy", "duckdb", "oracledb", "pymssql", "pyodbc")


def _recorded(folder: Path, program: str, *words: str) -> tuple[dict[str, Any], str]:
    """The recording of a program, and what it printed."""
    (folder / "work.py").write_text(program, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "placebench", "profile", "run", "--mode", "full", "-o", "out", "work.py", *words],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return json.loads((folder / "out" / "recording.json").read_text(encoding="utf-8")), run.stdout


def _check(folder: Path, url: str) -> list[dict[str, Any]]:
    """Each statement of the program is recorded once, with its time, and reads with their rows and fetch times.

    Returns the statements that SQLAlchemy could have in its cache.
    """
    recording, said = _recorded(folder, WORK, url)

    own = [each for each in recording["statements"] if "item" in each["sql"].lower()]
    reads = [each for each in own if each["sql"].lstrip().lower().startswith("select")]
    assert int(said.split()[0]) == 38
    assert [each["row_count"] for each in reads] == [25, 10, 1, 1, 1, 0]
    assert len(own) == 8
    assert all(each["execute_s"] > 0 for each in own)
    assert all(each["fetch_s"] is not None for each in reads)
    assert {each["caller"][0].rpartition("/")[2] for each in own} == {"work.py"}
    assert [each["kind"] for each in recording["transactions"]].count("COMMIT") == 1
    return own[1:-1]  # without DDL and plain text


def test_duckdb(tmp_path: Path) -> None:
    """DuckDB reports no number of rows: those that SQLAlchemy fetched are counted. Its statements are not cached."""
    pytest.importorskip("duckdb_engine", reason="duckdb-engine is not installed")
    cacheable = _check(tmp_path, "duckdb:///:memory:")

    assert [each["cache_hit"] for each in cacheable] == [None] * 6


@pytest.mark.parametrize("driver", ["aiomysql", "asyncmy", "pyodbc"])
def test_drivers_of_mariadb(driver: str, tmp_path: Path, mariadb: MariaDbServer) -> None:
    """Awaited drivers, and ODBC."""
    pytest.importorskip(driver, reason=f"{driver} or a library of it is not installed", exc_type=ImportError)
    url = make_url(mariadb.database(f"other_{driver}")).set(drivername=f"mysql+{driver}")
    if driver == "pyodbc":
        import pyodbc

        names = [name for name in pyodbc.drivers() if "MariaDB" in name]
        if not names:
            pytest.skip("unixODBC has no driver of MariaDB: apt-get install odbc-mariadb")
        url = url.update_query_dict({"driver": names[0], "port": str(url.port)})
    _check(tmp_path, url.render_as_string(hide_password=False))


def test_a_driver_without_hooks_is_named(tmp_path: Path) -> None:
    """By a note, if the program has imported it and its statements without SQLAlchemy would be missing."""
    found = [name for name in DRIVERS if find_spec(name) is not None and (name != "pyodbc" or find_library("odbc"))]
    if not found:
        pytest.skip(f"none of {', '.join(DRIVERS)} is installed")
    recording, _ = _recorded(tmp_path, ALONE, *found)

    (note,) = (each for each in recording["notes"] if "no hooks" in each)
    assert [name for name in found if name in note.split(" without ")[0]] == found
