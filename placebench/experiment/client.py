"""The client of an interleaved comparison: one long-lived process that drives blocks of requests, a JSON line each.

Run as `python -m placebench.experiment.client FOLDER`. In goes `{"url", "request", "requests"}`, out comes what
`Client.drive` says. A process of its own, so that reading bodies of 2.5 MB shares no interpreter with the harness; one
for a whole replicate, so that all arms meet the same client. Each distinct body is brought into canonical form once,
after its block, and the first body of each canonical digest is left in FOLDER as `<digest>.body`.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from placebench.experiment.answers import read_answer
from placebench.experiment.requesting import get


def command(folder: Path) -> list[str]:
    """The command line that starts it."""
    return [sys.executable, "-m", "placebench.experiment.client", str(folder)]


def body_file(folder: Path, digest: str) -> Path:
    """Where a body with this canonical digest lies."""
    return folder / f"{digest}.body"


class Client:
    """Sends requests, and remembers what it was answered."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._folder = folder
        self._clock = clock
        self._canonical: dict[bytes, str] = {}
        """The digest of the canonical form, by that of the bytes."""

    def drive(self, url: str, request: str, requests: int) -> dict[str, Any]:
        """Send *requests* one after the other and say how long each took, what failed and what was answered.

        `{"wall_s": [...], "failures": [...], "body_bytes": n, "client_cpu_s": s, "answers": [digest, ...]}`, where
        client_cpu_s is what sending and reading took, and answers holds each canonical digest once.
        """
        wall_s: list[float] = []
        failures: list[str] = []
        bodies: dict[bytes, bytes] = {}
        body_bytes, client_cpu_s = 0, 0.0
        for _ in range(requests):
            cpu_before, started = time.process_time(), self._clock()
            try:
                reply = get(url, request)
            except OSError as error:
                failures.append(f"{type(error).__name__}: {error}")
                reply = None
            wall_s.append(self._clock() - started)
            client_cpu_s += time.process_time() - cpu_before
            if reply is not None and reply.status == HTTPStatus.OK:
                body_bytes += len(reply.body)
                bodies.setdefault(hashlib.sha256(reply.body).digest(), reply.body)
            elif reply is not None:
                failures.append(f"status {reply.status}")
        return {
            "wall_s": wall_s,
            "failures": failures,
            "body_bytes": body_bytes,
            "client_cpu_s": client_cpu_s,
            "answers": sorted({self._digest(name, body) for name, body in bodies.items()}),
        }

    def _digest(self, name: bytes, body: bytes) -> str:
        if name not in self._canonical:
            self._canonical[name] = digest = read_answer(body).digest
            path = body_file(self._folder, digest)
            if not path.exists():
                path.write_bytes(body)
        return self._canonical[name]


def main() -> None:
    """Answer each line on stdin until it ends."""
    client = Client(Path(sys.argv[1]))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(client.drive(**json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
