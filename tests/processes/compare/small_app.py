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
sessions: list[int] = []


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """What is said in the path.

    /login and /private: see `_of_users`. /counts tells what came; /orders keeps what is posted, and tells
    it; /env?name=, /query; /die; others take sleep=s,
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
    if environ["PATH_INFO"] in ("/login", "/private"):
        return _of_users(environ, start_response)
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


def _of_users(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """A login like Django's: a token from GET /login, POST with it gives a session, without which /private leads back.

    /private counts the requests of its session.
    """
    cookies = dict(each.split("=", 1) for each in environ.get("HTTP_COOKIE", "").split("; ") if each)
    is_post = environ["REQUEST_METHOD"] == "POST"
    if is_post and environ.get("HTTP_X_CSRFTOKEN", "-") != cookies.get("csrftoken"):
        return _answer(start_response, b"no token", "403 Forbidden")
    if environ["PATH_INFO"] == "/login" and not is_post:
        return _answer(start_response, b"form", more=[("Set-Cookie", "csrftoken=secret; Path=/")])
    if environ["PATH_INFO"] == "/login" and environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])) == b"name=ann":
        sessions.append(0)
        return _answer(start_response, b"", "302 Found", [("Set-Cookie", f"sid={len(sessions)}"), ("Location", "/")])
    if environ["PATH_INFO"] == "/login" or "sid" not in cookies:
        return _answer(start_response, b"", "302 Found", [("Location", "/accounts/login/?next=/private")])
    sessions[int(cookies["sid"]) - 1] += 1
    return _answer(start_response, " ".join(map(str, sessions)).encode())


def _answer(
    start_response: Callable[..., object],
    body: bytes,
    status: str = "200 OK",
    more: list[tuple[str, str]] | None = None,
) -> Iterable[bytes]:
    start_response(status, [("Content-Length", str(len(body))), *(more or ())])
    return [body]


def never_ready(_: dict[str, str], start_response: Callable[..., object]) -> Iterable[bytes]:
    """A service that loads, and says that it cannot serve."""
    return _answer(start_response, b"later", "503 Not Yet")
