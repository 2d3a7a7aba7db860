"""One flame for Python and SQL: samples of Python's stacks, with each statement as a leaf on the frame that ran it.

The key piece is `Flame`: the samples of one record, by a profile function or by a sampling thread (`sampler_of`), and
the SQL intervals beside them. The intervals know their own stacks and are exact; `timeline` gives the time between them
to the samples. The profiler's frames are taken out, and what they took themselves stands on a leaf of its own.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

import pyinstrument
from pyinstrument.frame_info import frame_info_get_identifier
from pyinstrument.session import Session

from placebench.profiler.capture.active_recording import Clock, inside_event_loop
from placebench.profiler.capture.sampler import Sampler
from placebench.profiler.capture.sampling_thread import ThreadSamples, profile_function_defect, thread_interval_s
from placebench.profiler.capture.stack import (
    PROFILER_FOLDER,
    Frames,
    Stacks,
    awaiting,
    frames_of,
    leaf,
    outside_profiler,
    root_of_thread,
)
from placebench.profiler.model.plan import PlanNode

if TYPE_CHECKING:
    from placebench.profiler.capture.pending_statement import Draft

_LOG = logging.getLogger("placebench.profiler")
_UNLOGGED = threading.Lock()
"""Free until the log has been told once that a thread samples."""
_MOST_EDGES = 100_000

Record = tuple[list[str], float]
"""A stack and its seconds."""
Sample = tuple[float, list[str]]
"""A reading of the clock and the stack that ran then."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An interval of the clock that belongs on a leaf of its own: a statement, a fetch, a COMMIT, a collection.

    draft: the statement that the server worked on, whose plan belongs below.
    """

    started: float
    ended: float
    stack: list[str]
    draft: "Draft | None" = None


@dataclass(frozen=True, slots=True)
class _Noted:
    """An interval as it was noted: its stack is named when the flame ends."""

    started: float
    ended: float
    frames: Frames
    leaf: str
    draft: "Draft | None"


class Samples(Protocol):
    """Samples of a thread's stack, from its making on.

    interval_s: how often, if Python lets it. holds: whether a sample tells what ran after it too; one that is taken
    when a function returns does not.
    """

    interval_s: float
    holds: bool

    def samples(self) -> list[Sample]:
        """End; the samples in order of time."""


def sampler_of(mode: str, clock: Clock, give_up: Callable[[Exception], None]) -> Samples:
    """What samples this thread in a mode that has a flame: never a profile function where Python dies of one."""
    interval_s = thread_interval_s(mode)
    if interval_s is None:
        return Sampler(clock, give_up)
    if mode != "sampled" and _UNLOGGED.acquire(blocking=False):
        _LOG.warning(
            "%s: a sampling thread estimates Python's time in the modes flame and plans", profile_function_defect()
        )
    return ThreadSamples(clock, interval_s, give_up)


class Flame:
    """Samples this thread from its making until `stop`."""

    def __init__(self, mode: str, clock: Clock, caller: FrameType | None, give_up: Callable[[Exception], None]) -> None:
        self._noted: list[_Noted] = []
        self._stacks = Stacks(root_of_thread())
        self._above = self._stacks(frames_of(outside_profiler(caller)))
        self._cpu_started = time.process_time()
        self._source = sampler_of(mode, clock, give_up)
        self.notes = _notes(mode, self._source)

    def add(self, started: float, ended: float, label: str, kind: str, draft: "Draft | None" = None) -> None:
        """Something from *started* to *ended* in the running frame, unless the flame is full."""
        if len(self._noted) >= _MOST_EDGES:
            return
        frames = [*frames_of(outside_profiler(sys._getframe(1))), *awaiting()]
        self._noted.append(_Noted(started, ended, frames, leaf(label, kind), draft))

    def stop(self, started: float, ended: float) -> Session:
        """pyinstrument's session from *started* to *ended*, the leaves on it; for the thread that made the flame."""
        samples = [(taken, rooted(stack, self._above)) for taken, stack in self._source.samples()]
        edges = innermost(with_plans(self._edges()))
        records = timeline(samples, edges, Edge(started, ended, self._above), holds=self._source.holds)
        return Session(
            frame_records=[(without_profiler(stack), seconds) for stack, seconds in records],
            start_time=time.time() - (ended - started),
            duration=ended - started,
            min_interval=self._source.interval_s,
            max_interval=self._source.interval_s,
            sample_count=len(samples),
            start_call_stack=self._above,
            target_description="one record",
            cpu_time=time.process_time() - self._cpu_started,
            sys_path=sys.path,
            sys_prefixes=Session.current_sys_prefixes(),
        )

    def _edges(self) -> list[Edge]:
        """The intervals with their stacks."""
        noted = self._noted
        return [Edge(each.started, each.ended, [*self._stacks(each.frames), each.leaf], each.draft) for each in noted]


def _notes(mode: str, source: Samples) -> tuple[str, ...]:
    """What a reader has to know of a flame whose samples another thread takes."""
    if isinstance(source, Sampler):
        return ()
    why = "" if mode == "sampled" else f"{profile_function_defect()}: "
    every = f"{source.interval_s * 1e3:g} ms"
    shared = ("its thread's other tasks are in the flame too",) if inside_event_loop() else ()
    return (
        f"{why}Python's time is estimated by a sampling thread, every {every}; statements and collections are exact",
        *shared,
    )


def rooted(stack: list[str], above: list[str]) -> list[str]:
    """*stack*, below *above* if it begins elsewhere: seen by another thread, a greenlet has none of who awaits it."""
    return stack if len(common(stack[:2], above[:2])) == 2 else [*above, *stack[1:]]


def timeline(samples: Sequence[Sample], edges: Iterator[Edge], whole: Edge, *, holds: bool) -> list[Record]:
    """The time of *whole* as stacks with seconds, in order: of each edge its own stack, between them the samples'.

    samples: in order of time; those inside of an edge are left out. edges: disjoint, in order of time. A sample stands
    for the time since the sample or edge before it. What is left before an edge goes to what the stacks on both sides
    have in common: the end of a call into the driver is where pyinstrument looks most often, and what ran before it is
    not the driver's. If a sample *holds*, it goes to that sample.
    """
    records: list[Record] = []
    at, before = whole.started, whole.stack
    waiting = iter([*samples, (float("inf"), whole.stack)])
    taken, stack = next(waiting)
    for edge in (*edges, Edge(whole.ended, whole.ended, whole.stack)):
        sampled = False
        begin = min(edge.started, whole.ended)
        while taken <= max(at, begin):
            if taken > at:
                records.append((stack, taken - at))
                at, before, sampled = taken, stack, holds
            taken, stack = next(waiting)
        if begin > at:
            here = before if sampled else common(before, edge.stack) or whole.stack
            records.append((here, begin - at))
            at = begin
        if min(edge.ended, whole.ended) > at:
            records.append((edge.stack, min(edge.ended, whole.ended) - at))
            at, before = min(edge.ended, whole.ended), edge.stack
    return records


def with_plans(edges: Sequence[Edge]) -> list[Edge]:
    """The edges, those of a statement with a plan cut into its nodes, each below the node that asked it for rows.

    A node gets its own time; what the plan does not explain (parsing, planning, the network) stays on the statement.
    Parallel workers may make a plan longer than its statement: it is then shortened to fit.
    """
    drafts = {id(edge.draft): edge.draft for edge in edges if edge.draft is not None}
    plans = {key: plan for key, draft in drafts.items() if (plan := draft.plan()) is not None}
    lengths: dict[int, float] = {}
    for edge in edges:
        lengths[id(edge.draft)] = lengths.get(id(edge.draft), 0.0) + edge.ended - edge.started
    cut: list[Edge] = []
    for edge in edges:
        plan = plans.get(id(edge.draft))
        cut.extend([edge] if plan is None else _nodes(edge, plan, lengths[id(edge.draft)]))
    return cut


def _nodes(edge: Edge, plan: PlanNode, length: float) -> Iterator[Edge]:
    """One edge of a statement whose edges are *length* seconds together, cut into its plan's nodes."""
    stacks: list[tuple[list[str], float]] = []
    path: list[str] = []
    for depth, node in plan.walk():
        path[depth:] = [leaf(node.title, "plan")]
        stacks.append(([*edge.stack, *path], node.self_s or 0.0))
    planned = sum(seconds for _, seconds in stacks)
    scale = (edge.ended - edge.started) / max(length, planned) if planned else 0.0
    at = edge.ended - planned * scale
    yield Edge(edge.started, at, edge.stack)
    for stack, seconds in stacks:
        yield Edge(at, at + seconds * scale, stack)
        at += seconds * scale


_OURS = f"\x00{PROFILER_FOLDER}"
_SAMPLERS = f"\x00{Path(pyinstrument.__file__).parent}"
_BUILT_IN = "\x00<built-in>\x00"
_OWN_WORK = leaf("the profiler's own work", "profiler")


def without_profiler(stack: Sequence[str]) -> list[str]:
    """The stack without the profiler's and pyinstrument's frames; a leaf stands for them if they were working.

    A built-in called by a timed cursor is the driver, one called by pyinstrument is the profiler's own work.
    """
    python = next((frame for frame in reversed(stack) if _BUILT_IN not in frame), "")
    working = _SAMPLERS in python or (bool(stack) and _OURS in stack[-1])
    kept = [frame for frame in stack if _OURS not in frame and _SAMPLERS not in frame]
    while working and kept and _BUILT_IN in kept[-1]:
        kept.pop()
    return [*kept, _OWN_WORK] if working else kept


def common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """The frames that both stacks begin with, whatever their lines."""
    return [frame for frame, _ in takewhile(_are_same, zip(one, other, strict=False))]


def _are_same(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1] or frame_info_get_identifier(pair[0]) == frame_info_get_identifier(pair[1])


def innermost(edges: Sequence[Edge]) -> Iterator[Edge]:
    """The edges as disjoint intervals in order of time: where one lies inside of another, the inner one counts."""
    open_edges: list[Edge] = []
    at = float("-inf")
    for edge in [*sorted(edges, key=lambda edge: (edge.started, -edge.ended)), None]:
        until = float("inf") if edge is None else edge.started
        while open_edges and open_edges[-1].ended <= until:
            closed = open_edges.pop()
            if closed.ended > at:
                yield Edge(max(at, closed.started), closed.ended, closed.stack)
                at = closed.ended
        if edge is not None:
            if open_edges and edge.started > max(at, open_edges[-1].started):
                yield Edge(max(at, open_edges[-1].started), edge.started, open_edges[-1].stack)
            at = max(at, edge.started)
            open_edges.append(edge)
