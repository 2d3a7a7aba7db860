"""The frames of asyncio's tasks that wait.

`frames_of_awaiting_task` finds those of the task that waits for the running one, `IdleEventLoop` those of an idle loop.
"""

import asyncio
import time
from asyncio import base_events, events
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

from placebench.profiler.capture.stack import Frames, leaf

_MAX_TASKS = 5
_MAX_STEPS = 3
"""Futures between a task and the one that waits for it: gather and wait have one of their own."""


def frames_of_awaiting_task() -> Iterator[FrameType]:
    """Yield the frames of the task that waits for the running one, the innermost first, and those of its own waiter.

    A task as in gather(pool.fetch(1), pool.fetch(2)) has no line of the application. It does not know who waits for it,
    but what it calls when it is done leads there: `await task`, gather, wait, wait_for and TaskGroup.
    """
    try:
        task: Any = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return
    for _ in range(_MAX_TASKS):
        task = None if task is None else _awaiting(task, _MAX_STEPS)
        if task is None:
            return
        yield from reversed(list(_frames_of_coroutine(task.get_coro())))


def _awaiting(future: Any, steps: int) -> Any:
    """Return the task that is woken when *future* is done; None if it cannot be known."""
    for callback, _context in getattr(future, "_callbacks", None) or ():
        cells = (each.cell_contents for each in getattr(callback, "__closure__", None) or ())
        owners = [getattr(callback, "__self__", None), *cells]
        if isinstance(callback, partial):
            owners.extend(callback.args)
        for owner in owners:
            if isinstance(owner, asyncio.Task):
                return owner
            parent = getattr(owner, "_parent_task", None)  # of a TaskGroup
            if parent is not None:
                return parent
        waiters = [each for each in owners if each is not future and hasattr(each, "_callbacks")]
        found = (_awaiting(each, steps - 1) for each in waiters if steps > 1)
        if (task := next((each for each in found if each is not None), None)) is not None:
            return task
    return None


def _frames_of_coroutine(coroutine: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of what it awaits."""
    while coroutine is not None:
        for kind, awaits in (("cr", "await"), ("gi", "yieldfrom"), ("ag", "await")):
            frame = getattr(coroutine, f"{kind}_frame", None)
            if frame is not None:
                yield frame
                coroutine = getattr(coroutine, f"{kind}_{awaits}", None)
                break
        else:
            return


_RUN_ONCE = base_events.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
_RUN_UNTIL_COMPLETE = base_events.BaseEventLoop.run_until_complete.__code__
_RUN_HANDLE = events.Handle._run.__code__
PASSING_CODES = {_RUN_HANDLE}
"""The code that asyncio's loop calls to run a callback: `Handle._run`, and what times it."""
_MAX_COST_SHARE = 0.05


class IdleEventLoop:
    """Finds the stacks of waits in the event loops of one thread: at the lines that await, not in the selector.

    A sample has an idle loop of asyncio in its selector, and no task. All tasks are suspended then, and their
    coroutines show what they wait for.
    """

    def __init__(self) -> None:
        # CPU of the last two counts of tasks. One alone may contain a garbage collection of the whole process.
        self._counts_s = 0.0, 0.0

    def stack(self, frame: FrameType, frames: Frames, wait_s: float) -> tuple[Frames, str | None] | None:
        """Return the frames of a wait that has just ended in *frame*, and a leaf below them; None if no loop was idle.

        frames: the stack of *frame*.
        The main task is the one that `asyncio.run` or `run_until_complete` was called with. Its frames are shown where
        they are while they run, below `Handle._run`. If it waits for one other task, that task's frames are below. The
        leaf has the number of all other tasks; it is left out if the last two counts both took more than 5 % of
        the wait, since a server may have ten thousand.
        """
        if len(frames) > 5 and frames[4] is _RUN_ONCE and frames[0].co_name == "_poll":  # Windows' IocpProactor.select
            frames = frames[2:]
        if len(frames) < 4 or frames[2] is not _RUN_ONCE or frames[0] in PASSING_CODES:
            return None
        running: FrameType | None = frame
        while running is not None and running.f_code is not _RUN_ONCE:
            running = running.f_back
        loop = None if running is None else running.f_locals.get("self")
        if getattr(loop, "_ready", None):  # it only polls, and goes on at once
            return None
        while running is not None and running.f_code is not _RUN_UNTIL_COMPLETE:
            running = running.f_back
        # A loop that runs until it is stopped has no main task.
        tasks = list(_awaited_tasks(None if running is None else running.f_locals.get("future")))
        count = 0
        before_s, last_s = self._counts_s
        if min(self._counts_s) <= wait_s * _MAX_COST_SHARE:
            started = time.thread_time()  # its own: another thread or program may have had the processor meanwhile
            count = len(asyncio.all_tasks(loop).difference(tasks))
            self._counts_s = last_s, time.thread_time() - started
        else:
            self._counts_s = before_s * 0.99, last_s * 0.99  # many tasks may have ended since
        if not tasks and not count:
            return None
        stack = frames[2:]
        if tasks:
            stack = [_RUN_HANDLE, 0, *stack]
        for task in tasks:
            awaited = task.get_coro()  # and the coroutines and generators that it awaits in turn
            while (suspended := getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)) is not None:
                stack = [suspended.f_code, suspended.f_lasti, *stack]
                awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        what = "other task" if tasks else "task"
        return stack, leaf(f"waiting: {count} {what}{'s' * (count != 1)}", "wait") if count else None


def _awaited_tasks(task: Any) -> Iterator[Any]:
    """Yield *task*, the only task that it awaits (directly or by `gather`), and so on along the chain."""
    known: list[Any] = []
    while isinstance(task, asyncio.Task) and task not in known and not task.done():
        known.append(task)
        yield task
        waiter = getattr(task, "_fut_waiter", None)
        unfinished = [each for each in getattr(waiter, "_children", [waiter]) if each is not None and not each.done()]
        task = unfinished[0] if len(unfinished) == 1 else None
