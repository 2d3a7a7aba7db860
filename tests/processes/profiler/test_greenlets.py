"""Recordings in greenlets of gevent and eventlet, which take turns in one thread."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

_VIEWS = """
import json, sqlite3, sys, time, warnings
warnings.simplefilter("ignore")
{patch}
from placebench import SqlProfiler
profiler = SqlProfiler.for_drivers("sqlite3")
def busy_0(end):
    while time.process_time() < end: sum(range(500))
def busy_1(end):
    while time.process_time() < end: sum(range(500))
def busy_2(end):
    while time.process_time() < end: sum(range(500))
def view(number):
    connection = sqlite3.connect(":memory:")
    with profiler.record(str(number), mode) as recording:
        for _ in range(4):
            connection.execute("select ?", (number,)).fetchall()
            pause(0.001)
            (busy_0, busy_1, busy_2)[number](time.process_time() + 0.02)
    return recording
"""
_TOLD = """
def sums(recording):
    found = {}
    for stack, seconds in recording.session.frame_records if recording.session else ():
        for name in {frame.split("\\0")[0] for frame in stack}: found[name] = found.get(name, 0.0) + seconds
    return found
print(json.dumps([
    [each.name, each.cpu_s, len(each.statements), each.missed, list(each.notes), each.elapsed_s, sums(each)]
    for each in recordings
]))
"""
_RUN = {
    "gevent": (
        "import gevent.monkey; gevent.monkey.patch_all(); import gevent",
        "pause = gevent.sleep; spawned = [gevent.spawn(view, n) for n in range(3)]",
        "gevent.joinall(spawned, raise_error=True); recordings = [each.value for each in spawned]",
    ),
    "eventlet": (
        "import eventlet; eventlet.monkey_patch()",
        "pause = eventlet.sleep; spawned = [eventlet.spawn(view, n) for n in range(3)]",
        "recordings = [each.wait() for each in spawned]",
    ),
}


@pytest.mark.parametrize("mode", ["full", "flame", "sampled", "external"])
@pytest.mark.parametrize("library", _RUN)
def test_each_greenlet_has_its_own_statements_and_frames(library: str, mode: str) -> None:
    """Their CPU is not measured, since they share a thread; the stacks are those of the recording's own greenlet."""
    pytest.importorskip(library)
    if sys.version_info < (3, 11, 3) and mode != "full":
        pytest.skip("no profile function may be used here")
    patch, *run = _RUN[library]
    program = f"mode = {mode!r}\n{_VIEWS.format(patch=patch)}\n{chr(10).join(run)}\n{_TOLD}"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stderr
    for name, cpu_s, statements, missed, notes, elapsed_s, frames in json.loads(done.stdout.splitlines()[-1]):
        assert (cpu_s, statements, missed) == (None, 4, 0)
        assert any("greenlets" in note for note in notes) == (mode in ("sampled", "external")), notes
        if mode != "full":
            assert [each for each in frames if each.startswith("busy_")] == [f"busy_{name}"], frames
            # Four times 20 ms of CPU, also of those that others have begun after.
            assert 0.04 < frames[f"busy_{name}"] < frames["view"] <= elapsed_s * 1.001


_NESTED = """
import gevent.monkey; gevent.monkey.patch_all()
import contextvars, gevent, json, threading, time
from placebench import SqlProfiler
profiler = SqlProfiler()
def busy_alone(end):
    while time.perf_counter() < end: sum(range(500))
def busy_inside(end):
    while time.perf_counter() < end: sum(range(500))
def inside():
    with profiler.record("inner", mode) as recording:
        busy_inside(time.perf_counter() + 0.05)
        gevent.sleep(0.001)
        busy_inside(time.perf_counter() + 0.05)
    return recording
def other():
    for _ in range(3): busy_alone(time.perf_counter() + 0.02); gevent.sleep(0)
with profiler.record("outer", mode) as outer:
    beside = gevent.spawn(other)
    recordings = [outer, inside()]
    thread = threading.Thread(target=contextvars.copy_context().run, args=(lambda: recordings.append(inside()),))
    thread.start()
    thread.join()
    beside.join()
def sums(recording):
    found = {}
    for stack, seconds in recording.session.frame_records:
        for name in {frame.split("\\0")[0] for frame in stack}: found[name] = found.get(name, 0.0) + seconds
    return found
print(json.dumps([[list(each.failed_hooks), list(each.breaches), sums(each)] for each in recordings]))
"""


@pytest.mark.parametrize("mode", ["flame", "sampled"])
def test_records_inside_of_records_have_their_own_frames(mode: str) -> None:
    """In the greenlet of the outer one, which another greenlet interrupts, and in a thread that has its context."""
    pytest.importorskip("gevent")
    if sys.version_info < (3, 11, 3):
        pytest.skip("no profile function may be used here")

    done = subprocess.run(
        [sys.executable, "-c", f"mode = {mode!r}\n{_NESTED}"], capture_output=True, text=True, check=False, timeout=120
    )

    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout.splitlines()[-1])
    assert [each[:2] for each in found] == [[[], []]] * 3
    outer, *inner = [frames for *_, frames in found]
    for each in (outer, *inner):
        assert each["busy_inside"] > 0.08, each
        assert "busy_alone" not in each


_LOOP = """
import gevent.monkey; gevent.monkey.patch_all()
import asyncio, json, time
from placebench import SqlProfiler
profiler = SqlProfiler()
async def main():
    with profiler.record("request") as recording:
        await asyncio.sleep(0)
        time.sleep(0.3)
        await asyncio.sleep(0)
    return recording
recording = asyncio.run(main())
print(json.dumps([list(recording.failed_hooks), [each.loop for each in recording.loop_blocks]]))
"""


def test_an_event_loop_of_asyncio_in_a_greenlet_is_watched() -> None:
    """gevent's `get_ident` names the greenlet there, and no thread has its number."""
    pytest.importorskip("gevent")

    done = subprocess.run([sys.executable, "-c", _LOOP], capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [[], ["asyncio"]]
