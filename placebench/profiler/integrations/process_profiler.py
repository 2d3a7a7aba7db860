"""The profiler that the integrations of a process share: `process_profiler`."""

import threading
from pathlib import Path
from typing import Any, TypedDict, cast

from placebench.profiler.requests.sampling import Keep, Sampling
from placebench.profiler.sql_profiler import SqlProfiler

__all__ = ["process_profiler"]

_lock = threading.Lock()
_made: list[SqlProfiler] = []


class RecordingSettings(TypedDict, total=False):
    """The settings by which requests are recorded, as for `SqlProfiler.wsgi`."""

    folder: Path | str | None
    mode: str
    keep: Keep | None
    sampling: Sampling | None


class IntegrationSettings(RecordingSettings, total=False):
    """The arguments of every integration.

    profiler: the profiler to record with, instead of the process's own. comments: whether statements of SQLAlchemy, and
        in Django those of its ORM, get a comment with route and function (`SqlProfiler.comment_statements`).
    """

    profiler: SqlProfiler
    comments: bool


def process_profiler() -> SqlProfiler:
    """Return the profiler of every engine of this process; made on the first call, and again after it was removed.

    Two integrations in one process, such as a web framework and a task queue, add their hooks once.
    """
    with _lock:
        if not _made or not _made[0].active:
            _made[:] = [SqlProfiler()]
        return _made[0]


def share_profiler(profiler: SqlProfiler) -> None:
    """Have the integrations of this process use *profiler*, which already records it, instead of their own."""
    with _lock:
        _made[:] = [profiler]


def split_settings(settings: IntegrationSettings) -> tuple[SqlProfiler, RecordingSettings]:
    """Return the profiler to use, and the settings for recording requests."""
    rest = cast("dict[str, Any]", dict(settings))
    profiler = rest.pop("profiler", None) or process_profiler()
    if rest.pop("comments", False):
        profiler.comment_statements()
    return profiler, cast(RecordingSettings, rest)
