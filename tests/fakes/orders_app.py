"""A small shop for comparisons of applications of one's own: a login, orders to read and to write, and a mood.

What it does wrong is said in its environment: SHUFFLED orders, prices a little OFF, FAILING.
"""

import json
import os
import random
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

if os.environ.get("DATABASE_URL", "").startswith("postgresql"):  # it is compared: a variant uses its database
    import psycopg2

    _connection = psycopg2.connect("")

_NAMES = {200: "OK", 201: "Created", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 500: "Broken"}
_tokens: set[str] = set()
_orders = [{"id": number, "price": number * 1.1} for number in range(1, 11)]


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """POST /login, GET and POST /orders, GET /page; others are 404."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    status, headers, content = _respond(environ, body)
    start_response(f"{status} {_NAMES[status]}", [*headers, ("Content-Length", str(len(content)))])
    return [content]


class _Quiet(WSGIRequestHandler):
    """Nothing on stderr."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def served() -> Iterator[str]:
    """The URL of the shop on a free port."""
    with make_server("127.0.0.1", 0, application, handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _respond(environ: dict[str, Any], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
    called = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    if called == ("POST", "/login"):
        if json.loads(body).get("password") != "secret":
            return _json(401, {"error": "wrong password"})
        _tokens.add(token := secrets.token_hex(4))
        return _json(200, {"auth": {"token": token}}, ("Set-Cookie", f"token={token}; Path=/"), ("X-Token", token))
    if called == ("GET", "/page"):
        return 200, [("Content-Type", "text/html")], b"<p>" + secrets.token_hex(4).encode() + b"</p>"
    given = environ.get("HTTP_AUTHORIZATION", "")[7:] or environ.get("HTTP_COOKIE", "").removeprefix("token=")
    if called[1] != "/orders":
        return _json(404, {"error": "not found"})
    if given not in _tokens:
        return _json(403, {"error": "not logged in"})
    if os.environ.get("FAILING"):
        return _json(500, {"error": "failing"})
    if called[0] == "POST":
        return _json(201, {"id": random.randrange(10**9), "item": json.loads(body)["item"]})
    off = float(os.environ.get("OFF", 0))
    orders = [{**each, "price": each["price"] + off, "seen": random.random()} for each in _orders]
    if os.environ.get("SHUFFLED"):
        random.shuffle(orders)
    return _json(200, {"orders": orders})


def _json(status: int, document: object, *headers: tuple[str, str]) -> tuple[int, list[tuple[str, str]], bytes]:
    return status, [("Content-Type", "application/json"), *headers], json.dumps(document).encode()
