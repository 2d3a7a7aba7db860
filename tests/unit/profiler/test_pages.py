"""The flame's page: one file that fetches nothing and in which a statement stays text."""

import json
import re
from pathlib import Path

import pytest
from pyinstrument.session import Session

from placebench.profiler.capture.stack import leaf
from placebench.profiler.output.flame_page import write_flame_page, write_speedscope

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture
def session() -> Session:
    """One request of 0.25 s with a hostile statement of 0.1 s."""
    view = "view\x00/app/views.py\x001"
    return Session(
        frame_records=[([view], 0.15), ([view, leaf(f"select '{HOSTILE}'", "sql")], 0.1)],
        start_time=0.0,
        duration=0.25,
        min_interval=0.001,
        max_interval=0.001,
        sample_count=2,
        start_call_stack=[view],
        target_description="mean of 3 requests",
        cpu_time=0.2,
        sys_path=["/app"],
        sys_prefixes=["/lib"],
    )


@pytest.fixture
def page(session: Session, tmp_path: Path) -> str:
    """That session's page."""
    write_flame_page(
        session,
        tmp_path / "flame.html",
        title="naive <i>",
        requests=3,
        slowdown=1.5,
        notes=["Python's time is <estimated>"],
        back="../index.html",
    )
    return (tmp_path / "flame.html").read_text()


def test_the_page_asks_nobody_for_anything(page: str) -> None:
    """No address is loaded: only the names of SVG and the link back are there; and the policy forbids the rest."""
    addresses = set(re.findall(r"""(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^"'\s)]*""", page))

    assert addresses == {"http://www.w3.org/2000/svg"}
    assert "googleapis" not in page
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["../index.html"]
    assert "default-src 'none'" in page


def test_the_header_says_what_it_is(page: str) -> None:
    """Title, number of requests, mean time, what the profiler cost, what was noted; all escaped."""
    assert "<title>naive &lt;i&gt;</title>" in page
    assert "One mean request of 3: 250 ms" in page
    assert "Python&#39;s time is &lt;estimated&gt;." in page
    assert "slowed these requests down by\n1.50 ×" in page


def test_without_a_measured_slowdown_the_header_warns_all_the_same(session: Session, tmp_path: Path) -> None:
    """A profile is never a measurement of speed."""
    write_flame_page(session, tmp_path / "flame.html", title="tuned")

    assert "A profiler slows down what it watches" in (tmp_path / "flame.html").read_text()


def test_a_hostile_statement_cannot_leave_its_string(page: str) -> None:
    """pyinstrument's own page would have ended its script at the statement's."""
    assert HOSTILE not in page
    assert page.count("</script>") == 2
    assert "\\u003c/script>\\u003cscript>alert(1)" in page


def test_without_javascript_the_page_shows_the_flame_as_text(page: str) -> None:
    """Inside of noscript, escaped."""
    noscript = page.partition("<noscript>")[2].partition("</noscript>")[0]

    assert "0.250 view" in noscript
    assert "&lt;/script&gt;" in noscript


def test_speedscope_has_the_statements_among_its_frames(session: Session, tmp_path: Path) -> None:
    """With their time, in the file format that speedscope names."""
    write_speedscope(session, tmp_path / "flame.speedscope.json")

    document = json.loads((tmp_path / "flame.speedscope.json").read_text())
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert any(name.startswith("select '</script>") for name in names)
    assert document["profiles"][0]["events"][-1]["at"] == pytest.approx(0.25)
