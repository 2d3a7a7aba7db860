"""A WSGI application whose responses run the job; its profiler is made before the server's workers are forked."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jobs


def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Run the job whose number is the path, and respond with its result."""
    text = jobs.run_and_write(int(environ["PATH_INFO"].strip("/"))).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
    return [text]


application = jobs.profiler.wsgi(
    respond, folder=Path(jobs.settings["folder"], "recordings"), mode=jobs.settings["mode"]
)
