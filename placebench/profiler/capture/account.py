"""The laws that hold in every recording, and that each recording is checked against when it ends.

* The leaves of a statement in the flame graph are its execute and its fetches.
* All leaves together are the time that elapsed.
* The rows of the statements are those that the driver handed out, and no more than it says there are.
* The CPU time of recordings that ran at the same time is at most that of the process.

Each of the two sides of a law is counted by itself. A breach is a line of text, for `RecordingData.breaches`.
"""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from placebench import units
from placebench.profiler.capture.options import CLOCK_TICK_S, Clock
from placebench.profiler.capture.pending_statement import PendingStatement
from placebench.profiler.capture.stack import leaf
from placebench.profiler.model.statement import Statement

if TYPE_CHECKING:
    from placebench.profiler.model.session import FlameSession

_SQL = leaf("", "sql")
_BELOW_SQL = (leaf("", "plan"), leaf("", "gc"))
_SECOND_READINGS = 3
_CPU_TICK_S = max(time.get_clock_info("process_time").resolution, time.get_clock_info("thread_time").resolution)
"""What one reading of CPU time may be wrong by: 1 ns on Linux, 1 µs on macOS, 16 ms on Windows."""

LeafTimes = dict[str, list[float]]
"""The seconds of each interval of each statement's leaf, with what is below it."""


def leaf_times(session: "FlameSession") -> tuple[float, LeafTimes]:
    """Return the seconds of all leaves of a flame graph, and those of the statements' leaves."""
    every: defaultdict[str, list[float]] = defaultdict(list)
    for stack, seconds in session.frame_records:
        every[stack[-1] if stack else ""].append(seconds)
    total_s = sum(map(sum, every.values()))
    times = LeafTimes({frame: parts for frame, parts in every.items() if frame.endswith(_SQL)})
    if below := {frame for frame in every if frame.endswith(_BELOW_SQL)}:
        for stack, seconds in session.frame_records:
            if stack and stack[-1] in below:
                frame = next(each for each in (*reversed(stack), "") if not each.endswith(_BELOW_SQL))
                if frame.endswith(_SQL):
                    times.setdefault(frame, []).append(seconds)
    return total_s, times


def flame_graph_breach(
    session: "FlameSession", total_s: float, statements: Iterable[Statement], *, is_exact: bool, is_whole: bool
) -> str | None:
    """Return the breach of a law by the flame graph of one recording; None if the laws hold.

    total_s: the time that all leaves must add up to.
    is_exact: whether the leaves must be all of execute and fetch; else they are at most that.
    is_whole: whether *statements* are all that ran.
    """
    found_s, leaves = leaf_times(session)
    if abs(found_s - total_s) > CLOCK_TICK_S * (len(session.frame_records) + 1):
        return f"all leaves of the flame graph are {units.duration(found_s)}, where {units.duration(total_s)} elapsed"
    if not is_whole:
        return None
    driver_s: defaultdict[str, list[float]] = defaultdict(list)
    for each in statements:
        driver_s[each.sql].append((each.execute_s or 0.0) + (each.fetch_s or 0.0))
    # Long texts are cut in a leaf: several may have one leaf for their fetches.
    groups: dict[str, tuple[set[str], list[float]]] = {}
    for sql, calls in driver_s.items():
        names, taken = groups.setdefault(leaf(f"fetch {sql}", "sql"), (set(), []))
        names.add(leaf(sql, "sql"))
        taken += calls
    for fetch, (names, taken) in groups.items():
        parts = [part for name in (fetch, *names) for part in leaves.get(name, ())]
        on_leaves_s, seconds = sum(parts), sum(taken)
        tolerance_s = CLOCK_TICK_S * (2 * len(taken) + len(parts))
        difference_s = on_leaves_s - seconds
        if difference_s > tolerance_s or (is_exact and -difference_s > tolerance_s):
            text = next(iter(names)).partition("\x00")[0]
            is_taken = f"took {units.duration(seconds)} to execute and fetch"
            return f"the leaves of a statement are {units.duration(on_leaves_s)}, but it {is_taken}: {text}"
    return None


def merged_flame_graph_breach(mean: "FlameSession", sessions: Sequence["FlameSession"]) -> str | None:
    """Return the breach of a law by the mean of flame graphs: its leaves are theirs, each and all together."""
    total_s, records = 0.0, 0
    expected: dict[str, float] = {}
    for session in sessions:
        part_s, times = leaf_times(session)
        total_s += part_s
        records += len(session.frame_records)
        for frame, parts in times.items():
            expected[frame] = expected.get(frame, 0.0) + sum(parts)
    mean_s, times = leaf_times(mean)
    tolerance_s = CLOCK_TICK_S * (records + 1)
    requests = len(sessions)
    if abs(mean_s * requests - total_s) > tolerance_s:
        merged_s, parts_s = units.duration(mean_s * requests), units.duration(total_s)
        return f"all leaves of the merged flame graph are {merged_s}, and those of its parts {parts_s}"
    for frame in dict.fromkeys((*expected, *times)):
        found_s, wanted_s = sum(times.get(frame, ())) * requests, expected.get(frame, 0.0)
        if abs(found_s - wanted_s) > tolerance_s:
            text = frame.partition("\x00")[0]
            merged_s, parts_s = units.duration(found_s), units.duration(wanted_s)
            return f"the leaves of a statement are {merged_s} in the merged flame graph, {parts_s} in its parts: {text}"
    return None


def row_breach(statements: Sequence[Statement], pending: Sequence[PendingStatement], recording: Any) -> str | None:
    """Return the breach of the law of rows by the statements that *pending* has become; None if it holds.

    recording: has the counts of the connections, and of the statements that are not kept.
    """
    if sum([each.row_count or 0 for each in statements]) != sum([each.fetched_rows or 0 for each in pending]):
        for statement, counted in zip(statements, pending, strict=True):
            rows, fetched, own = statement.row_count, counted.fetched_rows, counted.row_count
            if rows == fetched or rows is None:
                continue
            if fetched is not None and rows < fetched:
                return f"{units.count(rows)} rows are those of a statement that has fetched {units.count(fetched)}"
            if rows > max(fetched or 0, own or 0, counted.total_rows or 0):
                return f"{units.count(rows)} rows are those of a statement whose driver has no such count"
    # Another thread may be between the two counts just now.
    for _ in range(_SECOND_READINGS):
        by_statement, by_connection = recording.fetched_rows(), recording.handed_out_rows()
        if by_statement == by_connection:
            return None
        time.sleep(0.001)
    return (
        f"the statements have fetched {units.count(by_statement)} rows, "
        f"and their connections have handed out {units.count(by_connection)}"
    )


class CpuAccount:
    """Compares the CPU time of the recordings that run at the same time with that of the process."""

    def __init__(self) -> None:
        self._forget()
        _ACCOUNTS.add(self)

    def _forget(self) -> None:
        """Reset the account in a forked process, which has used no CPU and lacks the thread that held the lock."""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._running = 0
        self._started_s = 0.0
        self._claimed_s = 0.0
        self._claims = 0

    def begin(self, started_s: float) -> None:
        """Count a recording that began when the process had used *started_s*."""
        if os.getpid() != self._pid:  # uWSGI forks in C, and calls no function of Python's
            self._forget()
        with self._lock:
            if not self._running:
                self._started_s, self._claimed_s, self._claims = started_s, 0.0, 0
            self._running += 1

    def end(self, cpu_s: float | None, process: Clock) -> str | None:
        """Count a recording that has ended, and return the breach of the law, if any.

        cpu_s: its CPU time; None if it was not measured, or if it is part of another recording's.
        """
        with self._lock:
            self._running = max(0, self._running - 1)
            if cpu_s is None:
                return None
            self._claimed_s += cpu_s
            self._claims += 1
            used_s = process() - self._started_s
            if self._claimed_s <= used_s + CLOCK_TICK_S + self._claims * _CPU_TICK_S:
                return None
            claimed_s, self._claimed_s = self._claimed_s, self._claimed_s - cpu_s
        return (
            f"recordings that ran at the same time used {units.duration(claimed_s)} of CPU, "
            f"and the process {units.duration(used_s)} meanwhile"
        )


_ACCOUNTS: "WeakSet[CpuAccount]" = WeakSet()


def _forget_all() -> None:
    for account in _ACCOUNTS:
        account._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
