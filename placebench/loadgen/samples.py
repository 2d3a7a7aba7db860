"""The exact samples of one load run; failed requests are separate, because a failure is often quicker than a success.

`LoadSamples` writes the fields of `placebench.compare.keep.records.LoadResult`; locust's own figures are not used
anywhere, since they are rounded to two digits.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from placebench.masking import mask

MISSED_AFTER_S = 0.010
"""A request sent later than this many seconds after it was due is a missed arrival: the generator was full."""
_MESSAGES_KEPT = 5


@dataclass
class LoadSamples:
    """The samples of a running load; offsets are seconds since `begin`."""

    kind: str
    users: int
    rate_per_s: float | None
    seed: int
    clock: Callable[[], float] = time.perf_counter
    cpu_clock: Callable[[], float] = time.process_time
    started_s: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    service_s: list[float] = field(default_factory=list)
    failed_started_s: list[float] = field(default_factory=list)
    failed_latency_s: list[float] = field(default_factory=list)
    failed_service_s: list[float] = field(default_factory=list)
    body_bytes: list[int] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    failures: int = 0
    failure_messages: list[str] = field(default_factory=list)
    sent: int = 0
    missed: int = 0
    repeats: int = 0
    """The number of requests that were sent again because the server had closed the kept connection."""
    zero: float | None = None
    """Reading of the clock at `begin`; None before."""
    cpu_at_zero_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of this process from `begin` to the last end of a request."""
    workers: list[dict[str, Any]] = field(default_factory=list)
    """The processes of a distributed load, with the fields of placebench.compare.keep.records.LoadWorker."""

    def begin(self, at: float | None = None) -> None:
        """Begin to count now, or from the reading *at* of the clock; only the first call has an effect."""
        if self.zero is None:
            self.zero, self.cpu_at_zero_s = self.clock() if at is None else at, self.cpu_clock()

    def now_s(self) -> float:
        """Return the seconds since `begin`."""
        if self.zero is None:
            raise RuntimeError("LoadSamples.begin has to be called first")
        return self.clock() - self.zero

    def send(self, due_s: float | None = None) -> float:
        """Count a request that is sent now, due at offset *due_s* in an open-loop load; returns the current offset."""
        now_s = self.now_s()
        self.sent += 1
        self.missed += due_s is not None and now_s - due_s > MISSED_AFTER_S
        return now_s

    def end(
        self,
        sent_s: float,
        ended_s: float,
        *,
        due_s: float | None,
        status: str,
        body_bytes: int,
        failure: str | None,
        repeats: int = 0,
    ) -> None:
        """Record the end of a request that was first sent at *sent_s*; *failure* is the reason if it failed."""
        self.repeats += repeats
        self.cpu_s = self.cpu_clock() - self.cpu_at_zero_s
        started_s = sent_s if due_s is None else due_s
        self.statuses[status] += 1
        if failure is None:
            self.started_s.append(started_s)
            self.latency_s.append(ended_s - started_s)
            self.service_s.append(ended_s - sent_s)
            self.body_bytes.append(body_bytes)
        else:
            self.failed_started_s.append(started_s)
            self.failed_latency_s.append(ended_s - started_s)
            self.failed_service_s.append(ended_s - sent_s)
            self.failures += 1
            self._keep_message(failure)

    @property
    def completed(self) -> int:
        """The number of requests that have ended, failed ones included."""
        return len(self.latency_s) + self.failures

    def to_json(self) -> dict[str, Any]:
        """Return the fields of LoadResult."""
        started_s, latency_s = [*self.started_s, *self.failed_started_s], [*self.latency_s, *self.failed_latency_s]
        ended_s = (started + latency for started, latency in zip(started_s, latency_s, strict=True))
        return {
            "kind": self.kind,
            "users": self.users,
            "rate_per_s": self.rate_per_s,
            "seed": self.seed,
            "elapsed_s": max(ended_s, default=0.0) - min(started_s, default=0.0),
            "started_s": self.started_s,
            "latency_s": self.latency_s,
            "service_s": self.service_s,
            "body_bytes": self.body_bytes,
            "failed_started_s": self.failed_started_s,
            "failed_latency_s": self.failed_latency_s,
            "failed_service_s": self.failed_service_s,
            "statuses": dict(self.statuses),
            "failures": self.failures,
            "failure_messages": self.failure_messages,
            "in_flight": self.sent - self.completed,
            "missed": self.missed,
            "repeats": self.repeats,
            "client_cpu_s": self.cpu_s,
            "workers": self.workers,
        }

    def encode(self) -> bytes:
        """Return the fields of LoadResult as JSON, with all digits of the samples."""
        return msgspec.json.encode(self.to_json())

    def merge(self, encoded: bytes) -> int:
        """Add the samples of another process, as its `encode` returned them; returns their number.

        The offsets of both processes must count from the same moment.
        """
        other = msgspec.json.decode(encoded)
        times = ("started_s", "latency_s", "service_s")
        for name in (*times, "body_bytes", *(f"failed_{each}" for each in times)):
            getattr(self, name).extend(other[name])
        completed = len(other["latency_s"]) + len(other["failed_latency_s"])
        self.statuses.update(other["statuses"])
        self.sent += completed + other["in_flight"]
        self.missed += other["missed"]
        self.repeats += other["repeats"]
        self.cpu_s += other["client_cpu_s"]
        for message in other["failure_messages"]:
            self._keep_message(message)
        self.failures += other["failures"]
        return completed

    def save(self, path: Path) -> None:
        """Write the samples to *path* atomically."""
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(self.encode())
        partial.replace(path)

    def _keep_message(self, message: str) -> None:
        message = mask(message)
        if message not in self.failure_messages and len(self.failure_messages) < _MESSAGES_KEPT:
            self.failure_messages.append(message)
