"""The samples and the SQL intervals of a record as one timeline of stacks, and its session.

Intervals have their own stacks and are exact; `timeline` gives the time between them to the samples. The profiler's
frames are removed; their time is a leaf of its own. `FlameGraphRecorder` and `ExternalFlameGraph` call these functions
when their record has ended.
"""

import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from placebench.profiler.capture.call_sites import CELL_FILES, PROFILER_FOLDER, is_application_file
from placebench.profiler.capture.options import CLOCK_TICK_S
from placebench.profiler.capture.stack import frame_name, leaf, once_each, shared_length
from placebench.profiler.model.files import with_slashes
from placebench.profiler.model.plan import PlanNode
from placebench.profiler.model.session import FlameSession, frame_identifier
from placebench.profiler.model.statement import Caller

_NOTED_WAITS = 0.05
_THREAD_ENTRY = f"_bootstrap\x00{with_slashes(threading.__file__)}"
"""The outermost frame of a thread that Python has started."""
_EVENT_LOOPS = ("/selectors.py", "/trio/_core/_io_", "/asyncio/runners.py")
OVERLAP_NOTE = (
    "statements ran at the same time, or beyond the end of the recording: the flame graph counts the time that several "
    "share once"
)
FULL_NOTE = "the flame graph has the first {:,} calls of the driver: later ones are Python's there"
SHARED_NOTE = "its thread's other tasks are in the flame graph too"

StackTime = tuple[list[str], float]
"""A stack and its seconds."""
Sample = tuple[float, list[str]]
"""A reading of the clock and the stack that ran then."""


class HasPlan(Protocol):
    """A statement that the server may have sent a plan for."""

    def plan(self) -> PlanNode | None:
        """Return the plan; None if there is none."""


class RecordedStatement(Protocol):
    """A statement or a transaction step of the recording, with the sums of its calls of the driver."""

    started: float
    execute_s: float | None
    fetch_s: float | None
    caller: Caller | None
    outer_caller: Caller | None

    def leaf_text(self) -> str:
        """Return the text of its leaf."""


class StackInterval(NamedTuple):
    """An interval with its own leaf: a statement, a fetch, a COMMIT, a garbage collection.

    statement: the statement whose plan belongs below. owner: the statement of an execute or a fetch.
    leaves: the number of frames at the end of the stack that are not Python: the statement's leaf and its plan's nodes.
    """

    started: float
    ended: float
    stack: list[str]
    statement: HasPlan | None = None
    leaves: int = 1
    owner: object = None

    @property
    def frames(self) -> list[str]:
        """The Python frames above the interval's leaves."""
        return self.stack[: len(self.stack) - self.leaves]


def make_session(
    records: list[StackTime], above: list[str], duration_s: float, *, samples: int, interval_s: float, cpu_s: float
) -> FlameSession:
    """Return the session of a record that ends now; *above* is the stack that the record began at."""
    return FlameSession(
        frame_records=records,
        start_time=time.time() - duration_s,
        duration=duration_s,
        min_interval=interval_s,
        max_interval=interval_s,
        sample_count=samples,
        start_call_stack=above,
        target_description="one record",
        cpu_time=cpu_s,
        sys_path=list(map(with_slashes, sys.path)),
        sys_prefixes=FlameSession.current_sys_prefixes(),
    )


def notes_on_waits(records: Sequence[StackTime], *, is_external: bool) -> list[str]:
    """Return notes on event loops whose waits take 5 % of the time or more, and are not at the lines that await.

    The samplers of this process put the waits of asyncio's own loop at the lines that await (`IdleEventLoop`); those of
    another process (*is_external*) stay below the selector.
    """
    ends = "".join([frame for stack in {id(stack): stack for stack, _ in records}.values() for frame in stack[-3:]])
    if not any(file in ends for file in _EVENT_LOOPS):  # as in most recordings: no stack is looked at by itself
        return []
    waits_s: dict[str, float] = {}
    stacks_s: dict[int, list[Any]] = {}
    for stack, seconds in records:
        stacks_s.setdefault(id(stack), [stack, 0.0])[1] += seconds
    for stack, seconds in stacks_s.values():
        end = "".join(stack[-3:])
        if not any(file in end for file in _EVENT_LOOPS):
            continue
        python = [frame.split("\x00") for frame in stack[-3:] if BUILT_IN not in frame and frame.count("\x00") > 1]
        name, file = python[-1][:2] if python else ("", "")
        if name == "select" and file.endswith("/selectors.py") and python[-2:][0][0] == "_run_once" and is_external:
            loop = "asyncio"
        elif name == "get_events" and "/trio/_core/_io_" in file:
            loop = "trio"
        elif name == "run" and file.endswith("/asyncio/runners.py") and "uvloop" in sys.modules:
            loop = "uvloop"  # it has no frames of its own
        else:
            continue
        waits_s[loop] = waits_s.get(loop, 0.0) + seconds
    least_s = sum(seconds for _, seconds in records) * _NOTED_WAITS
    return [
        f"waits of {loop}'s event loop are below the loop in the flame graph, not at the lines that await"
        for loop, seconds in waits_s.items()
        if seconds > least_s
    ]


def rooted(stack: list[str], above: list[str]) -> list[str]:
    """Return *stack* with *above* before it unless it begins so: a sampled greenlet lacks the frames that await it."""
    return stack if len(common_frames(stack[:2], above[:2])) == 2 else [*above, *stack[1:]]


def timeline(
    samples: Sequence[Sample], intervals: Iterator[StackInterval], whole: StackInterval, *, holds: bool
) -> list[StackTime]:
    """Return the time of *whole* as stacks with seconds, in order: those of the intervals, with samples in between.

    samples: in order of time; samples inside of an interval are left out. intervals: disjoint, in order of time.
    A sample stands for the time since the sample or interval before it, and if it *holds*, for the time after it too.
    A gap between two intervals in which no sample was taken is estimated (`_estimate_gaps`); other time goes to the
    Python frames that ran on both sides of it. It never goes to a leaf: a statement has only its own execute and fetch.
    """
    records: list[StackTime] = []
    gaps: list[_Gap] = []
    at, left = whole.started, None
    between: dict[tuple[int, int, bool], list[str]] = {}
    waiting = iter([*samples, (float("inf"), whole.stack)])
    taken, stack = next(waiting)
    for interval in (*intervals, whole._replace(started=whole.ended)):
        begin = min(interval.started, whole.ended)
        # Most intervals of a loop share their stacks.
        is_one_statement = left is not None and left.owner is not None and left.owner is interval.owner
        key = id(left and left.stack), id(interval.stack), is_one_statement
        if (common := between.get(key)) is None:
            found = common_frames(whole.stack, interval.frames) if left is None else _between(left, interval)
            common = between[key] = _inside(whole, found)
        here, gap_started, gap_record, gap_samples = common, at, len(records), []
        while taken <= begin or taken <= at:
            if taken > at:
                records.append((stack, taken - at))
                at = taken
                gap_samples.append((taken, stack))
                # A sample inside of the profiler's call of the driver says nothing about the time after that call.
                here = stack if holds and not _in_profiler(stack) else common_frames(stack, interval.frames)
            taken, stack = next(waiting)
        if begin > at:
            records.append((here if here is common else _inside(whole, here), begin - at))
            at = begin
        if begin > gap_started:
            gaps.append(_Gap(gap_started, begin, common, gap_record, gap_samples))
        ended = min(interval.ended, whole.ended)
        if ended > at:
            records.append((interval.stack, ended - at))
            at, left = ended, interval
    _estimate_gaps(records, gaps, whole)
    return records


def _inside(whole: StackInterval, stack: list[str]) -> list[str]:
    """Return *stack* if it is below the record's own, or of another thread that works for it; else the record's own."""
    entries = [each[1].startswith(_THREAD_ENTRY) if len(each) > 1 else False for each in (stack, whole.stack)]
    return stack if entries == [True, False] or len(stack) >= len(whole.stack) else whole.stack


class _Gap(NamedTuple):
    """Time between two intervals: the frames that both have in common, the place of its first record, its samples."""

    started: float
    ended: float
    common: list[str]
    record: int
    samples: list[Sample]


def _estimate_gaps(records: list[StackTime], gaps: Sequence[_Gap], whole: StackInterval) -> None:
    """Give each gap without a sample the stack that was sampled nearest in time in a gap with the same common frames.

    Such gaps are a stratum of the record's time: its samples fall on its frames in proportion to their time, whatever
    the lengths of its gaps. Left to the common frames, the time of short gaps would be missing from all frames below,
    by much more than the margin of the number of samples. A stratum without a sample keeps its common frames.
    A sample above the common frames counts as well: the program has left them and come back, as in a loop of requests.
    """
    sampled = [gap for gap in gaps if gap.samples]
    if not sampled:  # as in most short recordings
        return
    strata: dict[tuple[str, ...], tuple[list[float], list[list[str]]]] = {}

    @once_each
    def stratum(common: list[str]) -> tuple[list[float], list[list[str]]]:
        return strata.setdefault(tuple(map(_identifier, common)), ([], []))

    for gap in sampled:
        for taken, stack in gap.samples:
            times, stacks = stratum(gap.common)
            times.append(taken)
            stacks.append(stack)

    @once_each
    def below(common: list[str], nearest: list[str]) -> list[str]:
        return [*common, *nearest[len(common) :]] if _is_below(nearest, common) else _inside(whole, nearest)

    for gap in gaps:
        times, stacks = ([], []) if gap.samples else stratum(gap.common)
        if times:
            middle = (gap.started + gap.ended) / 2
            at = bisect_left(times, middle)
            if at == len(times) or (at and middle - times[at - 1] <= times[at] - middle):
                at -= 1
            records[gap.record] = below(gap.common, stacks[at]), records[gap.record][1]


def with_short_calls(
    intervals: Iterable[StackInterval],
    short: Sequence[StackInterval],
    whole: StackInterval,
    overlaps: list[StackInterval],
) -> Iterator[StackInterval]:
    """Yield the disjoint *intervals*, and those of *short* in the time between them, each from its start on.

    short: in order of their starts. Each is the sum of a statement's calls that were too short to be noted. These calls
    ran after its start, between the intervals or around a garbage collection, so that there is time for all of them if
    no statements overlapped. overlaps: gets those for which there is none.
    """
    owed = list(reversed(short))

    def placed(at: float, until: float, collection: StackInterval | None) -> Iterator[StackInterval]:
        """Yield what is placed between *at* and *until*, a free stretch or that of a garbage collection."""
        while owed and max(at, owed[-1].started) < until:
            call = owed.pop()
            if collection is not None and call.started > at:
                yield collection._replace(started=at, ended=call.started)
            began, seconds = max(at, call.started), call.ended - call.started
            at = min(began + seconds, until)
            stack, leaves = call.stack, call.leaves
            if collection is not None:
                stack, leaves = [*stack, collection.stack[-1]], leaves + 1
            yield StackInterval(began, at, stack, call.statement, leaves, call.owner)
            if (left_s := seconds - (at - began)) > CLOCK_TICK_S:
                owed.append(call._replace(ended=call.started + left_s))
        if collection is not None and at < until:
            yield collection._replace(started=at, ended=until)

    at = whole.started
    for interval in intervals:
        yield from placed(at, min(interval.started, whole.ended), None)
        if interval.owner is None:
            yield from placed(max(at, interval.started), min(interval.ended, whole.ended), interval)
        else:
            yield interval
        at = max(at, interval.ended)
    yield from placed(at, whole.ended, None)
    overlaps += owed


def _between(left: StackInterval, entered: StackInterval) -> list[str]:
    """Return the frames that ran from the end of one interval to the beginning of the next, as far as the two tell.

    Both are calls into the driver: between two statements the program has left at least the frames of libraries that
    lead to it, even if the two stacks are equal, as they are in a loop.
    """
    common = common_frames(left.frames, entered.frames)
    if _in_profiler(common):
        common = list(takewhile(lambda frame: _OURS not in frame, common))
    if left.owner is not None and left.owner is entered.owner:
        return common
    depth = len(common)
    while depth > 1 and not _is_application(common[depth - 1]):
        depth -= 1
    return common[:depth] if depth > 1 else common


def call_site_stack(
    caller: Caller | None, outer: Caller | None, stacks: Sequence[list[str]], above: list[str]
) -> list[str]:
    """Return the frames down to a statement's call site, as the first of *stacks* that contains it has them.

    If none does, they are its two lines below *above*. Without a call site they are what all *stacks* have in common.
    """
    if caller is None:
        return common_frames(*stacks) if len(stacks) == 2 else above
    for stack in stacks:
        if (found := cut_at(stack, caller, outer)) is not None:
            return found
    made = [frame_name(each.function, each.file, each.line) for each in (outer, caller) if each is not None]
    return [*above, *made]


def cut_at(stack: list[str], caller: Caller, outer: Caller | None) -> list[str] | None:
    """Return *stack* down to the call site; None if the stack does not contain it."""
    depth = _depth(stack, caller)
    if not depth or (outer is not None and not _depth(stack[:depth], outer)):
        return None
    return stack[:depth]


def _depth(stack: list[str], place: Caller) -> int:
    """Return the depth of the innermost frame of the function at *place*; 0 if there is none."""
    start = f"{place.function.rpartition('.')[2]}\x00{CELL_FILES.get(place.file, place.file)}\x00"
    return next((depth for depth in range(len(stack), 0, -1) if stack[depth - 1].startswith(start)), 0)


def _in_profiler(stack: Sequence[str]) -> bool:
    return _OURS in "".join(stack)


@lru_cache(maxsize=4096)
def _is_application(frame: str) -> bool:
    return is_application_file(frame.partition("\x00")[2].partition("\x00")[0])


def with_plans(intervals: Sequence[StackInterval]) -> list[StackInterval]:
    """Return the intervals, with those of a planned statement cut into plan nodes below the node that reads their rows.

    A node gets its self time; time that the plan does not explain (parsing, planning, network) stays on the statement.
    Parallel workers may make a plan longer than its statement: it is then shortened to fit.
    """
    by_statement: dict[int, list[StackInterval]] = {}
    for each in intervals:
        by_statement.setdefault(id(each.statement), []).append(each)
    cut: list[StackInterval] = []
    for group in by_statement.values():
        statement, length = group[0].statement, sum(each.ended - each.started for each in group)
        plan = None if statement is None else statement.plan()
        for each in group:
            cut.extend([each] if plan is None else _nodes(each, plan, length))
    return cut


def _nodes(interval: StackInterval, plan: PlanNode, length: float) -> Iterator[StackInterval]:
    """Cut one interval of a statement into its plan's nodes; all intervals of the statement take *length* seconds."""
    stacks: list[tuple[list[str], float]] = []
    path: list[str] = []
    for depth, node in plan.walk():
        path[depth:] = [leaf(node.title, "plan")]
        stacks.append(([*interval.stack, *path], node.self_s or 0.0))
    planned = sum(seconds for _, seconds in stacks)
    scale = (interval.ended - interval.started) / max(length, planned) if planned else 0.0
    at = interval.ended - planned * scale
    yield interval._replace(ended=at)
    for stack, seconds in stacks:
        leaves = interval.leaves + len(stack) - len(interval.stack)
        yield interval._replace(started=at, ended=at + seconds * scale, stack=stack, leaves=leaves)
        at += seconds * scale


def with_collections(
    records: Iterable[StackTime], collections: Iterable[tuple[float, float, str]], started: float
) -> Iterator[StackTime]:
    """Yield the *records*, which begin at *started*, with collections as leaves of the stacks that they interrupted.

    collections: the start, end and leaf of each garbage collection, in order of time.
    """
    waiting = iter([*collections, (float("inf"), float("inf"), "")])
    began, ended, name = next(waiting)
    at = started
    for stack, seconds in records:
        until, left_s = at + seconds, seconds
        inside: dict[str, float] = {}
        while began < until:
            if (pause_s := min(ended, until) - max(began, at)) > 0:
                inside[name] = inside.get(name, 0.0) + pause_s
                left_s -= pause_s
            reached = max(began, min(ended, until))
            if ended <= until:
                began, ended, name = next(waiting)
            began = max(began, reached)  # collections of several threads may overlap
        if left_s > 0:
            yield stack, left_s
        for each, pause_s in inside.items():
            yield [*stack, each], pause_s
        at = until


_OURS = f"\x00{PROFILER_FOLDER}"
_PYINSTRUMENT = find_spec("pyinstrument")
# Found, not imported: its import loads a C module, which switches the GIL of a free-threaded Python on.
_SAMPLERS = "\x00no pyinstrument"
if _PYINSTRUMENT is not None and _PYINSTRUMENT.origin is not None:
    _SAMPLERS = f"\x00{Path(_PYINSTRUMENT.origin).parent.as_posix()}"
BUILT_IN = "\x00<built-in>\x00"
_OVERHEAD = leaf("profiler overhead", "profiler")


@lru_cache(maxsize=4096)
def _is_profiler(frame: str) -> bool:
    return _OURS in frame or _SAMPLERS in frame


def application_records(records: Sequence[StackTime]) -> list[StackTime]:
    """Return the records with `without_profiler` applied to each stack; most have nothing of the profiler."""
    stacks = {id(stack): stack for stack, _ in records}  # most of them stand in many records
    own = set(filter(_is_profiler, set[str]().union(*stacks.values())))
    kept = {key: stack if own.isdisjoint(stack) else without_profiler(stack) for key, stack in stacks.items()}
    return [(kept[id(stack)], seconds) for stack, seconds in records]


def without_profiler(stack: Sequence[str]) -> list[str]:
    """Return the stack without the profiler's and pyinstrument's frames; a leaf replaces them if they were on top.

    A built-in called by a timed cursor is the driver, one called by pyinstrument is profiler overhead.
    """
    python = next((frame for frame in reversed(stack) if BUILT_IN not in frame), "")
    working = _SAMPLERS in python or (bool(stack) and _OURS in stack[-1])
    kept = [frame for frame in stack if not _is_profiler(frame)]
    while working and kept and BUILT_IN in kept[-1]:
        kept.pop()
    return [*kept, _OVERHEAD] if working else kept


_identifier = lru_cache(maxsize=4096)(frame_identifier)


def common_frames(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return the frames that both stacks begin with, up to and including the first one whose lines differ."""
    depth = shared_length(one, other)
    if depth < min(len(one), len(other)) and _identifier(one[depth]) == _identifier(other[depth]):
        depth += 1
    return list(one[:depth])


def _is_below(stack: Sequence[str], above: Sequence[str]) -> bool:
    """Return whether *stack* begins with the frames *above*, whatever their lines."""
    return len(stack) >= len(above) and all(map(eq, map(_identifier, stack), map(_identifier, above)))


def innermost(
    intervals: Sequence[StackInterval], overlaps: list[StackInterval] | None = None
) -> Iterator[StackInterval]:
    """Yield disjoint intervals in order of time: an interval inside of another one replaces that part of it.

    An interval without an owner, a garbage collection, is part of the statement in whose call it ran: its leaf is below
    that of the statement. overlaps: gets the intervals that took time from another statement.
    """
    overlaps = [] if overlaps is None else overlaps
    open_intervals: list[StackInterval] = []
    at = float("-inf")
    for interval in [*sorted(intervals, key=lambda interval: (interval.started, -interval.ended)), None]:
        until = float("inf") if interval is None else interval.started
        while open_intervals and open_intervals[-1].ended <= until:
            closed = open_intervals.pop()
            if closed.ended > at:
                yield closed if closed.started >= at else closed._replace(started=at)
                at = closed.ended
        if interval is not None:
            if open_intervals and interval.started > max(at, open_intervals[-1].started):
                around = open_intervals[-1]
                yield around._replace(started=max(at, around.started), ended=interval.started)
            for around in reversed(open_intervals):
                if around.owner is None:
                    continue
                if interval.owner is None and interval.ended <= around.ended + CLOCK_TICK_S:
                    stack, leaves = [*around.stack, interval.stack[-1]], around.leaves + 1
                    interval = interval._replace(stack=stack, leaves=leaves, owner=around.owner)
                elif around.owner is not interval.owner and interval.started < around.ended - CLOCK_TICK_S:
                    overlaps.append(interval)
                break
            at = max(at, interval.started)
            open_intervals.append(interval)
