"""The difference of two recordings, with figures that can be checked by hand."""

import json
from typing import Any

import pytest
from pyinstrument.session import Session

from placebench.profiler import Recording, Statement
from placebench.profiler.analysis.difference import Change, frame_name, shown
from placebench.profiler.capture.stack import leaf
from placebench.profiler.model.plan import PlanNode


def statement(fingerprint: str, **fields: Any) -> Statement:
    """A statement of 10 ms with one row."""
    chosen = {"sql": f"select {fingerprint}", "fingerprint": fingerprint, "started_s": 0.0, "execute_s": 0.010}
    return Statement(**{**chosen, "row_count": 1, "round_trips": 1, **fields})


def session(own_s: float) -> Session:
    """A request with so many seconds in view() and 10 ms in a statement."""
    view = "view\x00/app/views.py\x001"
    return Session(
        frame_records=[([view], own_s), ([view, leaf("select a", "sql")], 0.010)],
        start_time=0.0,
        duration=own_s + 0.010,
        min_interval=0.001,
        max_interval=0.001,
        sample_count=2,
        start_call_stack=[view],
        target_description="",
        cpu_time=0.1,
        sys_path=["/app"],
        sys_prefixes=["/lib"],
    )


@pytest.fixture
def before() -> Recording:
    """Two requests: `a` five times in each, `b` once in each."""
    statements = [statement("a")] * 10 + [statement("b", plan=PlanNode("Seq Scan", relation="t"))] * 2
    return Recording(
        "before", "flame", statements=statements, elapsed_s=0.4, sql_s=0.12, requests=2, session=session(0.1)
    )


@pytest.fixture
def after() -> Recording:
    """One request: `a` once, `b` by an index, and a new `c`."""
    statements = [
        statement("a"),
        statement("b", execute_s=0.002, plan=PlanNode("Index Scan", relation="t", index="t_pkey")),
        statement("c", execute_s=0.001),
    ]
    return Recording("after", "flame", statements=statements, elapsed_s=0.1, sql_s=0.013, session=session(0.05))


def test_totals_are_means_of_one_request(before: Recording, after: Recording) -> None:
    """0.4 s of two requests are 0.2 s of one."""
    totals = {change.name: (change.before, change.after) for change in before.diff(after).totals}

    assert totals["elapsed_s"] == (0.2, 0.1)
    assert totals["statements"] == (6.0, 3.0)
    assert totals["cpu_s"] == (None, None)


def test_statements_are_new_gone_or_kept(before: Recording, after: Recording) -> None:
    """The largest change of time first, whichever way the difference is taken."""
    changes = [(each.fingerprint, each.state, each.calls.before) for each in before.diff(after).statements]
    turned = {each.fingerprint: each.state for each in after.diff(before).statements}

    assert changes == [("a", "kept", 5.0), ("b", "kept", 1.0), ("c", "new", 0.0)]
    assert turned["c"] == "gone"


def test_frames_differ_by_their_own_time(before: Recording, after: Recording) -> None:
    """A flame is of one request, of merged ones the mean: 100 and 50 ms in view(); what did not change is left out."""
    frames = {change.name: (change.before, change.after) for change in before.diff(after).frames}

    assert frames == {"view (/app/views.py) own_s": (0.1, 0.05)}


def test_a_changed_plan_is_told(before: Recording, after: Recording) -> None:
    """By its shape; numbers alone are no other plan."""
    (change,) = before.diff(after).plans

    assert (change.before, change.after) == (("Seq Scan on t",), ("Index Scan using t_pkey on t",))
    assert before.diff(before).plans == ()


def test_a_frame_is_shown_from_its_package_on() -> None:
    """Not with the folder that it is installed in; an application's own file as it is."""
    installed = Change("execute (/venv/lib/python3.11/site-packages/sqlalchemy/engine/base.py) own_s", 1.0, 2.0)

    assert frame_name(installed) == "execute (sqlalchemy/engine/base.py)"
    assert frame_name(Change("view (/app/views.py) own_s", 1.0, 2.0)) == "view (/app/views.py)"
    assert shown(Change("row_count", 3.0, 3.0)) == "3, as before"


def test_the_text_and_the_json_tell_the_same(before: Recording, after: Recording) -> None:
    """For a terminal and for a program."""
    found = before.diff(after)

    lines = str(found).splitlines()
    assert lines[0] == "before → after, means of one request"
    assert "  elapsed        200 ms → 100 ms (−50 %)" in lines
    assert "    + Index Scan using t_pkey on t" in lines
    assert json.loads(json.dumps(found.to_json()))["statements"][0]["calls"] == {
        "name": "calls",
        "before": 5.0,
        "after": 1.0,
    }
