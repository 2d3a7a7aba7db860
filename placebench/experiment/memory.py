"""Memory of a family of forked processes over time, and what they no longer share: the key piece is `MemorySampler`.

All of it is read from /proc/PID/smaps_rollup. RSS counts a shared page in each process, PSS in parts, USS only where
one process alone has it. After a fork all pages are shared; whoever writes to one gets a copy of its own, and Python
writes to an object by looking at it (its reference count). `shared_dirty_bytes` is what a worker still shares of the
pages that the program itself has filled, so that its decline is what copy-on-write has lost.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from placebench.experiment.processes import rollup

_PROC = Path("/proc")
_MOST_SAMPLES = 240


@dataclass(frozen=True)
class Memory:
    """Of one process, or summed over several; bytes."""

    pss_bytes: int = 0
    uss_bytes: int = 0
    rss_bytes: int = 0
    shared_dirty_bytes: int = 0

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(
            self.pss_bytes + other.pss_bytes,
            self.uss_bytes + other.uss_bytes,
            self.rss_bytes + other.rss_bytes,
            self.shared_dirty_bytes + other.shared_dirty_bytes,
        )


@dataclass(frozen=True)
class Sample:
    """One look at the family."""

    at_s: float
    """Since the sampler began."""
    family: Memory
    workers_share_bytes: int
    """What the workers share of the pages that were there when they were forked, summed over them."""


def memory_of(pid: int, proc: Path = _PROC) -> Memory:
    """What the process takes now; nothing for one that is gone. Raises PermissionError for somebody else's."""
    seen = rollup(pid, proc)
    if not seen:
        return Memory()
    return Memory(
        pss_bytes=seen["Pss"],
        uss_bytes=seen["Private_Clean"] + seen["Private_Dirty"],
        rss_bytes=seen["Rss"],
        shared_dirty_bytes=seen["Shared_Dirty"],
    )


class MemorySampler:
    """Looks at the master and its workers every *sample_s* inside the `with` block, and once at each end.

    A look at a worker of 100 MB takes some milliseconds, in which it cannot map memory. Past 240 samples every second
    one is dropped, and the time between them doubled.
    """

    def __init__(self, master_pid: int, worker_pids: Sequence[int], *, sample_s: float = 0.1) -> None:
        self.samples: list[Sample] = []
        self._master_pid = master_pid
        self._worker_pids = worker_pids
        self._sample_s = sample_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-sampler", daemon=True)
        self._clock: Callable[[], float] = time.perf_counter
        self._began_s = 0.0

    def __enter__(self) -> Self:
        self._began_s = self._clock()
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    @property
    def peak(self) -> Memory:
        """The family at the sample with the highest PSS."""
        return max((sample.family for sample in self.samples), key=lambda each: each.pss_bytes)

    @property
    def lost_bytes(self) -> int:
        """What copy-on-write has lost from the first sample to the last, over all workers."""
        return self.samples[0].workers_share_bytes - self.samples[-1].workers_share_bytes

    def _run(self) -> None:
        while not self._done.wait(self._sample_s):
            self._look()
            if len(self.samples) > _MOST_SAMPLES:
                del self.samples[1::2]
                self._sample_s *= 2

    def _look(self) -> None:
        at_s = self._clock() - self._began_s
        workers = [memory_of(pid) for pid in self._worker_pids]
        family = sum(workers, start=memory_of(self._master_pid))
        self.samples.append(Sample(at_s, family, sum(each.shared_dirty_bytes for each in workers)))
