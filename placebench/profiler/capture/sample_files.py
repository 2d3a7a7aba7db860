"""Samples in a file of another profiler, joined with a recording afterwards: `join_samples`.

The format is that of Python 3.15's `profiling.sampling --gecko`: a processed profile of the Firefox Profiler, whose
samples have times. Python writes the monotonic clock as `meta.startTime`, the format's description says Unix time: both
are read. Source files are named without their folders. The thread of a recording is found by the call sites of its
statements.
"""

import json
import time
from pathlib import Path
from typing import Any

from placebench.errors import ProfilerError
from placebench.profiler.capture.external_flame_graph import CalledInterval, TimeLine
from placebench.profiler.capture.external_sampler import Stack, StackChange, StackChanges
from placebench.profiler.capture.stack import frame_name, leaf
from placebench.profiler.capture.timeline import make_session
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.session import FlameSession
from placebench.profiler.model.statement import Caller, Statement, Transaction

_UNIX_MS = 1e11
"""A clock above this value counts from 1970: no machine has run for three years."""


def join_samples(recording: RecordingData, path: Path) -> tuple[FlameSession, str, bool]:
    """Return the flame graph of a recording from the samples in a file, a note on it, and whether it is exact.

    It is exact if no statements overlapped: then each statement's leaves are all of its execute and fetch.

    Raises ProfilerError if the file has another format, or no sample of the recording.
    """
    if len(recording.timeline) != 1:
        raise ProfilerError(f"{recording.name}: expected one recorded request, not {recording.requests} merged ones")
    started = recording.timeline[0].started_unix_s
    try:
        threads, interval_s = read_gecko_profile(json.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ProfilerError(
            f"{path} is no file of `python -m profiling.sampling … --gecko`: {type(error).__name__}: {error}"
        ) from error
    intervals, fetches = _intervals(recording)
    # In seconds since the start of the recording: Unix times as floats are a quarter of a microsecond apart.
    since_start = {
        thread: [change._replace(at=change.at - started) for change in changes] for thread, changes in threads.items()
    }
    lines = [
        TimeLine(0.0, recording.elapsed_s, [_root(thread)], intervals, changes, interval_s, fetches)
        for thread, changes in since_start.items()
    ]
    line = max(lines, key=lambda each: (each.matched_count, each.sample_count), default=None)
    if line is None or not line.sample_count:
        raise ProfilerError(f"{path} has no sample of the time of {recording.name}: were both made in one run?")
    session = make_session(
        list(line.records()),
        [_root(thread) for thread, each in zip(threads, lines, strict=True) if each is line],
        recording.elapsed_s,
        samples=line.sample_count,
        interval_s=interval_s,
        cpu_s=recording.cpu_s or 0.0,
    )
    return (
        session,
        f"Python's time is by the samples in {path.name}; statements are exact, each fetch after its execute",
        not line.overlaps,
    )


def read_gecko_profile(profile: dict[str, Any]) -> tuple[StackChanges, float]:
    """Return the stacks of each thread (by its native id) with Unix times, and the seconds between samples.

    Raises LookupError, TypeError or AttributeError if *profile* is not such a profile.
    """
    start_ms, interval_s = float(profile["meta"]["startTime"]), float(profile["meta"]["interval"]) / 1e3
    if start_ms < _UNIX_MS:
        start_ms += (time.time() - time.monotonic()) * 1e3
    threads: StackChanges = {}
    for thread in profile["threads"]:
        stacks = _stacks(thread, profile["shared"]["stringArray"])
        samples = thread["samples"]
        changes = threads.setdefault(int(thread["tid"]), [])
        for at_ms, number in zip(samples["time"], samples["stack"], strict=True):
            at, stack = (start_ms + at_ms) / 1e3, () if number is None else stacks[number]
            if not changes or changes[-1].stack != stack:
                changes.append(StackChange(at, stack))
        if changes:
            changes.append(StackChange(at + interval_s, ()))
    return threads, interval_s


def _stacks(thread: dict[str, Any], texts: list[str]) -> list[Stack]:
    """Return the stacks in a thread's table, in which each stack is a frame below another stack."""
    functions, frames, table = thread["funcTable"], thread["frameTable"], thread["stackTable"]
    names = [
        frame_name(texts[name], "" if file is None else texts[file], line or 0)
        for name, file, line in zip(functions["name"], functions["fileName"], functions["lineNumber"], strict=True)
    ]
    stacks: list[Stack] = []
    for frame, prefix in zip(table["frame"], table["prefix"], strict=True):
        stacks.append((*(() if prefix is None else stacks[prefix]), names[frames["func"][frame]]))
    return stacks


def _root(thread: int) -> str:
    return f"thread {thread}\x00<thread>\x00{thread}"


def _intervals(recording: RecordingData) -> tuple[list[CalledInterval], list[CalledInterval]]:
    """Return the intervals of executes and steps, and the fetches: each begins after its execute, at some time."""
    intervals, fetches = [], []
    steps: list[Statement | Transaction] = [*recording.statements, *recording.transactions]
    for step in steps:
        began = step.started_s
        if isinstance(step, Transaction):
            intervals.append(
                CalledInterval(began, began + (step.elapsed_s or 0.0), leaf(step.kind, "sql"), None, None, step)
            )
            continue
        callers = _without_folder(step.caller), _without_folder(step.outer_caller)
        executed = began + (step.execute_s or 0.0)
        intervals.append(CalledInterval(began, executed, leaf(step.sql, "sql"), *callers, step))
        if step.fetch_s:
            text = leaf(f"fetch {step.sql}", "sql")
            fetches.append(CalledInterval(executed, executed + step.fetch_s, text, *callers, step))
    return intervals, sorted(fetches, key=lambda each: each.started)


def _without_folder(caller: Caller | None) -> Caller | None:
    """Return a call site with its file named as in the samples."""
    return None if caller is None else caller._replace(file=Path(caller.file).name)
