"""Child processes that speak JSON lines: for each line on standard input they write one on standard output.

`LineProcess` is the parent's side, `serve_lines` the child's. Programs in a foreign environment, which cannot import
placebench (`placebench.runtime.standalone`), have their own loop with the same protocol.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from placebench.errors import LoadError
from placebench.runtime import supervisor


class LineProcess:
    """A running child process that serves JSON lines."""

    def __init__(self, child: supervisor.Child, *, gone: str) -> None:
        """Wrap a child process; gone: the beginning of the error message if it has ended, before the end of its log."""
        assert child.stdin is not None
        assert child.stdout is not None
        self._child, self._input, self._output, self._gone = child, child.stdin, child.stdout, gone

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def call(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Send *order* and return the response; raises LoadError if the process is gone."""
        try:
            self._input.write(json.dumps(order) + "\n")
        except OSError:
            raise self._error() from None
        return self.read()

    def read(self) -> dict[str, Any]:
        """Return the next line of output, such as a greeting; raises LoadError if the process is gone."""
        try:
            line = self._output.readline()
        except OSError:
            line = ""
        if not line:
            raise self._error()
        return dict(json.loads(line))

    def lines(self) -> Iterator[str]:
        """Yield the lines of output until the process ends, such as a foreign shell's lines before the first JSON."""
        while line := self._output.readline():
            yield line

    def _error(self) -> LoadError:
        said = " | ".join(self._child.log_tail(4).splitlines())
        return LoadError(f"{self._gone}; {said or 'it left no message'}")


@contextmanager
def line_process(spec: supervisor.ChildSpec, *, gone: str) -> Iterator[LineProcess]:
    """Start the process of *spec*, which has pipes, for the `with` block."""
    with supervisor.start_child(spec) as child:
        yield LineProcess(child, gone=gone)


def serve_lines(respond: Callable[..., Mapping[str, Any]]) -> None:
    """Call *respond* with the keys of each line on standard input until it closes, and write each result as a line.

    Output that *respond* itself prints goes to standard error.
    """
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as output:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in sys.stdin:
            output.write(json.dumps(respond(**json.loads(line))) + "\n")
            output.flush()
