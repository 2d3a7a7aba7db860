"""Two flames laid over each other."""

from xml.etree import ElementTree

from flame_graphs import session_of

from placebench.profiler.model.session import FlameSession
from placebench.profiler.output.flame_svg import flame_difference_svg, flame_svg


def session(stacks: dict[tuple[str, ...], float]) -> FlameSession:
    """Frames of one file."""
    records = [([f"{name}\x00shop.py\x001" for name in stack], seconds) for stack, seconds in stacks.items()]
    return session_of(records)


def boxes(before: dict[tuple[str, ...], float], after: dict[tuple[str, ...], float]) -> dict[str, tuple[str, str, str]]:
    """By name: x, width and class of each box."""
    picture = ElementTree.fromstring(flame_difference_svg(session(before), session(after)))
    found = {}
    for each in picture.iter("svg"):
        name, box = each.find("foreignObject/div"), each.find("rect")
        if name is not None and box is not None:
            found[name.text or ""] = (each.get("x", ""), each.get("width", ""), box.get("class", ""))
    return found


def test_a_box_is_as_wide_as_its_longer_time() -> None:
    """copy took 30 of 40 ms and is gone, write took 10 and takes 15: the whole is 45 wide."""
    found = boxes({("app", "copy"): 0.03, ("app", "write"): 0.01}, {("app", "write"): 0.015})

    assert found["− copy"] == ("0%", "66.667%", "frame less by-3")
    assert found["+ write"] == ("66.667%", "33.333%", "frame more by-1")
    assert found["− app"] == ("0%", "100%", "frame less by-2")


def test_what_did_not_change_has_no_colour() -> None:
    """Nor a sign: 1 % is noise of the profiler."""
    found = boxes({("app",): 1.0}, {("app",): 1.01})

    assert found["app"][2] == "frame same"


def test_a_narrow_box_has_its_name_in_the_tooltip_alone() -> None:
    """Of 1000 ms, 25 hold three letters and 24 do not."""
    svg = ElementTree.fromstring(flame_svg(session({("wide",): 0.951, ("fits",): 0.025, ("not",): 0.024})))

    assert ["whole", "wide", "fits"] == [each.text for each in svg.iter("div")]
    assert ["wide", "fits", "not"] == [(each.text or "").split(" ")[0] for each in svg.iter("title")][-3:]


def test_a_frame_that_has_all_of_the_time_is_the_root() -> None:
    """No box that says the same stands above it."""
    made = session_of([(["request\x00x.py\x001", "view\x00x.py\x002"], 1.0), (["request\x00x.py\x001"], 1.0)])

    assert ["request", "view"] == [each.text for each in ElementTree.fromstring(flame_svg(made)).iter("div")]


def test_nothing_watched_is_an_empty_picture() -> None:
    """No division by zero."""
    assert boxes({}, {}) == {}


def test_a_deep_installed_program_shows_who_ran_the_sql() -> None:
    """Ninety frames of a server, a framework and the program, all installed: the statement is below its function."""
    places = [("serve", "server"), ("handle", "framework"), ("get", "keystone"), ("execute", "sqlalchemy")]
    stack = [
        f"{name}{n}\x00/venv/lib/python3.11/site-packages/{package}/x.py\x001"
        for name, package in places
        for n in range(30)
    ]
    sql = "select ?\x00sql\x000"
    flat = ["main\x00/venv/lib/python3.11/site-packages/server/x.py\x001"]
    made = session_of([([*stack, sql], 1.0), (flat, 1.0)])

    texts = [each.text for each in ElementTree.fromstring(flame_svg(made)).iter("div")]

    assert texts[1:] == ["serve0", "serve29", "handle0", "handle29", "get0", "get29", "execute0", "select ?", "main"]


def test_what_is_still_too_deep_loses_its_middle() -> None:
    """A recursion of the application's own: its beginning and its end are there."""
    stack = [f"walk{n}\x00/app/x.py\x001" for n in range(100)]
    made = session_of([([*stack, "select ?\x00sql\x000"], 1.0)])

    texts = [each.text for each in ElementTree.fromstring(flame_svg(made)).iter("div")]

    assert (texts[0], texts[30], texts[-2:]) == ("walk0", "… 41 frames", ["walk99", "select ?"])


def test_a_page_does_not_say_where_packages_are_installed() -> None:
    """Tooltips have an installed file from its package on, one of Python's from its folder on, and any other whole."""
    stack = [
        "serve\x00/home/me/venv/lib/python3.11/site-packages/shop/web.py\x001",
        "load\x00/home/me/app.py\x001",
        "loads\x00/usr/lib/python3.11/json/__init__.py\x001",
    ]

    made = session_of([(stack, 1.0)])
    tooltips = [each.text or "" for each in ElementTree.fromstring(flame_svg(made)).iter("title")]

    assert [text.rpartition(" · ")[2] for text in tooltips[1:]] == [
        "shop/web.py",
        "/home/me/app.py",
        "json/__init__.py",
    ]
