"""A service whose throughput a known thing limits: the path names it."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

_lock = threading.Lock()
_two = threading.Semaphore(2)


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Work for /cpu, and wait 20 ms for others: one at a time for /lock, two for /limit, all threads for /wait."""
    path = environ["PATH_INFO"]
    if path == "/cpu":
        end_s = time.thread_time() + 0.004
        while time.thread_time() < end_s:
            sum(range(100))
    elif path == "/lock":
        with _lock:
            time.sleep(0.02)
    elif path == "/limit":
        with _two:
            time.sleep(0.02)
    elif path == "/wait":
        time.sleep(0.02)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
