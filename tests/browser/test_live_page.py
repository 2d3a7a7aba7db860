"""The live page in a real browser: what comes is shown, filtered, opened, compared, kept and shared."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from flame_graphs import session_of

from placebench.profiler import Caller, Recording, Statement
from placebench.profiler.capture.stack import leaf
from placebench.profiler.live.journal import Journal
from placebench.profiler.live.server import LivePage

HOSTILE = '</script><script>document.title = "taken"</script><img src=x onerror=alert(1)>\'"&amp;'


def recording(
    name: str, *, sql: str = "select a from orders", statements: int = 1, elapsed_s: float = 0.25
) -> Recording:
    """One that ran a statement so many times, on one line."""
    each = Statement(sql, sql, 0.0, caller=Caller("/shop/views.py", 31, "orders"), execute_s=0.01, row_count=2)
    made = Recording(name, "full", statements=[each] * statements, elapsed_s=elapsed_s, sql_s=0.01 * statements)
    made.status = 200
    return made


def with_loop(name: str) -> Recording:
    """One with an N+1."""
    made = recording(name, statements=6, sql="select b from items where order_id = ?")
    made.statements = [replace(each, repeated=False) for each in made.statements]
    return made


class Live(NamedTuple):
    """A page that shows a journal."""

    journal: Journal
    page: LivePage


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """A page with three requests of one route, of which the second is slow, and one of another, with an N+1."""
    journal = Journal(count=10_000, folder=tmp_path / "kept")
    for seconds in (0.1, 0.3, 0.2):
        journal.add(7, recording("GET /orders", elapsed_s=seconds))
    journal.add(7, with_loop("GET /items/{id}"))
    with LivePage(journal) as page:
        yield Live(journal, page)
    journal.close()


NAMES = """async () => {
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
    const rows = [...document.querySelectorAll("#rows .row:not([hidden])")];
    rows.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top);
    return rows.map((row) => row.querySelector(".name").textContent);
}"""


def names(page: Any) -> list[str]:
    """The names in the list once it is drawn, the uppermost first."""
    return page.evaluate(NAMES)


def view_sums(page: Any, view: str) -> None:
    """Switch to the sums by route or by statement, and wait until they have come from the server."""
    page.click(f"[data-view={view}]")
    page.wait_for_selector("#sums tbody tr")


@pytest.fixture
def opened(visit: Callable[..., Any], live: Live) -> Any:
    """The page, once its rows are there."""
    seen = visit(live.page.address)
    seen.page.wait_for_selector("#row-4")
    return seen


def test_what_comes_is_shown_newest_first(opened: Any, live: Live) -> None:
    """With its figures; nothing is asked of anybody else, and nothing is complained about."""
    live.journal.add(8, recording("POST /orders"))
    opened.page.wait_for_selector("#row-5")

    assert names(opened.page) == ["POST /orders", "GET /items/{id}", *["GET /orders"] * 3]
    assert opened.page.locator("#row-3 > :not(.time)").all_inner_texts() == [
        *("", "GET /orders", "200", "200 ms", "10.0 ms", "1", "2", "")
    ]
    assert opened.page.locator("#row-4 .findings").inner_text() == "n+1"
    assert opened.page.locator("#state").inner_text() == "5"
    assert [url for url in opened.requests if not url.startswith((live.page.address, "data:"))] == []
    assert opened.complaints == []


@pytest.mark.long
def test_the_keyboard_opens_filters_and_goes_back(opened: Any) -> None:
    """Arrows and Enter open the whole recording page; Escape closes it; / filters by the text of SQL, too."""
    page = opened.page
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    heading = page.frame_locator("#frame").locator("h1").inner_text()
    page.frame_locator("#frame").locator("h1").click()
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    focused = page.evaluate("document.activeElement.id")
    page.keyboard.press("/")
    page.keyboard.type("order_id items")
    filtered = names(page)
    state = page.locator("#state").inner_text()
    page.keyboard.press("Escape")

    assert (heading, focused) == ("GET /orders", "list")
    assert (filtered, state) == (["GET /items/{id}"], "1 of 4")
    assert len(names(page)) == 4
    assert page.evaluate("document.activeElement.id") == "list"
    assert opened.complaints == []


@pytest.mark.long
def test_routes_and_findings_filter(opened: Any) -> None:
    """Each by itself and both together, and who filters out everything is told so."""
    page = opened.page
    page.select_option("#route", label="GET /orders")
    by_route = names(page)
    page.select_option("#finding", label="n+1")
    page.wait_for_selector("#nothing:visible")
    nothing = page.locator("#nothing").inner_text()
    page.select_option("#route", label="all routes")
    page.wait_for_selector("#row-4:visible")

    assert by_route == ["GET /orders"] * 3
    assert nothing == "No recording passes the filters."
    assert names(page) == ["GET /items/{id}"]


@pytest.mark.long
def test_routes_have_counts_percentiles_and_a_trend(opened: Any) -> None:
    """0.1, 0.2 and 0.3 s: the median is 0.2 s; a click shows the requests of a route."""
    page = opened.page
    view_sums(page, "routes")
    row = page.locator("#sums tbody tr", has_text="GET /orders")
    cells = row.locator("td").all_inner_texts()

    assert cells[:7] == ["3", "200 ms", "290 ms", "298 ms", "1", "0", "600 ms"]
    assert row.locator("svg[role=img]").get_attribute("aria-label").startswith("mean from")
    row.locator("button").click()
    assert names(page) == ["GET /orders"] * 3
    assert page.locator("#route").evaluate("select => select.selectedOptions[0].text") == "GET /orders"


@pytest.mark.long
def test_statements_have_counts_routes_and_callers(opened: Any) -> None:
    """A click shows the requests that run one; the line above the list shows them all again."""
    page = opened.page
    view_sums(page, "statements")
    row = page.locator("#sums tbody tr", has_text="order_id = ?")
    cells = row.locator("td").all_inner_texts()
    page.click("#sums thead button:has-text('count')")
    order = page.locator("#sums tbody th").all_inner_texts()
    row.locator("button").click()

    assert cells[:5] == ["6", "60.0 ms", "10.0 ms", "12", "0"]
    assert cells[5:] == ["GET /items/{id} · 6", "/shop/views.py:31 orders · 6"]
    assert order == ["select b from items where order_id = ?", "select a from orders"]
    assert names(page) == ["GET /items/{id}"]
    page.click("#chosen button")
    assert len(names(page)) == 4


@pytest.mark.long
def test_two_requests_of_one_route_are_compared(opened: Any) -> None:
    """Marked by Space or a click; two of different routes are refused; the browser's back button goes back."""
    page = opened.page
    for key in ("ArrowDown", "Space", "ArrowDown", "Space"):
        page.keyboard.press(key)
    page.wait_for_selector("#compare:disabled")
    refused = page.locator("#compared span").inner_text()
    page.locator("#row-2 .mark").click()
    page.wait_for_selector("#compare:enabled")
    page.click("#compare")
    page.wait_for_selector("dialog[open]")
    title = page.frame_locator("#frame").locator("h1").inner_text()
    page.go_back()
    page.wait_for_selector("dialog:not([open])", state="attached")

    assert refused.endswith("expected two of one route")
    assert "GET /orders" in title
    page.locator("#row-3 .name").click()
    page.click("#before")
    page.wait_for_url("**/#2-3")
    assert opened.complaints == []


@pytest.mark.long
def test_one_is_kept_and_the_rest_cleared(opened: Any, live: Live) -> None:
    """It is in the folder, and its row stays, in every browser; the sums begin anew."""
    page = opened.page
    page.locator("#row-2 .name").click()
    page.click("#keep")
    page.wait_for_selector("#keep:disabled")
    said = page.locator("#said").inner_text()
    page.click("#back")
    page.click("#clear")
    page.wait_for_selector("#row-4", state="hidden")
    page.wait_for_selector("#row-2")

    assert Recording.load(Path(said.removeprefix("kept in "))).elapsed_s == 0.3
    assert names(page) == ["GET /orders★ kept"]
    live.journal.add(1, recording("GET /new"))
    page.wait_for_selector("#row-5")
    view_sums(page, "routes")
    assert page.locator("#sums tbody th").all_inner_texts() == ["GET /new"]


@pytest.mark.long
def test_a_recording_is_shared_as_one_file(opened: Any, visit: Callable[..., Any], tmp_path: Path) -> None:
    """The downloaded page opens without the command, and requests nothing but itself."""
    opened.page.locator("#row-4 .name").click()
    with opened.page.expect_download() as download:
        opened.page.click("#share")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)

    shared = visit(path)

    assert path.name == "GET-items-id.html"
    assert shared.page.locator("h1").inner_text() == "GET /items/{id}"
    assert "n+1" in shared.page.locator(".finding").first.inner_text()
    assert shared.requests == [path.as_uri()]


@pytest.mark.long
def test_a_badge_leads_to_its_recording_and_that_to_what_it_caused(visit: Callable[..., Any], live: Live) -> None:
    """The address of a request that has not ended yet opens once it has; a task of it is one click away, and back."""
    page = visit(f"{live.page.address}#i-ab12").page
    page.wait_for_selector("#row-4")
    is_open = page.locator("dialog").is_visible()
    request, task = recording("GET /slow"), recording("send mail")
    request.identifier, task.cause, task.kind = "ab12", "ab12", "background"
    live.journal.add(1, request)
    page.wait_for_selector("#title:text('GET /slow')")
    live.journal.add(1, task)
    page.click("#back")
    page.wait_for_selector("#row-6")
    marked = names(page)[:2]
    page.locator("#row-5 .name").click()
    page.click("#related button:text-is('caused send mail')")
    page.wait_for_selector("#title:text('send mail')")
    page.click("#related button:text-is('caused by GET /slow')")
    page.wait_for_selector("#title:text('GET /slow')")

    assert not is_open
    assert marked == ["↳ send mailbackground", "GET /slow"]


@pytest.mark.long
def test_a_pause_lets_nothing_move_and_loses_nothing(opened: Any, live: Live) -> None:
    """What comes meanwhile is counted, and shown afterwards."""
    page = opened.page
    page.keyboard.press("p")
    for _ in range(3):
        live.journal.add(1, recording("GET /late"))
    page.wait_for_selector("#state:text-is('paused, 3 new')")
    meanwhile = names(page)
    page.keyboard.press("p")
    page.wait_for_selector("#row-7")

    assert "GET /late" not in meanwhile
    assert names(page)[:3] == ["GET /late"] * 3


def test_hostile_names_and_statements_are_text(visit: Callable[..., Any], live: Live) -> None:
    """In the list, in the filters, in the sums and in the recording; control characters are visible."""
    live.journal.add(1, recording(f"GET /{HOSTILE}\u202e\u2028\x00", sql=f"select '{HOSTILE}'"))
    seen = visit(live.page.address)
    page = seen.page
    page.wait_for_selector("#row-5")
    name = f"GET /{HOSTILE}\\u202e\\u2028\\x00"

    assert names(page)[0] == name
    page.select_option("#route", label=name)
    assert names(page) == [name]
    for view, text in (("routes", name), ("statements", f"select '{HOSTILE}'")):
        page.click(f"[data-view={view}]")
        page.wait_for_function(
            "text => [...document.querySelectorAll('#sums th')].some(th => th.textContent === text)", arg=text
        )
    page.click("[data-view=requests]")
    page.locator("#row-5 .name").click()
    assert page.frame_locator("#frame").locator("h1").text_content().startswith(f"GET /{HOSTILE}")
    assert page.title() == "placebench live"
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith((live.page.address, "data:"))] == []


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it(visit: Callable[..., Any], live: Live, scheme: str) -> None:
    """No view is wider than the screen, every control has a name, and text contrasts with the background."""
    page = visit(live.page.address, viewport={"width": 400, "height": 760}, color_scheme=scheme).page
    page.wait_for_selector("#row-4")
    row = page.locator("#row-4").bounding_box()
    cells = [cell.bounding_box() for cell in page.locator("#row-4 > *").all()]

    for view in ("routes", "statements", "requests"):
        page.click(f"[data-view={view}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert all(cell["x"] >= 0 and cell["x"] + cell["width"] <= 400 for cell in cells)
    assert all(row["y"] <= cell["y"] and cell["y"] + cell["height"] <= row["y"] + row["height"] for cell in cells)
    nameless = "e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.title)"
    assert (
        page.locator("button, a, input, select, [role=checkbox], iframe").evaluate_all(
            f"all => all.filter({nameless}).length"
        )
        == 0
    )
    paper, ink = page.evaluate("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    brightness = [sum(map(int, color[4:-1].split(","))) for color in (paper, ink)]
    assert (brightness[0] > 600, brightness[1] > 600) == ((True, False) if scheme == "light" else (False, True))


@pytest.mark.long
def test_many_rows_need_few_elements(visit: Callable[..., Any]) -> None:
    """The list draws what is visible; a filter passes over all of them; the oldest are dropped as in the journal."""
    journal = Journal(count=2_000)
    for number in range(2_100):
        journal.add(1, recording(f"GET /{number % 10}"))
    with LivePage(journal) as live:
        page = visit(live.address).page
        page.wait_for_selector("#state:text-is('2\u202f000')")
        elements = page.locator("#rows .row").count()
        page.keyboard.press("End")
        page.wait_for_selector("#row-101")
        page.fill("#text", "get /7")
        page.wait_for_selector("#state:text-is('200 of 2\u202f000')")
        journal.add(1, recording("GET /7"))
        page.wait_for_selector("#state:text-is('201 of 2\u202f000')")
    journal.close()

    assert elements < 60


@pytest.mark.long
def test_a_page_whose_command_has_ended_says_so(visit: Callable[..., Any]) -> None:
    """What it has got stays."""
    journal = Journal()
    journal.add(1, recording("GET /orders"))
    with LivePage(journal) as live:
        page = visit(live.address).page
        page.wait_for_selector("#row-1")
    journal.close()

    page.wait_for_selector("#state:text('not connected')")
    assert names(page) == ["GET /orders"]


@pytest.mark.long
def test_the_viewer_of_a_flame_graph_starts_in_a_sandbox(visit: Callable[..., Any], live: Live) -> None:
    """The flame graph's page is in an origin of its own, without storage: pyinstrument's viewer starts all the same."""
    view, sql = "view\x00/shop/views.py\x001", leaf("select a from orders", "sql")
    made = recording("GET /orders")
    made.session = session_of([([view], 0.1), ([view, sql], 0.1)], start_call_stack=[view])
    live.journal.add(7, made)  # the fifth

    seen = visit(f"{live.page.address}recordings/5/flame")
    seen.page.locator("#explorer > summary").click()
    seen.page.locator("#app canvas").first.wait_for()

    assert seen.complaints == []
    assert seen.page.locator("rect.sql").count() == 1
