"""A load from several locust processes, on this or other machines: a common start, and all samples in one place.

`MasterLink` runs in locust's master and `WorkerLink` in each worker; they talk over locust's own connection. Each
worker gets a part of the load, bounds the offset of its clock from the master's, starts at a moment that the master
names, and hands its samples over in the end.
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
    """The master's side."""

    def __init__(self, runner: MasterRunner, samples: LoadSamples, write_log: Path | None) -> None:
        """samples, write_log: what those of the workers are added to."""
        self._runner = runner
        self._samples = samples
        self._write_log = write_log
        self._parts: list[str] = []
        self._ready: dict[str, float] = {}
        """Of each worker that is ready, the round trip to it in seconds."""
        self._done: set[str] = set()
        self._changed = Event()
        runner.register_message(_CLOCK, self._on_clock)
        runner.register_message(_READY, self._on_ready)
        runner.register_message(_SAMPLES, self._on_samples)

    def assign_parts(self) -> None:
        """Tell each connected worker its part, before it gets its users."""
        self._parts = [client.id for client in self._runner.clients.ready]
        for index, worker in enumerate(self._parts):
            self._runner.send_message(_PART, {"index": index, "count": len(self._parts)}, worker)

    def run(self) -> None:
        """Let all begin at once when all are ready, wait until all have handed their samples over, and quit."""
        self._wait(self._ready)
        lead_s = _LEAD_S + _LEAD_ROUND_TRIPS * max(self._ready.values(), default=0.0)
        self._runner.send_message(_BEGIN, {"at": _clock() + lead_s})
        self._wait(self._done)
        self._runner.quit()

    def collect(self, *, at_once: bool, limit_s: float = _LAST_WORDS_S) -> None:
        """End the load and wait for the samples. at_once: as they are, without the requests that are in flight."""
        if self._alive(self._done):
            self._runner.send_message(_END, {"at_once": at_once})
            with gevent.Timeout(limit_s, False):
                self._wait(self._done)

    def note_lost_workers(self) -> int:
        """Add the workers that handed nothing over to the result; returns how many."""
        lost = [index for index, worker in enumerate(self._parts) if worker not in self._done]
        for index in lost:
            self._samples.workers.append(self._worker(index, requests=None, client_cpu_s=None, clock_error_s=None))
        return len(lost)

    def _wait(self, reported: Collection[str]) -> None:
        """Until all workers are among the *reported*, apart from those that are gone."""
        while self._alive(reported):
            self._changed.wait(_CHECK_S)
            self._changed.clear()

    def _alive(self, reported: Collection[str]) -> list[str]:
        """The workers from whom a report is still to come."""
        clients = self._runner.clients
        connected = {worker for worker in self._parts if worker in clients and clients[worker].state != STATE_MISSING}
        return [worker for worker in connected if worker not in reported]

    def _on_clock(self, msg: Message, **_: object) -> None:
        received = _clock()
        self._runner.send_message(_CLOCK, {"received": received, "answered": _clock()}, msg.node_id)

    def _on_ready(self, msg: Message, **_: object) -> None:
        self._ready[msg.node_id] = msg.data["round_trip_s"]
        self._changed.set()

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
    """A worker's side."""

    part: LoadPart | None = None
    """None until the master has said, and for a worker that came after the start."""

    def __init__(self, runner: WorkerRunner, *, begin: Callable[[float], None], end: Callable[[bool], None]) -> None:
        """begin: gets the moment at which the load begins, a reading of time.perf_counter here, when it has come.

        end: is called when the load is to end before its time; with True when requests in flight do not matter.
        """
        self._runner = runner
        self._begin = begin
        self._answer: AsyncResult[dict[str, float]] = AsyncResult()
        self._at_start: ClockBounds | None = None
        self._is_handed_over = False
        runner.register_message(_PART, self._on_part)
        runner.register_message(_CLOCK, lambda msg, **_: self._answer.set(msg.data))
        runner.register_message(_BEGIN, self._on_begin, concurrent=True)
        runner.register_message(_END, lambda msg, **_: end(msg.data["at_once"]), concurrent=True)

    def report_ready(self) -> None:
        """Bound the offset of the clocks and wait for the start; returns at once."""
        gevent.spawn(self._report_ready)

    def hand_over(self, samples: LoadSamples, write_log: Path | None, *, at_once: bool = False) -> None:
        """Send the samples and the log of writes to the master, once. at_once: without a look at its clock."""
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

    def _report_ready(self) -> None:
        self._at_start = self._exchange_stamps()
        self._runner.send_message(
            _READY, {"round_trip_s": 2 * self._at_start.uncertainty_s if self._at_start is not None else 0.0}
        )

    def _exchange_stamps(self) -> ClockBounds | None:
        """The master's clock minus ours; None where the master does not respond."""
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

    def _on_part(self, msg: Message, **_: object) -> None:
        self.part = LoadPart(msg.data["index"], msg.data["count"])

    def _on_begin(self, msg: Message, **_: object) -> None:
        at = msg.data["at"] - (self._at_start.offset_s if self._at_start is not None else 0.0)
        gevent.sleep(max(0.0, at - _clock()))
        self._begin(at)
