"""The lines that wait for the running asyncio task: `gather(pool.fetch(1), pool.fetch(2))` has none in its own stack.

The main function is `frames_of_awaiting_task`. A task does not know who waits for it before Python 3.14; what it calls
when it is done leads there: `await task`, gather, wait, wait_for and TaskGroup.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

_MAX_TASKS = 5
_MAX_STEPS = 3
"""Futures between a task and the one that waits for it: gather and wait have one of their own."""


def frames_of_awaiting_task() -> Iterator[FrameType]:
    """Yield the frames of the task that waits for the running one, the innermost first, and those of its own waiter."""
    try:
        task: Any = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return
    for _ in range(_MAX_TASKS):
        task = None if task is None else _awaiting(task, _MAX_STEPS)
        if task is None:
            return
        yield from reversed(list(_frames(task.get_coro())))


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


def _frames(coroutine: Any) -> Iterator[FrameType]:
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
