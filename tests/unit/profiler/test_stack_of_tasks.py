"""The line of a statement that runs in a task of its own: that of the task that waits for it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from placebench.profiler.capture.call_sites import find_callers
from placebench.profiler.model.statement import Caller

LIBRARY: dict[str, Any] = {"sleep": asyncio.sleep, "find_callers": find_callers, "sys": sys}
# It lies in no folder of the application, so its own lines are not call sites.
exec(
    compile(
        "async def fetch(found):\n await sleep(0)\n found.append(find_callers(sys._getframe())[0])",
        "/site-packages/library.py",
        "exec",
    ),
    LIBRARY,
)
Found = list[Caller | None]


def fetch(found: Found) -> Any:
    """A coroutine of a library."""
    return LIBRARY["fetch"](found)


async def gathered(found: Found) -> None:
    await asyncio.gather(fetch(found), fetch(found))


async def awaited(found: Found) -> None:
    await asyncio.create_task(fetch(found))


async def grouped(found: Found) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fetch(found))


async def limited(found: Found) -> None:
    await asyncio.wait_for(fetch(found), 60)


async def waited(found: Found) -> None:
    await asyncio.wait([asyncio.create_task(fetch(found))])


async def nested(found: Found) -> None:
    await asyncio.gather(asyncio.gather(fetch(found)))


@pytest.mark.parametrize("program", [gathered, awaited, grouped, limited, waited, nested])
def test_the_line_is_that_of_the_task_that_waits(program: Callable[[Found], Awaitable[None]]) -> None:
    """And not that of asyncio.run, below which the event loop runs the task."""
    found: Found = []

    asyncio.run(program(found))

    assert {each and (each.file, each.function) for each in found} == {(__file__, program.__name__)}


def test_a_task_for_which_nobody_waits_has_no_line() -> None:
    """What started the loop did not send the statement."""
    found: Found = []

    async def program() -> None:
        task = asyncio.create_task(fetch(found))
        while not task.done():
            await asyncio.sleep(0)

    asyncio.run(program())

    assert [each is not None and each.file == __file__ for each in found] == [False]
