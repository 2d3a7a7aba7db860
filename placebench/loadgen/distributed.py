"""A load from several locust processes, on this or other machines: a common start, and all samples in one place.

`MasterLink` runs in locust's master and `WorkerLink` in each worker; they talk over locust's own connection. Each
worker gets a part of the load, bounds the offset of its clock from the master's, starts at a moment that the master
names, and sends its samples to the master at the end.
"""

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import gevent
from gevent.event import AsyncResult, Event
from locust.rpc import Message
from locust.runners import STATE_MISSING, MasterRunner, WorkerRunner

from placebench.loadgen.options import LoadPart
from placebench.loadgen.samples import LoadSamples
from placebench.telemetry.clock import ClockBounds

_PART, _CLOCK, _READY, _BEGIN, _END, _SAMPLES = (
    f"placebench_{name}" for name in ("part", "clock", "ready", "begin", "end", "samples")
)
_EXCHANGES: Final = 20
_EXCHANGE_LIMIT_S: Final = 5.0
_LEAD_S: Final = 0.2
_LEAD_ROUND_TRIPS: Final = 10
_CHECK_S: Final = 0.5
_LAST_WORDS_S: Final = 5.0
_clock = time.perf_counter


class MasterLink:
    """The master's side of the connection to its workers."""

    def __init__(self, runner: MasterRunner, samples: LoadSamples, write_log: Path | None) -> None:
        """samples, write_log: receive the samples and the logs of writes of all workers."""
        self._runner = runner
        self._samples = samples
        self._write_log = write_log
        self._parts: list[str] = []
        self._ready: dict[str, float] = {}
        """Round-trip time in seconds to each worker that is ready."""
        self._done: set[str] = set()
        self._changed = Event()

        def answer(msg: Message, **_: object) -> None:
            received = _clock()
            runner.send_message(_CLOCK, {"received": received, "answered": _clock()}, msg.node_id)

        def note_ready(msg: Message, **_: object) -> None:
            self._ready[msg.node_id] = msg.data["round_trip_s"]
            self._changed.set()

        runner.register_message(_CLOCK, answer)
        runner.register_message(_READY, note_ready)
        runner.register_message(_SAMPLES, self._on_samples)

    def assign_parts(self) -> None:
        """Send each connected worker its part, before it gets its users."""
        self._parts = [client.id for client in self._runner.clients.ready]
        for index, worker in enumerate(self._parts):
            self._runner.send_message(_PART, {"index": index, "count": len(self._parts)}, worker)

    def run(self) -> None:
        """Let all workers begin at the same moment when all are ready, wait for their samples, and quit."""
        self._wait(self._ready)
        lead_s = _LEAD_S + _LEAD_ROUND_TRIPS * max(self._ready.values(), default=0.0)
        self._runner.send_message(_BEGIN, {"at": _clock() + lead_s})
        self._wait(self._done)
        self._runner.quit()

    def collect(self, *, at_once: bool, limit_s: float = _LAST_WORDS_S) -> None:
        """End the load and wait for the samples; at_once: without waiting for the requests in flight."""
        if self._alive(self._done):
            self._runner.send_message(_END, {"at_once": at_once})
            with gevent.Timeout(limit_s, False):
                self._wait(self._done)

    def note_lost_workers(self) -> int:
        """Add an entry to the result for each worker that sent no samples; returns the number of such workers."""
        lost = [index for index, worker in enumerate(self._parts) if worker not in self._done]
        for index in lost:
            self._samples.workers.append(self._worker(index, requests=None, client_cpu_s=None, clock_error_s=None))
        return len(lost)

    def _wait(self, reported: Collection[str]) -> None:
        while self._alive(reported):
            self._changed.wait(_CHECK_S)
            self._changed.clear()

    def _alive(self, reported: Collection[str]) -> list[str]:
        clients = self._runner.clients
        connected = {worker for worker in self._parts if worker in clients and clients[worker].state != STATE_MISSING}
        return [worker for worker in connected if worker not in reported]

    def _on_samples(self, msg: Message, **_: object) -> None:
        if msg.node_id not in self._parts or msg.node_id in self._done:
            return
        requests = self._samples.merge(msg.data["samples"])
        entry = {name: msg.data[name] for name in ("client_cpu_s", "clock_error_s")}
        self._samples.workers.append(self._worker(self._parts.index(msg.node_id), requests=requests, **entry))
        if self._write_log is not None and msg.data["write_log"]:
            with self._write_log.open("ab") as log:
                log.write(msg.data["write_log"])
        self._done.add(msg.node_id)
        self._changed.set()

    def _worker(self, index: int, **measured: float | None) -> dict[str, Any]:
        # locust's name of a worker is its host's name and a number in hexadecimal.
        return {"name": f"{self._parts[index].rpartition('_')[0]} {index}", **measured}


class WorkerLink:
    """A worker's side of the connection to its master."""

    part: LoadPart | None = None
    """The worker's part of the load; None until the master sends it, and for a worker that connected too late."""

    def __init__(self, runner: WorkerRunner, *, begin: Callable[[float], None], end: Callable[[bool], None]) -> None:
        """begin: called when the load begins, with that moment as a reading of this process's time.perf_counter.

        end: called to end the load early; its argument is True if requests in flight should not be awaited.
        """
        self._runner = runner
        self._begin = begin
        self._answer: AsyncResult[dict[str, float]] = AsyncResult()
        self._at_start: ClockBounds | None = None
        self._is_handed_over = False

        def set_part(msg: Message, **_: object) -> None:
            self.part = LoadPart(msg.data["index"], msg.data["count"])

        runner.register_message(_PART, set_part)
        runner.register_message(_CLOCK, lambda msg, **_: self._answer.set(msg.data))
        runner.register_message(_BEGIN, self._on_begin, concurrent=True)
        runner.register_message(_END, lambda msg, **_: end(msg.data["at_once"]), concurrent=True)

    def report_ready(self) -> None:
        """Bound the offset of the clocks and report to the master as ready, in a greenlet; returns at once."""

        def report() -> None:
            self._at_start = bounds = self._exchange_stamps()
            round_trip_s = 2 * bounds.uncertainty_s if bounds is not None else 0.0
            self._runner.send_message(_READY, {"round_trip_s": round_trip_s})

        gevent.spawn(report)

    def hand_over(self, samples: LoadSamples, write_log: Path | None, *, at_once: bool = False) -> None:
        """Send the samples and the log of writes to the master, once. at_once: do not compare the clocks again."""
        if self._is_handed_over or self.part is None:
            return
        self._is_handed_over = True
        error_s = None
        if self._at_start is not None and not at_once and (at_end := self._exchange_stamps()) is not None:
            error_s = max(bounds.error_s(self._at_start.offset_s) for bounds in (self._at_start, at_end))
        sent = {
            "samples": samples.encode(),
            "write_log": write_log.read_bytes() if write_log is not None and write_log.exists() else b"",
            "client_cpu_s": samples.cpu_s,
            "clock_error_s": error_s,
        }
        self._runner.send_message(_SAMPLES, sent)

    def _exchange_stamps(self) -> ClockBounds | None:
        """Bound the offset of the master's clock from this process's clock; None if the master does not respond."""
        exchanges = []
        for _ in range(_EXCHANGES):
            self._answer = AsyncResult()
            sent = _clock()
            self._runner.send_message(_CLOCK, {})
            try:
                answer = self._answer.get(timeout=_EXCHANGE_LIMIT_S)
            except gevent.Timeout:
                return None
            exchanges.append((sent, answer["received"], answer["answered"], _clock()))
        return ClockBounds.of(exchanges)

    def _on_begin(self, msg: Message, **_: object) -> None:
        at = msg.data["at"] - (self._at_start.offset_s if self._at_start is not None else 0.0)
        gevent.sleep(max(0.0, at - _clock()))
        self._begin(at)
