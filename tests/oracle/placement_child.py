"""The real Placement as a child process: JSON lines in, JSON lines out, WSGI between.

Run by the Python that has openstack-placement, with nothing of ours imported; `programs.py` speaks to it. A line in:
`{"method", "path", "query", "headers", "body"}`, path and query as WSGI has them, a character a byte. A line out:
`{"status", "body"}`, the body parsed if it is JSON. Placement is set up by its environment variables.
`--upstream` makes the changes of upstream_search.py.
"""

import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def environ_of(request: dict[str, Any]) -> dict[str, Any]:
    """The WSGI environment of one request."""
    body = request["body"].encode() if request["body"] is not None else b""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": request["path"],
        "QUERY_STRING": request["query"],
        "SERVER_NAME": "oracle",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in request["headers"].items():
        key = name.upper().replace("-", "_")
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    return environ


def answer(application: Callable[..., Iterable[bytes]], request: dict[str, Any]) -> dict[str, Any]:
    """Status and body of one request."""
    statuses: list[str] = []
    chunks = application(environ_of(request), lambda *start: statuses.append(start[0]))
    try:
        body = b"".join(chunks)
    finally:
        getattr(chunks, "close", lambda: None)()
    try:
        content = json.loads(body) if body else None
    except ValueError:
        content = body.decode("latin-1")
    return {"status": int(statuses[0][:3]), "body": content}


def main() -> None:
    """Answer lines until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Placement logs to stdout, and must not speak into the answers
    logging.disable(logging.CRITICAL)
    if "--upstream" in sys.argv:
        sys.path.insert(0, str(Path(__file__).resolve().parent))
        import upstream_search

        upstream_search.install()
    from placement.wsgi.api import application

    for line in sys.stdin:
        answers.write(json.dumps(answer(application, json.loads(line))) + "\n")


main()
