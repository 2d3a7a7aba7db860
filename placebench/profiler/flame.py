"""One flame for Python and SQL: pyinstrument's frames, with each statement as a leaf on the frame that ran it.

The key piece is `Flame`, one record's sampler and the SQL intervals beside it. pyinstrument charges the time between
two samples to the later one's stack. `with_leaves` cuts these pieces at the edges of the SQL intervals, which know
their own stack, so that the sum of all times stays what it was. The profiler's frames are taken out, and what they
took themselves stands on a leaf of its own.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

import pyinstrument
from pyinstrument.frame_info import frame_info_get_identifier
from pyinstrument.session import Session

from placebench.profiler.callsite import PROFILER_FOLDER, outside_profiler
from placebench.profiler.plans import PlanNode
from placebench.profiler.sampler import INTERVAL_S, Sampler
from placebench.profiler.stacks import Frames, Stacks, awaiting, frames_of, leaf, root_of_thread
from placebench.profiler.tape import Clock, inside_event_loop

if TYPE_CHECKING:
    from placebench.profiler.draft import Draft

_MOST_EDGES = 100_000

Record = tuple[list[str], float]


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


class Flame:
    """Samples this thread from its making until `stop`."""

    notes: tuple[str, ...] = ()

    def __init__(self, clock: Clock, caller: FrameType | None, give_up: Callable[[Exception], None]) -> None:
        self._noted: list[_Noted] = []
        # "disabled": any number of profilers may run, each on its thread. A task shares its thread with others.
        mode: Literal["enabled", "disabled"] = "enabled" if inside_event_loop() else "disabled"
        self._profiler = Sampler(give_up, interval=INTERVAL_S, async_mode=mode)
        self._profiler.start(caller_frame=caller)
        self._started = clock()

    def add(self, started: float, ended: float, label: str, kind: str, draft: "Draft | None" = None) -> None:
        """Something from *started* to *ended* in the running frame, unless the flame is full."""
        if len(self._noted) >= _MOST_EDGES:
            return
        frames = [*frames_of(outside_profiler(sys._getframe(1))), *awaiting()]
        self._noted.append(_Noted(started, ended, frames, leaf(label, kind), draft))

    def stop(self, started: float, ended: float) -> Session:
        """The session from *started* to *ended*, with the leaves on it; for the thread that made the flame."""
        session = self._profiler.stop()
        records = within(started, ended, session.frame_records, self._started)
        # What ran after the last sample has no stack: it is charged to the frame that asked for the flame.
        unsampled = ended - started - sum(seconds for _, seconds in records)
        if unsampled > 0:
            records.append((session.start_call_stack, unsampled))
        cut = with_leaves(records, started, with_plans(self._edges()))
        session.frame_records = [(without_profiler(stack), seconds) for stack, seconds in cut]
        session.sample_count = len(session.frame_records)
        return session

    def _edges(self) -> list[Edge]:
        """The intervals with their stacks."""
        stacks = Stacks(root_of_thread())
        return [Edge(each.started, each.ended, [*stacks(each.frames), each.leaf], each.draft) for each in self._noted]


def within(started: float, ended: float, records: Sequence[Record], at: float) -> list[Record]:
    """What of the records, one after the other from *at* on, lies between *started* and *ended*."""
    kept: list[Record] = []
    for stack, seconds in records:
        begin, at = max(at, started), at + seconds
        if min(at, ended) > begin:
            kept.append((stack, min(at, ended) - begin))
    return kept


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


def with_leaves(records: Sequence[Record], started: float, edges: Sequence[Edge]) -> list[Record]:
    """The records cut at the edges, each piece inside an edge moved to that edge's stack; time is conserved.

    records: (stack, seconds) one after the other from *started* on. edges: in any order; inside of each other is fine.
    A piece before an edge lies between two stacks that are known, and goes to what they have in common: the end of a
    call into the driver is where pyinstrument looks most often, and what ran before it is not the driver's.
    """
    pieces: list[Record] = []
    segments = innermost(edges)
    segment = next(segments, None)
    at = started
    before: list[str] = []
    for stack, seconds in records:
        end = at + seconds
        while at < end:
            while segment is not None and segment.ended <= at:
                segment = next(segments, None)
            inside = segment is not None and segment.started <= at
            boundary = end if segment is None else segment.ended if inside else segment.started
            piece_end = min(end, boundary)
            here = stack
            if segment is not None and inside:
                here = before = segment.stack
            elif segment is not None and boundary <= end:
                here = common(before or stack, segment.stack) or stack
            pieces.append((here, piece_end - at))
            at = piece_end
        before = stack
    return pieces


def common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """The frames that both stacks begin with, whatever their lines."""
    pairs = zip(one, other, strict=False)
    same = takewhile(lambda pair: frame_info_get_identifier(pair[0]) == frame_info_get_identifier(pair[1]), pairs)
    return [frame for frame, _ in same]


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
