"""What a request runs in a thread of a pool, and waits for, is in its flame graph: Python's time too."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio.to_thread
import pytest
from asgiref.sync import sync_to_async
from flame_graphs import busy, times_of

from placebench.profiler import SqlProfiler
from placebench.profiler.capture import flame_graph
from placebench.profiler.capture.sampling_thread import profile_function_defect

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
WAYS: dict[str, Run] = {
    "anyio": lambda call: anyio.to_thread.run_sync(call),
    "asyncio": lambda call: asyncio.to_thread(call),
    "asgiref": lambda call: sync_to_async(call, thread_sensitive=False)(),
}
PHASE_S = 0.08


class Work:
    """Python before, between and after two statements, with the seconds of each by the same clock."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self) -> None:
        connection = sqlite3.connect(":memory:")
        began = time.perf_counter()
        before()
        self.seconds["before"] = time.perf_counter() - began
        connection.execute("select 1").fetchall()
        began = time.perf_counter()
        between()
        self.seconds["between"] = time.perf_counter() - began
        connection.execute("select 1").fetchall()
        began = time.perf_counter()
        after()
        self.seconds["after"] = time.perf_counter() - began
        connection.close()


def before() -> None:
    busy(PHASE_S)


def between() -> None:
    busy(PHASE_S)


def after() -> None:
    busy(PHASE_S)


def seconds_of(times: dict[tuple[str, ...], float], name: str) -> float:
    return sum(seconds for stack, seconds in times.items() if name in stack)


@pytest.mark.skipif(profile_function_defect() is not None, reason=str(profile_function_defect()))
@pytest.mark.parametrize("mode", ["sampled", "flame"])
@pytest.mark.parametrize("way", WAYS)
def test_a_worker_is_sampled_while_it_works_for_the_request(way: str, mode: str) -> None:
    """Each phase has most of its time, also before the first statement and after the last; no time is lost.

    A thread that computes lets the sampling thread run when its turn is over, so that the end of a phase may be missed.
    """
    work = Work()
    profiler = SqlProfiler.for_drivers("sqlite3")
    try:

        async def request() -> Any:
            with profiler.record("request", mode=mode) as recording:
                await WAYS[way](work)
            return recording

        recording = asyncio.run(request())
    finally:
        profiler.remove()
    times = times_of(recording.session.frame_records)

    assert [] == [name for name, seconds in work.seconds.items() if seconds_of(times, name) < 0.5 * seconds]
    assert sum(times.values()) == pytest.approx(recording.elapsed_s)
    assert [each.sql for each in recording.statements] == ["select ?"] * 2


@pytest.mark.skipif(profile_function_defect() is not None, reason=str(profile_function_defect()))
def test_a_call_that_outlives_its_record_is_in_it_until_then() -> None:
    """As after a cancelled request: nothing of the thread is added later, and the thread ends as it would."""
    ended = threading.Event()
    release = threading.Event()

    def work() -> None:
        busy(PHASE_S)
        release.wait(60)
        ended.set()

    profiler = SqlProfiler.for_drivers("sqlite3")
    try:

        async def request() -> Any:
            with profiler.record("request", mode="sampled") as recording:
                call = asyncio.create_task(anyio.to_thread.run_sync(partial(work), abandon_on_cancel=True))
                await asyncio.sleep(2 * PHASE_S)
            release.set()
            await call
            return recording

        recording = asyncio.run(request())
    finally:
        profiler.remove()
    times = times_of(recording.session.frame_records)

    assert ended.is_set()
    assert seconds_of(times, "work") > 0
    assert sum(times.values()) == pytest.approx(recording.elapsed_s)


def test_a_sampler_that_fails_does_not_fail_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call returns what it returns, its statement is recorded, and the recording says what failed."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    profiler = SqlProfiler.for_drivers("sqlite3")
    try:

        async def request() -> Any:
            with profiler.record("request", mode="flame") as recording:
                monkeypatch.setattr(flame_graph, "ThreadSamples", fail)
                returned = await asyncio.to_thread(lambda: sqlite3.connect(":memory:").execute("select 1").fetchall())
            return returned, recording

        returned, recording = asyncio.run(request())
    finally:
        profiler.remove()

    assert returned == [(1,)]
    assert len(recording.statements) == 1
    assert recording.failed_hooks
