"""A recording in short: its sums, and its statements by fingerprint."""

from typing import Any

import pytest

from placebench.profiler import Caller, Recording, Statement, Transaction


def statement(fingerprint: str, **fields: Any) -> Statement:
    """An execution that nothing was measured of."""
    return Statement(**{"sql": f"select {fingerprint}", "fingerprint": fingerprint, "started_s": 0.0, **fields})


def recording(**changed: Any) -> Recording:
    """8 s: one statement twice, and one transaction."""
    first = statement(
        "a",
        caller=Caller("app.py", 3, "view"),
        compile_s=0.25,
        pool_wait_s=0.25,
        execute_s=1.0,
        fetch_s=0.5,
        row_count=10,
        round_trips=2,
    )
    fields = {
        "statements": [first, statement("a", execute_s=1.0)],
        "transactions": [Transaction("BEGIN", 0.5), Transaction("COMMIT", 4.0, 0.5, 1)],
        "elapsed_s": 8.0,
        "sql_s": 3.5,
        "gc_s": 0.25,
    }
    return Recording("GET /", **{"mode": "full", **fields, **changed})


def test_statements_are_grouped_by_fingerprint() -> None:
    """The group with the most seconds first, by its first text; a sum is of what was measured, a call site is once."""
    here, there = Caller("app.py", 3, "view"), Caller("app.py", 9, "view")
    a = statement("a", execute_s=1.0, compile_s=0.5, fetch_s=0.25, row_count=3, caller=here, cache_hit=True)
    b = statement("b", execute_s=2.0, row_count=4, round_trips=1, caller=there, cache_hit=False, error="DataError")
    last = statement("b", sql="SELECT b", caller=here)

    groups = recording(statements=[a, a, b, statement("b"), b, last]).summary().groups

    assert [(each.fingerprint, each.sql, each.calls, each.elapsed_s) for each in groups] == [
        ("b", "select b", 4, 4.0),
        ("a", "select a", 2, 3.5),
    ]
    assert [(each.compile_s, each.execute_s, each.fetch_s) for each in groups] == [(None, 4.0, None), (1.0, 2.0, 0.5)]
    assert [(each.row_count, each.round_trips) for each in groups] == [(None, 2), (6, None)]
    assert [(each.errors, each.cache_misses) for each in groups] == [(2, 2), (0, 0)]
    assert [each.callers for each in groups] == [(there, here), (here,)]


def test_connecting_is_no_step_of_a_transaction() -> None:
    """Whatever else is; without steps they took nothing, and a connection that was not made has no time."""
    kinds = {"BEGIN": None, "COMMIT": 0.5, "CONNECT": 0.25, "PING": 1.0, "ROLLBACK": 2.0}
    both = recording(transactions=[Transaction(kind, 0.0, taken) for kind, taken in kinds.items()]).summary()
    connected = recording(transactions=[Transaction("CONNECT", 0.0, 0.25)]).summary()
    neither = recording(transactions=[]).summary()

    times = [(each.connect_s, each.transactions_s) for each in (both, connected, neither)]
    assert times == [(0.25, 3.5), (0.25, 0.0), (None, 0.0)]
    assert " · connection-pool wait 250 ms · connect 250 ms · execute 2.00 s" in str(both)


def test_the_summary_is_a_table_too() -> None:
    """With units, and with words where nothing was measured, or not all."""
    assert str(recording().summary()).splitlines() == [
        "GET /: 8.00 s",
        "  cpu not measured · sql 3.50 s · python 4.50 s · gc 250 ms · profiler overhead not measured",
        "  compile 250 ms · connection-pool wait 250 ms · execute 2.00 s · fetch 500 ms · transactions 500 ms",
        "  statements 2 · rows not measured · round trips and received bytes not measured",
        "      3.00 s     2 x  select a",
    ]
    assert " · 7 dropped" in str(recording(dropped=7).summary())


def test_the_table_of_many_requests_is_of_the_mean_one() -> None:
    """Its sums are of all; with plans it says what they do to times; failed executions are marked."""
    failed = statement("a", execute_s=1.0, row_count=15, error="UndefinedColumn")
    part = recording(statements=[failed, failed], mode="plans", error="ProgrammingError")
    lines = str(Recording.merge([part, recording(statements=[failed], mode="plans")]).summary()).splitlines()

    assert lines[0] == (
        "GET /: 8.00 s, mean of 2 requests; its times and bytes hold the sending of plans; ended with ProgrammingError"
    )
    assert lines[3].startswith("  statements 1.50 · rows 22.5 · round trips 1 ")
    assert lines[4] == "      1.50 s  1.50 x  select a  (1.50 failed)"


@pytest.mark.parametrize(("number", "more"), [(25, []), (26, ["  and 1 statement that took less"])])
def test_twenty_five_statements_are_told(number: int, more: list[str]) -> None:
    """Each in at most 90 characters."""
    statements = [statement(f"{place}", sql="s" * 91, execute_s=1.0) for place in range(number)]

    lines = str(recording(statements=statements).summary()).splitlines()[4:]

    assert lines == [f"      1.00 s     1 x  {'s' * 89}…"] * 25 + more
