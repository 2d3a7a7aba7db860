"""The client of an interleaved comparison: one long-lived process that drives blocks of requests, a JSON line each.

Run as `python -m placebench.experiment.client`. In goes `{"url", "request", "requests"}`, out comes
`{"wall_s": [...], "failures": [...], "body_bytes": n, "client_cpu_s": s}`. A process of its own, so that reading bodies
of 2.5 MB shares no interpreter with the harness; one for a whole replicate, so that both arms meet the same client.
"""

import json
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from placebench.experiment.requesting import get


def command() -> list[str]:
    """The command line that starts it."""
    return [sys.executable, "-m", "placebench.experiment.client"]


def drive(url: str, request: str, requests: int, *, clock: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """Send *requests* one after the other and say how long each took and what failed."""
    wall_s: list[float] = []
    failures: list[str] = []
    body_bytes = 0
    cpu_before = time.process_time()
    for _ in range(requests):
        started = clock()
        try:
            reply = get(url, request)
            body_bytes += len(reply.body)
            if reply.status != HTTPStatus.OK:
                failures.append(f"status {reply.status}")
        except OSError as error:
            failures.append(f"{type(error).__name__}: {error}")
        wall_s.append(clock() - started)
    return {
        "wall_s": wall_s,
        "failures": failures,
        "body_bytes": body_bytes,
        "client_cpu_s": time.process_time() - cpu_before,
    }


def main() -> None:
    """Answer each line on stdin until it ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(drive(**json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
