"""Flame graphs by py-spy, the real one, on programs of which it is known where their time goes."""

import contextvars
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from flame_graphs import busy, times_of
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from placebench.cli import main
from placebench.errors import ProfilerError
from placebench.profiler import Clocks, Recording, SqlProfiler
from placebench.profiler.capture import external_sampler
from placebench.profiler.capture.external_flame_graph import with_outer_frames
from placebench.profiler.capture.external_sampler import StackChange, read_chrome_trace
from placebench.profiler.capture.stack import frame_name

pytestmark = pytest.mark.processes


def _is_installed() -> bool:
    try:
        return bool(external_sampler.find_py_spy())
    except ProfilerError:
        return False


WITH_PY_SPY = pytest.mark.skipif(not _is_installed(), reason="py-spy is not installed")


@pytest.fixture
def profiler(make_profiler: Callable[..., SqlProfiler]) -> SqlProfiler:
    """A profiler of every engine."""
    return make_profiler()


def three_parts() -> None:
    """Three parts of four."""
    busy(0.24, time.perf_counter)


def one_part() -> None:
    """One part of four."""
    busy(0.08, time.perf_counter)


def run_statement(seconds: float) -> None:
    """A statement of so many seconds, on a connection of its own."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.connect() as connection:
        connection.connection.create_function("slowly", 1, lambda seconds: time.sleep(seconds) or 1)
        connection.exec_driver_sql(f"select slowly({seconds})").all()
    engine.dispose()


def below(times: dict[tuple[str, ...], float], *names: str) -> float:
    """The seconds of all stacks that have these names in this order, with others between them; fetches are included."""

    def matches(stack: tuple[str, ...]) -> bool:
        frames = iter(stack)
        return all(any(name == frame.removeprefix("fetch ") for frame in frames) for name in names)

    return sum(seconds for stack, seconds in times.items() if matches(stack))


def eventually(check: Callable[[], None]) -> None:
    """A sampler that the machine does not let run in time may try again, twice."""
    for _ in range(2):
        try:
            return check()
        except AssertionError:
            continue
    return check()


@WITH_PY_SPY
def test_each_function_has_its_share_and_each_statement_its_frame(profiler: SqlProfiler) -> None:
    """On two threads: 0.24 s and 0.08 s of Python here; a statement of 0.15 s in its own frame in the other."""

    def check() -> None:
        with profiler.record("truth", mode="external") as recording:
            other = threading.Thread(target=contextvars.copy_context().run, args=(run_statement, 0.15), name="other")
            other.start()
            other.join()
            three_parts()
            one_part()
            run_statement(0.1)

        times = times_of(recording.session.frame_records)
        threads = {name: sum(each for stack, each in times.items() if stack[0] == name) for name, *_ in times}
        statements = [each.execute_s + each.fetch_s for each in recording.statements if "slowly" in each.sql]
        assert threads["MainThread"] == pytest.approx(recording.elapsed_s)
        assert sum(threads.values()) == pytest.approx(recording.session.duration)
        assert below(times, "three_parts") == pytest.approx(0.24, rel=0.2)
        assert below(times, "one_part") == pytest.approx(0.08, rel=0.4)
        assert below(times, "other", "run_statement", "select slowly(?)") == pytest.approx(statements[0])
        assert below(times, "MainThread", "run_statement", "select slowly(?)") == pytest.approx(statements[1])
        assert recording.notes[0].startswith("Python's time is sampled by py-spy")

    eventually(check)


@WITH_PY_SPY
def test_fast_statements_stand_where_the_program_ran_them(profiler: SqlProfiler) -> None:
    """Most of them have no sample: their call sites say where they belong; frames are those of the other modes."""
    engine = create_engine("sqlite://", poolclass=StaticPool)

    def load() -> None:
        with engine.connect() as connection:
            for _ in range(3):
                connection.exec_driver_sql(
                    "with recursive n as (select 1 as x union all select x + 1 from n limit 500) select sum(x) from n"
                ).all()
            busy(0.03)

    run_of = {}
    for mode in ("external", "flame"):
        with profiler.record("fast", mode=mode) as recording:
            load()
        run_of[mode] = {
            frame.partition("\x01")[0]
            for stack, _ in recording.session.frame_records
            if stack[-1].startswith("with recursive")
            for frame in stack
            if frame.startswith("load\x00") or "<thread>" in frame
        }
    engine.dispose()

    assert run_of["external"] == run_of["flame"]
    assert len(run_of["external"]) == 2


@WITH_PY_SPY
def test_a_served_request_gets_its_flame_graph_beside_its_file(profiler: SqlProfiler, tmp_path: Path) -> None:
    """The recording is saved at once, without waiting for another process's samples."""

    def serve(*_: object) -> list[bytes]:
        run_statement(0.03)
        return [b""]

    profiler.wsgi(serve, folder=tmp_path, mode="external")({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, print)

    (file,) = tmp_path.glob("*.recording.json")
    assert Recording.load(file).session is None
    external_sampler.external_sampler().close()
    recording = Recording.load(file)
    assert below(times_of(recording.session.frame_records), "serve", "run_statement", "select slowly(?)") > 0.029
    assert sum(times_of(recording.session.frame_records).values()) == pytest.approx(recording.elapsed_s)


@WITH_PY_SPY
def test_nothing_is_left_running(profiler: SqlProfiler) -> None:
    """Neither py-spy nor the thread that it is started by, once nobody waits for samples."""
    with profiler.record("short", mode="external"):
        threads = {thread.name for thread in threading.enumerate()}
    left = {thread.name for thread in threading.enumerate() if thread.is_alive()}

    assert "placebench-sampler" in threads
    assert external_sampler.external_sampler()._thread is None
    assert subprocess.run(["pgrep", "-P", str(os.getpid()), "py-spy"], check=False).returncode == 1, left


@WITH_PY_SPY
def test_without_py_spys_samples_statements_are_exact_and_a_note_says_so(profiler: SqlProfiler) -> None:
    """It was killed, by the system for example; the next record has a new one."""
    children = ["pgrep", "-P", str(os.getpid()), "py-spy"]
    with profiler.record("killed", mode="external") as killed:
        for pid in subprocess.run(children, stdout=subprocess.PIPE, text=True, check=True).stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        run_statement(0.03)

    assert killed.notes[-1].startswith("py-spy took no sample")
    times = times_of(killed.session.frame_records)
    assert below(times, "run_statement", "select slowly(?)") == pytest.approx(
        killed.statements[-1].execute_s + killed.statements[-1].fetch_s
    )
    assert sum(times.values()) == pytest.approx(killed.elapsed_s)

    def check() -> None:
        with profiler.record("next", mode="external") as following:
            busy(0.05)
        assert following.session.sample_count > 0

    eventually(check)


PROGRAM = """
import threading, time
from sqlalchemy import create_engine, text
from sqlalchemy.pool import StaticPool

engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})

def query():
    with engine.connect() as connection:
        connection.execute(text("select 1")).all()
    engine.dispose()

def compute():
    until = time.perf_counter() + 0.1
    while time.perf_counter() < until:
        pass

def application(environ, start_response):
    query()
    compute()
    start_response("200 OK", [])
    return [b""]

if __name__ == "__main__":
    thread = threading.Thread(target=query)
    thread.start()
    thread.join()
    compute()
"""


@WITH_PY_SPY
@pytest.mark.parametrize("target", ["program.py", "program:application"])
def test_profile_run_samples_programs_and_applications(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the page of the flame graph; a thread of the program's own has its own time line."""
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def check() -> None:
        assert main(["profile", "run", "--mode", "external", "--out", "out", target]) == 0
        recording = Recording.load(tmp_path / "out" / "recording.json")
        times = times_of(recording.session.frame_records)
        assert (tmp_path / "out" / "flame.html").is_file()
        assert below(times, "query", "select ?") + below(times, "query", "fetch select ?") <= recording.sql_s
        assert below(times, "compute") > 0.07
        assert sum(times.values()) == pytest.approx(recording.session.duration)
        assert recording.session.duration >= recording.elapsed_s * 0.999

    eventually(check)


SAMPLED = """
import os, sys, time
from placebench.profiler import SqlProfiler
import psutil
with SqlProfiler().record("killed", mode="external"):
    while not (children := [each.pid for each in psutil.Process().children() if each.name() == "py-spy"]):
        time.sleep(0.01)
    print(*children, flush=True)
    time.sleep(60)
"""


@WITH_PY_SPY
def test_py_spy_ends_with_a_killed_process() -> None:
    """It has nothing to read any more."""
    with subprocess.Popen([sys.executable, "-c", SAMPLED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        sampler = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{sampler}/stat").read_text().rpartition(") ")[2][0] == "Z"
        except OSError:
            return True

    give_up_at = time.monotonic() + 30
    while not is_gone():
        assert time.monotonic() < give_up_at


FORKED = """
import os, sys, threading, time, warnings
from placebench.profiler import SqlProfiler
warnings.simplefilter("ignore")  # of the thread beside a fork
profiler, begun, forked = SqlProfiler(), threading.Event(), threading.Event()
def sampled(name):
    with profiler.record(name, mode="external") as recording:
        time.sleep(0.3)
        begun.set()
        forked.wait()
    print(name, recording.notes[0].partition(",")[0], recording.session.sample_count > 0, flush=True)
parent = threading.Thread(target=sampled, args=["parent"])
parent.start()
begun.wait()
child = os.fork()
forked.set()
if not child:
    sampled("child")
    os._exit(0)
parent.join()
os.wait()
"""


@pytest.mark.processes
@WITH_PY_SPY
def test_a_forked_process_has_a_sampler_of_its_own() -> None:
    """The thread of its parent's sampler does not run in it, and py-spy reads the other process."""
    ended = subprocess.run([sys.executable, "-c", FORKED], stdout=subprocess.PIPE, text=True, check=True)

    sampled = "Python's time is sampled by py-spy True"
    assert sorted(ended.stdout.splitlines()) == [f"child {sampled}", f"parent {sampled}"]


REFUSED = """
import ctypes, json
from sqlalchemy import create_engine, text
from placebench.profiler import SqlProfiler
profiler, engine = SqlProfiler(), create_engine("sqlite://")
def recorded(mode):
    with profiler.record("refused", mode=mode) as recording, engine.connect() as connection:
        connection.execute(text("select 1")).all()
    return recording
kernel = ctypes.CDLL(None)
kernel.prctl(24, 19, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_PTRACE: py-spy does not get it, even from root
kernel.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody without it may read this process
found = recorded("external")
print(json.dumps([len(found.statements), sum(each for _, each in found.session.frame_records) / found.elapsed_s,
                  *found.notes]))
"""


@WITH_PY_SPY
def test_where_ptrace_is_refused_a_thread_samples_and_a_note_says_so(tmp_path: Path) -> None:
    """The recording is whole all the same."""
    command = [sys.executable, "-c", REFUSED]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=tmp_path)
    statements, share, *notes = json.loads(ended.stdout)

    assert (statements, share) == (1, pytest.approx(1.0))
    refused = "py-spy may not read this process's memory (ptrace is refused)"
    assert notes[0].startswith(f"a sampling thread of this process takes the samples: {refused}")


@pytest.mark.parametrize("missing", ["py-spy", "clock"])
def test_without_an_external_sampler_a_thread_samples(
    missing: str, monkeypatch: pytest.MonkeyPatch, make_profiler: Callable[..., SqlProfiler]
) -> None:
    """Where py-spy is not installed, and where the times are not those of py-spy's clock."""
    monkeypatch.setattr(external_sampler, "_SAMPLERS", {})
    if missing == "py-spy":
        monkeypatch.setattr(external_sampler.sysconfig, "get_path", lambda _: "/nowhere")
        monkeypatch.setenv("PATH", "/nowhere")
    profiler = make_profiler(clocks=Clocks(elapsed=time.monotonic) if missing == "clock" else None)

    with profiler.record("thread", mode="external") as recording:
        pass

    seen = "py-spy is not installed" if missing == "py-spy" else "the recording's clock is not time.perf_counter"
    assert recording.notes[0].startswith(f"a sampling thread of this process takes the samples: {seen}")


def event(phase: str, name: str, at: int, thread: int = 7) -> dict[str, object]:
    """An event of py-spy's Chrome trace, in /app.py at line 3; *at* in microseconds."""
    return {"ph": phase, "name": name, "tid": thread, "ts": at, "args": {"filename": "/app.py", "line": 3}}


def test_a_chrome_trace_is_read_as_changes_of_stacks() -> None:
    """Events of one moment are one change; each thread has its own."""
    events = [
        event("B", "<module>", 1_000),
        event("B", "Shop.view", 1_000),
        event("B", "<module>", 1_010, thread=8),
        event("E", "Shop.view", 6_000),
        event("B", "f.<locals>.g", 6_000),
        event("E", "f.<locals>.g", 9_000),
        event("E", "<module>", 9_000),
    ]
    module, view, inner = "<module>\x00/app.py\x003", "view\x00/app.py\x003\x01cShop", "g\x00/app.py\x003"

    assert read_chrome_trace(json.dumps(events)) == {
        7: [StackChange(0.001, (module, view)), StackChange(0.006, (module, inner)), StackChange(0.009, ())],
        8: [StackChange(0.00101, (module,))],
    }


def test_a_long_trace_is_read_in_parts() -> None:
    """As py-spy writes it: args first, no spaces."""
    events = [event("BE"[number % 2], "view", 1_000 * number) for number in range(2_000)]
    ordered = [dict(sorted(each.items())) for each in events]

    (changes,) = read_chrome_trace(json.dumps(ordered, separators=(",", ":")) + "\n").values()

    assert [at for at, _ in changes] == pytest.approx([number / 1e3 for number in range(2_000)])


@pytest.mark.parametrize("trace", ["", "[", '[{"ph":"B"}]', '{"traceEvents":[7]}'])
def test_another_file_is_no_chrome_trace(trace: str) -> None:
    """Which py-spy wrote when it was killed, for example."""
    with pytest.raises(ProfilerError):
        read_chrome_trace(trace)


def test_a_frame_is_named_as_in_other_flame_graphs() -> None:
    """Function, file, first line, and class."""
    assert frame_name("Shop.Cart.add", "/app.py", 9) == "add\x00/app.py\x009\x01cShop.Cart"


def test_stacks_cut_off_get_their_outer_frames_from_the_nearest_whole_one() -> None:
    """Each suffix of a stack that was read whole beside it becomes that stack; what nobody knows becomes empty."""
    frames = tuple(frame_name(name, "shop.py", line) for line, name in enumerate(["main", "view", "load", "row"], 1))
    other = (frames[0], frame_name("report", "shop.py", 9), *frames[2:])
    for first in range(1, len(frames)):
        read = [(0.0, frames), (0.005, frames[first:]), (0.02, other), (0.025, frames[2:]), (0.03, frames[:1])]
        changes = [StackChange(at, stack) for at, stack in read]
        assert [stack for _, stack in with_outer_frames(changes)] == [frames, frames, other, other, frames[:1]]
    unknown = (frame_name("greenlet", "other.py", 1), *frames[1:])
    changes = [StackChange(0.0, frames), StackChange(0.005, unknown)]
    assert with_outer_frames(changes) == changes
    assert with_outer_frames(changes, frames[0]) == [changes[0], StackChange(0.005, ())]
