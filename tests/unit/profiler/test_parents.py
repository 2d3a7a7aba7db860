"""The parents of an N+1, and the words in which the fix is told."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placebench.profiler import Recording, SqlProfiler, Statement
from placebench.profiler.analysis.findings import find
from placebench.profiler.analysis.findings.parents import load_at_once
from placebench.profiler.model.statement import Caller, OrmLoad

VIEW, TABLE = Caller("/app/views.py", 31, "view"), Caller("/app/table.py", 9, "rows")


def read(at: float, **fields: Any) -> Statement:
    """A read of 1 ms that begins at this second."""
    given = {"fingerprint": "items", "sql": "select name from items where order_id = ?", "caller": VIEW}
    return Statement(**{**given, "started_s": at, "execute_s": 0.001, "repeated": False, "row_count": 1, **fields})


def parents_of(*before: Statement, **first: Any) -> str:
    """The parents that the finding of a loop of six reads tells, which begins at second 10."""
    loop = [read(10.0, **first), *(read(10.0 + number) for number in range(1, 6))]
    (finding,) = find(Recording("r", "full", statements=[*before, *loop]))
    return str(finding.parents)


def orders(at: float, row_count: int, **fields: Any) -> Statement:
    """A read of a list from another line."""
    given = {"fingerprint": f"orders{at}", "sql": "select id, customer_id from orders", "caller": TABLE}
    return read(at, **{**given, "row_count": row_count, **fields})


def test_the_column_that_has_the_values_is_certain_where_names_agree() -> None:
    """Rows of other tables that have the same values, and too few rows, are not the parents."""
    invoices = orders(2.0, 6, sql="select id, total from invoices")

    assert parents_of(orders(1.0, 9), origins=((1.0, 0),)) == "9 rows, /app/table.py:9 rows"
    assert parents_of(orders(1.0, 9), invoices, origins=((1.0, 0), (2.0, 0))) == "9 rows, /app/table.py:9 rows"
    assert parents_of(orders(1.0, 5), origins=((1.0, 0),)) == "None"


def test_a_doubt_is_told() -> None:
    """Names that say nothing, two candidates, and rows whose values were not seen but whose number fits."""
    rows = "/app/table.py:9 rows (probably:"
    starred = orders(1.0, 9, sql="select * from things")
    number = orders(1.0, 6)

    assert parents_of(starred, origins=((1.0, 0),)) == (
        f"9 rows, {rows} its rows have the values, and the names of columns do not tell)"
    )
    assert parents_of(orders(1.0, 9), orders(2.0, 6), origins=((1.0, 0), (2.0, 0))) == (
        f"6 rows, {rows} its rows have the values, and so have others)"
    )
    assert parents_of(number) == f"6 rows, {rows} it has as many rows, and the names of columns fit)"
    assert parents_of(orders(1.0, 7)) == "None"
    assert parents_of(orders(11.0, 6, request=2)) == "None"


def test_the_mean_request_names_the_parents_of_its_own_request() -> None:
    """Not the equal statement of another one."""
    parts = []
    for rows in (9, 8):
        loop = [read(10.0, origins=((1.0, 0),)), *(read(10.0 + number) for number in range(1, 6))]
        parts.append(Recording("r", "full", statements=[orders(1.0, rows), *loop], elapsed_s=1.0))

    (finding,) = Recording.merge(parts).findings()
    assert str(finding.parents) == "9 rows, /app/table.py:9 rows"
    assert Recording.from_json(Recording.merge(parts).to_json()).findings()[0].parents == finding.parents


@pytest.mark.parametrize(
    ("load", "advice"),
    [
        (
            OrmLoad("django", "6.1", "Order.customer", "one"),
            (
                'load it with its parents: Order.objects.select_related("customer"), or prefetch_related; or '
                "fetch_mode(models.FETCH_PEERS) on their query"
            ),
        ),
        (
            OrmLoad("django", "6.1", "Order.items", "many"),
            'load it with its parents: Order.objects.prefetch_related("items")',
        ),
        (
            OrmLoad("django", "10.0", "Order.target", "generic"),
            (
                'load it with its parents: Order.objects.prefetch_related("target"); or '
                "fetch_mode(models.FETCH_PEERS) on their query"
            ),
        ),
        (
            OrmLoad("piccolo", "1.38", "Band.genres", "many"),
            "load it with its parents: Band.select(Band.all_columns(), Band.genres(…))",
        ),
        (OrmLoad("peewee"), "load all at once: a join, prefetch(parents, children), or where(Model.id.in_(…))"),
    ],
)
def test_an_orm_is_advised_in_its_own_words(load: OrmLoad, advice: str) -> None:
    """Fetch modes from Django 6.1 on, and only where a query set has peers."""
    assert load_at_once(read(0.0, load=load)) == advice


def test_a_part_of_a_collection_needs_a_prefetch_of_that_part() -> None:
    """A prefetch of the whole collection does not serve its filter(…) or first()."""
    load = OrmLoad("django", "5.2", "Order.items", "many")
    advice = [
        load_at_once(read(0.0, load=load, sql=f"select id from item where order_id = %s{rest}"))
        for rest in ("", " and name = %s", " order by id limit 1")
    ]

    assert ["Prefetch(" in each for each in advice] == [False, True, True]


@pytest.fixture(scope="module")
def profiler() -> Iterator[SqlProfiler]:
    """A profiler of sqlite3 alone."""
    made = SqlProfiler.for_drivers("sqlite3")
    yield made
    made.remove()


KEYS = st.lists(st.integers(1, 12), min_size=5, max_size=12, unique=True)


@settings(max_examples=60, deadline=None)
@given(tables=st.dictionaries(st.sampled_from(["orders", "customers", "things"]), KEYS, min_size=1), data=st.data())
def test_parents_without_a_doubt_are_those_that_the_loop_ran_over(
    profiler: SqlProfiler, tables: dict[str, list[int]], data: st.DataObject
) -> None:
    """Whatever other tables have the same keys, in whatever order, and whichever rows the loop takes."""
    parent = data.draw(st.sampled_from(sorted(tables)))
    column = data.draw(st.sampled_from(["order_id", "customer_id", "thing_id", "position"]))
    is_named_after_another = column[:-3] not in parent and column != "position"
    if is_named_after_another and f"{column[:-3]}s" in tables:
        return  # a program whose names lie
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"create table parts (id integer primary key, {column} integer)")
        for name, keys in tables.items():
            connection.execute(f"create table {name} (number integer, id integer)")
            connection.executemany(f"insert into {name} values (?, ?)", enumerate(keys))
        rows: list[tuple[int]] = []
        with profiler.record("r") as recording:
            for name in sorted(tables):
                loaded = connection.execute(f"select id from {name}").fetchall()
                rows = loaded if name == parent else rows
            for (key,) in rows:
                connection.execute(f"select id from parts where {column} = ?", (key,)).fetchall()

    loop = next(each for each in recording.findings() if each.kind == "n+1" and " parts " in (each.sql or ""))
    assert loop.parents is None or loop.parents.doubt or f"from {parent}" in loop.parents.sql


@pytest.mark.parametrize("row_factory", [None, sqlite3.Row, lambda _, row: {"id": row[0], "body": row[1]}])
def test_long_texts_in_the_rows_of_the_parents_do_not_hide_them(profiler: SqlProfiler, row_factory: Any) -> None:
    """Posts with their texts, and the comments of each: only the keys of the posts are kept."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = row_factory
        connection.execute("create table posts (id integer primary key, body text)")
        connection.execute("create table comments (post_id integer)")
        connection.executemany("insert into posts (body) values (?)", [("x" * 5000,)] * 8)
        with profiler.record("r") as recording:
            for post in connection.execute("select id, body from posts").fetchall():
                key = post["id"] if row_factory else post[0]
                connection.execute("select * from comments where post_id = ?", (key,)).fetchall()

    (loop,) = recording.findings()
    assert loop.parents is not None
    assert (loop.parents.row_count, loop.parents.doubt) == (8, "")
