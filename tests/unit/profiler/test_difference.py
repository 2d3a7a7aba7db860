"""The difference of two recordings, with figures that can be checked by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from flame_graphs import session_of

from placebench.profiler import Recording, Statement, write_difference_page
from placebench.profiler.analysis.difference import (
    Change,
    StatementFigures,
    frame_changes,
    relative_place,
    self_times,
    statement_changes,
)
from placebench.profiler.capture.stack import leaf
from placebench.profiler.model.plan import PlanNode
from placebench.profiler.model.session import FlameSession


def statement(fingerprint: str, **fields: Any) -> Statement:
    """A statement of 10 ms with one row."""
    chosen = {"sql": f"select {fingerprint}", "fingerprint": fingerprint, "started_s": 0.0, "execute_s": 0.010}
    return Statement(**{**chosen, "row_count": 1, "round_trips": 1, **fields})


def session(self_s: float, *, file: str = "/app/views.py", folder: str = "/app") -> FlameSession:
    """A request with so many seconds in view() and 10 ms in a statement."""
    view = f"view\x00{file}\x001"
    return session_of([([view], self_s), ([view, leaf("select a", "sql")], 0.010)], sys_path=[folder])


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
    """0.4 s of two requests are 0.2 s of one, and three calls are one and a half."""
    totals = {change.name: (change.before, change.after) for change in before.diff(after).totals}

    assert totals["elapsed_s"] == (0.2, 0.1)
    assert totals["statements"] == (6.0, 3.0)
    assert totals["cpu_s"] == (None, None)
    three = Recording("r", "full", statements=[statement("a")] * 3, requests=2)
    assert [each.calls.before for each in three.diff(after).statements] == [1.5, 0.0, 0.0]


def test_statements_are_new_gone_changed_or_the_same(before: Recording, after: Recording) -> None:
    """The largest change of time first, whichever way the difference is taken."""
    changes = [(each.fingerprint, each.state, each.calls.before) for each in before.diff(after).statements]
    turned = {each.fingerprint: each.state for each in after.diff(before).statements}

    assert changes == [("a", "changed", 5.0), ("b", "same", 1.0), ("c", "new", 0.0)]
    assert turned["c"] == "gone"


def test_frames_differ_by_their_self_time(before: Recording, after: Recording) -> None:
    """A flame is of one request, of merged ones the mean: 100 and 50 ms in view(); what did not change is left out."""
    frames = [(each.name, each.place, each.before_s, each.after_s) for each in before.diff(after).frames]

    assert frames == [("view", "views.py", 0.1, 0.05)]


def test_frames_of_two_installations_are_the_same_frames() -> None:
    """Files are compared from the folder where Python found them; profiler overhead is left out."""
    one, other = session(0.1), session(0.2, file="/elsewhere/views.py", folder="/elsewhere")
    other.frame_records.append((["view\x00/elsewhere/views.py\x001", leaf("its own work", "profiler")], 1.0))

    assert [(each.place, round(each.change_s, 6)) for each in frame_changes(one, other)] == [("views.py", 0.1)]


def test_a_changed_plan_is_told(before: Recording, after: Recording) -> None:
    """By its shape; numbers alone are no other plan."""
    (change,) = before.diff(after).plans

    assert (change.before, change.after) == (("Seq Scan on t",), ("Index Scan using t_pkey on t",))
    assert before.diff(before).plans == ()


def test_a_file_is_known_from_where_python_found_it() -> None:
    """The longest folder of the Python path is removed; a file in none of them keeps its last two names."""
    path = ["", ".", "/venv/lib/site-packages", "/app"]

    assert relative_place("/venv/lib/site-packages/sqlalchemy/engine/base.py", path) == "sqlalchemy/engine/base.py"
    assert relative_place("/app/venv/x.py", ["/app", "/app/venv/", "/app/v"]) == "x.py"
    assert relative_place("/b/c/d.py", path) == "c/d.py"
    assert [relative_place(leaf, ["s"]) for leaf in ("", "sql", "plan")] == ["", "sql", "plan"]
    assert [relative_place(file, path) for file in ("<built-in>", "<a/b/c>")] == ["<built-in>", "<a/b/c>"]


def test_a_figure_that_did_not_change_says_so() -> None:
    """Once, with its unit."""
    assert str(Change("row_count", 3.0, 3.0)) == "3, unchanged"
    assert str(Change("cpu_s", None, None)) == "not measured"
    assert str(Change("elapsed_s", 0.2, 0.1)) == "200 ms → 100 ms (−50 %)"


@pytest.mark.parametrize(
    ("change", "text", "size"),
    [
        (Change("row_count", None, 3.0), "not measured → 3", 3.0),
        (Change("row_count", 3.0, None), "3 → not measured", 3.0),
        (Change("row_count", 0.0, 3.0), "0 → 3", 3.0),
        (Change("row_count", 4.0, 0.0), "4 → 0 (−100 %)", 4.0),
        (Change("bytes_received", 2048.0, 1024.0), "2.00 KiB → 1.00 KiB (−50 %)", 1024.0),
    ],
)
def test_a_figure_with_its_unit(change: Change, text: str, size: float) -> None:
    """What was not measured, and what came from nothing, has no ratio."""
    assert (str(change), change.size) == (text, size)


def test_as_many_calls_with_other_rows_are_a_change() -> None:
    """What nobody counted is none."""
    figures = [StatementFigures("select 1", 1, rows=rows) for rows in (1, 2, None)]
    states = [statement_changes({"x": figures[0]}, {"x": other})[0].state for other in figures[:2]]

    assert states == ["same", "changed"]
    assert statement_changes({"x": figures[2]}, {"x": figures[2]})[0].state == "same"


@pytest.mark.parametrize(("after_s", "found"), [(1.00101, 1), (1.0008, 0), (0.99899, 1), (1.0, 0)])
def test_a_frame_changes_by_a_thousandth_of_the_longer_request(after_s: float, found: int) -> None:
    """10 ms of both are in the statement: from 1.01 ms on."""
    assert len(frame_changes(session(1.0), session(after_s + (0.00001 if after_s > 1 else -0.00001)))) == found


def test_a_thousandth_itself_is_a_change_and_nothing_of_nothing_is_none() -> None:
    """1 of 1000 s; a frame in which no time was seen on either side."""
    longer, shorter, neither = (session_of([(["view\x00/app/views.py\x001"], each)]) for each in (1000.0, 999.0, 0.0))

    assert [each.change_s for each in frame_changes(longer, shorter)] == [-1.0]
    assert frame_changes(neither, neither) == ()


def test_self_time_is_that_of_the_frame_on_top() -> None:
    """Of the same function in all stacks together; a stack without frames is nobody's."""
    one = session(0.1)
    one.frame_records = [
        (["a\x00/app/x.py\x001"], 1.0),
        (["b\x00/app/y.py\x001", "a\x00/app/x.py\x009"], 2.0),
        ([], 4.0),
        ([leaf("its own work", "profiler")], 16.0),
        ([leaf("select 1", "sql")], 8.0),
    ]

    assert self_times(one) == {("a", "x.py"): 3.0, ("?", ""): 4.0, ("select 1", "sql"): 8.0}
    assert frame_changes(session_of([]), session_of([])) == ()


def test_a_frame_that_came_or_went_took_nothing_on_the_other_side() -> None:
    """The largest change comes first, whichever way it goes; of one session alone there is none."""
    old, new = session(0.1), session(0.1)
    old.frame_records += [(["small\x00/app/views.py\x001"], 0.02), (["gone\x00/app/views.py\x001"], 0.03)]
    new.frame_records += [(["new\x00/app/views.py\x001"], 0.04)]

    assert [(each.name, each.before_s, each.after_s) for each in frame_changes(old, new)] == [
        ("new", 0.0, 0.04),
        ("gone", 0.03, 0.0),
        ("small", 0.02, 0.0),
    ]
    assert Recording("a", "flame", session=old).diff(Recording("b", "full")).frames == ()


def test_thirty_statements_and_frames_are_told_each_on_a_short_line() -> None:
    """Of 31; SQL is cut after 80 characters in the table, and after 100 above its plans."""
    plans = (PlanNode("Seq Scan"), PlanNode("Index Scan"))
    one, other = (
        Recording(name, "plans", statements=[statement(f"{n}", sql="s" * 120, plan=plan) for n in range(31)])
        for name, plan in zip("ab", plans, strict=True)
    )
    one.session, other.session = session(0.1), session(0.1)
    other.session.frame_records += [([f"f{number}\x00/app/views.py\x001"], 1.0) for number in range(31)]

    lines = str(one.diff(other)).splitlines()

    statements, frames, changed = (lines.index(title) for title in ("statements", "frames, self time", "plans"))
    assert (frames - statements - 1, changed - frames - 1, len(lines) - changed - 1) == (30, 30, 31 * 3)
    assert [line.split()[-1] for line in (lines[statements + 1], lines[changed + 1])] == [
        "s" * 79 + "…",
        "s" * 99 + "…",
    ]


def test_figures_of_statements_from_elsewhere_are_compared_too() -> None:
    """By any key; what was not measured is compared with nothing."""
    before = {"x": StatementFigures("select 1", calls=3, rows=60, seconds=0.006)}
    after = {"x": StatementFigures("select 1", calls=1, rows=20, seconds=0.002), "y": StatementFigures("select 2", 1)}

    changes = statement_changes(before, after)

    assert [(each.sql, each.state) for each in changes] == [("select 1", "changed"), ("select 2", "new")]
    assert (changes[0].calls.before, changes[0].calls.after, changes[0].round_trips.size) == (3, 1, 0.0)
    new = changes[1]
    assert [each.before for each in (new.calls, new.seconds, new.rows, new.round_trips)] == [0.0] * 4


def test_the_text_and_the_json_tell_the_same(before: Recording, after: Recording) -> None:
    """For a terminal and for a program."""
    found = before.diff(after)

    lines = str(found).splitlines()
    assert lines[0] == "before → after, means of one request"
    assert "  elapsed        200 ms → 100 ms (−50 %)" in lines
    assert lines[lines.index("statements") :] == [
        "statements",
        "  changed 50.0 ms → 10.0 ms (−80 %)        5 → 1 x        select a",
        "  same    10.0 ms → 2.00 ms (−80 %)        1 x            select b",
        "  new     0 s → 1.00 ms                    0 → 1 x        select c",
        "frames, self time",
        "  100 ms → 50.0 ms (−50 %)         view (views.py)",
        "plans",
        "  select b",
        "    − Seq Scan on t",
        "    + Index Scan using t_pkey on t",
    ]
    assert json.loads(json.dumps(found.to_json()))["statements"][0]["calls"] == {
        "name": "calls",
        "before": 5.0,
        "after": 1.0,
    }


def test_recordings_that_do_not_compare_say_so(tmp_path: Path) -> None:
    """Other modes, and statements that one of them missed; in the text and on the page."""
    difference = Recording("a", "flame").diff(Recording("b", "plans", missed=3))

    assert [any(word in note for word in ("flame and plans", "after: 3 statements")) for note in difference.notes] == [
        True
    ] * 2
    assert difference.notes[0] in str(difference)
    write_difference_page(difference, str(tmp_path / "page.html"))
    assert difference.notes[0] in (tmp_path / "page.html").read_text()
    assert "plans and flame" in Recording("b", "plans").diff(Recording("a", "flame")).notes[0]
    assert Recording("a", "flame").diff(Recording("b", "flame")).notes == ()
