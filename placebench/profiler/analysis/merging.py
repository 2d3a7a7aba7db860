"""Merges the flame graphs of many requests into one, with the mean time of each stack over all requests.

The main functions are `merge_sessions` and, for sessions in memory, `mean_session`. pyinstrument's own
`Session.combine` puts the requests one after another, and its page then shows each thread of each worker separately;
here equal stacks of all requests are one. `bounded` makes a session small enough for a page.
"""

import json
import re
from collections.abc import Iterable, Sequence
from copy import copy
from functools import lru_cache
from itertools import accumulate, pairwise
from math import isfinite
from pathlib import Path

from placebench import units
from placebench.errors import ProfilerError
from placebench.profiler.model.session import FlameSession, frame_identifier, whole_frames

_Stack = tuple[str, ...]
_Records = list[tuple[list[str], float]]
INSTALLED_PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)")
DRIVER_PACKAGES = ("sqlalchemy", "psycopg2", "psycopg", "psycopg_pool", "greenlet")
"""Packages whose frames are below a statement's call site."""

_ROOT = "one request\x00\x000"


def merge_sessions(paths: Iterable[Path | str], *, application: Sequence[str] = ()) -> FlameSession:
    """Return one session of the mean request: the time of each stack in all requests, divided by their number.

    Frames above the profiled request (server, thread) are cut off, so that requests of different threads and processes
    are merged; sample_count is the sum.

    paths: `.pyisession` files of the middleware.
    application: folders like "placebench/lab/reference" that count as the application's own code even if they are
        installed. By default installed code is a library, and shown folded.
    Raises ProfilerError if there are no files, or if a file cannot be read.
    """
    return mean_session(map(load_session, paths), application=application)


def mean_session(sessions: Iterable[FlameSession], *, application: Sequence[str] = ()) -> FlameSession:
    """Return the mean of sessions that are in memory, like `merge_sessions`. Raises ProfilerError if there are none."""
    mean = _Mean()
    for session in sessions:
        mean.add(session)
    if mean.first is None:
        raise ProfilerError("no profiled requests to merge: expected at least one .pyisession file; did requests come?")
    return mean.session(mean.first, application)


class _Mean:
    """Sums up sessions, one at a time, for their mean."""

    def __init__(self) -> None:
        self.first: FlameSession | None = None
        self._times: dict[_Stack, float] = {}
        self._requests = 0
        self._samples = 0
        self._duration_s = 0.0
        self._cpu_s = 0.0

    def add(self, session: FlameSession) -> None:
        self.first = self.first or session
        self._requests += 1
        self._samples += session.sample_count
        self._duration_s += session.duration
        self._cpu_s += session.cpu_time
        above = [frame_identifier(frame) for frame in session.start_call_stack]
        for frames, seconds in session.frame_records:
            stack = (_ROOT, *frames[shared_depth(above, frames) :])
            self._times[stack] = self._times.get(stack, 0.0) + seconds

    def session(self, first: FlameSession, application: Sequence[str]) -> FlameSession:
        stacks = sorted(self._times, key=_order)
        return FlameSession(
            frame_records=[(list(stack), self._times[stack] / self._requests) for stack in stacks],
            start_time=first.start_time,
            duration=self._duration_s / self._requests,
            min_interval=first.min_interval,
            max_interval=first.max_interval,
            sample_count=self._samples,
            start_call_stack=[_ROOT],
            target_description=f"mean of {self._requests} requests",
            cpu_time=self._cpu_s / self._requests,
            sys_path=first.sys_path,
            sys_prefixes=_libraries(stacks, first.sys_prefixes, application) if application else first.sys_prefixes,
        )


def unfolded(session: FlameSession) -> FlameSession:
    """Return the session; if all of its code is installed, treat the packages that ran SQL as the application.

    Installed code is shown folded, so otherwise no frame would show what ran the statements.
    """
    stacks = [tuple(frames) for frames, _ in session.frame_records]
    prefixes = tuple(session.sys_prefixes)
    if not prefixes or any(_is_own(frame, prefixes) for stack in stacks for frame in stack):
        return session
    packages = {package for stack in stacks if (package := _package_above_sql(stack)) is not None}
    if not packages:
        return session
    shown = copy(session)
    shown.sys_prefixes = _libraries(stacks, prefixes, sorted(packages))
    return shown


def bounded(session: FlameSession, most_frames: int) -> tuple[FlameSession, tuple[str, ...]]:
    """Return the session with at most *most_frames* frames in its tree, and notes on the folding; no time is lost.

    Equal stacks are merged within each slice of the time, with as many slices as the limit allows. If even one slice
    has too many frames, those with the least time are folded into their callers.
    """
    records = session.frame_records
    if _tree_size(records) <= most_frames:
        return session, ()
    smaller = copy(session)
    smaller.frame_records = _in_slices(session, 1)
    slices = most_frames // _tree_size(smaller.frame_records)
    if slices > 1:
        smaller.frame_records = _in_slices(session, slices)
    every = f"each {smaller.duration / slices * 1e3:.3g} ms" if slices > 1 else "all of the time"
    note = f"equal stacks are shown as one in {every}: {len(records)} samples and intervals are too many for a page"
    if slices:
        return smaller, (note,)
    smaller.frame_records, least_s, folded_s = _without_rare(smaller.frame_records, most_frames // 2)
    share = units.percent(folded_s / sum(seconds for _, seconds in records))
    rare = f"frames of less than {least_s * 1e3:.3g} ms are folded into their callers, {share} of the time"
    return smaller, (note, rare)


def _tree_size(records: _Records) -> int:
    """Return the number of frames in pyinstrument's tree: it merges neighbours, and adds a frame for self time."""
    stacks = [[], *(_order(stack) for stack, _ in records)]
    return sum(len(after) - shared_depth(before, after) + 1 for before, after in pairwise(stacks))


def _in_slices(session: FlameSession, slices: int) -> _Records:
    """Return the records, with equal stacks merged within each of *slices* equal parts of the time."""
    sums: dict[tuple[int, _Stack], float] = {}
    total_s = sum(seconds for _, seconds in session.frame_records) or 1.0
    ends = accumulate(seconds for _, seconds in session.frame_records)
    for (frames, seconds), ended in zip(session.frame_records, ends, strict=True):
        key = min(slices - 1, int((ended - seconds / 2) / total_s * slices)), tuple(frames)
        sums[key] = sums.get(key, 0.0) + seconds
    in_order = sorted(sums, key=lambda key: (key[0], _order(key[1])))
    return [(list(stack), sums[number, stack]) for number, stack in in_order]


def _without_rare(records: _Records, most_frames: int) -> tuple[_Records, float, float]:
    """Return the records without rare frames, the seconds up to which frames are rare, and the time of cut records."""
    # Each path from the root is a number: paths as tuples would take the square of the depth.
    paths: dict[tuple[int, str], int] = {}
    numbers_of_records: list[list[int]] = []
    times: list[float] = []
    for frames, seconds in records:
        path, numbers = -1, []
        for frame in _order(frames):
            path = paths.setdefault((path, frame), len(paths))
            numbers.append(path)
            if path == len(times):
                times.append(0.0)
            times[path] += seconds
        numbers_of_records.append(numbers)
    least_s = sorted(times, reverse=True)[most_frames]
    sums: dict[_Stack, float] = {}
    folded_s = 0.0
    for (frames, seconds), numbers in zip(records, numbers_of_records, strict=True):
        # No frame has more time than its caller.
        depth = sum(times[path] > least_s for path in numbers)
        folded_s += seconds if depth < len(frames) else 0.0
        kept = tuple(frames[:depth])
        sums[kept] = sums.get(kept, 0.0) + seconds
    return [(list(stack), sums[stack]) for stack in sorted(sums, key=_order)], least_s, folded_s


def _order(stack: Iterable[str]) -> list[str]:
    """Return a sort key that puts equal beginnings of stacks together, since pyinstrument merges neighbours only."""
    return list(map(_identifier, stack))


_identifier = lru_cache(maxsize=65_536)(frame_identifier)


def _is_own(frame: str, prefixes: tuple[str, ...]) -> bool:
    """Return whether *frame* is a Python frame of code that is not installed."""
    file = frame.split("\x00")[1]
    return file.endswith(".py") and not file.startswith(prefixes)


def _package_above_sql(stack: _Stack) -> str | None:
    """Return the folder of the installed package that ran the stack's statement; None if there is none."""
    files = [frame.split("\x00")[1] for frame in stack]
    if "sql" not in files:
        return None
    above = (INSTALLED_PACKAGE.search(file) for file in reversed(files[: files.index("sql")]))
    return next((found[0] for found in above if found is not None and found[1] not in DRIVER_PACKAGES), None)


def load_session(path: Path | str) -> FlameSession:
    """Read the session of a `.pyisession` file; raises ProfilerError if it cannot be read."""
    try:
        session: FlameSession = FlameSession.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        session.frame_records = [(whole_frames(stack), seconds) for stack, seconds in session.frame_records]
        # pyinstrument checks nothing.
        if not isfinite(sum((session.start_time, session.duration, session.cpu_time, session.sample_count))):
            raise ValueError("a number in it is not finite")
        for stack, seconds in session.frame_records:
            if not isfinite(seconds) or any(frame.count("\x00") < 2 for frame in stack):
                raise ValueError(f"a frame record is {repr((stack, seconds))[:60]}")
        "".join([session.target_description, *session.start_call_stack, *session.sys_path, *session.sys_prefixes])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ProfilerError(f"{path} cannot be read as a pyinstrument session: {error}") from error
    return session


def shared_depth(above: Sequence[str], frames: Sequence[str]) -> int:
    """Return the number of leading frames that are also in *above*."""
    for depth, (identifier, frame) in enumerate(zip(above, frames, strict=False)):
        if identifier != frame_identifier(frame):
            return depth
    return min(len(above), len(frames))


def _libraries(stacks: Iterable[_Stack], prefixes: Sequence[str], application: Sequence[str]) -> list[str]:
    """Return the files under pyinstrument's library prefixes that do not lie in one of the application's folders."""
    files = {frame.split("\x00")[1] for stack in stacks for frame in stack}
    own = tuple(f"/{folder.strip('/')}/" for folder in application)
    return sorted(
        file for file in files if file.startswith(tuple(prefixes)) and not any(folder in file for folder in own)
    )
