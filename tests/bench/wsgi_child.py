"""Answers one WSGI request again and again, in a process of its own and with nothing of ours imported.

Run by the Python of the program that is measured: `python wsgi_child.py MODULE:CALLABLE REQUEST`. A line in, how many
requests; a line out, `{"cpu_s": process CPU, "wall_s": [...], "body_bytes": n}`.
"""

import importlib
import io
import json
import os
import sys
import time
from urllib.parse import urlsplit


def ask(application, request):
    """One GET; returns the size of the body. Anything but 200 ends the process with the answer."""
    address = urlsplit(request)
    environ = {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": address.path,
        "QUERY_STRING": address.query,
        "SERVER_NAME": "bench",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "HTTP_X_AUTH_TOKEN": "admin",
        "HTTP_OPENSTACK_API_VERSION": "placement 1.39",
        "HTTP_ACCEPT": "application/json",
    }
    statuses = []
    chunks = application(environ, lambda *answer: statuses.append(answer[0]))
    try:
        body = b"".join(chunks)
    finally:
        getattr(chunks, "close", lambda: None)()
    if not statuses[0].startswith("200"):
        sys.exit(f"{statuses[0]}: {body[:300]!r}")
    return len(body)


def main():
    """Answer lines until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a program that logs to stdout must not speak into the answers
    module, name = sys.argv[1].split(":")
    application = getattr(importlib.import_module(module), name)
    for line in sys.stdin:
        wall_s, body_bytes, cpu_before = [], 0, time.process_time()
        for _ in range(int(line)):
            started = time.perf_counter()
            body_bytes = ask(application, sys.argv[2])
            wall_s.append(time.perf_counter() - started)
        said = {"cpu_s": time.process_time() - cpu_before, "wall_s": wall_s, "body_bytes": body_bytes}
        answers.write(json.dumps(said) + "\n")


main()
