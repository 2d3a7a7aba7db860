"""The pages of a recording and of a flame graph in a real browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flame_graphs import session_of

from placebench.profiler import PlanNode, Recording, Statement, write_flame_page
from placebench.profiler.analysis.suite import ProfiledTest, SuiteProfile
from placebench.profiler.capture.stack import leaf
from placebench.profiler.output.suite import SuiteReport

HOSTILE = "select '</script><script>document.title = \"taken\"</script><img src=x onerror=alert(1)>'"


def test_a_hostile_statement_is_shown_and_does_not_run(visit: Callable[..., Any], tmp_path: Path) -> None:
    """In the statement, its plan, its parameters and the name of the recording; nothing is fetched."""
    node = PlanNode(HOSTILE, condition=HOSTILE, rows_expected=1, elapsed_s=0.1)
    statement = Statement(HOSTILE, "f", 0.0, parameters=HOSTILE, error=HOSTILE, execute_s=0.1, plan=node)
    page = tmp_path / "page.html"
    Recording(HOSTILE, "plans", statements=[statement] * 6, elapsed_s=1.0, notes=(HOSTILE,)).write_page(page)

    seen = visit(page)

    assert seen.page.title() == HOSTILE
    assert seen.requests == [page.as_uri()]
    assert seen.complaints == []
    assert seen.page.locator("td.sql").first.inner_text() == HOSTILE


def test_it_reads_without_javascript_and_on_a_phone(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Tables scroll in their own box; the page is not wider than the screen."""
    page = tmp_path / "page.html"
    statement = Statement("select a, b, c from some_table where d = ?" * 5, "f", 0.0, execute_s=0.1)
    Recording("GET /x", "full", statements=[statement], elapsed_s=1.0).write_page(page)

    seen = visit(page, viewport={"width": 390, "height": 800})
    plain = visit(page, java_script_enabled=False)

    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "select a, b, c" in plain.page.locator("table").first.inner_text()


def test_a_phone_shows_a_statement_with_its_calls_and_time(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Further columns are reached by scrolling the table."""
    page = tmp_path / "page.html"
    statement = Statement("select a, b, c from some_table where d = ?" * 5, "f", 0.0, execute_s=0.1)
    Recording("GET /x", "full", statements=[statement], elapsed_s=1.0).write_page(page)

    cells = visit(page, viewport={"width": 390, "height": 800}).page.locator("tbody tr").first.locator("td")

    assert cells.nth(2).inner_text() == "100 ms"
    box = cells.nth(2).bounding_box()
    assert box["x"] + box["width"] <= 390


def test_a_recording_without_statements_has_no_empty_tables(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Sections that would have a heading only are left out."""
    page = tmp_path / "page.html"
    Recording("GET /x", "full", elapsed_s=1.0).write_page(page)

    seen = visit(page)

    assert seen.page.locator("h2").all_inner_texts() == ["Findings"]
    assert seen.page.locator("table").count() == 0


def test_a_hostile_statement_in_a_flame_graph_is_shown_and_does_not_run(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    """pyinstrument's page draws the frames by JavaScript; the statement is text in it, and the title stays ours."""
    view = "view\x00/app/views.py\x001"
    session = session_of([([view], 0.1), ([view, leaf(HOSTILE, "sql")], 0.1)], start_call_stack=[view])
    page = tmp_path / "flame.html"
    write_flame_page(session, page, title="naive")

    seen = visit(page)

    assert (seen.page.title(), seen.requests) == ("naive", [page.as_uri()])
    drawn = seen.page.locator("#app").inner_text()
    assert "view" in drawn
    assert "<script>document.title" in drawn


def test_the_page_of_a_suite_shows_hostile_names_and_fits_a_phone(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Names of tests and statements are text; nothing is fetched; tables scroll in their own box."""
    statement = Statement(HOSTILE, "f", 0.0, execute_s=0.1)
    recording = Recording("test", "full", statements=[statement] * 6, elapsed_s=1.0, sql_s=0.6)
    profile = SuiteProfile()
    profile.add(ProfiledTest.of(f"test_x.py::test[{HOSTILE}]", recording, tmp_path))
    page = tmp_path / "page.html"
    SuiteReport(profile).write_page(page)

    seen = visit(page, viewport={"width": 390, "height": 800})

    assert seen.page.title() == "SQL of the test suite"
    assert seen.requests == [page.as_uri()]
    assert seen.complaints == []
    assert HOSTILE in seen.page.locator("td.sql").first.inner_text()
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
