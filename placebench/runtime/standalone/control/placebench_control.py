"""A WSGI or ASGI application with a known slow-down: `application`, made from the environment on import.

PLACEBENCH_CONTROL_APP     module:callable or module:factory(); required on import by a server
PLACEBENCH_CONTROL_KIND    "wsgi" (the default) or "asgi"
PLACEBENCH_CONTROL_CPU_S   CPU seconds that each request takes in addition; default 0
PLACEBENCH_CONTROL_WAIT_S  seconds that each request waits in addition; default 0

The CPU is burnt in three parts: before the application, when its response begins, and when its response ends. A server
imports this module by name from its own folder, in any environment; it imports nothing of placebench.
"""

import asyncio
import importlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

_PARTS = 3


class AddedCpu:
    """The CPU that one request takes in addition, burnt in parts by the thread that serves the request."""

    def __init__(self, seconds: float, clock: Callable[[], int] = time.thread_time_ns) -> None:
        """clock: returns the CPU time of this thread in nanoseconds."""
        self._whole_ns = round(1e9 * seconds)
        self._clock = clock
        self._burnt_ns = 0

    def burn(self, part: int) -> None:
        """Burn until *part* of the three parts are done; a part that has burnt too much shortens the next one.

        The clock counts only while the thread runs, so that the amount is the same on a busy machine.
        """
        began_ns = self._clock()
        missing_ns = self._whole_ns * part // _PARTS - self._burnt_ns
        spent_ns = 0
        while spent_ns < missing_ns:
            spent_ns = self._clock() - began_ns
        self._burnt_ns += max(0, spent_ns)


def slowed_wsgi(application: Callable[..., Any], cpu_s: float, wait_s: float) -> Callable[..., Any]:
    """Return the WSGI *application* with these seconds added to each request."""

    def slowed(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Any:
        added = AddedCpu(cpu_s)
        added.burn(1)
        if wait_s:
            time.sleep(wait_s)

        def begin(*response: Any) -> Any:
            added.burn(2)
            return start_response(*response)

        body = application(environ, begin)
        added.burn(3)
        return body

    return slowed


def slowed_asgi(application: Callable[..., Any], cpu_s: float, wait_s: float) -> Callable[..., Any]:
    """Return the ASGI *application* with these seconds added to each HTTP request."""

    async def slowed(scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        added = AddedCpu(cpu_s)
        added.burn(1)
        if wait_s:
            await asyncio.sleep(wait_s)

        async def burn_and_send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                added.burn(2)
            elif not message.get("more_body"):
                added.burn(3)
            await send(message)

        await application(scope, receive, burn_and_send)

    return slowed


def _slowed_application(variables: Mapping[str, str]) -> Callable[..., Any]:
    module, _, name = variables["PLACEBENCH_CONTROL_APP"].partition(":")
    loaded: Any = importlib.import_module(module)
    for part in name.removesuffix("()").split("."):
        loaded = getattr(loaded, part)
    if name.endswith("()"):
        loaded = loaded()
    slow = slowed_asgi if variables.get("PLACEBENCH_CONTROL_KIND") == "asgi" else slowed_wsgi
    cpu_s = float(variables.get("PLACEBENCH_CONTROL_CPU_S", 0))
    return slow(loaded, cpu_s, float(variables.get("PLACEBENCH_CONTROL_WAIT_S", 0)))


if "PLACEBENCH_CONTROL_APP" in os.environ:
    application = _slowed_application(os.environ)
