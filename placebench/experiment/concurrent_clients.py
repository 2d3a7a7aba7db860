"""Several users who wait for their answers, in one long-lived process; a JSON line each way.

The key pieces are `crowd`, for whoever measures, and `drive`, which runs in the process. Run as
`python -m placebench.experiment.concurrent_clients`.
In goes `{"url", "requests", "users"}`, out comes what `drive` says. A process
of its own, so that what it reads and digests shares no interpreter with the one that samples the server.
"""

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from placebench.errors import LoadError
from placebench.experiment.canonical_response import read_answer
from placebench.experiment.http_request import get
from placebench.runtime import supervisor


class Crowd:
    """The process of the users."""

    def __init__(self, child: supervisor.Child) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._child, self._asks, self._answers = child, child.stdin, child.stdout

    def drive(self, url: str, requests: Sequence[str], *, users: int) -> dict[str, Any]:
        """Let *users* send the *requests*, each the next one as soon as it is answered; what `drive` below says.

        Raises LoadError where a request failed or the process died.
        """
        self._asks.write(json.dumps({"url": url, "requests": list(requests), "users": users}) + "\n")
        line = self._answers.readline()
        if not line:
            raise LoadError(f"the users' process died: {self._child.log_tail()}")
        told = dict(json.loads(line))
        if told["failures"]:
            raise LoadError(f"{len(told['failures'])} of {len(requests)} requests failed: {told['failures'][0]}")
        return told


@contextmanager
def crowd(log: Path) -> Iterator[Crowd]:
    """A process of users, up for the `with` block."""
    argv = [sys.executable, "-m", "placebench.experiment.concurrent_clients"]
    with supervisor.start(supervisor.ChildSpec(name="users", argv=argv, log=log, pipes=True)) as child:
        yield Crowd(child)


@dataclass
class _Seen:
    """What the users of one drive saw, together."""

    wall_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    bodies: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    """Each distinct body of a request, by the digest of its bytes."""


def drive(
    url: str, requests: Sequence[str], users: int, *, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Send the requests and say how long it took, what failed, and what was answered.

    `{"elapsed_s", "wall_s": [...], "failures": [...], "client_cpu_s", "answers": {request: [digest, ...]}}`: the
    canonical digests of all bodies, each once; they are taken after the time that counts.
    """
    seen, waiting = _Seen(), iter(requests)
    lock = threading.Lock()

    def use() -> None:
        while True:
            with lock:
                request = next(waiting, None)
            if request is None:
                return
            _ask(url, request, seen, clock)

    threads = [threading.Thread(target=use) for _ in range(users)]
    cpu_before, started = time.process_time(), clock()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s, client_cpu_s = clock() - started, time.process_time() - cpu_before
    answers: dict[str, set[str]] = {}
    for (request, _), body in seen.bodies.items():
        answers.setdefault(request, set()).add(read_answer(body).digest)
    return {
        "elapsed_s": elapsed_s,
        "wall_s": seen.wall_s,
        "failures": seen.failures,
        "client_cpu_s": client_cpu_s,
        "answers": {request: sorted(digests) for request, digests in answers.items()},
    }


def _ask(url: str, request: str, seen: _Seen, clock: Callable[[], float]) -> None:
    started = clock()
    try:
        reply = get(url, request)
    except OSError as error:
        seen.failures.append(f"{request}: {error}")
        return
    seen.wall_s.append(clock() - started)
    if reply.status == HTTPStatus.OK:
        seen.bodies.setdefault((request, hashlib.sha256(reply.body).digest()), reply.body)
    else:
        seen.failures.append(f"{request}: status {reply.status}")


def main() -> None:
    """Answer each line on stdin until it ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(drive(**json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
