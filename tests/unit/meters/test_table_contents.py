"""Digests of tables: what changes them, and what does not."""

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from placebench.meters.table_contents import TableContents, read_tables

TABLES = (
    'CREATE TABLE "Odd name" (id integer, name text)',
    "CREATE TABLE fruit (id integer PRIMARY KEY, name text)",
    "CREATE TABLE empty (id integer)",
    """INSERT INTO "Odd name" VALUES (1, 'a%b'), (2, NULL)""",
    "INSERT INTO fruit VALUES (1, 'pear'), (2, 'fig')",
)

_numbers = count()


@pytest.fixture(
    params=["sqlite", *(pytest.param(name, marks=pytest.mark.processes) for name in ("postgresql", "mariadb"))]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with two tables that have rows."""
    made = f"sqlite:///{tmp_path / 'fruit.db'}"
    if request.param == "postgresql":
        made = request.getfixturevalue("database_url")
    if request.param == "mariadb":
        made = request.getfixturevalue("mariadb").database(f"fruit_{next(_numbers)}")
    change(made, *TABLES)
    return made


def change(url: str, *statements: str) -> None:
    """Run these."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for each in statements:
            quoted = each.replace('"', "`") if engine.name == "mysql" else each
            connection.execute(text(quoted.replace(":", r"\:")))
    engine.dispose()


def test_a_changed_row_changes_its_table_alone(url: str) -> None:
    """The difference names the table and its rows; the order of the rows and a new empty table make none."""
    before = read_tables(url)
    change(
        url, "DELETE FROM fruit WHERE id = 1", "INSERT INTO fruit VALUES (1, 'pear')", "CREATE TABLE more (id integer)"
    )
    moved = read_tables(url)
    change(url, "UPDATE fruit SET name = 'plum' WHERE id = 2")
    changed = read_tables(url)

    assert (set(before.digests), before.rows, before.unchecked) == ({"Odd name", "fruit"}, 4, [])
    assert before.difference(moved) == ""
    assert before.digest == moved.digest != changed.digest
    assert before.difference(changed).startswith("fruit: 2 rows, ")
    assert before.difference(read_tables(url, without=["fruit"])).startswith("fruit: none, were 2 rows")
    assert before.difference(TableContents(unchecked=["fruit", "Odd name"])) == ""


def test_tables_grow_by_rows(url: str) -> None:
    """More rows, fewer, and a table's first one; a changed row is not growth."""
    before = read_tables(url)
    change(
        url,
        "INSERT INTO fruit VALUES (3, 'fig'), (4, 'fig')",
        'DELETE FROM "Odd name" WHERE id = 1',
        """UPDATE "Odd name" SET name = 'b'""",
        "INSERT INTO empty VALUES (1)",
    )

    assert before.growth(read_tables(url)) == {"Odd name": -1, "empty": 1, "fruit": 2}


def test_what_does_not_fit_in_the_time_is_named(tmp_path: Path, database_url: str) -> None:
    """A table too large for the time is not looked for, and said to be so."""
    change(database_url, "CREATE TABLE large AS SELECT generate_series(1, 300000) AS id")
    path = tmp_path / "large.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE large (id integer)")
        connection.executemany("INSERT INTO large VALUES (?)", [(number,) for number in range(20_000)])
        connection.commit()

    assert read_tables(database_url, within_s=0.01).unchecked == ["large"]
    assert read_tables(f"sqlite:///{path}", within_s=0).unchecked == ["large"]
