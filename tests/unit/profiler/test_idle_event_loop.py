"""What a flame graph shows while an event loop is idle: the coroutines that wait, below the main task."""

import asyncio
import math
import selectors
import sqlite3
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from flame_graphs import busy, times_of

from placebench.profiler import SqlProfiler
from placebench.profiler.capture.sampling_thread import profile_function_defect
from placebench.profiler.capture.waiting_tasks import IdleEventLoop

pytestmark = pytest.mark.skipif(profile_function_defect() is not None, reason=str(profile_function_defect()))
WAIT_S = 0.15
TWO_SLOW_ROWS = "select slow() union all select slow()"
Times = dict[tuple[str, ...], float]


@pytest.fixture
def recorded() -> Any:
    """Calls a function in a recording, of the mode flame by default; returns it and the seconds of each stack."""
    profiler = SqlProfiler.for_drivers("sqlite3")

    def record(program: Callable[[], object], mode: str = "flame") -> tuple[Any, Times]:
        with profiler.record("script", mode=mode) as recording:
            program()
        assert recording.session is not None
        return recording, times_of(recording.session.frame_records)

    yield record
    profiler.remove()


def seconds_below(times: Times, *names: str) -> float:
    """The seconds of the stacks that have these frames, one directly below the other."""
    width = len(names)
    return sum(
        seconds
        for stack, seconds in times.items()
        if any(stack[at : at + width] == names for at in range(len(stack) - width + 1))
    )


async def wait() -> None:
    """Wait for a moment that the event loop measures."""
    await asyncio.sleep(WAIT_S)


class PatientLoop(asyncio.SelectorEventLoop):
    """Its time is that of the next timer once it has waited for it, and stands still otherwise.

    A process that another one keeps from its processor would else find that the time to wait is over, and never wait.
    """

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._now_s = 0.0
        super().__init__(selector)

    def time(self) -> float:
        return self._now_s

    def _process_events(self, events: list[Any]) -> None:
        if not events and not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now_s = self._scheduled[0].when()  # type: ignore[attr-defined]
        super()._process_events(events)  # type: ignore[misc]


def asyncio_run(main: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            runner.run(main())

    return run


class ProactorLikeSelector(selectors.SelectSelector):
    """Waits one call deeper than other selectors, as the loop of Windows does."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return self._poll(timeout)

    def _poll(self, timeout: float | None) -> list[Any]:
        time.sleep(timeout or 0.0)
        return []


@pytest.mark.parametrize("mode", ["flame", "sampled"])
def test_a_wait_in_the_loop_of_windows_stands_there_too(recorded: Any, mode: str) -> None:
    """IocpProactor waits in a method `_poll` that its `select` calls."""

    def program() -> None:
        loop = PatientLoop(ProactorLikeSelector())
        loop.run_until_complete(wait())
        loop.close()

    _, times = recorded(program, mode)

    assert seconds_below(times, "_run", "wait", "sleep") > 0.8 * WAIT_S


def test_a_wait_stands_below_the_coroutine_that_awaits_and_time_is_conserved(recorded: Any) -> None:
    """No time is left in the selector, statements keep their own, and work and wait of a coroutine lie together."""

    async def build_report() -> None:
        busy(0.01)
        await wait()

    async def main() -> None:
        connection = sqlite3.connect(":memory:")
        connection.create_function("slow", 0, lambda: time.sleep(0.01))
        connection.execute(TWO_SLOW_ROWS).fetchall()
        await build_report()
        connection.close()

    recording, times = recorded(asyncio_run(main))

    assert seconds_below(times, "_run", "main", "build_report", "wait", "sleep") > 0.8 * WAIT_S
    assert seconds_below(times, "_run", "main", "build_report", "busy") > 0.005
    assert seconds_below(times, "_run_once", "select") < 0.5 * WAIT_S
    statement = recording.statements[0]
    for leaf, expected_s in ((TWO_SLOW_ROWS, statement.execute_s), (f"fetch {TWO_SLOW_ROWS}", statement.fetch_s)):
        assert math.isclose(sum(s for stack, s in times.items() if stack[-1] == leaf), expected_s, rel_tol=1e-6)
    assert math.isclose(sum(times.values()), recording.elapsed_s, rel_tol=1e-6)


def test_the_only_task_that_the_main_task_awaits_stands_below_it(recorded: Any) -> None:
    """Awaited by itself, or as the last one of a gather."""

    async def task() -> None:
        await wait()

    async def main() -> None:
        await asyncio.create_task(task())
        await asyncio.gather(asyncio.sleep(0), task())

    _, times = recorded(asyncio_run(main))

    assert seconds_below(times, "main", "task", "wait", "sleep") > 0.8 * 2 * WAIT_S


def test_a_wait_of_several_tasks_says_how_many(recorded: Any) -> None:
    """The main task awaits two of three; a task in the background counts too, also while the main task waits alone."""

    async def main() -> None:
        background = asyncio.create_task(asyncio.Event().wait())
        await asyncio.gather(wait(), wait())
        await wait()
        background.cancel()

    _, times = recorded(asyncio_run(main))

    assert seconds_below(times, "main", "waiting: 3 other tasks") > 0.8 * WAIT_S
    assert seconds_below(times, "main", "wait", "sleep", "waiting: 1 other task") > 0.8 * WAIT_S


def test_a_loop_that_runs_until_it_is_stopped_has_no_main_task(recorded: Any) -> None:
    """Its wait stands below the loop, with the number of its tasks; without a task it is the selector's."""

    def program() -> None:
        loop = PatientLoop()
        task = loop.create_task(wait())
        task.add_done_callback(lambda _: loop.call_later(WAIT_S, loop.stop))
        loop.run_forever()
        loop.close()

    _, times = recorded(program)

    assert seconds_below(times, "run_forever", "_run_once", "waiting: 1 task") > 0.8 * WAIT_S
    assert seconds_below(times, "_run_once", "select") > 0.8 * WAIT_S


def test_a_generator_based_coroutine_is_in_the_chain(recorded: Any) -> None:
    """An `__await__` that delegates."""

    class Delegating:
        def __await__(self) -> Any:
            return (yield from asyncio.sleep(WAIT_S).__await__())

    async def main() -> None:
        await Delegating()

    _, times = recorded(asyncio_run(main))

    assert seconds_below(times, "main", "__await__") > 0.8 * WAIT_S


def test_tasks_that_await_each_other_end_the_chain(recorded: Any) -> None:
    """Each stands in it once, although neither ever ends."""
    loop = PatientLoop()
    tasks: list[asyncio.Task[Any]] = []

    async def await_task(number: int) -> None:
        await tasks[number]

    def program() -> None:
        for number in (1, 0):
            tasks.append(loop.create_task(await_task(number)))
            tasks[-1]._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.call_later(WAIT_S, loop.stop)
        with pytest.raises(RuntimeError, match="before Future completed"):
            loop.run_until_complete(tasks[0])
        loop.close()

    _, times = recorded(program)

    assert seconds_below(times, "_run", "await_task", "await_task") > 0.8 * WAIT_S


@pytest.mark.parametrize(
    ("counting_s", "waits_s", "expected"), [(1.0, (0.001, 0.001, 60.0), [1]), (0.0, (0.1, 0.1), [1, 1])]
)
def test_tasks_are_not_counted_where_that_takes_long(
    monkeypatch: pytest.MonkeyPatch, counting_s: float, waits_s: tuple[float, ...], expected: list[int]
) -> None:
    """After a count of a second, none in waits of a millisecond, and again in one of a minute.

    A count during which another thread had the processor took no longer for that.
    """
    counts = []

    def count(_loop: object) -> set[object]:
        counts.append(1)
        time.sleep(0.01)
        return set()

    monkeypatch.setattr(asyncio, "all_tasks", count)
    idle_loop = IdleEventLoop()
    idle_loop._counts_s = counting_s, counting_s

    async def main() -> None:
        run_once = type(asyncio.get_running_loop())._run_once.__code__  # type: ignore[attr-defined]
        for wait_s in waits_s:
            idle_loop.stack(sys._getframe(), [main.__code__, 0, run_once, 0], wait_s)

    asyncio.run(main())

    assert expected == counts


def test_a_garbage_collection_during_a_count_does_not_stop_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that took as long as half of a wait, after one that took nothing, is followed by another one."""
    counts = []

    def count(_loop: object) -> set[object]:
        counts.append(1)
        if len(counts) == 2:
            busy(0.05)
        return set()

    monkeypatch.setattr(asyncio, "all_tasks", count)
    idle_loop = IdleEventLoop()

    async def main() -> None:
        run_once = type(asyncio.get_running_loop())._run_once.__code__  # type: ignore[attr-defined]
        for _ in range(4):
            idle_loop.stack(sys._getframe(), [main.__code__, 0, run_once, 0], 0.1)

    asyncio.run(main())

    assert 4 == len(counts)


def test_a_loop_that_only_polls_does_not_wait() -> None:
    """A callback is ready: the selector returns at once, and its time is the loop's."""
    found = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stack = [main.__code__, 0, type(loop)._run_once.__code__, 0]  # type: ignore[attr-defined]
        for _ in range(2):
            found.append(IdleEventLoop().stack(sys._getframe(), stack, 60.0))
            loop.call_soon(int)

    asyncio.run(main())

    assert [False, True] == [stack is None for stack in found]


def test_the_sampling_thread_sees_waits_at_the_lines_that_await(recorded: Any) -> None:
    """As the profile function does, and the other tasks in a leaf; no time is left in the selector."""

    async def main() -> None:
        others = [asyncio.create_task(asyncio.sleep(60)) for _ in range(3)]
        await wait()
        for each in others:
            each.cancel()

    _, by_function = recorded(asyncio_run(main))
    for _ in range(10):  # a busy machine may let the sampling thread run once only
        recording, by_thread = recorded(asyncio_run(main), "sampled")
        if recording.session.sample_count > 2:
            break

    waits = [seconds_below(times, "main", "wait", "sleep") for times in (by_function, by_thread)]
    assert min(waits) > 0.5 * WAIT_S
    assert seconds_below(by_thread, "wait", "sleep", "waiting: 3 other tasks") > 0.5 * WAIT_S
    assert seconds_below(by_thread, "select") < 0.5 * WAIT_S
    assert sum(by_thread.values()) == pytest.approx(recording.elapsed_s)


def note_on(loop: str) -> str:
    return f"waits of {loop}'s event loop are below the loop in the flame graph, not at the lines that await"


@pytest.mark.processes
@pytest.mark.parametrize("mode", ["flame", "sampled", "external"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_a_recording_says_where_the_waits_of_its_loop_are(mode: str, loop: str) -> None:
    """Below the loop, and a note says so, except for asyncio's own in this process, whose waits are at their lines."""
    run = pytest.importorskip(loop).run

    async def main() -> None:
        await pytest.importorskip(loop if loop == "trio" else "asyncio").sleep(10 * WAIT_S)

    profiler = SqlProfiler.for_drivers("sqlite3")
    for _ in range(10):  # as many as it takes until py-spy has seen the wait, on a busy machine
        with profiler.record("script", mode=mode) as recording:
            run(main if loop == "trio" else main())
        noted = [note for note in recording.notes if note.startswith("waits of")]
        if mode != "external" or noted:
            break
    profiler.remove()

    assert noted == ([] if mode != "external" and loop == "asyncio" else [note_on(loop)])


@pytest.mark.parametrize("mode", ["flame", "sampled"])
def test_a_recording_that_does_not_wait_says_nothing_of_its_loop(mode: str) -> None:
    """Nor does one without an event loop that waits in a selector of its own."""

    async def main() -> None:
        busy(10 * WAIT_S)  # so long that one sample of the loop's own end is not worth a note

    profiler = SqlProfiler.for_drivers("sqlite3")
    with profiler.record("script", mode=mode) as recording:
        asyncio.run(main())
        with selectors.DefaultSelector() as selector:
            selector.select(3 * WAIT_S)
    profiler.remove()

    assert [note for note in recording.notes if note.startswith("waits of")] == []
