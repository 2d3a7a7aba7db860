"""The page of a recording and of a difference: everything in it, nothing run, nothing fetched."""

from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import Engine

from placebench.profiler import (
    PlanNode,
    Recording,
    SqlProfiler,
    Statement,
    plans_frame,
    statements_frame,
    transactions_frame,
    write_difference_page,
)
from placebench.profiler.model.statement import Caller

HOSTILE = "</td><script>document.title = 'taken'</script><img src=x onerror=alert(1)>"


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
    assert "200 ms, of it SQL" in page
    assert "<summary>Statements of the first request: 6</summary>" in page
    assert "6 of 12; the JSON file has all." in page


def test_the_time_is_a_bar_unless_statements_overlapped(tmp_path: Path) -> None:
    """Half of it SQL, half of it Python; overlapping times are no parts of a whole."""
    statement = Statement("select 1", "f", 0.0, execute_s=0.1)
    Recording("r", "full", statements=[statement], elapsed_s=0.2, sql_s=0.1).write_page(tmp_path / "whole.html")
    Recording("r", "full", statements=[statement] * 3, elapsed_s=0.2, sql_s=0.3).write_page(tmp_path / "overlap.html")

    pages = [(tmp_path / name).read_text() for name in ("whole.html", "overlap.html")]
    assert "(Python 50 %, compile 0 %, pool wait 0 %, fetch 0 %, execute 50 %" in pages[0].replace("50.0", "50")
    assert "where the time went" not in pages[1]


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


def test_frames_have_a_row_a_statement(recording: Recording, profiler: SqlProfiler, engine: Engine) -> None:
    """And a row a plan's node, and a row a step."""
    statements = statements_frame(recording)
    with profiler.record("steps") as stepping, engine.begin():
        pass

    assert isinstance(statements, pd.DataFrame)
    assert statements.groupby("fingerprint")["execute_s"].sum().round(6).to_dict() == {"f": 0.025, "g": 0.001}
    assert statements["line"].tolist()[0] == 7
    assert plans_frame(recording)["self_s"].tolist() == [0.004] * 5
    assert transactions_frame(stepping)["kind"].tolist() == ["BEGIN", "COMMIT"]
