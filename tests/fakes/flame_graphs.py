"""Flame graphs by hand, and what is in one; `busy` computes for as long as a test wants."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from placebench.profiler.model.session import FlameSession

Records = Sequence[tuple[list[str], float]]


def session_of(records: Records, **changed: Any) -> FlameSession:
    """A session of pyinstrument's with these stacks and seconds, of an application in /app."""
    fields = {
        "frame_records": list(records),
        "start_time": 0.0,
        "duration": sum(seconds for _, seconds in records),
        "min_interval": 0.001,
        "max_interval": 0.001,
        "sample_count": len(records),
        "start_call_stack": [],
        "target_description": "a request",
        "cpu_time": 0.5,
        "sys_path": ["/app"],
        "sys_prefixes": ["/lib"],
    }
    return FlameSession(**{**fields, **changed})


def times_of(records: Iterable[tuple[list[str], float]]) -> dict[tuple[str, ...], float]:
    """The seconds of each stack, by the names of its frames."""
    times: dict[tuple[str, ...], float] = {}
    for stack, seconds in records:
        names = tuple(frame.partition("\x00")[0] for frame in stack)
        times[names] = times.get(names, 0.0) + seconds
    return times


def busy(seconds: float, clock: Callable[[], float] = time.thread_time) -> None:
    """Python that computes for so long, by default of CPU time: beside other programs it has as many samples."""
    until = clock() + seconds
    while clock() < until:
        pass
