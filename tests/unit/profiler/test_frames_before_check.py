"""Which frames ran before the check for the GIL at which a thread was sampled."""

import sys
import types
from collections.abc import Generator, Iterator
from typing import Any

from placebench.profiler.capture.sampling_thread import frames_before_check
from placebench.profiler.capture.stack import Frames, frames_of


def called() -> Frames:
    """Return the frames of this call."""
    return frames_of(sys._getframe())


def at_resume(function: Any, number: int = 0) -> list[Any]:
    """Return the code of a function and the place of its RESUME of this number."""
    import dis

    places = [each.offset for each in dis.get_instructions(function) if each.opname == "RESUME"]
    return [function.__code__, places[number]]


def yields() -> Generator[int, None, None]:
    """A generator that goes on after its only yield."""
    yield 1


@types.coroutine
def awaited() -> Iterator[None]:
    """What a coroutine awaits."""
    yield


async def awaits() -> None:
    """A coroutine that does nothing but await."""
    await awaited()


def names(frames: Frames) -> list[str]:
    """The functions of the frames."""
    return [code.co_name for code in frames[::2]]


def test_a_function_at_its_start_has_not_run_yet() -> None:
    """Its caller has; elsewhere in the function it is the function itself."""
    here = called()

    assert here[2:] == frames_before_check([*at_resume(called), *here[2:]])
    assert here == frames_before_check(here)


def test_turns_go_to_a_generator_and_its_caller() -> None:
    """Two of three samples are the generator's, one is its caller's."""
    here = called()[2:]
    found = [names(frames_before_check([*at_resume(yields, 1), *here]))[0] for _ in range(9)]

    assert {"yields": 6, here[0].co_name: 3} == {name: found.count(name) for name in found}


def test_turns_go_to_all_coroutines_that_await_each_other() -> None:
    """A check is in the innermost only."""
    here = called()[2:]
    waits = at_resume(awaits, 1)
    found = [names(frames_before_check([*at_resume(awaited, 1), *waits, *waits, *here])) for _ in range(10)]

    depths = [len(each) - len(here) // 2 for each in found]
    assert {3: 4, 2: 2, 1: 2, 0: 2} == {depth: depths.count(depth) for depth in depths}
