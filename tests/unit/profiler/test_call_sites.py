"""The lines that ran a statement, on stacks of functions whose files are where the test says."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.util import greenlet_spawn

from placebench.profiler.capture.call_sites import Callers, CallSites, find_callers
from placebench.profiler.capture.stack import frames_of

LIBRARY = "/venv/lib/site-packages/library.py"


def function_in(file: str) -> Callable[..., Any]:
    """A function of *file* that calls its first argument with the others, through itself *depth* times."""
    names: dict[str, Any] = {}
    code = (
        "def call(function, *args, depth=1):\n"
        "    return call(function, *args, depth=depth - 1) if depth > 1 else function(*args)\n"
    )
    exec(compile(code, file, "exec"), names)
    return names["call"]  # type: ignore[no-any-return]


SITES = CallSites()


def look() -> Callers:
    """What is found above; call sites that are kept are the same, when they are new and when they are known."""
    frame = sys._getframe(1)
    found = find_callers(frame)
    (new, first), (known, second) = (SITES.find(frame, ()) for _ in range(2))
    assert first == second == found
    assert new is known
    assert known in (None, frames_of(frame))
    return found


@pytest.mark.parametrize(("between", "is_found"), [(10, True), (11, True), (12, False)])
def test_the_next_line_is_at_most_twelve_frames_above(*, between: int, is_found: bool) -> None:
    """With eleven frames of a library between."""
    library = partial(function_in(LIBRARY), depth=between)

    inner, outer = function_in("/app/outer.py")(library, function_in("/app/inner.py"), look)

    assert inner is not None
    assert inner.file == "/app/inner.py"
    assert (outer is not None and outer.file == "/app/outer.py") == is_found


def test_the_line_that_awaits_a_deep_greenlet_is_the_next_one() -> None:
    """However many frames of libraries are between: those of the greenlet do not count where it was entered."""

    def view() -> Callers:
        return look()

    async def application() -> Callers:
        return await greenlet_spawn(partial(function_in(LIBRARY), depth=20), view)

    caller, outer = asyncio.run(application())

    assert caller is not None
    assert caller.function.endswith("<locals>.view")
    assert outer is not None
    assert outer.function.endswith("<locals>.application")


def test_without_lines_of_the_application_two_libraries_are_named() -> None:
    """The nearest frames of two files; in a thread of Python's own, where no line of this file waits."""
    other, server = (f"/venv/lib/site-packages/{name}.py" for name in ("other", "server"))
    call = partial(function_in(server), function_in(other), partial(function_in(LIBRARY), depth=3), look)

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(call).result()

    assert [str(each) for each in found] == ["library.py:2 call", "other.py:2 call"]


def test_a_renderer_of_the_application_has_the_line_of_its_template() -> None:
    """Each time anew, since all templates are rendered by one line of code; without a template its own line."""
    names: dict[str, Any] = {}
    exec(compile("def render_annotated(self, look):\n    return look()\n", "/app/nodes.py", "exec"), names)
    page = SimpleNamespace(token=SimpleNamespace(lineno=7), origin=SimpleNamespace(name="/app/page.html"))

    callers = [names["render_annotated"](node, look)[0] for node in (SimpleNamespace(token=None), page)]

    assert [str(each) for each in callers] == ["/app/nodes.py:2 render_annotated", "/app/page.html:7 template"]
