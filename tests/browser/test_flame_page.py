"""The flame's page in a real browser."""

import shutil
import subprocess
from pathlib import Path

import pytest
from pyinstrument.session import Session

from placebench.profiler import write_flame_page
from placebench.profiler.capture.stack import leaf

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
def test_a_hostile_statement_is_shown_and_does_not_run(tmp_path: Path) -> None:
    """pyinstrument's page draws the frames by JavaScript; the statement is text in it, and the title stays ours."""
    hostile = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
    view = "view\x00/app/views.py\x001"
    session = Session(
        frame_records=[([view], 0.1), ([view, leaf(hostile, "sql")], 0.1)],
        start_time=0.0,
        duration=0.2,
        min_interval=0.001,
        max_interval=0.001,
        sample_count=2,
        start_call_stack=[view],
        target_description="a request",
        cpu_time=0.1,
        sys_path=["/app"],
        sys_prefixes=["/lib"],
    )
    page = tmp_path / "flame.html"
    write_flame_page(session, page, title="naive")

    drawn = document_of(page)

    assert "&lt;/script&gt;&lt;script&gt;document.title = 'taken'" in drawn
    assert "<title>naive</title>" in drawn
    assert "view" in drawn.partition('id="app"')[2]


def document_of(page: Path) -> str:
    """The page's document after its scripts have run."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent / 'browser'}"]
    command = [str(BROWSER), *options, "--virtual-time-budget=2000", "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
