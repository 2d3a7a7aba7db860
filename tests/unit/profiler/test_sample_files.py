"""Samples of Python 3.15's `profiling.sampling`: files by hand after its format, and one of a real 3.15."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from flame_graphs import times_of

from placebench.cli import main
from placebench.errors import ProfilerError
from placebench.profiler import Recording
from placebench.profiler.capture.external_sampler import StackChange
from placebench.profiler.capture.sample_files import read_gecko_profile
from placebench.profiler.model.statement import Caller, RecordedRequest, Statement

TEXTS = ["(root)", "<module>", "app.py", "Shop.view", "compute", "wait"]
MODULE, VIEW, COMPUTE, WAIT = (
    "<module>\x00app.py\x001",
    "view\x00app.py\x009\x01cShop",
    "compute\x00app.py\x005",
    "wait",
)


def thread(number: int, *samples: tuple[float, int | None]) -> dict[str, Any]:
    """A thread with samples in milliseconds: stack 0 is the module's, 1 the view's, 2 that of compute, 3 of wait."""
    return {
        "tid": number,
        "samples": {"time": [at for at, _ in samples], "stack": [stack for _, stack in samples]},
        "stackTable": {"frame": [0, 1, 2, 3], "prefix": [None, 0, 1, 0]},
        "frameTable": {"func": [0, 1, 2, 3], "line": [20, 11, 6, None]},
        "funcTable": {"name": [1, 3, 4, 5], "fileName": [2, 2, 2, None], "lineNumber": [1, 9, 5, None]},
    }


def profile(start_ms: float, *threads: dict[str, Any]) -> dict[str, Any]:
    """A profile with a sample every 10 ms."""
    return {
        "meta": {"startTime": start_ms, "interval": 10.0},
        "shared": {"stringArray": TEXTS},
        "threads": list(threads),
    }


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """One that began at 1,000 s of Unix time: 100 ms, of which a statement of the view took those from 40 to 70."""
    made = Recording("GET /", "full", elapsed_s=0.1, timeline=(RecordedRequest("GET /", 1_800_000_000.0, 0.1),))
    caller = Caller("/srv/app.py", 11, "Shop.view")
    made.statements = [Statement("select 1", "f", 0.04, caller=caller, execute_s=0.02, fetch_s=0.01)]
    made.save(tmp_path / "recording.json")
    return tmp_path / "recording.json"


def every_10_ms(number: int, stack: int, most: int = 12) -> dict[str, Any]:
    """A thread that has this stack from 0 to 120 ms."""
    return thread(number, *((10.0 * sample, stack) for sample in range(most)))


def test_a_gecko_profile_is_read_as_changes_of_stacks() -> None:
    """Equal samples are one; a sample without a stack, and the end of the samples, are stacks without frames."""
    read, interval_s = read_gecko_profile(profile(1_800_000_000_000.0, thread(7, (0, 2), (10, 2), (20, None), (30, 3))))

    assert interval_s == 0.01
    assert read == {
        7: [
            StackChange(1_800_000_000.0, (MODULE, VIEW, COMPUTE)),
            StackChange(1_800_000_000.02, ()),
            StackChange(1_800_000_000.03, (MODULE, "wait\x00\x000")),
            StackChange(1_800_000_000.04, ()),
        ]
    }


def test_a_start_on_the_monotonic_clock_is_unix_time_of_this_boot() -> None:
    """What `profiling.sampling` writes, though the format says Unix time."""
    now = time.time()

    read, _ = read_gecko_profile(profile(time.monotonic() * 1e3, thread(7, (0, 1))))

    assert read[7][0].at == pytest.approx(now, abs=0.1)


def test_the_thread_is_that_of_the_call_sites_and_time_is_conserved(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page of `profile show --samples` has 30 ms of the statement on its view, and 70 ms of compute."""
    samples = tmp_path / "samples.json"
    samples.write_text(json.dumps(profile(1_799_999_999_990.0, every_10_ms(8, 3), every_10_ms(7, 2))))

    assert main(["profile", "show", str(recording), "--samples", str(samples), "--out", str(tmp_path / "out")]) == 0

    assert "by the samples in samples.json" in capsys.readouterr().out
    assert (tmp_path / "out" / "recording.flame.html").is_file()
    joined = Recording.load(recording)
    joined.join_samples(samples)
    assert times_of(joined.session.frame_records) == {
        ("thread 7", "<module>", "view", "compute"): pytest.approx(0.07),
        ("thread 7", "<module>", "view", "select 1"): pytest.approx(0.02),
        ("thread 7", "<module>", "view", "fetch select 1"): pytest.approx(0.01),
    }


@pytest.mark.parametrize(
    "document",
    [{}, [], {"meta": {"startTime": 1, "interval": 1}}, profile(1_700_000_000_000.0, every_10_ms(7, 2)), profile(1.0)],
    ids=["empty", "list", "without threads", "of another time", "without samples"],
)
def test_other_files_and_other_times_are_refused(document: Any, recording: Path, tmp_path: Path) -> None:
    """In one line, with the name of the file."""
    samples = tmp_path / "samples.json"
    samples.write_text(json.dumps(document))

    with pytest.raises(ProfilerError, match=r"samples\.json"):
        Recording.load(recording).join_samples(samples)


SAMPLED = """
import sqlite3, sys
from pathlib import Path
from placebench.profiler import SqlProfiler

folder = Path(sys.argv[1])
profiler = SqlProfiler.for_drivers("sqlite3")

def compute():
    while not (folder / "stop").exists():
        sum(range(1000))

with profiler.record("sampled") as recording:
    sqlite3.connect(":memory:").execute("SELECT 1").fetchall()
    print("began", flush=True)
    compute()
recording.save(folder / "recording.json")
"""


@pytest.mark.skipif(sys.version_info < (3, 15), reason="profiling.sampling came with Python 3.15")
def test_samples_of_pythons_own_sampler_are_joined(tmp_path: Path) -> None:
    """The function that computed while it sampled is in the flame graph, whose time is that of the recording."""
    options = ["attach", "-a", "--gecko", "-d", "1", "-o", str(tmp_path / "samples.json")]
    with subprocess.Popen([sys.executable, "-c", SAMPLED, str(tmp_path)], stdout=subprocess.PIPE, text=True) as sampled:
        assert sampled.stdout is not None
        sampled.stdout.readline()
        sampler = [sys.executable, "-m", "profiling.sampling", *options, str(sampled.pid)]
        ended = subprocess.run(sampler, capture_output=True, text=True, check=False, timeout=300)
        (tmp_path / "stop").touch()

    assert ended.returncode == 0, ended.stderr
    shown = [str(tmp_path / "recording.json"), "--samples", str(tmp_path / "samples.json"), "--out", str(tmp_path)]
    assert main(["profile", "show", *shown]) == 0
    assert (tmp_path / "recording.flame.html").is_file()
    recording = Recording.load(tmp_path / "recording.json")
    recording.join_samples(tmp_path / "samples.json")
    times = times_of(recording.session.frame_records)
    assert sum(times.values()) == pytest.approx(recording.elapsed_s)
    assert any("compute" in stack for stack in times)
