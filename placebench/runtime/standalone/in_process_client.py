"""Calls a WSGI application in its own process, without a server, to measure the application alone.

    PYTHON -P in_process_client.py MODULE:CALLABLE FOLDER

Run by path, in any environment; imports nothing of placebench. Each line of input is
`{"requests": [...], "headers": {...}}`, and its response is the result of `_drive`. Each distinct body is saved in
FOLDER as `<sha256>.raw`.
"""

import hashlib
import importlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

_Application = Callable[[dict[str, Any], Any], Any]


def _drive(app: _Application, folder: Path, requests: Sequence[str], headers: Mapping[str, str]) -> dict[str, Any]:
    """Call *app* with one request after the other.

    Returns `{"wall_s": [...], "failures": [...], "body_bytes": n, "bodies": {request: [sha256, ...]}}`.
    """
    wall_s: list[float] = []
    failures: list[str] = []
    bodies: dict[str, bytes] = {}
    names: dict[str, list[str]] = {}
    body_bytes = 0
    for request in requests:
        environ = _environ(request, headers)
        started = time.perf_counter()
        status, body = _call(app, environ)
        wall_s.append(time.perf_counter() - started)
        body_bytes += len(body)
        if status.startswith("200"):
            name = hashlib.sha256(body).hexdigest()
            bodies.setdefault(name, body)
            if name not in names.setdefault(request, []):
                names[request].append(name)
        else:
            failures.append(f"status {status}")
    for name, body in bodies.items():
        folder.joinpath(f"{name}.raw").write_bytes(body)
    return {"wall_s": wall_s, "failures": failures, "body_bytes": body_bytes, "bodies": names}


def _environ(request: str, headers: Mapping[str, str]) -> dict[str, Any]:
    path, _, query = request.partition("?")
    environ: dict[str, Any] = {"PATH_INFO": path, "QUERY_STRING": query, "SERVER_PROTOCOL": "HTTP/1.1"}
    setup_testing_defaults(environ)
    environ["wsgi.errors"] = io.StringIO()
    for name, value in headers.items():
        environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    return environ


def _call(app: _Application, environ: dict[str, Any]) -> tuple[str, bytes]:
    """Return the status and the whole body of the application's response."""
    statuses: list[str] = []
    written: list[bytes] = []

    def start_response(status: str, _headers: object, _error: object = None) -> Callable[[bytes], None]:
        statuses.append(status)
        return written.append

    response = app(environ, start_response)
    try:
        written.extend(response)
    finally:
        if hasattr(response, "close"):
            response.close()
    return statuses[-1], b"".join(written)


def _main() -> None:
    """Serve each line on stdin until it closes; the application's own output goes to stderr."""
    responses = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    module, _, name = sys.argv[1].partition(":")
    app, folder = getattr(importlib.import_module(module), name), Path(sys.argv[2])
    for line in sys.stdin:
        responses.write(json.dumps(_drive(app, folder, **json.loads(line))) + "\n")
        responses.flush()


if __name__ == "__main__":
    _main()
