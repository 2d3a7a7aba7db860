"""The pages of a recording, a difference and a flame graph: everything in them, nothing fetched, all text escaped."""

import json
import re
from pathlib import Path

import pytest
from flame_graphs import session_of
from sqlalchemy.engine import Engine

from placebench.errors import ProfilerError
from placebench.profiler import (
    PlanNode,
    Recording,
    SqlProfiler,
    Statement,
    write_difference_page,
    write_flame_page,
    write_speedscope,
)
from placebench.profiler.capture.stack import leaf
from placebench.profiler.model.session import FlameSession, pyinstrument_defect
from placebench.profiler.model.statement import Caller

HOSTILE = "</td><script>document.title = 'taken'</script><img src=x onerror=alert(1)>"
HOSTILE_SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
WITH_PYINSTRUMENT = pytest.mark.skipif(pyinstrument_defect() is not None, reason=str(pyinstrument_defect()))


@pytest.fixture
def recording() -> Recording:
    """A statement with everything, five times; a hostile one; a note."""
    node = PlanNode("Seq Scan", relation=HOSTILE, rows_expected=5, rows=2000.0, loops=1, elapsed_s=0.004)
    statement = Statement(
        "select 1", "f", 0.0, execute_s=0.005, row_count=3, plan=node, caller=Caller("/app/views.py", 7, "view")
    )
    hostile = Statement(HOSTILE, "g", 0.1, parameters=HOSTILE, error=HOSTILE, execute_s=0.001)
    return Recording(HOSTILE, "plans", statements=[statement] * 5 + [hostile], elapsed_s=0.2, notes=(HOSTILE,))


def test_the_page_tells_all_and_escapes_all(recording: Recording, tmp_path: Path) -> None:
    """Findings, statements, plans, notes; text stays text."""
    recording.write_page(tmp_path / "page.html")

    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "<img" not in page
    assert all(words in page for words in ("n+1", "/app/views.py:7 view", "Seq Scan on &lt;/td&gt;", "With plans"))
    assert page.count("&lt;script&gt;") >= 5


def test_of_merged_requests_the_page_shows_the_mean_one(recording: Recording, tmp_path: Path) -> None:
    """Its figures are means, its lists are of the first request, and the flame's own page is one link away."""
    Recording.merge([recording, recording]).write_page(tmp_path / "page.html", flame_page="flame.html")

    page = " ".join((tmp_path / "page.html").read_text().split())
    assert "mean of 2 requests" in page
    assert "200 ms, of which SQL" in page
    assert "<summary>Statements of the first request: 6</summary>" in page
    assert "6 of 12; all are in the JSON file." in page


def test_the_time_is_a_bar_unless_statements_overlapped(tmp_path: Path) -> None:
    """Half of it SQL, half of it Python; overlapping times are no parts of a whole."""
    statement = Statement("select 1", "f", 0.0, execute_s=0.1)
    Recording("r", "full", statements=[statement], elapsed_s=0.2, sql_s=0.1).write_page(tmp_path / "whole.html")
    Recording("r", "full", statements=[statement] * 3, elapsed_s=0.2, sql_s=0.3).write_page(tmp_path / "overlap.html")

    pages = [(tmp_path / name).read_text() for name in ("whole.html", "overlap.html")]
    assert "(Python 50 %, compile 0 %, connection-pool wait 0 %, fetch 0 %, execute 50 %" in pages[0].replace(
        "50.0", "50"
    )
    assert "where the time went" not in pages[1]


def test_an_estimate_is_marked_unless_nobody_needed_the_other_rows(tmp_path: Path) -> None:
    """Of two scans with 10 of 2000 rows, that below a LIMIT was stopped by it: the page marks one, as the findings."""
    scan = PlanNode("Seq Scan", relation="item", rows_expected=2000, rows=10.0, loops=1, elapsed_s=0.004)
    limit = PlanNode("Limit", rows_expected=10, rows=10.0, loops=1, elapsed_s=0.005, children=(scan,))
    for name, plan in (("scan", scan), ("limit", limit)):
        statement = Statement("select 1", "f", 0.0, execute_s=0.005, plan=plan)
        Recording("r", "plans", statements=[statement], elapsed_s=0.2).write_page(tmp_path / f"{name}.html")

    marked = {name: (tmp_path / f"{name}.html").read_text().count('class="wrong">2') for name in ("scan", "limit")}
    assert {"scan": 1, "limit": 0} == marked


def test_the_page_of_a_difference_escapes_all(recording: Recording, tmp_path: Path) -> None:
    """Its names and statements too."""
    write_difference_page(recording.diff(Recording("after", "full")), tmp_path / "page.html")

    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "gone" in page


def test_a_flame_is_a_picture_on_the_page(profiler: SqlProfiler, engine: Engine, clock: object, tmp_path: Path) -> None:
    """Without a script: boxes as wide as their times, and the statement among them."""
    with profiler.record("flame", mode="flame") as recording, engine.connect() as connection:
        connection.exec_driver_sql("select wait(3)").all()
    recording.write_page(tmp_path / "page.html")

    page = (tmp_path / "page.html").read_text()
    assert 'class="frame sql"' in page
    assert "select wait(?)" in page


@pytest.fixture
def session() -> FlameSession:
    """One request of 0.25 s with a hostile statement of 0.1 s."""
    view = "view\x00/app/views.py\x001"
    records = [([view], 0.15), ([view, leaf(f"select '{HOSTILE_SCRIPT}'", "sql")], 0.1)]
    return session_of(records, start_call_stack=[view])


@pytest.fixture
def flame_page(session: FlameSession, tmp_path: Path) -> str:
    """That session's page."""
    write_flame_page(
        session,
        tmp_path / "flame.html",
        title="naive <i>",
        requests=3,
        notes=["Python's time is <estimated>"],
        back="../index.html",
    )
    return (tmp_path / "flame.html").read_text()


@WITH_PYINSTRUMENT
def test_the_page_of_a_flame_graph_requests_nothing(flame_page: str) -> None:
    """No address is loaded: only the names of SVG and the link back are there; and the policy forbids the rest."""
    addresses = set(re.findall(r"""(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^"'\s)]*""", flame_page))

    assert addresses == {"http://www.w3.org/2000/svg"}
    assert "googleapis" not in flame_page
    assert re.findall(r'(?:src|href)="([^"]*)"', flame_page) == ["../index.html"]
    policy = re.search(r'Content-Security-Policy"\s+content="([^"]*)"', flame_page)
    assert policy is not None
    assert {"default-src 'none'", "base-uri 'none'", "form-action 'none'"} <= set(policy[1].split("; "))


@WITH_PYINSTRUMENT
def test_the_header_says_what_it_is(flame_page: str) -> None:
    """Title, number of requests, mean time, that a profile is no measurement of speed, what was noted; all escaped."""
    assert "<title>naive &lt;i&gt;</title>" in flame_page
    assert "Mean of 3 requests: 250 ms" in flame_page
    assert "Python&#39;s time is &lt;estimated&gt;." in flame_page
    assert "A profiler slows down what it measures" in flame_page


@WITH_PYINSTRUMENT
def test_a_hostile_statement_cannot_leave_its_string(flame_page: str) -> None:
    """pyinstrument's own page would have ended its script at the statement's."""
    assert HOSTILE_SCRIPT not in flame_page
    assert flame_page.count("</script>") == 3
    assert "\\u003c/script>\\u003cscript>alert(1)" in flame_page


@WITH_PYINSTRUMENT
def test_without_javascript_the_viewer_is_text(flame_page: str) -> None:
    """Inside of noscript, escaped."""
    noscript = flame_page.partition("<noscript>")[2].partition("</noscript>")[0]

    assert "0.250 view" in noscript
    assert "&lt;/script&gt;" in noscript


@WITH_PYINSTRUMENT
def test_the_viewer_begins_with_the_timeline(flame_page: str) -> None:
    """The installed pyinstrument has the default that is replaced."""
    assert '"placebench:viewOptions",{viewMode:"timeline"}' in flame_page


def test_the_flame_graph_is_above_its_statements_and_needs_no_script(flame_page: str) -> None:
    """A drawing with a legend, whose colour of SQL is that of its boxes, then the time of each statement."""
    plain = re.sub(r"<script.*?</script>", "", flame_page, flags=re.DOTALL)
    drawing, _, rest = plain.partition("<h2>SQL statements</h2>")

    assert '<i class="key frame sql"></i>SQL statement' in drawing
    assert 'class="frame sql"' in drawing
    assert "of which SQL 100 ms (40 %: execute, fetch, connect and transaction steps)" in drawing
    assert re.search(r"select &#39;.*</td><td>100 ms</td><td>40 %</td>", rest) is not None


def test_a_statement_is_one_row_with_its_fetch(tmp_path: Path) -> None:
    """Whether its frames have all of its text or are cut, and with the nodes of its plan."""
    view, long = "view\x00/app/views.py\x001", f"select {'column, ' * 40}"
    stacks = [
        ([view, leaf(long, "sql")], 0.1),
        ([view, leaf(f"fetch {long}", "sql")], 0.2),
        ([view, leaf("select 1", "sql"), leaf("Seq Scan on orders", "plan")], 0.3),
        ([view, leaf("fetch select 1", "sql")], 0.1),
    ]
    write_flame_page(session_of(stacks, start_call_stack=[view]), tmp_path / "flame.html", title="GET /")

    page = (tmp_path / "flame.html").read_text()
    for kind in ("sql", "plan"):
        assert f'<i class="key frame {kind}"></i>' in page
    table = page.partition("<h2>SQL statements</h2>")[2].partition("</table>")[0]
    rows = re.findall(r'<td class="sql">(.*?)</td><td>(.*?)</td>', table)
    assert [(text[:8], time) for text, time in rows] == [("select 1", "400 ms"), ("select c", "300 ms")]


def test_the_sql_of_a_flame_page_is_all_that_its_table_lists(tmp_path: Path) -> None:
    """A connect of 50 ms, a statement of 100 ms and a COMMIT of 50 ms are half of 400 ms."""
    view = "view\x00/app/views.py\x001"
    stacks = [
        ([view], 0.2),
        ([view, leaf("CONNECT", "sql")], 0.05),
        ([view, leaf("select 1", "sql")], 0.1),
        ([view, leaf("COMMIT", "sql")], 0.05),
    ]
    write_flame_page(session_of(stacks, start_call_stack=[view]), tmp_path / "flame.html", title="GET /")

    page = (tmp_path / "flame.html").read_text()
    assert "SQL 200 ms (50 %: execute, fetch, connect and transaction steps)" in page
    assert [("select 1", "100 ms"), ("CONNECT", "50.0 ms"), ("COMMIT", "50.0 ms")] == re.findall(
        r'<td class="sql">(.*?)</td><td>(.*?)</td>', page
    )


def test_speedscope_has_the_statements_among_its_frames(session: FlameSession, tmp_path: Path) -> None:
    """With their time, in the file format that speedscope names."""
    write_speedscope(session, tmp_path / "flame.speedscope.json")

    document = json.loads((tmp_path / "flame.speedscope.json").read_text())
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert any(name.startswith("select '</script>") for name in names)
    assert document["profiles"][0]["events"][-1]["at"] == pytest.approx(0.25)


def test_speedscope_has_every_frame_however_little_time_it_took(session: FlameSession, tmp_path: Path) -> None:
    """Of 500 functions with 0.2 % of the time each, all are written; the self times add up to the session's."""
    frames = [f"view\x00/app.py\x001\x01l{line}" for line in (1, 2)]
    session.frame_records = [
        ([frames[number % 2], f"select {number}\x00sql\x000"], 0.001 + number * 1e-6) for number in range(500)
    ]

    write_speedscope(session, tmp_path / "flame.speedscope.json")

    document = json.loads((tmp_path / "flame.speedscope.json").read_text())
    names = [frame["name"] for frame in document["shared"]["frames"]]
    on_leaves, open_frames, at = [0.0] * len(names), [], 0.0
    for each in document["profiles"][0]["events"]:
        if open_frames:
            on_leaves[open_frames[-1]] += each["at"] - at
        at = each["at"]
        if each["type"] == "O":
            open_frames.append(each["frame"])
        else:
            assert open_frames.pop() == each["frame"]
    expected = {stack[-1].partition("\x00")[0]: seconds for stack, seconds in session.frame_records}
    found = {name: seconds for name, seconds in zip(names, on_leaves, strict=True) if name.startswith("select")}
    assert found == pytest.approx(expected)
    assert sum(on_leaves) == pytest.approx(sum(expected.values()))


def test_a_recording_writes_its_flame_graph(session: FlameSession, tmp_path: Path) -> None:
    """As a page, without a link to an overview that is not there, or for speedscope; without one it says so."""
    recording = Recording("GET /", "flame")
    with pytest.raises(ProfilerError, match="'GET /' of mode 'flame' has no flame graph"):
        recording.write_flame(tmp_path / "none.html")
    recording.session = session

    recording.write_flame(str(tmp_path / "flame.html"))
    recording.write_flame(tmp_path / "flame.speedscope.json")

    assert "Back to the overview" not in (tmp_path / "flame.html").read_text()
    assert "speedscope.app" in json.loads((tmp_path / "flame.speedscope.json").read_text())["$schema"]
