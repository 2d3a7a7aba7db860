"""The place where an operation runs: its databases, its recording, and the witness that counts beside the profiler.

A witness is another process with a connection of its own, which this one asks by lines of JSON on stdin and stdout.
Databases inside of this process (SQLite) are counted by their own trace instead.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from texts import split

from placebench.profiler import Recording, SqlProfiler

ROWS = 40
"""The rows of the table `item` before each operation, with the ids 1 to 40."""


class Place:
    """The databases of one operation, and what its recording and the witness have counted.

    url, other, pooled: a database, a second one of the same server, and the first one through a pooler in transaction
    pooling; empty where there is none. traced: the statements that a database in this process has traced.
    """

    def __init__(self, profiler: SqlProfiler, settings: dict[str, str], name: str, mode: str) -> None:
        self.profiler = profiler
        self.url, self.other, self.pooled = (settings.get(key, "") for key in ("url", "other", "pooled"))
        self.name = name
        self.mode = mode
        self.traced: list[str] | None = [] if settings.get("in_process") else None
        self.recording: Recording | None = None
        self.counted: dict[str, Any] = {}

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Record what the block runs, and have the witness count it."""
        ask("mark")
        if self.traced is not None:
            self.traced.clear()
        try:
            with self.profiler.record(self.name, self.mode) as self.recording:
                yield
        finally:
            self.counted = ask("read") if self.traced is None else trace_counts(self.traced)


def driver_of(name: str) -> Any:
    """The operations of a driver, as `MODULE.CLASS`."""
    module, _, driver = name.partition(".")
    return getattr(import_module(module), driver)()


def ask(question: str, **more: Any) -> Any:
    """The witness's answer."""
    print(json.dumps({"ask": question, **more}), flush=True)
    return json.loads(sys.stdin.readline())


def wait_until_running(text: str) -> None:
    """Return when another client sees a statement with this text on the server."""
    ask("running", text=text)


def interrupt(text: str) -> None:
    """Have another client cancel the statement with this text, once it sees it."""
    ask("interrupt", text=text)


def trace_counts(traced: list[str]) -> dict[str, Any]:
    """The statements and transaction steps in a trace of SQLite; what a trigger runs has a comment's form."""
    return split([text for text in traced if not text.startswith("--")]) | {"rows": None}
