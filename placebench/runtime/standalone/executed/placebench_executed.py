"""A WSGI or ASGI application whose executed lines of some files are written down: `application`, made on import.

PLACEBENCH_EXECUTED_APP    module:callable or module:factory(); required on import by a server
PLACEBENCH_EXECUTED_KIND   "wsgi" (the default) or "asgi"
PLACEBENCH_EXECUTED_FILES  a file with the absolute paths of the watched files, one a line
PLACEBENCH_EXECUTED_OUT    the folder to which each process appends "path:line", or "path" if it opened the file

Python 3.12 and later report lines by sys.monitoring, which costs nothing for other files; earlier ones by sys.settrace.
A server imports this module by name from its own folder, in any environment; it imports nothing of placebench.
"""

import importlib
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

_TOOL = 4  # none of the tools to which sys.monitoring gives a number of its own


class Watch:
    """Writes down which lines of the watched files are executed, and which of these files are opened."""

    def __init__(self, files: Collection[str], out: str) -> None:
        """files: absolute paths without links. out: the folder for the results."""
        self._files = frozenset(files)
        self._names = {path.rpartition(os.sep)[2] for path in files}
        self._out = out
        self._seen: set[str] = set()
        self._watched: dict[str, str] = {}

    def start(self) -> None:
        """Watch from now on, in this thread and in all that are started later."""
        sys.addaudithook(self._audit)
        monitoring: Any = getattr(sys, "monitoring", None)
        if monitoring is None or monitoring.get_tool(_TOOL) is not None:
            threading.settrace(self.trace)
            sys.settrace(self.trace)
            return
        monitoring.use_tool_id(_TOOL, "placebench executed lines")

        def line(code: Any, number: int) -> Any:
            self._line(code.co_filename, number)
            return monitoring.DISABLE

        monitoring.register_callback(_TOOL, monitoring.events.LINE, line)
        monitoring.set_events(_TOOL, monitoring.events.LINE)

    def trace(self, frame: Any, event: str, _: object) -> Any:
        """Follow the lines of a frame if its file is watched; a trace function of sys.settrace."""
        if event == "line":
            self._line(frame.f_code.co_filename, frame.f_lineno)
        elif not self._path(frame.f_code.co_filename):
            return None
        return self.trace

    def watch_thread(self) -> None:
        """Watch this thread too, which may have been started by something else than Python."""
        if not hasattr(sys, "monitoring") and sys.gettrace() is None:
            sys.settrace(self.trace)

    def _line(self, name: str, number: int) -> None:
        if path := self._path(name):
            self._write(f"{path}:{number}")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "import") and len(arguments) > 1:
            name = arguments[0 if event == "open" else 1]
            if isinstance(name, bytes):
                name = os.fsdecode(name)
            if isinstance(name, str) and name.rpartition(os.sep)[2] in self._names and (path := self._path(name)):
                self._write(path)

    def _path(self, name: str) -> str:
        """Return the watched file of this name; empty for any other."""
        known = self._watched.get(name)
        if known is None:
            path = os.path.realpath(name)
            known = self._watched[name] = path if path in self._files else ""
        return known

    def _write(self, text: str) -> None:
        if text not in self._seen:
            self._seen.add(text)
            # Opened anew, since a server may fork or close what is open.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            descriptor = os.open(f"{self._out}{os.sep}{os.getpid()}", flags, 0o600)
            try:
                os.write(descriptor, f"{text}\n".encode())
            finally:
                os.close(descriptor)


def _watched_application(variables: Mapping[str, str]) -> Callable[..., Any]:
    files = Path(variables["PLACEBENCH_EXECUTED_FILES"]).read_text(encoding="utf-8").splitlines()
    watch = Watch(files, variables["PLACEBENCH_EXECUTED_OUT"])
    watch.start()
    module, _, name = variables["PLACEBENCH_EXECUTED_APP"].partition(":")
    loaded: Any = importlib.import_module(module)
    for part in name.removesuffix("()").split("."):
        loaded = getattr(loaded, part)
    if name.endswith("()"):
        loaded = loaded()

    def watched(environ: Any, start_response: Any) -> Any:
        watch.watch_thread()
        return loaded(environ, start_response)

    # With the parameters of ASGI: uvicorn calls what needs none, since it may be a factory.
    async def watched_asgi(scope: Any, receive: Any, send: Any) -> None:
        watch.watch_thread()
        await loaded(scope, receive, send)

    return watched_asgi if variables.get("PLACEBENCH_EXECUTED_KIND") == "asgi" else watched


if "PLACEBENCH_EXECUTED_APP" in os.environ:
    application = _watched_application(os.environ)
