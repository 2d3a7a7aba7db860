"""Samples by another thread: when it stands in for the profile function, what it sees, and that nothing dies of it."""

import asyncio
import gc
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from flame_graphs import busy, times_of
from sqlalchemy import text
from sqlalchemy.engine import Engine

import placebench
from placebench.profiler import Recording, SqlProfiler
from placebench.profiler.analysis.merging import mean_session
from placebench.profiler.capture import flame_graph, sampling_thread
from placebench.profiler.capture.sampling_thread import profile_function_defect, thread_interval_s
from placebench.profiler.capture.stack import Frames, frames_of, name_frame
from placebench.profiler.capture.waiting_tasks import IdleEventLoop

STRESS = Path(__file__).with_name("sampled_under_stress.py")
STRESS_S = 3.0
FREED_MEMORY_LEAVES = {"MALLOC_MMAP_THRESHOLD_": "65536"}


@pytest.mark.parametrize(
    ("mode", "version", "interval_s"),
    [
        ("flame", (3, 11, 0), 0.005),
        ("plans", (3, 11, 2), 0.005),
        ("flame", (3, 11, 3), None),
        ("plans", (3, 12, 0), None),
        ("flame", (3, 14, 1), None),
        ("sampled", (3, 11, 2), 0.010),
        ("sampled", (3, 13, 0), 0.010),
    ],
)
def test_below_3_11_3_a_thread_stands_in_for_the_profile_function(
    mode: str, version: tuple[int, ...], interval_s: float | None
) -> None:
    """gh-101975: one thread or many, a profile function can kill those Pythons."""
    assert thread_interval_s(mode, version) == interval_s


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python as one that dies of a profile function."""
    monkeypatch.setattr(flame_graph, "thread_interval_s", lambda mode: thread_interval_s(mode, (3, 11, 2)))
    monkeypatch.setattr(flame_graph, "profile_function_defect", lambda: profile_function_defect((3, 11, 2)))


@contextmanager
def recorded(engine: Engine, mode: str) -> Iterator[Recording]:
    """A record by a profiler of its own."""
    profiler = SqlProfiler(engine)
    try:
        with profiler.record("request", mode=mode) as recording:
            yield recording
    finally:
        profiler.remove()


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("mode", ["light", "full", "sampled", "flame", "plans"])
def test_no_profile_function_is_installed(engine: Engine, mode: str) -> None:
    """Neither one of Python's own nor pyinstrument's, which `sys.getprofile` tells of too."""
    with recorded(engine, mode), engine.connect() as connection:
        connection.execute(text("select 1")).all()
        installed = (sys.getprofile(), threading.getprofile())

    assert installed == (None, None)


@pytest.mark.usefixtures("stand_in")
def test_each_recording_says_it(engine: Engine) -> None:
    """Which Python, and why."""
    with recorded(engine, "flame") as recording:
        pass

    defect = "Python 3.11.2 can crash under a profile function (gh-101975, repaired in 3.11.3)"
    assert [note.partition(":")[0] for note in recording.notes] == [defect]


@pytest.mark.parametrize("mode", ["sampled", "flame"])
@pytest.mark.usefixtures("stand_in")
def test_statements_are_exact_and_pythons_time_is_estimated(engine: Engine, mode: str) -> None:
    """Half of the time is in a statement and half of it in Python, by a clock that runs."""

    def sleep(seconds: float) -> int:
        time.sleep(seconds)
        return 1

    with engine.connect() as connection:
        connection.connection.create_function("slowly", 1, sleep)
        with recorded(engine, mode) as recording:
            connection.exec_driver_sql("select slowly(0.06)").all()
            busy(0.1)

    times = times_of((stack[-1:], seconds) for stack, seconds in recording.session.frame_records)
    assert sum(times.values()) == pytest.approx(recording.elapsed_s)
    assert times[("select slowly(?)",)] == pytest.approx(recording.statements[0].execute_s)
    assert times[("busy",)] > 0.05
    noted = [mode for note in recording.notes if "Python's time is estimated by a sampling thread" in note]
    assert noted == ([] if mode == "sampled" else [mode])  # of "sampled" nothing else is expected


def until(true: Callable[[], object]) -> None:
    """Wait for the sampling thread."""
    give_up_at = time.monotonic() + 30.0
    while not true():
        assert time.monotonic() < give_up_at


@pytest.fixture
def switch_interval() -> Iterator[float]:
    """The switch interval that the application has set."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    yield sys.getswitchinterval()
    sys.setswitchinterval(before)


def test_python_computing_before_calls_that_release_the_lock_is_sampled(engine: Engine) -> None:
    """With the usual switch interval of 5 ms all samples would be those of the call, in every recording.

    If both threads have to share a processor with others, the sampling thread comes late to the lock: one of ten
    recordings is enough.
    """
    data = bytes(range(256)) * 100
    taken = {"compute": 0.0, "compress": 0.0}

    def compute() -> None:
        began = time.perf_counter()
        sum(number * number for number in range(15_000))
        taken["compute"] += time.perf_counter() - began

    def compress() -> None:
        began = time.perf_counter()
        zlib.compress(data, 9)
        taken["compress"] += time.perf_counter() - began

    shares = []
    while len(shares) < 10 and (not shares or shares[-1] < 1 / 3):
        taken.update(compute=0.0, compress=0.0)
        with recorded(engine, "sampled") as recording:
            until(lambda: [compute(), compress()] and min(taken.values()) > 0.05)
        seconds = dict.fromkeys(taken, 0.0)
        for stack, part_s in recording.session.frame_records:
            for name in seconds.keys() & {frame.partition("\x00")[0] for frame in stack}:
                seconds[name] += part_s
        share, true_share = (each["compute"] / sum(each.values()) for each in (seconds, taken))
        shares.append(share / true_share)
    assert shares[-1] > 1 / 3, shares


class Timed(dict[str, float]):
    """The true seconds of functions, by name, and those that a recording has of them."""

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function and note its time."""
        began = time.perf_counter()
        function(*arguments)
        name = function.__name__
        self[name] = self.get(name, 0.0) + time.perf_counter() - began

    def difference(self, recording: Recording) -> float:
        """Return the largest difference between true and sampled shares of the recording."""
        sampled = dict.fromkeys(self, 0.0)
        for stack, seconds in recording.session.frame_records:
            for name in self.keys() & {frame.partition("\x00")[0] for frame in stack}:
                sampled[name] += seconds
        return max(abs(sampled[name] - self[name]) for name in self) / recording.elapsed_s


def smallest_difference(engine: Engine, run: Callable[[Timed], object]) -> float:
    """Record *run* until shares differ from the true ones by at most 0.2, up to ten times.

    If both threads have to share a processor with others, the sampling thread comes late to the lock: one of ten
    recordings is enough.
    """
    differences = [1.0]
    while differences[-1] > 0.2 and len(differences) <= 10:
        timed = Timed()
        with recorded(engine, "sampled") as recording:
            run(timed)
        differences.append(timed.difference(recording))
    return differences[-1]


def spin(count: int) -> None:
    """Compute without a call."""
    total = 0
    for number in range(count):
        total += number


def test_a_program_with_the_period_of_the_samples_is_sampled_at_all_its_places(engine: Engine) -> None:
    """Samples at even times would all be in one half of each 10 ms."""

    def first(ends: float) -> None:
        while time.perf_counter() < ends:
            pass

    def second(ends: float) -> None:
        while time.perf_counter() < ends:
            pass

    def run(timed: Timed) -> None:
        began = time.perf_counter()
        for number in range(60):
            timed.call(first, began + number * 0.010 + 0.005)
            timed.call(second, began + number * 0.010 + 0.010)

    assert smallest_difference(engine, run) <= 0.2


def test_what_computes_beside_awaits_has_its_share(engine: Engine) -> None:
    """An event loop calls its selector every 0.3 ms: with a switch interval of 5 ms most samples are the selector's."""

    async def main(timed: Timed) -> None:
        while timed.get("spin", 0.0) < 0.4:
            timed.call(spin, 10_000)
            await asyncio.sleep(0)

    assert smallest_difference(engine, lambda timed: asyncio.run(main(timed))) <= 0.2


def test_what_computes_beside_another_thread_has_its_share(engine: Engine) -> None:
    """Two functions that take 80 and 20 % of a thread, while another thread computes."""
    done = threading.Event()

    def run(timed: Timed) -> None:
        def long() -> None:
            spin(40_000)

        def short() -> None:
            spin(10_000)

        while sum(timed.values()) < 0.6:
            timed.call(long)
            timed.call(short)

    def beside() -> None:
        while not done.is_set():
            spin(1_000)

    other = threading.Thread(target=beside)
    other.start()
    try:
        assert smallest_difference(engine, run) <= 0.2
    finally:
        done.set()
        other.join()


def test_a_collection_whose_end_nobody_was_told_of_is_over(
    engine: Engine, switch_interval: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampling thread may end while a collection runs: later recordings have a short switch interval again."""
    thread = sampling_thread._SamplingThread()
    monkeypatch.setitem(sampling_thread._THREADS, os.getpid(), thread)
    thread._switch_interval.collected("start", {"generation": 2})

    seen: list[float] = []
    with recorded(engine, "sampled"):
        until(lambda: seen.append(sys.getswitchinterval()) or seen[-1] < switch_interval)

    assert (seen[-1] <= 0.001, sys.getswitchinterval()) == (True, switch_interval)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_switch_interval_is_the_applications_again(engine: Engine, switch_interval: float) -> None:
    """It is short while something is sampled, by one recording or by two, and in no forked process."""
    seen = []
    with recorded(engine, "sampled"):
        seen.append(sys.getswitchinterval())
        with recorded(engine, "sampled"):
            pass
        seen.append(sys.getswitchinterval())
        reader, writer = os.pipe()
        if not (child := os.fork()):
            is_left = sampling_thread._THREADS[os.getppid()]._switch_interval.collected in gc.callbacks
            os.write(writer, repr(9.9 if is_left else sys.getswitchinterval()).encode())
            os._exit(0)
        os.waitpid(child, 0)
        of_child = float(os.read(reader, 100))

    assert [max(seen) <= 0.001, of_child, sys.getswitchinterval()] == [True, switch_interval, switch_interval]


class Interrupted:
    """The module `sys`, whose `setswitchinterval` ends a recording in another thread as soon as it has set one."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = threading.Thread(target=end)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def setswitchinterval(self, interval_s: float) -> None:
        """Set it, and let the other thread run until it has ended or waits for this one."""
        sys.setswitchinterval(interval_s)
        if self._end.ident is None:
            self._end.start()
            self._end.join(0.05)


@pytest.mark.parametrize("change", ["update", "lengthen"])
def test_a_recording_that_ends_while_the_switch_interval_is_set_restores_it(
    monkeypatch: pytest.MonkeyPatch, switch_interval: float, change: str
) -> None:
    """A sampling thread that loses the GIL then does not put its own interval back."""
    sampled = [1]
    interval = sampling_thread._SwitchInterval(sampled)
    if change == "lengthen":
        interval.update()

    def end() -> None:
        sampled.clear()
        interval.update()

    interrupted = Interrupted(end)
    monkeypatch.setattr(sampling_thread, "sys", interrupted)
    getattr(interval, change)()
    interrupted._end.join()

    assert (sys.getswitchinterval(), interval._own_s) == (switch_interval, None)


def test_a_recording_that_ends_after_its_last_sample_restores_the_switch_interval(
    monkeypatch: pytest.MonkeyPatch, switch_interval: float
) -> None:
    """The sampling thread, which has just sampled it, does not shorten the interval once more."""
    monkeypatch.setattr(sampling_thread, "_IDLE_S", 0.02)
    thread = sampling_thread._SamplingThread()
    seen: list[float] = []

    def sample() -> float | None:
        for each in list(thread._sampled.values()):  # there may be no name for it yet
            thread.remove(each)
            return each.interval_s
        seen.append(sys.getswitchinterval())
        return None

    monkeypatch.setattr(sampling_thread, "_thread", lambda: thread)
    monkeypatch.setattr(thread, "_sample", sample)
    monkeypatch.setattr(thread._switch_interval, "lengthen", lambda: None)
    _made = sampling_thread.ThreadSamples(time.perf_counter, 0.001, pytest.fail)
    until(lambda: seen)

    assert seen[0] == switch_interval
    until(lambda: not thread._running.locked())


def test_a_switch_interval_that_the_application_sets_meanwhile_stays(engine: Engine, switch_interval: float) -> None:
    """Nor is one replaced that is shorter already."""
    with recorded(engine, "sampled"):
        sys.setswitchinterval(0.003)
    assert sys.getswitchinterval() == pytest.approx(0.003) != switch_interval

    sys.setswitchinterval(0.000002)
    with recorded(engine, "sampled"):
        assert sys.getswitchinterval() == pytest.approx(0.000002)


@pytest.mark.usefixtures("garbage_collector")
def test_the_switch_interval_is_the_applications_during_a_garbage_collection(
    engine: Engine, switch_interval: float
) -> None:
    """With a short one the sampling thread would use as much CPU as the collection, which keeps the GIL."""
    seen = []

    def note(phase: str, _details: dict[str, int]) -> None:
        until(lambda: time.monotonic() > began + 0.03)  # long enough for a sample
        seen.append((phase, sys.getswitchinterval()))

    with recorded(engine, "sampled"):
        until(lambda: sampling_thread._thread()._switch_interval.collected in gc.callbacks)
        gc.callbacks.append(note)
        began = time.monotonic()
        gc.collect()
        gc.callbacks.remove(note)
        until(lambda: sys.getswitchinterval() <= 0.001)

    assert seen[0] == ("start", switch_interval)


def test_the_sampling_thread_ends_if_the_application_has_emptied_the_callbacks(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception would end it without a word: no recording of the process would have samples any more."""
    monkeypatch.setattr(sampling_thread, "_IDLE_S", 0.02)
    thread = sampling_thread._thread()
    with recorded(engine, "sampled"):
        until(lambda: thread._switch_interval.collected in gc.callbacks)
        gc.callbacks.remove(thread._switch_interval.collected)

    until(lambda: not thread._running.locked())

    assert not thread._running.locked()


@pytest.mark.usefixtures("stand_in")
def test_fast_requests_are_sampled_too(engine: Engine) -> None:
    """The thread does not begin anew with each request, of which none is as long as the time between two samples."""
    profiler, samples = SqlProfiler(engine), []

    def request() -> bool:
        with profiler.record("request", mode="flame") as recording:
            sum(range(20_000))
        samples.append(recording.session.sample_count)
        return sum(map(bool, samples)) > 1

    until(request)
    profiler.remove()

    assert sum(map(bool, samples)) == 2


@pytest.mark.usefixtures("stand_in")
def test_time_of_a_request_without_a_sample_is_its_own(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the profiler's, whose middleware called the application."""
    monkeypatch.setattr(flame_graph.ThreadSamples, "samples", lambda _self: [])
    profiler = SqlProfiler(engine)
    application = profiler.wsgi(lambda *_: [b""], mode="flame")

    application({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda *_: None)
    profiler.remove()

    (recording,) = profiler.recordings
    names = [stack[-1].partition("\x00")[0] for stack, _ in recording.session.frame_records]
    assert names == ["test_time_of_a_request_without_a_sample_is_its_own"]


@pytest.mark.usefixtures("stand_in")
def test_many_records_at_once_have_one_sampling_thread(engine: Engine) -> None:
    """And each has the samples of its own thread."""
    profiler, together = SqlProfiler(engine), threading.Barrier(5)
    stacks: list[set[str]] = []

    def use(name: str) -> None:
        def wait_for_the_others() -> None:
            together.wait()
            until(lambda: profiler._hooks.current.get().flame_graph._source._samples)
            together.wait()

        wait_for_the_others.__code__ = wait_for_the_others.__code__.replace(co_name=name)
        with profiler.record(name, mode="flame") as recording:
            wait_for_the_others()
        stacks.append({frame.partition("\x00")[0] for stack, _ in recording.session.frame_records for frame in stack})

    names = ["one", "two", "three", "four"]
    threads = [threading.Thread(target=use, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    together.wait()
    sampling = [thread.name for thread in threading.enumerate() if thread.name == "placebench-sampler"]
    together.wait()
    for thread in threads:
        thread.join()
    profiler.remove()

    assert sampling == ["placebench-sampler"]
    assert sorted(name for seen in stacks for name in seen & set(names)) == sorted(names)


def test_merged_estimates_begin_with_the_request(engine: Engine, make_profiler: Any) -> None:
    """What stands above the record, server and thread, is cut off of each sample."""
    profiler = make_profiler(engine)

    def compute() -> None:
        samples = profiler._hooks.current.get().flame_graph._source._samples
        before = len(samples)  # a busy machine may have taken one before this function began
        until(lambda: len(samples) > before + 1)

    with profiler.record("estimate", mode="sampled") as recording:
        compute()

    roots = {stack[1].partition("\x00")[0] for stack, _ in mean_session([recording.session]).frame_records if stack[1:]}
    assert roots - {"the profiler's own work"} == {"compute"}


def test_a_long_record_keeps_so_many_samples(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older ones are thinned out."""
    monkeypatch.setattr("placebench.profiler.capture.sampling_thread._MAX_SAMPLES", 4)
    ticks = iter(range(7))
    made = sampling_thread.ThreadSamples(lambda: float(next(ticks)), 0.020, pytest.fail)
    made._thread.remove(made)
    for _ in range(7):
        made.add(frames_of(sys._getframe()))

    assert [taken for taken, _ in made.samples()] == [3.0, 5.0, 6.0]


class Shop:
    """Somebody's class."""

    def view(self) -> Frames:
        """The frames from here on."""
        return frames_of(sys._getframe())


def test_a_frame_is_named_as_pyinstrument_names_it() -> None:
    """Function, file, first line, class and line."""
    code, instruction = Shop().view()[:2]
    first = code.co_firstlineno

    assert f"view\x00{__file__}\x00{first}\x01cShop\x01l{first + 2}" == name_frame(code, instruction)


@pytest.fixture
def garbage_collector() -> Iterator[None]:
    """As it was before."""
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.usefixtures("garbage_collector")
@pytest.mark.parametrize("switch", [gc.enable, gc.disable])
@pytest.mark.parametrize("fails", [False, True])
def test_the_collector_is_off_while_stacks_are_read_and_as_before_then(
    monkeypatch: pytest.MonkeyPatch, switch: Callable[[], None], fails: bool
) -> None:
    """gh-106883: a collection in the middle can deadlock. One that the application switched off stays off."""
    switch()
    before, meanwhile = gc.isenabled(), []

    def read() -> dict[int, Any]:
        meanwhile.append(gc.isenabled())
        return {} if not fails else {}[0]

    monkeypatch.setattr(sys, "_current_frames", read)
    with pytest.raises(KeyError) if fails else nullcontext():
        sampling_thread.read_stacks([1], IdleEventLoop())

    assert (meanwhile, gc.isenabled()) == ([False], before)


def test_a_stack_is_read_in_one_call_into_c() -> None:
    """It has the same frames as the walk by `f_back`, and that of a thread that has ended is empty."""
    me = threading.get_ident()

    stacks = sampling_thread.read_stacks([me, 1], IdleEventLoop())

    here = frames_of(sys._getframe())[::2]
    assert (here, []) == (stacks[me][0][-2 * len(here) :: 2], stacks[1][0])


@pytest.mark.parametrize(
    ("short_cpu_s", "long_cpu_s", "chosen_us"),
    [
        (0.0001, 0.0, (20, 20)),  # it costs little
        (0.005, 0.0002, (100, 100)),  # a long call into C keeps the GIL
        (0.003, 0.005, (100, 20)),  # an event loop releases the GIL more often than once per long interval
    ],
)
def test_the_switch_interval_is_short_unless_a_long_one_costs_less(
    short_cpu_s: float, long_cpu_s: float, chosen_us: tuple[int, int]
) -> None:
    """It is 20 µs unless waits for the GIL then take 2 % of the time, and less at 100 µs: after one wait and six."""
    interval = sampling_thread._SwitchInterval([1])
    interval._own_s = 0.0001
    chosen = []
    for _ in range(6):
        interval.adapt(short_cpu_s if interval._alone_s < 0.0001 else long_cpu_s, 0.010)
        chosen.append(round(interval._alone_s * 1e6))

    assert (chosen[0], chosen[-1]) == chosen_us


def test_waits_while_nothing_is_sampled_do_not_choose_the_switch_interval() -> None:
    """The application's own interval is in force then."""
    interval = sampling_thread._SwitchInterval([])
    interval.adapt(0.009, 0.010)

    assert round(interval._alone_s * 1e6) == 20


class SampledTime:
    """The module `time` for a thread that takes a sample of known CPU time after each pause, until none is left."""

    def __init__(self, samples_cpu_s: Iterable[float]) -> None:
        self._samples_cpu_s = iter(samples_cpu_s)
        self.pauses_s: list[float] = []
        self._elapsed_s = self._cpu_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self._elapsed_s += seconds

    def sample(self) -> float | None:
        """Use the CPU of a sample; return the requested interval of 10 ms, or None to end."""
        cpu_s = next(self._samples_cpu_s, None)
        self._cpu_s += cpu_s or 0.0
        return None if cpu_s is None else 0.010

    def thread_time(self) -> float:
        return self._cpu_s

    def perf_counter(self) -> float:
        return self._elapsed_s


@pytest.mark.parametrize(
    ("samples_cpu_ms", "mean_pause_ms"),
    [
        ([0.2], 10.0),  # 2 % of the interval: as requested
        ([0.9], 30.0),
        ([6.0], 200.0),
        ([0.1] * 9 + [8.1], 30.0),  # one in ten reads many stacks: 0.9 ms on average
    ],
)
def test_reading_stacks_takes_at_most_3_percent_of_a_processor(
    monkeypatch: pytest.MonkeyPatch, samples_cpu_ms: list[float], mean_pause_ms: float
) -> None:
    """It pauses for longer than requested if samples take more."""
    until(lambda: "placebench-sampler" not in {thread.name for thread in threading.enumerate()})  # it reads `time` too
    thread = sampling_thread._SamplingThread()
    fake = SampledTime(cpu_ms / 1000 for _ in range(2000) for cpu_ms in samples_cpu_ms)
    monkeypatch.setattr(sampling_thread, "time", fake)
    monkeypatch.setattr(thread, "_sample", fake.sample)
    thread._start(0.010)
    until(lambda: not thread._running.locked())

    sampled_s = fake.pauses_s[: 2000 * len(samples_cpu_ms)]
    assert sum(sampled_s) / len(sampled_s) * 1000 == pytest.approx(mean_pause_ms, rel=0.02)


@pytest.mark.usefixtures("garbage_collector")
def test_two_readers_at_once_leave_the_collector_on() -> None:
    """Neither takes the other's switching for the application's."""
    gc.enable()
    ends = time.monotonic() + 0.3
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def read() -> None:
        while time.monotonic() < ends:
            sampling_thread.read_stacks([threading.get_ident()], IdleEventLoop())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)

    assert gc.isenabled()


FORKED = """
import os, sys, time
from sqlalchemy import create_engine
from placebench import SqlProfiler
profiler = SqlProfiler(create_engine("sqlite://"))
def samples():
    until = time.monotonic() + 10
    with profiler.record("request", mode="sampled") as recording:
        while not profiler._hooks.current.get().flame_graph._source._samples and time.monotonic() < until:
            pass
    return recording.session.sample_count
before = samples()
child = os.fork()
if not child:
    os._exit(0 if samples() else 1)
print(before > 0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.processes
def test_a_forked_process_samples_too() -> None:
    """The thread of its parent is not there, and is not waited for."""
    ended = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True)

    assert ended.stdout.split() == ["True", "0"]


def with_the_defect() -> list[str]:
    """The Pythons of this machine that a profile function can kill."""
    if profile_function_defect():
        return [sys.executable]
    folders = dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), *os.defpath.split(os.pathsep)])
    programs = {shutil.which(name, path=folder) for folder in folders for name in ("python3", "python3.11")} - {None}
    asked = "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 11, 3))"
    return sorted(each for each in programs if subprocess.run([each, "-c", asked], check=False).returncode == 0)


@pytest.mark.processes
@pytest.mark.parametrize("mode", ["flame", "plans"])
def test_a_python_with_the_defect_survives(mode: str) -> None:
    """gh-101975: generators, garbage and threads under a flame, which is not empty and says that it is estimated."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the packages of this environment are not compiled for Python 3.11")
    if not (pythons := with_the_defect()):
        pytest.skip("no Python 3.11.0 to 3.11.2 is installed here")
    packages = dict.fromkeys(str(Path(each.__file__).parents[1]) for each in (placebench, sqlalchemy))

    told = json.loads(stressed(pythons[0], mode, PYTHONPATH=os.pathsep.join(packages)))

    assert told["requests"] > 0
    assert told["samples"] > 0
    assert [note for note in told["notes"] if note.startswith("Python 3.11.") and "estimated" in note]


@pytest.mark.processes
def test_sampling_under_stress_does_not_hang() -> None:
    """gh-106883: nor die, of collections while stacks are read, on this Python."""
    assert json.loads(stressed(sys.executable, "sampled"))["samples"] > 0


def stressed(python: str, mode: str, **variables: str) -> str:
    """What the program of the stress prints; it fails if the program dies or hangs."""
    command = [python, "-P", str(STRESS), mode, str(STRESS_S)]
    environment = {**os.environ, **FREED_MEMORY_LEAVES, **variables}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=STRESS_S + 60, check=False)
    assert (ended.returncode, ended.stderr[-2000:].count("Traceback")) == (0, 0), ended.stderr[-2000:]
    return ended.stdout
