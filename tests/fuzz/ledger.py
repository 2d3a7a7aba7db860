"""What a program counts by itself while it is recorded, and the check of a recording against it."""

import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from placebench.profiler import Recording
from placebench.profiler.model.session import FlameSession

TICK_S = 2e-9
"""The time by which each interval in a sum may be wrong."""
WITH_FLAME_GRAPH = ("sampled", "external", "flame", "plans")
TAG = re.compile(r"tag_(\d+)_")


@dataclass
class Call:
    """One statement that a program has sent: its rows, and bounds of its time in the driver."""

    rows: int = 0
    least_s: float = 0.0
    most_s: float = 0.0
    is_cut_off: bool = False
    """Whether it was cancelled: then neither its rows nor its times are known here."""
    is_unsent: bool = False
    """Whether it may have been cancelled before it was sent."""


@dataclass
class Ledger:
    """What ran inside of one record; those of records around it have it too."""

    calls: dict[int, Call] = field(default_factory=dict)
    spans: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    is_alone: bool = True
    """Whether no two statements may have run at the same time."""
    has_threads: bool = False
    """Whether threads of a driver ran statements: in mode "external" each has leaves of its own."""


LEDGERS: ContextVar[tuple[Ledger, ...]] = ContextVar("ledgers", default=())
_numbers = count(1)
_lock = Lock()


def new_call() -> tuple[int, Call]:
    """Count a statement in every record that runs here; return the number that its text has to name."""
    number, call = next(_numbers), Call()
    with _lock:
        for ledger in LEDGERS.get():
            ledger.calls[number] = call
    return number, call


def in_a_child() -> None:
    """Count anew in a process that was forked, with numbers that no other process has."""
    global _lock, _numbers
    _lock, _numbers = Lock(), count(os.getpid() * 1_000_000)
    LEDGERS.set(())


def count_span() -> None:
    """Count a span that has ended in every record that runs here."""
    with _lock:
        for ledger in LEDGERS.get():
            ledger.spans += 1


def in_a_thread() -> None:
    """Note that a driver runs a statement in its own thread."""
    for ledger in LEDGERS.get():
        ledger.has_threads = True


def at_the_same_time() -> None:
    """Note that statements may overlap from now on in every record that runs here."""
    for ledger in LEDGERS.get():
        ledger.is_alone = False


@contextmanager
def timed(call: Call) -> Iterator[None]:
    """Add the time of the block to the longest that the driver can have taken."""
    began = time.perf_counter()
    try:
        yield
    finally:
        call.most_s += time.perf_counter() - began


def tag_of(text: str) -> int | None:
    """The number of the statement with this text; None for one that is not counted here."""
    found = TAG.search(text)
    return int(found[1]) if found else None


def problems(recording: Recording, ledger: Ledger) -> list[str]:
    """Return a line for each figure that is not what the program counted, and for each law that is broken."""
    found = [f"breach: {each}" for each in recording.breaches] + [f"hook: {each}" for each in recording.failed_hooks]
    if recording.elapsed_s > ledger.elapsed_s + TICK_S:
        found.append(f"elapsed_s {recording.elapsed_s} of at most {ledger.elapsed_s}")
    if recording.cpu_s is not None and recording.cpu_s > ledger.cpu_s + 1e-6:
        found.append(f"cpu_s {recording.cpu_s}, and the process used {ledger.cpu_s}")
    if len(recording.spans) != ledger.spans:
        found.append(f"{len(recording.spans)} spans of {ledger.spans}")
    times, rows, calls = defaultdict[int, float](float), Counter[int](), Counter[int]()
    for each in recording.statements:
        if (number := tag_of(each.sql)) is None:
            continue
        calls[number] += 1
        rows[number] += each.row_count or 0
        times[number] += (each.execute_s or 0.0) + (each.fetch_s or 0.0)
    for number in sorted({*calls, *ledger.calls}):
        call = ledger.calls.get(number)
        if call is None or calls[number] not in ((0, 1) if call.is_unsent else (1,)):
            found.append(f"tag_{number}_: {calls[number]} statements of {int(call is not None)}")
        elif not call.is_cut_off:
            if rows[number] != call.rows:
                found.append(f"tag_{number}_: {rows[number]} rows of {call.rows}")
            if not call.least_s - TICK_S <= times[number] <= call.most_s + TICK_S:
                found.append(f"tag_{number}_: {times[number]} s, expected {call.least_s} to {call.most_s}")
    if (recording.session is None) == (recording.mode in WITH_FLAME_GRAPH):
        found.append(f"mode {recording.mode}, flame graph: {recording.session is not None}")
    if recording.session is not None:
        found += _problems_of_leaves(recording, recording.session, times, ledger)
    with TemporaryDirectory() as folder:
        recording.save(Path(folder) / "saved.json")
        loaded = Recording.load(Path(folder) / "saved.json")
    for name in ("elapsed_s", "sql_s", "row_count", "statement_count", "statements", "transactions", "spans", "notes"):
        if (saved := getattr(loaded, name)) != (own := getattr(recording, name)) and list(saved) != list(own):
            found.append(f"{name} is not what was saved")
    return found


def _problems_of_leaves(
    recording: Recording, session: FlameSession, times: dict[int, float], ledger: Ledger
) -> list[str]:
    """Return a line for each sum of the flame graph that is not the recording's."""
    found = []
    total_s, leaves = 0.0, defaultdict[int, float](float)
    for stack, seconds in session.frame_records:
        total_s += seconds
        if seconds < 0:
            found.append(f"a leaf of {seconds} s: {stack[-1]}")
        # asyncpg prepares a query on the table that it copies records to.
        sql = [frame for frame in stack if "\x00sql\x00" in frame and not frame.startswith("PREPARE STATEMENT")]
        if sql and (number := tag_of(sql[0])) is not None:
            leaves[number] += seconds
    tolerance_s = TICK_S * (len(session.frame_records) + len(times) + 1)
    more_s = total_s - recording.elapsed_s
    is_one_line = ledger.is_alone and not (recording.mode == "external" and ledger.has_threads)
    if more_s < -tolerance_s or (is_one_line and more_s > tolerance_s):
        found.append(f"all leaves are {total_s} s of {recording.elapsed_s}")
    for number in {*leaves, *times}:
        difference_s = leaves.get(number, 0.0) - times.get(number, 0.0)
        if difference_s > tolerance_s or (ledger.is_alone and -difference_s > tolerance_s):
            found.append(f"tag_{number}_: leaves {leaves[number]} s, execute and fetch {times[number]} s")
    return found
