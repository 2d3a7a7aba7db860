"""A service for the tests of server and load: what it does is said in the query."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

if os.environ.get("DATABASE_URL", "").startswith("postgresql"):  # it is compared: a variant uses its database
    import psycopg2

    _connection = psycopg2.connect("")

_lock = threading.Lock()
seen = {"requests": 0, "busy": 0}
orders: list[str] = []


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """What is said in the path.

    /counts tells what came; /orders keeps what is posted, and tells it; /env?name=, /query; /die; others take sleep=s,
    size=n, status=n, stall_at=n (0.8 s).
    """
    query = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
    if environ["PATH_INFO"] == "/counts":
        return _answer(start_response, f"{seen['requests']} {seen['busy']}".encode())
    if environ["PATH_INFO"] == "/orders":
        if environ["REQUEST_METHOD"] == "POST":
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])).decode()
            orders.append(f"{environ['CONTENT_TYPE']} {environ.get('HTTP_X_KEY')} {body}")
            return _answer(start_response, b"", "201 Created")
        return _answer(start_response, "\n".join(orders).encode())
    if environ["PATH_INFO"] == "/env":
        return _answer(start_response, os.environ.get(query["name"], "").encode())
    if environ["PATH_INFO"] == "/query":
        return _answer(start_response, str(len(environ["QUERY_STRING"])).encode())
    if environ["PATH_INFO"] == "/die":
        os.kill(os.getpid(), signal.SIGKILL)
    if environ["PATH_INFO"] == "/":
        return _answer(start_response, sys.prefix.encode())
    with _lock:
        seen["requests"] += 1
        seen["busy"] += 1
        number = seen["requests"]
    time.sleep(0.8 if number == int(query.get("stall_at", 0)) else float(query.get("sleep", 0)))
    with _lock:
        seen["busy"] -= 1
    if query.get("status"):
        return _answer(start_response, b"boom", f"{query['status']} Because")
    return _answer(start_response, b"x" * int(query.get("size", 2)))


def _answer(start_response: Callable[..., object], body: bytes, status: str = "200 OK") -> Iterable[bytes]:
    start_response(status, [("Content-Length", str(len(body)))])
    return [body]


def never_ready(_: dict[str, str], start_response: Callable[..., object]) -> Iterable[bytes]:
    """A service that loads, and says that it cannot serve."""
    return _answer(start_response, b"later", "503 Not Yet")
