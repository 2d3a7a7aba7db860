"""The pages of a recording and of a flame graph in a real browser."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flame_graphs import session_of

from placebench.profiler import PlanNode, Recording, Statement, write_flame_page
from placebench.profiler.analysis.difference import diff_recordings
from placebench.profiler.analysis.suite import ProfiledTest, SuiteProfile
from placebench.profiler.capture.stack import leaf
from placebench.profiler.output.pages import write_difference_page
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


@pytest.mark.long
def test_it_reads_without_javascript_and_on_a_phone(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Tables scroll in their own box; the page is not wider than the screen."""
    page = tmp_path / "page.html"
    statement = Statement("select a, b, c from some_table where d = ?" * 5, "f", 0.0, execute_s=0.1)
    Recording("GET /x", "full", statements=[statement], elapsed_s=1.0).write_page(page)

    seen = visit(page, viewport={"width": 390, "height": 800})
    plain = visit(page, java_script_enabled=False)

    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "select a, b, c" in plain.page.locator("table").first.inner_text()


@pytest.mark.long
def test_a_phone_shows_a_statement_with_its_calls_and_time(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Further columns are reached by scrolling the table."""
    page = tmp_path / "page.html"
    statement = Statement("select a, b, c from some_table where d = ?" * 5, "f", 0.0, execute_s=0.1)
    Recording("GET /x", "full", statements=[statement], elapsed_s=1.0).write_page(page)

    cells = visit(page, viewport={"width": 390, "height": 800}).page.locator("tbody tr").first.locator("td")

    assert cells.nth(2).inner_text() == "100 ms"
    box = cells.nth(2).bounding_box()
    assert box["x"] + box["width"] <= 390


def test_a_phone_shows_the_findings_on_its_first_screen(visit: Callable[..., Any], tmp_path: Path) -> None:
    """The times above them take a line each."""
    page = tmp_path / "page.html"
    Recording("GET /x", "full", elapsed_s=1.0).write_page(page)

    heading = visit(page, viewport={"width": 400, "height": 800}).page.get_by_role("heading", name="Findings")

    assert heading.bounding_box()["y"] < 700


def test_a_phone_shows_which_statement_changed(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Its text is beside its state; the figures are reached by scrolling the table."""
    page = tmp_path / "page.html"
    statement = Statement("select a, b, c from some_table where d = ?" * 5, "f", 0.0, execute_s=0.1)
    before = Recording("GET /x", "full", statements=[statement], elapsed_s=1.0)
    write_difference_page(diff_recordings(before, Recording("GET /x", "full", elapsed_s=1.0)), page)

    box = visit(page, viewport={"width": 400, "height": 800}).page.locator("td.sql").bounding_box()

    assert box["x"] + box["width"] <= 400


@pytest.mark.long
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
    """In the drawing, in its table, and in pyinstrument's viewer once it is opened; the title stays ours."""
    view = "view\x00/app/views.py\x001"
    session = session_of([([view], 0.1), ([view, leaf(HOSTILE, "sql")], 0.1)], start_call_stack=[view])
    page = tmp_path / "flame.html"
    write_flame_page(session, page, title="naive")

    seen = visit(page)

    seen.page.locator("#explorer > summary").click()
    seen.page.locator("#app canvas").first.wait_for()
    seen.page.get_by_label("Call stack").check()

    assert (seen.page.title(), seen.requests, seen.complaints) == ("naive", [page.as_uri()], [])
    for drawn in (seen.page.locator("#app").inner_text(), seen.page.locator("td.sql").first.inner_text()):
        assert "<script>document.title" in drawn
    assert "view" in seen.page.locator("svg.chart").first.text_content()


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("has_scripts", [True, False])
def test_a_flame_graph_opens_as_a_drawing_on_a_phone(
    visit: Callable[..., Any], tmp_path: Path, scheme: str, has_scripts: bool
) -> None:
    """It is in the first window, no wider than the screen; SQL has the colour of the legend, which is not Python's, and
    text stands out from the paper, also without JavaScript."""
    view = "view\x00/app/views.py\x001"
    session = session_of([([view], 0.1), ([view, leaf("select 1", "sql")], 0.1)], start_call_stack=[view])
    page = tmp_path / "flame.html"
    write_flame_page(session, page, title="GET /orders")

    options = {"viewport": {"width": 400, "height": 800}, "color_scheme": scheme, "java_script_enabled": has_scripts}
    shown = visit(page, **options).page
    drawing = shown.locator("svg.chart").first.bounding_box()
    colour = "each => getComputedStyle(each).fill"
    python, sql = (shown.locator(f"rect.{kind}").first.evaluate(colour) for kind in ("python", "sql"))
    paper, ink = shown.evaluate("['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name])")

    assert drawing["y"] + drawing["height"] < 800
    assert drawing["x"] + drawing["width"] <= 400
    assert shown.evaluate("document.documentElement.scrollWidth") <= 400
    assert python != sql
    brightness = [sum(map(int, re.findall(r"\d+", each)[:3])) for each in (paper, ink)]
    assert (brightness[0] > brightness[1]) == (scheme == "light")
    assert abs(brightness[0] - brightness[1]) > 500
    assert shown.locator(".legend").first.inner_text().splitlines() == ["Python", "SQL statement"]


@pytest.mark.long
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
