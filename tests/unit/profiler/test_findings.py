"""Findings, each on the smallest recording that has it, and on one that has not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, ForeignKey, Integer, MetaData, String, Table, insert, select, text
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session, declarative_base, relationship

from placebench import units
from placebench.errors import ProfilerError
from placebench.profiler import Recording, SqlProfiler, Statement, Transaction
from placebench.profiler.analysis.findings import Finding, Limits, find
from placebench.profiler.model.plan import PlanNode
from placebench.profiler.model.statement import Caller, DatabaseAddress, OrmLoad

HERE = Caller("/app/views.py", 10, "view")
THERE = Caller("/app/views.py", 20, "view")
SQLITE = DatabaseAddress("sqlite")
TABLE = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("name", String))


def statement(**fields: Any) -> Statement:
    """A statement of 1 ms from HERE."""
    given = {"sql": "select ?", "fingerprint": "f", "started_s": 0.0, "caller": HERE, "execute_s": 0.001}
    return Statement(**{**given, "repeated": False, **fields})


def kinds(*statements: Statement, **fields: Any) -> list[tuple[str, int]]:
    """Each finding's kind and count."""
    recording = Recording("r", fields.pop("mode", "full"), statements=statements, **fields)
    return [(finding.kind, finding.count) for finding in find(recording)]


def test_a_statement_in_a_loop_is_n_plus_one() -> None:
    """Five times from one line in one request; the place and the advice are told."""
    (finding,) = find(Recording("r", "full", statements=[statement()] * 5))

    assert (finding.kind, finding.count, finding.caller, finding.seconds) == ("n+1", 5, HERE, pytest.approx(0.005))
    assert str(finding).splitlines() == [
        "n+1: 5 times from one line, with different values (5.00 ms)",
        "    /app/views.py:10 view",
        "    select ?",
        "    → load all at once: a join, an IN list, or an ORM's eager loading (selectinload, prefetch_related)",
    ]


def test_four_times_or_from_two_lines_or_in_five_requests_is_none() -> None:
    """What a merged recording counts is the request with the most."""
    assert kinds(*[statement()] * 4) == []
    assert kinds(*[statement()] * 4, *[statement(caller=THERE)] * 4) == []
    assert kinds(*(statement(request=number) for number in range(1, 6)), requests=5) == []


@pytest.mark.parametrize(
    ("chunk", "single"),
    [
        (
            {"sql": f"select a from t where id in ({', '.join(['%s'] * 50)})"},
            {"sql": "select a from t where id in (%s, %s)"},
        ),
        ({"sql": "select a from t where id = any(%s)", "value_count": 50}, {"value_count": 1, "row_count": 500}),
        (
            {"sql": "insert into t values (?), (?)", "row_count": 50},
            {"sql": "insert into t values (?)", "row_count": 1},
        ),
        (
            {"sql": "insert into t values ($1)", "value_count": 50},
            {"sql": "insert into t values ($1)", "row_count": 49},
        ),
        ({"sql": "delete from t limit 500", "row_count": 500}, {"sql": "delete from t where id = ?", "row_count": 0}),
        ({"sql": "copy t from stdin", "row_count": 100}, {"sql": "copy t from stdin", "row_count": 1}),
        ({"sql": ";".join(["insert into t values (?)"] * 100)}, {"sql": "insert into t values (?);"}),
    ],
)
def test_chunks_of_one_load_or_write_are_no_n_plus_one(chunk: dict[str, Any], single: dict[str, Any]) -> None:
    """A chunk has 50 rows or more; for a read the values that it looks for count, not the rows that it returns."""
    assert kinds(*[statement(**chunk)] * 10) == []
    assert kinds(*[statement(**single)] * 10) == [("n+1", 10)]


def test_a_repeated_statement_is_a_duplicate_and_no_n_plus_one() -> None:
    """The same values: the answer was there already."""
    assert kinds(statement(), *[statement(repeated=True)] * 5) == [("duplicate", 5)]


def test_a_lazy_load_is_told_by_its_relationship() -> None:
    """What to load with its parents has a name."""
    (finding,) = find(Recording("r", "full", statements=[statement(relationship="Order.items")] * 5))

    assert finding.title == "5 times from one line, with different values, loading Order.items"
    assert finding.advice == "load it with its parents: .options(selectinload(Order.items)), or joinedload"


def test_a_light_recording_claims_neither_line_nor_values() -> None:
    """It has none of them, so it says how to see them."""
    (finding,) = find(Recording("r", "light", statements=[statement(caller=None, repeated=None)] * 5))

    assert finding.title == ("5 times; mode full records from where, and whether with other values")


def test_a_tree_that_is_read_level_by_level_needs_one_recursive_query() -> None:
    """Each level has as many values as the one before has rows; lists of a constant length are not levels."""
    sizes = ((1, 2), (2, 4), (4, 8), (8, 3), (3, 0))
    levels = [statement(value_count=values, row_count=rows) for values, rows in sizes]
    pairs = [statement(value_count=2, row_count=2)] * 5

    assert [
        "WITH RECURSIVE" in find(Recording("r", "full", statements=each))[0].advice for each in (levels, pairs)
    ] == [True, False]


def test_rows_that_are_deleted_and_returned_need_no_cascade() -> None:
    """The application wants the rows: a cascade would not return them."""
    texts = "delete from t where id = ? returning id", "delete from t where id = ?"
    found = [find(Recording("r", "full", statements=[statement(sql=each)] * 5))[0] for each in texts]

    assert [each.advice for each in found] == [
        "one DELETE with an IN list",
        "one DELETE with an IN list, or cascades in the database",
    ]


def test_a_loop_of_writes_tells_how_many_rows_each_has() -> None:
    """Five tags of each of eight orders, which one statement could write, are not one row after the other."""
    ten, one = ([statement(sql="insert into t values (?)", row_count=rows)] * 8 for rows in (5, 1))

    assert [find(Recording("r", "full", statements=each))[0].title for each in (ten, one)] == [
        f"8 times from one line, {units.average(5)} rows at a time",
        "8 times from one line, one row after the other",
    ]


def test_the_longest_of_equal_nodes_hides_no_other_one() -> None:
    """A long sort in memory above one that spilled, and a short page above a late one."""
    sorts = PlanNode("Sort", elapsed_s=0.2, children=(PlanNode("Sort", elapsed_s=0.1, spilled_kb=9),))
    late = PlanNode("Limit", rows=10.0, elapsed_s=0.1, children=(PlanNode("Seq Scan", rows=5010.0),))
    pages = PlanNode("Limit", rows=10.0, elapsed_s=0.2, children=(late,))

    assert kinds(statement(plan=sorts)) == [("spill", 1)]
    assert kinds(statement(plan=pages, sql="select a from t offset ?")) == [("skipped rows", 5000)]


def test_a_window_may_end_early() -> None:
    """By a condition on row_number(), which is in no estimate; more rows than expected are an error."""
    window = PlanNode("WindowAgg", rows=10.0, rows_expected=60_000, elapsed_s=0.1, loops=1)
    scan = PlanNode("Subquery Scan", rows=10.0, rows_expected=300, elapsed_s=0.1, loops=1, children=(window,))

    assert kinds(statement(plan=scan)) == []
    assert kinds(statement(plan=replace(window, rows=60_000.0, rows_expected=10))) == ERROR


def test_the_chunks_of_an_iterator_are_no_loop() -> None:
    """Django prefetches related objects for each chunk."""
    loads = [statement(load=OrmLoad("django", "5.2", kind="chunk")), *[statement()] * 7]

    assert kinds(*loads) == []


def test_what_runs_again_or_goes_on_is_no_loop() -> None:
    """A read after a write, a range of keys, a page; one row after the other is a loop."""
    assert kinds(*[statement(sequel="again")] * 9) == []
    assert kinds(*[statement(sequel="next", row_count=10)] * 9) == []
    assert kinds(*[statement(sequel="next", row_count=1)] * 9) == [("n+1", 9)]


def test_the_work_for_each_job_of_a_queue_is_no_loop() -> None:
    """A job is taken between two executions of the line; without one of them it is a loop."""
    take = statement(sql="select id from job limit 1 for update skip locked", fingerprint="g", caller=THERE)
    done = statement(sql="update job set state = ? where id = ?")

    assert kinds(*[take, done] * 6) == []
    assert kinds(*[take, done] * 5, done) == [("n+1", 6)]


def test_the_batches_of_one_insert_are_no_loop() -> None:
    """Nine batches of one statement; but five statements of a batch each are five."""
    assert kinds(*[statement(batch=number) for number in range(1, 10)]) == []
    assert kinds(*[statement(batch=1)] * 5) == [("n+1", 5)]


def test_of_merged_requests_the_mean_one_is_told() -> None:
    """Two requests with three duplicates of 1 ms each: 3 ms of one request, 6 in all."""
    again = [statement(repeated=True, request=number) for number in (1, 2) for _ in range(3)]
    (finding,) = find(Recording("r", "full", statements=again, requests=2))

    assert (finding.count, finding.seconds, finding.mean_s) == (6, pytest.approx(0.006), pytest.approx(0.003))
    assert str(finding).splitlines()[0] == (
        "duplicate: ran again with the same values 3 times in one request (3.00 ms)"
    )


def test_rows_fetched_by_another_statement_are_found() -> None:
    """From 100 of them in each request on."""
    assert kinds(statement(row_count=500, redundant_rows=400)) == [("redundant fetch", 400)]
    assert kinds(statement(row_count=500, redundant_rows=400), requests=5) == []


def test_wide_rows_are_found_but_not_where_plans_were_sent() -> None:
    """3 kB a row, and not 1 kB; of a recording with plans the bytes say nothing."""
    wide = statement(row_count=10, bytes_received=30_000)

    assert kinds(wide) == kinds(wide, mode="sampled") == [("wide rows", 1)]
    assert kinds(wide, mode="plans") == []
    assert kinds(statement(row_count=10, bytes_received=10_000)) == []


def test_a_statement_compiled_three_times_is_found() -> None:
    """The first time is everybody's."""
    assert kinds(*[statement(cache_hit=False, compile_s=0.1)] * 3) == [("statement-cache miss", 3)]
    assert kinds(*[statement(cache_hit=False)] * 2, statement(cache_hit=True)) == []
    assert kinds(*[statement(sql="update t set a = ?", cache_hit=False)] * 3) == [("statement-cache miss", 3)]


def test_a_wait_for_the_pool_is_found() -> None:
    """10 ms."""
    assert kinds(statement(pool_wait_s=0.02), statement(pool_wait_s=0.001)) == [("connection-pool wait", 1)]


def test_a_large_sequential_scan_with_a_condition_is_found() -> None:
    """Without a condition the whole table was asked for, and a small table is read fastest so."""
    scan = {"kind": "Seq Scan", "relation": "t", "rows": 5.0, "rows_expected": 5.0, "loops": 1, "elapsed_s": 0.1}

    assert kinds(statement(plan=PlanNode(**scan, condition="(a = ?)", rows_removed=20_000.0))) == [
        ("sequential scan", 20_005)
    ]
    assert kinds(statement(plan=PlanNode(**scan, rows_removed=20_000.0))) == []
    assert kinds(statement(plan=PlanNode(**scan, condition="(a = ?)", rows_removed=20.0))) == []


def test_a_scan_that_keeps_what_it_reads_is_none() -> None:
    """An index would not help where more than a tenth of the rows is kept."""
    scan = {"kind": "Seq Scan", "relation": "t", "condition": "(a = ?)", "loops": 1}
    kept = {share: PlanNode(**scan, rows=30_000 * share, rows_removed=30_000 * (1 - share)) for share in (0.1, 0.2)}

    assert kinds(statement(plan=kept[0.1])) == [("sequential scan", 30_000)]
    assert kinds(statement(plan=kept[0.2])) == []


def test_rows_that_postgresql_rounds_away_are_hardly_any() -> None:
    """A scan that ran in 3 loops and kept a row in none of them, as far as the mean tells."""
    scan = PlanNode("Seq Scan", "t", condition="(a = ?)", rows_removed=3e4, rows_expected=90.0, loops=3, elapsed_s=0.1)

    titles = [finding.title for finding in find(Recording("r", "plans", statements=[statement(plan=scan)]))]

    assert titles == ["30\u202f000 rows of t read for hardly any: (a = ?)"]


def test_a_scan_in_a_loop_costs_all_its_executions() -> None:
    """Five statements of one line, each with a scan of 100 ms."""
    scan = PlanNode("Seq Scan", "t", condition="(a = ?)", rows=5.0, rows_expected=5.0, rows_removed=2e4, elapsed_s=0.1)
    found = find(Recording("r", "plans", statements=[statement(plan=scan)] * 5))

    (finding,) = (each for each in found if each.kind == "sequential scan")
    assert finding.seconds == pytest.approx(0.5)
    assert finding.title == "20\u202f005 rows of t read for 5: (a = ?), 5 times"


def test_a_scan_that_a_plan_has_twice_is_one_finding() -> None:
    """Both sides of a self-join: the longer one is shown, and the seconds of both are counted once."""
    scan = PlanNode("Seq Scan", "t", condition="(a = ?)", rows=5.0, rows_expected=5.0, rows_removed=2e4, elapsed_s=0.1)
    longer = replace(scan, rows_removed=3e4, elapsed_s=0.2)
    join = PlanNode("Nested Loop", rows=5.0, rows_expected=5.0, elapsed_s=0.4, children=(scan, longer, scan))

    (finding,) = find(Recording("r", "plans", statements=[statement(plan=join)]))

    assert (finding.count, finding.seconds) == (30_005, pytest.approx(0.4))
    assert finding.title.endswith(", 3 times")


def test_a_scan_that_never_ran_does_not_hide_the_one_that_did() -> None:
    """Of two alike in one plan the second had no loops: no rows in 0 s."""
    scan = PlanNode("Seq Scan", "t", condition="(a = ?)", rows=5.0, rows_expected=5.0, rows_removed=2e4, elapsed_s=0.1)
    never_ran = replace(scan, rows=0.0, rows_removed=0.0, loops=0, elapsed_s=0.0)
    both = PlanNode("Append", rows=5.0, rows_expected=5.0, elapsed_s=0.1, children=(scan, never_ran))

    assert kinds(statement(plan=both)) == [("sequential scan", 20_005)]


def test_scans_of_all_partitions_are_one_finding() -> None:
    """Each has fewer rows than the limit: together they are a whole table. Scans with other conditions are not."""
    scan = {"kind": "Seq Scan", "rows": 5.0, "rows_expected": 5.0, "rows_removed": 6e3, "elapsed_s": 0.1}
    parts = [PlanNode(**scan, relation=f"t_{n}", condition=f"(t_{n}.a = ?)") for n in (1, 2, 3)]
    other = PlanNode(**scan, relation="u", condition="(u.b = ?)")
    append = PlanNode("Append", rows=20.0, rows_expected=20.0, elapsed_s=0.4, children=(*parts, other))

    (finding,) = find(Recording("r", "plans", statements=[statement(plan=append)]))

    assert (finding.count, finding.seconds) == (18_015, pytest.approx(0.3))
    assert finding.title == "18\u202f015 rows of t_1 and 2 more read for 15: (t_1.a = ?)"


@pytest.mark.parametrize("kind", ["Index Scan", "Tid Range Scan"])
def test_a_scan_of_another_kind_is_none_of_the_whole_table(kind: str) -> None:
    """Though its filter throws away as many rows."""
    assert kinds(plan(**{**SCAN, "kind": kind}, rows_removed=20_000.0)) == []


def test_a_plan_without_times_or_rows_says_what_it_can() -> None:
    """Of EXPLAIN there are no rows, without TIMING there are no times: neither is a wrong estimate or a spill."""
    untimed = plan(rows=2000.0, rows_expected=10, elapsed_s=None)
    scanned = plan(**{**SCAN, "rows": None, "elapsed_s": None}, rows_removed=10_000.0)

    assert kinds(untimed, plan(rows_expected=2000)) == kinds(untimed) == []
    assert kinds(plan(**{**SCAN, "rows": None}, rows_removed=9_999.0)) == []
    assert kinds(plan(**{**SCAN, "rows": 10_000.0, "rows_expected": 9_000.0})) == []
    (finding,) = find(Recording("r", "plans", statements=[scanned]))
    assert (finding.count, finding.seconds) == (10_000, 0.0)


def test_what_was_not_measured_adds_nothing() -> None:
    """No rows, no seconds of compilation, no wait, and a timeout of unknown length."""
    fetched = find(Recording("r", "full", statements=[statement(row_count=500, redundant_rows=400), statement()]))
    compiled = find(Recording("r", "full", statements=[statement(cache_hit=False)] * 3))
    timeouts = find(Recording("r", "full", transactions=[Transaction("POOL TIMEOUT", 0.0)]))
    rollback = Transaction("ROLLBACK", 0.1, number=1)
    idle = find(Recording("r", "full", statements=[statement(execute_s=None, transaction=1)], transactions=[rollback]))

    assert [each.title.split(" had")[0] for each in fetched] == ["400 entities of 500 rows"]
    assert [each.seconds for each in (*compiled, *timeouts)] == [0.0, 0.0]
    assert [(each.kind, each.seconds) for each in idle] == [("idle in transaction", 0.1)]


def test_figures_of_merged_requests_are_those_of_the_mean_one() -> None:
    """Four requests: 100.5 redundant of 150 rows, and two spills, in each."""
    fetched = [statement(request=number, row_count=150, redundant_rows=100) for number in range(1, 5)]
    fetched.append(statement(request=4, redundant_rows=2))
    spilled = [statement(request=number, plan=PlanNode("Sort", spilled_kb=1)) for number in (1, 2, 3, 4) * 2]

    (redundant,) = find(Recording("r", "full", statements=fetched, requests=4))
    (spill,) = find(Recording("r", "plans", statements=spilled, requests=4))

    assert redundant.title.startswith(f"{units.average(100.5)} entities of 150 rows")
    assert (spill.title.endswith(" to disk, 2 times in one request"), spill.seconds) == (True, 0.0)


@pytest.mark.parametrize(
    ("spills", "title"),
    [
        (3, "Sort wrote 1.00 KiB to disk, 1.50 times in one request"),
        (2, "Sort wrote 1.00 KiB to disk"),
        (1, "Sort wrote 1.00 KiB to disk"),
    ],
)
def test_how_often_is_told_where_it_is_more_than_once_a_request(spills: int, title: str) -> None:
    """Three in two requests are 1.5 in each; of two, or of one, there is nothing to tell."""
    spilled = [statement(request=number, plan=PlanNode("Sort", spilled_kb=1)) for number in (1, 2, 1)]

    (finding,) = find(Recording("r", "plans", statements=spilled[:spills], requests=2))

    assert finding.title == title


def test_a_finding_shows_the_first_execution() -> None:
    """Its text and its relationship, where one line loads two of them with statements that differ in their values."""
    names = ["Order.buyer", *["Invoice.buyer"] * 4]
    loads = [statement(sql=f"select {number}", relationship=name) for number, name in enumerate(names, 1)]

    (finding,) = find(Recording("r", "full", statements=loads))

    assert finding.sql == "select 1"
    assert finding.title == "5 times from one line, with different values, loading Order.buyer"


def test_one_statement_from_two_callers_is_no_loop() -> None:
    """A helper that each of several functions calls; of one function it is a loop, with its caller's name."""
    others = [statement(outer_caller=Caller("/app/views.py", line, "view")) for line in range(5)]

    assert kinds(*others) == []
    (finding,) = find(Recording("r", "full", statements=others[:1] * 5))
    assert (finding.outer_caller, finding.fingerprint, finding.sql) == (others[0].outer_caller, "f", "select ?")


def test_transactions_that_wait_at_one_line_are_one_finding() -> None:
    """Two of 100 and 60 ms with 1 ms in the database, and one of another line; the longest wait is told."""
    statements = [statement(started_s=at, transaction=number, fetch_s=0.001) for number, at in ((1, 0.0), (2, 1.0))]
    statements.append(statement(started_s=2.0, transaction=3, caller=THERE))
    ends = [Transaction("COMMIT", at, number=number) for number, at in ((1, 0.1), (2, 1.06), (3, 2.07))]

    found = find(Recording("r", "full", statements=statements, transactions=ends))

    assert [(each.count, round(each.seconds, 6), each.caller) for each in found] == [
        (2, 0.156, HERE),
        (1, 0.069, THERE),
    ]
    assert found[0].title == (
        f"a transaction waited for the application 2 times, up to {units.duration(0.098)} in all; "
        "the longest part came after this statement"
    )


FEW = PlanNode("Hash Join", loops=1, elapsed_s=0.1, rows=10.0, rows_expected=2000)
MANY = replace(FEW, rows=2000.0, rows_expected=10)
OTHER = PlanNode("Index Scan", loops=1, elapsed_s=0.1, rows=500.0, rows_expected=500)
ERROR = [("row-estimate error", 1)]


@pytest.mark.parametrize("kind", ["Limit", "Nested Loop Semi Join", "Nested Loop Anti Join", "Merge Left Join"])
def test_a_plan_that_may_stop_early_may_have_fewer_rows_but_not_more(kind: str) -> None:
    """Below a LIMIT, a join for the first match and a merge join, at any depth until a sort or hash reads all."""

    def below(*children: PlanNode) -> list[tuple[str, int]]:
        return kinds(statement(plan=PlanNode(kind, rows=1.0, rows_expected=1, children=children)))

    assert below(FEW) == below(replace(OTHER, children=(FEW,))) == []
    assert below(replace(OTHER, kind="Sort", children=(FEW,))) == below(replace(OTHER, kind="Hash", children=(FEW,)))
    assert below(replace(OTHER, kind="Sort", children=(FEW,))) == ERROR
    if not kind.startswith("Merge"):
        assert below(MANY) == ERROR


def test_a_merge_join_reads_equal_rows_of_its_inner_side_again() -> None:
    """They are counted each time; those of the outer side once."""
    merge = PlanNode("Merge Join", rows=500.0, rows_expected=500, elapsed_s=0.1, loops=1)

    assert kinds(statement(plan=replace(merge, children=(OTHER, MANY)))) == []
    assert kinds(statement(plan=replace(merge, children=(MANY, OTHER)))) == ERROR


def test_an_empty_hash_table_needs_no_row_of_the_other_side() -> None:
    """A table with rows needs all of them, a semi join too; a nested loop reads its outer side to the end."""
    join = PlanNode("Hash Semi Join", rows=500.0, rows_expected=500, elapsed_s=0.1, loops=1)
    hashes = [PlanNode("Hash", rows=rows, rows_expected=50, elapsed_s=0.0, loops=1) for rows in (0.0, 50.0)]
    first_match = replace(join, kind="Nested Loop Semi Join")

    assert [kinds(statement(plan=replace(join, children=(FEW, each)))) for each in hashes] == [[], ERROR]
    assert kinds(statement(plan=replace(first_match, children=(FEW, OTHER)))) == ERROR
    assert kinds(statement(plan=replace(first_match, children=(OTHER, FEW)))) == []


@pytest.mark.parametrize("kind", ["BitmapAnd", "BitmapOr", "Recursive Union", "WorkTable Scan"])
def test_rows_that_postgresql_does_not_count_or_estimate_are_no_error(kind: str) -> None:
    """It says 0 for bitmaps, and guesses ten times the rows for each round of a recursion."""
    assert kinds(statement(plan=replace(FEW, kind=kind))) == []


def test_a_read_of_each_shard_is_no_loop() -> None:
    """Five databases of one address; two of them that are each read five times are."""
    shards = [statement(database_number=number) for number in range(1, 6)]

    assert kinds(*shards) == []
    assert kinds(*shards * 5) == [("n+1", 25)]


def test_statements_that_failed_are_no_loop() -> None:
    """Another attempt sends the same again; four that succeed are too few."""
    assert kinds(*[statement(error="OperationalError")] * 9, *[statement()] * 4) == []


def test_polling_is_no_duplicate() -> None:
    """A read after a pause of 50 ms, three times or more; with another statement between, or a shorter pause, it is."""

    def polls(*starts: float, **fields: Any) -> list[Statement]:
        return [statement(started_s=at, repeated=at > 0, connection=1, **fields) for at in starts]

    other = statement(started_s=0.1, connection=1, fingerprint="g")
    assert kinds(*polls(0.0, 0.06, 0.12)) == []
    assert kinds(*polls(0.0, 0.06)) == [("duplicate", 1)]
    assert kinds(*polls(0.0, 0.06, 0.10)) == [("duplicate", 2)]
    assert kinds(*polls(0.0, 0.06, 0.12), other) == [("duplicate", 2)]
    assert kinds(*polls(0.0, 0.06, 0.12), replace(other, connection=2)) == []
    assert kinds(*polls(0.0, 0.06, 0.12), *polls(0.0, 0.01, request=2), requests=2) == [("duplicate", 1)]


def test_an_estimate_off_by_ten_times_is_found() -> None:
    """Either way, if there are many rows."""
    node = {"kind": "Hash Join", "loops": 1, "elapsed_s": 0.1}

    assert kinds(statement(plan=PlanNode(**node, rows=2000.0, rows_expected=10))) == [("row-estimate error", 1)]
    assert kinds(statement(plan=PlanNode(**node, rows=10.0, rows_expected=2000))) == [("row-estimate error", 1)]
    assert kinds(statement(plan=PlanNode(**node, rows=50.0, rows_expected=1))) == []


def test_rows_that_nobody_asked_for_are_no_wrong_estimate() -> None:
    """A LIMIT of one stops a scan that would have given 2000 rows."""
    scan = PlanNode("Seq Scan", loops=1, elapsed_s=0.1, rows=1.0, rows_expected=2000)

    assert kinds(statement(plan=PlanNode("Limit", rows=1.0, rows_expected=1, children=(scan,)))) == []
    assert kinds(statement(plan=scan)) == [("row-estimate error", 1)]


def test_a_spill_is_found() -> None:
    """A sort that did not fit into work_mem."""
    spilled = statement(plan=PlanNode(kind="Sort", elapsed_s=0.1, spilled_kb=1000))

    (finding,) = find(Recording("r", "plans", statements=[spilled]), Limits(spilled_kb=1000))
    assert (finding.kind, finding.title) == ("spill", "Sort wrote 1000 KiB to disk")


def test_a_transaction_that_waited_for_the_application_is_found() -> None:
    """Three statements of 1 ms in a transaction of 101 ms: the second one ran before the longest wait."""
    starts = (0.0, 0.02, 0.09)
    statements = [statement(started_s=at, transaction=1, caller=THERE if at == 0.02 else None) for at in starts]
    commit = Transaction("COMMIT", started_s=0.101, number=1)

    (finding,) = find(Recording("r", "full", statements=statements, transactions=[commit]))
    assert (finding.kind, finding.seconds, finding.caller) == ("idle in transaction", pytest.approx(0.098), THERE)


@pytest.mark.parametrize("step", [Transaction("SAVEPOINT", started_s=0.1, number=1), Transaction("COMMIT", 0.1)])
def test_a_transaction_whose_end_is_unknown_waited_for_nobody(step: Transaction) -> None:
    """A savepoint is not an end, and a COMMIT outside of all transactions ends none."""
    statements = [statement(transaction=step.number)]

    assert list(find(Recording("r", "full", statements=statements, transactions=[step]))) == []


@pytest.mark.parametrize("sql", ["insert into t values (?)", "update t set a = ?"])
def test_a_transaction_of_sqlite_waits_from_its_first_write_on(sql: str) -> None:
    """One that only reads holds no lock, however slow the machine; the read before the write does not count either."""
    read, late = (statement(execute_s=0.0, started_s=at, transaction=1, database=SQLITE) for at in (0.0, 0.2))
    write = statement(sql=sql, execute_s=0.0, started_s=0.1, transaction=1, database=SQLITE)
    commit = Transaction("COMMIT", started_s=0.3, number=1)

    assert list(find(Recording("r", "full", statements=[read, late], transactions=[commit]))) == []
    (finding,) = find(Recording("r", "full", statements=[read, write, late], transactions=[commit]))
    assert (finding.kind, finding.seconds) == ("idle in transaction", pytest.approx(0.2))


def test_a_transaction_that_only_reads_waits_on_other_databases() -> None:
    """It holds its connection and its snapshot: 99 of 100 ms."""
    read = statement(transaction=1, database=DatabaseAddress("postgresql"))
    commit = Transaction("COMMIT", started_s=0.1, number=1)

    (finding,) = find(Recording("r", "full", statements=[read], transactions=[commit]))

    assert (finding.kind, finding.seconds) == ("idle in transaction", pytest.approx(0.099))


def plan(**fields: Any) -> Statement:
    """A statement whose plan is one node of 1 ms."""
    return statement(plan=PlanNode(**{"kind": "Hash Join", "loops": 1, "elapsed_s": 0.001, **fields}))


SCAN = {"kind": "Seq Scan", "relation": "t", "condition": "(a = ?)", "rows": 5.0, "rows_expected": 5.0}


@pytest.mark.parametrize(
    ("at", "short_of"),
    [
        ([statement(repeated=True)], [statement(repeated=False)]),
        ([statement(redundant_rows=50)] * 2, [statement(redundant_rows=50), statement(redundant_rows=49)]),
        (
            [statement(row_count=9, bytes_received=28_001), statement(row_count=1, bytes_received=7000)],
            [statement(row_count=9, bytes_received=28_000), statement(row_count=1, bytes_received=7000)],
        ),
        ([statement(pool_wait_s=0.010)], [statement(pool_wait_s=0.0099)]),
        ([plan(**SCAN, rows_removed=9_995.0)], [plan(**SCAN, rows_removed=9_994.0)]),
        ([plan(rows=1000.0, rows_expected=100)], [plan(rows=999.0, rows_expected=100)]),
        ([plan(rows=100.0, rows_expected=1)], [plan(rows=99.0, rows_expected=1)]),
        ([plan(rows=100.0, rows_expected=1)], [plan(rows=100.0, rows_expected=1, elapsed_s=0.0009)]),
        ([plan(spilled_kb=1)], [plan(spilled_kb=0)]),
    ],
)
def test_a_pattern_is_a_finding_from_its_limit_on(at: list[Statement], short_of: list[Statement]) -> None:
    """100 redundant rows, more than 2000 bytes a row, 10 ms, 10,000 rows, ten times, 100 rows, 1 ms and 1 kB."""
    assert len(kinds(*at)) == 1
    assert kinds(*short_of) == []


@pytest.mark.parametrize(("committed_s", "found"), [(0.05, [("idle in transaction", 1)]), (0.0499, [])])
def test_a_transaction_may_wait_for_less_than_50_ms(committed_s: float, found: list[tuple[str, int]]) -> None:
    """The time in the driver does not count; outside of transactions nothing waits."""
    inside = statement(execute_s=0.0, transaction=1)

    assert kinds(inside, transactions=[Transaction("COMMIT", committed_s, number=1)]) == found
    assert kinds(statement(), transactions=[Transaction("COMMIT", committed_s)]) == []


@pytest.mark.parametrize(
    ("statements", "title", "seconds"),
    [
        (
            [statement(row_count=500, redundant_rows=400), statement(row_count=100)],
            "400 entities of 600 rows had already been fetched by another statement",
            0.002,
        ),
        (
            [
                statement(row_count=10, bytes_received=98_000),
                statement(row_count=20, bytes_received=0),
                statement(row_count=9),
                statement(bytes_received=9_000),
            ],
            f"{units.size(3000)} per row over 30 rows",
            0.002,
        ),
        (
            [statement(cache_hit=False, compile_s=0.1)] * 4 + [statement(cache_hit=True, batch=2)],
            "4 of 5 executions were not in SQLAlchemy's statement cache",
            0.4,
        ),
        ([statement(pool_wait_s=0.02)], f"waited for a connection once, up to {units.duration(0.02)}", 0.02),
        (
            [statement(pool_wait_s=0.02), statement(pool_wait_s=0.03)],
            f"waited for a connection 2 times, up to {units.duration(0.03)}",
            0.05,
        ),
        (
            [plan(spilled_kb=2048)],
            f"Hash Join wrote {units.size(2048 * 1024)} to disk",
            0.001,
        ),
        (
            [plan(spilled_kb=2048), plan(spilled_kb=2048)],
            f"Hash Join wrote {units.size(2048 * 1024)} to disk, 2 times",
            0.002,
        ),
        (
            [
                plan(rows=900.0, rows_expected=10, elapsed_s=None),
                plan(rows=200.0, rows_expected=10),
                plan(rows=200.0, rows_expected=10, elapsed_s=0.002),
            ],
            "Hash Join: 200 rows where 10 were expected",
            0.003,
        ),
    ],
)
def test_what_a_finding_says(statements: list[Statement], title: str, seconds: float) -> None:
    """How many, how much, and the seconds at stake."""
    (finding,) = find(Recording("r", "full", statements=statements))

    assert (finding.title, finding.seconds) == (title, pytest.approx(seconds))


def test_the_place_is_the_line_and_who_called_it() -> None:
    """A module is not a function that calls, a lambda is; a light recording has no place; long statements are cut."""
    module, function = Caller("/app/main.py", 1, "<module>"), Caller("/app/main.py", 2, "<lambda>")
    callers = [(HERE, THERE), (HERE, function), (HERE, None), (HERE, module), (module, THERE), (None, None)]
    finding = Finding("kind", "title", "advice", 1, 0.1, sql="x" * 200)

    assert [replace(finding, caller=caller, outer_caller=outer).place for caller, outer in callers] == [
        "/app/views.py:10 view, called from /app/views.py:20 view",
        "/app/views.py:10 view, called from /app/main.py:2 <lambda>",
        "/app/views.py:10 view",
        "/app/views.py:10 view",
        "/app/main.py:1 <module>",
        "",
    ]
    assert finding.shortened_sql == "x" * 159 + "…"
    assert finding.mean_s == 0.1


def test_findings_are_told_by_their_seconds() -> None:
    """The most first."""
    found = find(
        Recording("r", "full", statements=[statement(repeated=True), statement(pool_wait_s=0.5, fingerprint="g")])
    )

    assert [finding.kind for finding in found] == ["connection-pool wait", "duplicate"]


def test_limits_can_be_chosen() -> None:
    """For a project with rules of its own."""
    recording = Recording("r", "full", statements=[statement()] * 2)

    assert [finding.kind for finding in find(recording, Limits(repeats=2))] == ["n+1"]
    again = Recording("r", "full", statements=[statement(repeated=True)])
    assert [finding.kind for finding in find(again, Limits(repeats=1))] == ["duplicate"]
    fetched = Recording("r", "full", statements=[statement(row_count=3, redundant_rows=3)], requests=2)
    assert [each.title[:26] for each in find(fetched, Limits(redundant_rows=1))] == ["1.50 entities of 1.50 rows"]
    narrow = Recording("r", "full", statements=[statement(row_count=3, bytes_received=8302)])
    assert [each.title for each in find(narrow, Limits(bytes_per_row=100))] == ["101 B per row over 3 rows"]


@pytest.mark.parametrize("sql", ["select * from t limit ?", "update t set n = ?"])
def test_with_a_limit_of_one_what_ran_once_is_found(sql: str) -> None:
    """A read and a write, for code that should run neither."""
    recording = Recording("r", "full", statements=[statement(sql=sql)])

    assert [(each.kind, each.count) for each in find(recording, Limits(repeats=1))] == [("n+1", 1)]


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

    assert [(each.repeated, each.redundant_rows) for each in recording.statements] == [
        (False, 0),
        (False, 3),
        (True, 3),
        (False, 4),
        (False, 5),
        (False, 5),
        (False, None),
    ]


Base: Any = declarative_base()


class Basket(Base):
    """It has things."""

    __tablename__ = "basket"
    id = Column(Integer, primary_key=True)
    things = relationship("Thing", lazy="select")


class Thing(Base):
    """In a basket."""

    __tablename__ = "thing"
    id = Column(Integer, primary_key=True)
    basket_id = Column(ForeignKey("basket.id"))


def test_lazy_loading_is_recognised_where_it_happens(profiler: SqlProfiler, engine: Engine) -> None:
    """The statement names the relationship; the parents' own statement, and a batch of inserts, name none."""
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(Basket(id=number) for number in range(6))
        session.commit()

        with profiler.record("lazy") as recording:
            baskets = session.query(Basket).all()
            assert [basket.things for basket in baskets] == [[]] * 6

    assert [each.relationship for each in recording.statements] == [None] + ["Basket.things"] * 6
    assert [(finding.kind, finding.count) for finding in recording.findings()] == [("n+1", 6)]


@pytest.mark.parametrize(("sql", "word"), [("insert into t values (?)", "insert"), ("update t set n = ?", "UPDATE")])
def test_writes_in_a_loop_are_advised_to_be_one_write(sql: str, word: str) -> None:
    """Neither a join nor selectinload helps a write."""
    (finding,) = find(Recording("r", "full", statements=[statement(sql=sql)] * 5))

    assert (finding.kind, finding.count) == ("n+1", 5)
    assert word in finding.advice
    assert "selectinload" not in finding.advice


def test_pages_of_one_table_are_no_n_plus_one() -> None:
    """All full but the last one; the same text with one row each, or with none, is a loop."""
    sql = "select * from t where id > ? order by id limit ?"

    assert kinds(*[statement(sql=sql, row_count=100)] * 5, statement(sql=sql, row_count=7)) == []
    assert kinds(*[statement(sql=sql, row_count=2)] * 6) == []
    assert kinds(*[statement(sql=sql, row_count=1)] * 6) == [("n+1", 6)]
    assert kinds(*[statement(sql=sql, row_count=0)] * 6) == [("n+1", 6)]
    assert kinds(*[statement(sql=sql, row_count=100)] * 5, statement(sql=sql, row_count=101)) == [("n+1", 6)]
    assert kinds(statement(sql=sql, row_count=7), *[statement(sql=sql, row_count=100)] * 5) == [("n+1", 6)]
    assert kinds(*(statement(sql=sql, row_count=count) for count in (9, 9, 9, 7, 9))) == [("n+1", 5)]
    assert kinds(*[statement(sql="select * from t limit ?", row_count=100)] * 6) == [("n+1", 6)]
    assert kinds(*[statement(row_count=100)] * 6) == [("n+1", 6)]


def test_a_connection_that_did_not_come_is_a_finding() -> None:
    """With the longest wait."""
    timeout = Transaction("POOL TIMEOUT", 0.0, 2.0)

    (finding,) = find(Recording("r", "full", transactions=[timeout, timeout]))

    assert (finding.kind, finding.count, finding.seconds) == ("connection-pool timeout", 2, 4.0)


def test_what_was_written_in_between_is_no_duplicate(engine: Engine, profiler: SqlProfiler) -> None:
    """A read after a write to its table, and a write that runs again; a read after a write elsewhere is one."""
    with profiler.record("r") as recording, engine.begin() as connection:
        connection.exec_driver_sql("create table counters (id integer primary key, n integer)")
        connection.exec_driver_sql("create table log (id integer)")
        connection.exec_driver_sql("insert into counters values (1, 0)")
        for _ in range(3):
            connection.execute(text("update counters set n = n + 1"))
            connection.execute(text("select n from counters where id = :id"), {"id": 1}).all()
        connection.execute(text("insert into log values (1)"))
        connection.execute(text("select n from counters where id = :id"), {"id": 1}).all()

    assert [each.repeated for each in recording.statements] == [False] * 10 + [True]
    assert [(finding.kind, finding.count) for finding in recording.findings()] == [("duplicate", 1)]


def test_settings_of_a_session_are_no_findings(engine: Engine, profiler: SqlProfiler) -> None:
    """Nor do those of SQLite hide the duplicates among what is read; a PRAGMA that reads may be a duplicate."""
    with profiler.record("r") as recording, engine.connect() as connection:
        for size in range(5):
            connection.execute(text("PRAGMA foreign_keys = ON"))
            connection.execute(text(f"pragma cache_size({1000 + size})"))
        for sql in ("select 1", "pragma foreign_keys", "PRAGMA foreign_keys = ON", "select 1", "pragma foreign_keys"):
            connection.execute(text(sql))

    assert [each.kind for each in recording.statements[:10]] == ["setting"] * 10
    assert [(finding.kind, finding.sql) for finding in recording.findings()] == [
        ("duplicate", "select ?"),
        ("duplicate", "pragma foreign_keys"),
    ]


def test_a_call_site_is_named_from_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file elsewhere keeps its path, an installed one begins below site-packages."""
    monkeypatch.chdir(tmp_path)
    files = (f"{tmp_path}/shop/views.py", f"{tmp_path}-2/views.py", "/lib/site-packages/flask/app.py", "<string>")
    below = "venv/lib/site-packages/app.py"

    assert [str(Caller(file, 7, "view")) for file in (*files, below)] == [
        "shop/views.py:7 view",
        f"{tmp_path}-2/views.py:7 view",
        "flask/app.py:7 view",
        "<string>:7 view",
        "app.py:7 view",
    ]


class _Number(int):
    """A number of the application's own class."""


@pytest.mark.parametrize(
    ("one", "other"), [(-1, -2), (-1.0, -2.0), (_Number(-1), _Number(-2)), (b"1", bytearray(b"2"))]
)
def test_values_with_equal_hashes_are_no_duplicates(
    engine: Engine, one: Any, other: Any, profiler: SqlProfiler
) -> None:
    """The hash of -1 is that of -2, in numbers of any kind; each value is a duplicate of itself."""
    with profiler.record("r") as recording, engine.connect() as connection:
        for value in (one, other, other):
            connection.exec_driver_sql("select ?", (value,)).all()
        for value in (one, other, one):
            connection.execute(text("select :v + 0"), {"v": value}).all()

    assert [each.repeated for each in recording.statements] == [False, False, True] * 2


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_that_everything_reaches_is_refused(limit: float) -> None:
    """Name and value are said, and what to do instead; a limit of 1 is none of them."""
    with pytest.raises(ProfilerError, match=f"limit repeats is {limit}: expected more than 0; a large one"):
        Limits(repeats=limit)
    assert Limits(repeats=1).repeats == 1
