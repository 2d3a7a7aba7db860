"""A job or a script behind HTTP, for comparisons: each `POST /run` runs it once, and its output is the response.

    python -m placebench.runtime.job_server PORT MODULE:FUNCTION
    python -m placebench.runtime.job_server PORT COMMAND [ARGUMENT ...]

A function is imported once, and its return value is the response, as JSON if possible. A command is started anew for
each request, and its standard output is the response. An exception, or an exit code other than 0, is status 500 with
the end of its output. `GET /` responds as soon as the job can be run.
"""

import importlib
import json
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_MAX_MESSAGE_BYTES = 2000
_Outcome = tuple[int, str, bytes]
"""Status, content type and body of a response."""


def _main(words: Sequence[str]) -> None:
    port, *job = words
    _Handler.run = _function(job[0]) if len(job) == 1 and _FUNCTION.fullmatch(job[0]) else _command(job)
    with HTTPServer(("127.0.0.1", int(port)), _Handler) as server:
        server.serve_forever()


def _function(name: str) -> Callable[[], _Outcome]:
    module, _, attribute = name.partition(":")
    sys.path.insert(0, "")
    function = getattr(importlib.import_module(module), attribute)

    def run() -> _Outcome:
        try:
            made = function()
        except Exception:  # noqa: BLE001  it is the job's, whatever it is
            return 500, "text/plain", traceback.format_exc().encode()[-_MAX_MESSAGE_BYTES:]
        try:
            return 200, "application/json", json.dumps(made).encode()
        except (TypeError, ValueError):
            return 200, "text/plain", repr(made).encode()

    return run


def _command(words: Sequence[str]) -> Callable[[], _Outcome]:
    def run() -> _Outcome:
        ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if ended.returncode == 0:
            return 200, "text/plain", ended.stdout
        return 500, "text/plain", f"exit code {ended.returncode}\n".encode() + ended.stderr[-_MAX_MESSAGE_BYTES:]

    return run


class _Handler(BaseHTTPRequestHandler):
    run: ClassVar[Callable[[], _Outcome]]

    def do_GET(self) -> None:
        """Respond that the job can be run."""
        self._respond(200, "text/plain", b"ready")

    def do_POST(self) -> None:
        self._respond(*type(self).run())

    def _respond(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing for a request, because the log is the job's."""


if __name__ == "__main__":
    _main(sys.argv[1:])
