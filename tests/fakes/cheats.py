"""A shop that is honest, or has one wrong or fake speed-up, by $CHEAT: `python cheats.py PORT` serves it.

GET /orders sends three statements where there is a PostgreSQL, GET /work takes 5 ms of CPU. PUT /price?to=N sets what
GET /price returns, POST /orders adds a row to a SQLite database.
"""

import json
import os
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

CHEAT = os.environ.get("CHEAT", "")
WORK_S = 0.005
_ORDERS = [{"id": number, "item": "pear"} for number in range(20)]
_owed: list[float] = []
_state = {"price": "0", "requests": 0}


def _work() -> None:
    """Take CPU time in this thread."""
    end_s = time.thread_time() + WORK_S
    while time.thread_time() < end_s:
        pass


def _start_daemon() -> socket.socket:
    """A process outside of the service's process tree, which works when it is sent a byte."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            ours.close()
            while theirs.recv(1):
                _work()
                theirs.send(b".")
        os._exit(0)
    theirs.close()
    os.waitpid(child, 0)
    return ours


def _work_between_blocks() -> None:
    """Do what is owed when there was no request for a while."""
    while True:
        time.sleep(0.01)
        while _owed and time.monotonic() - _owed[-1] > 0.04:
            _work()
            _owed.pop(0)


def _worked() -> str:
    time.sleep(0.002)  # so that the client does not take most of the time
    if CHEAT == "deferred":
        _owed.append(time.monotonic())
    elif CHEAT == "daemon":
        _daemon.send(b".")
        _daemon.recv(1)
    else:
        _work()
    return "done"


def _read_orders() -> list[dict[str, Any]]:
    if _connection is not None and not (CHEAT == "detects" and _is_counted()):
        with _connection.cursor() as cursor:
            for _ in range(3):
                cursor.execute("SELECT id FROM orders")
    return _ORDERS


def _is_counted() -> bool:
    """Whether a link that counts is between this process and its PostgreSQL."""
    with _connection.cursor() as cursor:
        cursor.execute("SELECT inet_server_port()")
        return str(cursor.fetchone()[0]) != os.environ["PGPORT"]


def _orders() -> list[dict[str, Any]]:
    if CHEAT == "cached" or (CHEAT == "cached later" and _state["requests"] > 60):
        return _kept()
    if CHEAT == "precomputed":
        return _precomputed
    orders = _read_orders()
    if CHEAT == "dropped rows":
        return orders[:-1]
    return orders[::-1] if CHEAT == "sometimes" and _state["requests"] % 9 == 0 else orders


def _add_order() -> str:
    table = {"lost write": "", "queued": "jobs"}.get(CHEAT, "orders")
    with sqlite3.connect(os.environ["DATABASE_URL"].removeprefix("sqlite:///")) as connection:
        if table:
            connection.execute(f"INSERT INTO {table} VALUES (1)")
    return "added"


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """One response."""
    _state["requests"] += 1
    called = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
    if called == "PUT /price":
        _state["price"] = environ["QUERY_STRING"].removeprefix("to=")
    responses: dict[str, Callable[[], Any]] = {
        "GET /orders": _orders,
        "GET /work": _worked,
        "GET /price": _stale_price if CHEAT == "stale" else lambda: _state["price"],
        "POST /orders": _add_order,
    }
    content = json.dumps(responses.get(called, lambda: "ok")()).encode()
    if CHEAT == "redirect" and called == "GET /orders":
        start_response("302 Found", [("Location", "/elsewhere"), ("Content-Length", "0")])
        return []
    start_response("200 OK", [("Content-Length", str(len(content)))])
    return [content]


@cache
def _kept() -> list[dict[str, Any]]:
    return _read_orders()


@cache
def _stale_price() -> Any:
    return _state["price"]


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    _connection = None
    if os.environ.get("DATABASE_URL", "").startswith("postgresql"):
        import psycopg2

        _connection = psycopg2.connect("")
        _connection.autocommit = True
    _precomputed = _read_orders() if CHEAT == "precomputed" else []
    if CHEAT == "daemon":
        _daemon = _start_daemon()
    threading.Thread(target=_work_between_blocks, daemon=True).start()
    make_server("127.0.0.1", int(sys.argv[1]), application, handler_class=_Quiet).serve_forever()
