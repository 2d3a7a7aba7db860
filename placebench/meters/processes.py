"""CPU, scheduling delay and memory of processes as the kernel counts them, and the memory of a process tree over time.

Memory that forked processes stop sharing by copy-on-write is counted separately.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_PROC = Path("/proc")
_CPU_WAIT = 1
"""Position in schedstat of the nanoseconds for which a thread waited for a CPU."""
_CHILDREN = slice(13, 15)
"""Positions in stat, after the name, of the ticks of reaped children, in user mode and in the kernel."""
_CPU_CLOCK = 2
"""CPUCLOCK_SCHED of the kernel's include/linux/posix-timers.h: the clock of the time that the scheduler counts."""


def read_cpu_s(pid: int) -> float:
    """Return the CPU seconds of process *pid* so far, including ended threads; 0.0 if the process is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK) / 1e9
    except OSError:
        return 0.0


def read_cpu_wait_s(pids: Iterable[int]) -> float:
    """Return the seconds so far for which threads of the processes were ready to run but had no CPU."""
    waited_ns = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in list((_PROC / str(pid) / "task").iterdir()):
                # A thread may end between the listing and the reading.
                with suppress(FileNotFoundError, ProcessLookupError):
                    waited_ns += int((task / "schedstat").read_text().split()[_CPU_WAIT])
    return waited_ns / 1e9


def has_ready_thread(pids: Iterable[int]) -> bool:
    """Return whether a thread of the processes runs, or would run if it had a CPU."""
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in list((_PROC / str(pid) / "task").iterdir()):
                with suppress(FileNotFoundError, ProcessLookupError):
                    if (task / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"R":
                        return True
    return False


def read_parent(pid: int) -> int | None:
    """Return the process id of the parent of *pid*; None if the process is gone."""
    try:
        return int((_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def read_cpu_by_pid(pids: Iterable[int]) -> dict[int, float]:
    """Return the CPU seconds so far of each process, by process id."""
    return {pid: read_cpu_s(pid) for pid in pids}


def read_tree_cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds used by the processes and by their ended children, which are counted in 10 ms steps."""
    return sum(read_cpu_s(pid) + read_ended_cpu_s(pid) for pid in pids)


def read_ended_cpu_s(pid: int) -> float:
    """Return the CPU seconds of the process's reaped children and their reaped descendants, in steps of 10 ms."""
    try:
        times = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[_CHILDREN]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def read_family_cpu_s(pid: int) -> float | None:
    """Return the CPU seconds so far of a process and all its children, those that have ended in steps of 10 ms.

    None if the process is gone, or if the kernel does not list its children.
    """
    try:
        children = (_PROC / str(pid) / "task" / str(pid) / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return read_cpu_s(pid) + sum(read_cpu_s(int(each)) for each in children) + read_ended_cpu_s(pid)


def read_pss_bytes(pids: Iterable[int], proc: Path = _PROC) -> int | None:
    """Return the processes' total proportional set size, but with the files that they map counted whole and once.

    The proportional part of a file shrinks with the number of other processes that map it: of two variants of the same
    code, the one in the environment of the harness took 6.2 % less (6.2 to 6.3, 12 replicates). Returns None if the
    kernel does not let us read it, or does not report anonymous memory separately.
    """
    anonymous, files = 0, 0
    try:
        for seen in filter(None, (_read_rollup(pid, proc) for pid in pids)):
            anonymous += seen["Pss_Anon"]
            files = max(files, seen["Rss"] - seen["Anonymous"])
    except (PermissionError, KeyError):
        return None
    return anonymous + files


def _read_rollup(pid: int, proc: Path) -> dict[str, int]:
    """Return /proc/PID/smaps_rollup in bytes; empty if the process is gone.

    Raises PermissionError for another user's process.
    """
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: int(value.split()[0]) * 1024 for name, value in (line.split(":") for line in lines)}


def read_descendants(pid: int) -> list[int]:
    """Return the ids of the processes below *pid*, empty if it is gone; processes that end meanwhile may be missing."""
    import psutil

    try:
        return [each.pid for each in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_between(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return the CPU seconds between two readings; of a process that started in between, all its CPU counts."""
    return sum(now - before.get(pid, 0.0) for pid, now in after.items())


_MAX_SAMPLES, _SAMPLE_S = 240, 0.1


@dataclass(frozen=True)
class Memory:
    """Memory in bytes of one process, or the sum over several."""

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
class MemorySample:
    """One sample of the memory of a process tree."""

    at_s: float
    """Seconds since the sampler began."""
    process_tree: Memory
    shared_bytes: int
    """Pages from before the fork that the workers still share, in bytes, summed over the workers."""


def read_memory(pid: int, proc: Path = _PROC) -> Memory:
    """Return the memory of a process, zero if it is gone; raises PermissionError for another user's process."""
    seen = _read_rollup(pid, proc)
    if not seen:
        return Memory()
    return Memory(
        pss_bytes=seen["Pss"],
        uss_bytes=seen["Private_Clean"] + seen["Private_Dirty"],
        rss_bytes=seen["Rss"],
        shared_dirty_bytes=seen["Shared_Dirty"],
    )


class MemorySampler:
    """Samples the memory of the master and its workers in the `with` block: every 0.1 s and at both ends.

    worker_pids: process ids, or a function that returns those of the moment, for programs that workers start.
    Sampling a worker of 100 MB takes some milliseconds, during which it cannot map memory. When there are more than 240
    samples, every second one is dropped, and the time between samples is doubled.
    """

    def __init__(self, master_pid: int, worker_pids: Sequence[int] | Callable[[], Sequence[int]]) -> None:
        self.samples: list[MemorySample] = []
        self._master_pid = master_pid
        self._find_workers = worker_pids if callable(worker_pids) else lambda: worker_pids
        self._sample_s = _SAMPLE_S
        self._done = threading.Event()

        def run() -> None:
            while not self._done.wait(self._sample_s):
                self._take_sample()
                if len(self.samples) > _MAX_SAMPLES:
                    del self.samples[1::2]
                    self._sample_s *= 2

        self._thread = threading.Thread(target=run, name="memory-sampler", daemon=True)
        self._clock: Callable[[], float] = time.perf_counter
        self._began_s = 0.0

    def __enter__(self) -> Self:
        self._began_s = self._clock()
        self._take_sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._take_sample()

    @property
    def peak(self) -> Memory:
        """Memory of the process tree at the sample with the highest PSS."""
        return max((sample.process_tree for sample in self.samples), key=lambda each: each.pss_bytes)

    @property
    def unshared_bytes(self) -> int:
        """Memory un-shared by copy-on-write from the first sample to the last, over all workers."""
        return self.samples[0].shared_bytes - self.samples[-1].shared_bytes

    def _take_sample(self) -> None:
        at_s = self._clock() - self._began_s
        pids = self._find_workers()
        workers = [read_memory(pid) for pid in pids]
        served_by_itself = self._master_pid in pids
        process_tree = sum(workers, start=Memory() if served_by_itself else read_memory(self._master_pid))
        self.samples.append(MemorySample(at_s, process_tree, sum(each.shared_dirty_bytes for each in workers)))
