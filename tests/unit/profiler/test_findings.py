"""Findings, each on the smallest recording that has it, and on one that has not."""

from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, insert, select, text

from placebench.profiler import Recording, SqlProfiler, Statement, Transaction
from placebench.profiler.findings import Limits, find
from placebench.profiler.plans import PlanNode
from placebench.profiler.statement import Caller

HERE = Caller("/app/views.py", 10, "view")
THERE = Caller("/app/views.py", 20, "view")
TABLE = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("name", String))


def statement(**fields: Any) -> Statement:
    """A statement of 1 ms from HERE."""
    chosen = {"sql": "select ?", "fingerprint": "f", "started_s": 0.0, "caller": HERE, "execute_s": 0.001, **fields}
    return Statement(**chosen)


def kinds(*statements: Statement, **fields: Any) -> list[tuple[str, int]]:
    """Each finding's kind and count."""
    recording = Recording("r", fields.pop("mode", "full"), statements=statements, **fields)
    return [(finding.kind, finding.count) for finding in find(recording)]


def test_a_statement_in_a_loop_is_n_plus_one() -> None:
    """Five times from one line in one request; the place and the advice are told."""
    (finding,) = find(Recording("r", "full", statements=[statement()] * 5))

    assert (finding.kind, finding.count, finding.caller, finding.seconds) == ("n+1", 5, HERE, pytest.approx(0.005))
    assert str(finding).splitlines() == [
        "n+1: 5 times in one request from one line, with different values (5.00 ms)",
        "    /app/views.py:10 view",
        "    select ?",
        "    → ask once for all of them: a join, an IN list, or selectinload/joinedload for a relationship",
    ]


def test_four_times_or_from_two_lines_or_in_five_requests_is_none() -> None:
    """What a merged recording counts is the request with the most."""
    assert kinds(*[statement()] * 4) == []
    assert kinds(*[statement()] * 4, *[statement(caller=THERE)] * 4) == []
    assert kinds(*(statement(request=number) for number in range(1, 6)), requests=5) == []


def test_a_repeated_statement_is_a_duplicate_and_no_n_plus_one() -> None:
    """The same values: the answer was there already."""
    assert kinds(statement(), *[statement(repeated=True)] * 5) == [("duplicate", 5)]


def test_rows_fetched_by_another_statement_are_found() -> None:
    """From 100 of them in each request on."""
    assert kinds(statement(row_count=500, rows_again=400)) == [("rows again", 400)]
    assert kinds(statement(row_count=500, rows_again=400), requests=5) == []


def test_wide_rows_are_found_but_not_where_plans_were_sent() -> None:
    """3 kB a row; of a recording with plans the bytes say nothing."""
    wide = statement(row_count=10, bytes_received=30_000)

    assert kinds(wide) == [("wide rows", 1)]
    assert kinds(wide, mode="plans") == []


def test_a_statement_compiled_three_times_is_found() -> None:
    """The first time is everybody's."""
    assert kinds(*[statement(cache_hit=False, compile_s=0.1)] * 3) == [("compiled again", 3)]
    assert kinds(*[statement(cache_hit=False)] * 2, statement(cache_hit=True)) == []


def test_a_wait_for_the_pool_is_found() -> None:
    """10 ms."""
    assert kinds(statement(pool_wait_s=0.02), statement(pool_wait_s=0.001)) == [("slow pool", 1)]


def test_a_large_sequential_scan_with_a_condition_is_found() -> None:
    """Without a condition the whole table was asked for, and a small table is read fastest so."""
    scan = {"kind": "Seq Scan", "relation": "t", "rows": 5.0, "rows_expected": 5.0, "loops": 1, "elapsed_s": 0.1}

    assert kinds(statement(plan=PlanNode(**scan, condition="(a = ?)", rows_removed=20_000.0))) == [
        ("sequential scan", 20_005)
    ]
    assert kinds(statement(plan=PlanNode(**scan, rows_removed=20_000.0))) == []
    assert kinds(statement(plan=PlanNode(**scan, condition="(a = ?)", rows_removed=20.0))) == []


def test_an_estimate_off_by_ten_times_is_found() -> None:
    """Either way, if there are many rows."""
    node = {"kind": "Hash Join", "loops": 1, "elapsed_s": 0.1}

    assert kinds(statement(plan=PlanNode(**node, rows=2000.0, rows_expected=10))) == [("wrong estimate", 1)]
    assert kinds(statement(plan=PlanNode(**node, rows=10.0, rows_expected=2000))) == [("wrong estimate", 1)]
    assert kinds(statement(plan=PlanNode(**node, rows=50.0, rows_expected=1))) == []


def test_rows_that_nobody_asked_for_are_no_wrong_estimate() -> None:
    """A LIMIT of one stops a scan that would have given 2000 rows."""
    scan = PlanNode("Seq Scan", loops=1, elapsed_s=0.1, rows=1.0, rows_expected=2000)

    assert kinds(statement(plan=PlanNode("Limit", rows=1.0, rows_expected=1, children=(scan,)))) == []
    assert kinds(statement(plan=scan)) == [("wrong estimate", 1)]


def test_a_spill_is_found() -> None:
    """A sort that did not fit into work_mem."""
    assert kinds(statement(plan=PlanNode(kind="Sort", elapsed_s=0.1, spilled_kb=2048))) == [("spill", 1)]


def test_a_transaction_that_waited_for_the_application_is_found() -> None:
    """Two statements of 1 ms in a transaction of 100 ms."""
    statements = [statement(started_s=0.0, transaction=1), statement(started_s=0.05, transaction=1, caller=THERE)]
    commit = Transaction("COMMIT", started_s=0.1, number=1)

    (finding,) = find(Recording("r", "full", statements=statements, transactions=[commit]))
    assert (finding.kind, finding.seconds, finding.caller) == ("idle in transaction", pytest.approx(0.098), THERE)


def test_limits_can_be_chosen() -> None:
    """For a project with rules of its own."""
    recording = Recording("r", "full", statements=[statement()] * 2)

    assert [finding.kind for finding in find(recording, Limits(repeats=2))] == ["n+1"]


def test_a_recording_knows_what_it_asked_for_twice(profiler: SqlProfiler, engine: Engine) -> None:
    """The same text with the same values; the same rows by another statement, known by their primary key."""
    with engine.begin() as connection:
        TABLE.create(connection)
        connection.execute(insert(TABLE), [{"id": number, "name": "n"} for number in range(5)])

    with profiler.record("twice") as recording, engine.connect() as connection:
        connection.execute(select(TABLE).where(TABLE.c.id < 3)).all()
        connection.execute(select(TABLE).where(TABLE.c.id < 4)).all()
        connection.execute(select(TABLE).where(TABLE.c.id < 3)).all()
        connection.execute(select(TABLE.c.name, TABLE.c.id)).all()
        renamed = TABLE.alias("other")
        connection.execute(select(renamed.c.id.label("number"))).all()
        for _ in connection.execute(select(TABLE)):
            pass
        connection.execute(text("select * from t")).all()

    assert [(each.repeated, each.rows_again) for each in recording.statements] == [
        (False, 0),
        (False, 3),
        (True, 3),
        (False, 4),
        (False, 5),
        (False, 5),
        (False, None),
    ]
