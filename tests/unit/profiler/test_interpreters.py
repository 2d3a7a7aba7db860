"""The profiler on Pythons without pyinstrument, and without a GIL."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from placebench.errors import ProfilerError
from placebench.profiler import SqlProfiler
from placebench.profiler.capture import external_sampler, options
from placebench.profiler.capture.options import Options

EVERY_MODE = """
import sys
sys.modules["pyinstrument"] = None  # what importing it finds
from importlib import util
find_spec = util.find_spec
util.find_spec = lambda name, *more: None if name == "pyinstrument" else find_spec(name, *more)

import sqlite3
from pathlib import Path
from placebench.profiler import Recording, SqlProfiler, merge_sessions

folder = Path(sys.argv[1])
profiler = SqlProfiler.for_drivers("sqlite3")
for mode in ("light", "full", "sampled", "flame", "plans"):
    with profiler.record(mode, mode=mode) as recording:
        sqlite3.connect(":memory:").execute("SELECT 1").fetchall()
    recording.save(folder / f"{mode}.json")
    read = Recording.load(folder / f"{mode}.json")
    read.write_page(folder / f"{mode}.html")
    if read.session is not None:
        read.write_flame(folder / f"{mode}.flame.html")
        read.write_flame(folder / f"{mode}.speedscope.json")
        leaves = sum(seconds for _, seconds in merge_sessions([folder / f"{mode}.pyisession"]).frame_records)
        assert abs(leaves - read.elapsed_s) < 1e-6
    print(mode, len(read.statements), *read.notes)
"""


@pytest.mark.processes
def test_every_mode_works_without_pyinstrument(tmp_path: Path) -> None:
    """A sampling thread takes part, as a note says; the flame graph's page has an image, and says why."""
    ended = subprocess.run(
        [sys.executable, "-c", EVERY_MODE, str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )

    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [mode, "1"] for mode in ("light", "full", "sampled", "flame", "plans")
    ]
    if sys.version_info >= (3, 11, 3):
        assert ["pyinstrument is not installed" in line for line in lines] == [False, False, False, True, True]
    page = (tmp_path / "flame.flame.html").read_text()
    assert "<script" not in page
    assert "an image without a zoom: pyinstrument is not installed" in page
    assert "SELECT ?" in page


@pytest.mark.parametrize("mode", ["sampled", "flame", "plans"])
def test_modes_that_read_other_threads_frames_need_the_gil(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused by name, with what to use instead; the others are not."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)

    with pytest.raises(ProfilerError, match=f"mode '{mode}' needs the GIL: .* expected light, full or external"):
        Options(mode)
    assert [Options(each).mode for each in ("light", "full", "external")] == ["light", "full", "external"]


def test_a_free_threaded_python_with_its_gil_has_every_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHON_GIL=1, or an extension module, has switched it on."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)

    assert [Options(mode).mode for mode in options.MODES] == list(options.MODES)


THREAD = """
import sqlite3, threading
from placebench.profiler import SqlProfiler

profiler = SqlProfiler.for_drivers("sqlite3")
with profiler.record("threads") as recording:
    thread = threading.Thread(target=lambda: sqlite3.connect(":memory:").execute("SELECT 1").fetchall())
    thread.start()
    thread.join()
print(len(recording.statements), recording.missed, "thread_inherit_context" in "".join(recording.notes))
"""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="threads inherit a context from Python 3.14 on")
@pytest.mark.parametrize(("inherits", "expected"), [("0", "0 1 False"), ("1", "1 0 True")])
def test_a_recording_says_that_threads_inherit_it(inherits: str, expected: str) -> None:
    """What is missed without it is recorded with it, and a note says why the two recordings differ."""
    command = [sys.executable, "-X", f"thread_inherit_context={inherits}", "-c", THREAD]

    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert (ended.stdout.strip(), ended.stderr) == (expected, "")


def test_a_flame_graph_that_the_gil_prevents_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode external without its sampler records the statements; no thread samples instead of it."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    monkeypatch.setattr(external_sampler, "find_py_spy", find_no_py_spy)
    profiler = SqlProfiler.for_drivers("sqlite3")
    try:
        with profiler.record("external", mode="external") as recording:
            sqlite3.connect(":memory:").execute("SELECT 1").fetchall()
    finally:
        profiler.remove()

    assert (1, None) == (len(recording.statements), recording.session)
    assert [note.partition(":")[0] for note in recording.notes] == ["no flame graph"]


def find_no_py_spy() -> str:
    """Raise what a machine without py-spy raises."""
    raise ProfilerError("no py-spy here")
