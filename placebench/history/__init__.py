"""The history of an application: each entry is the ratio of a commit to a pinned reference, measured in one run.

Both sides of a ratio run interleaved on one machine, so the machine's speed cancels out, and several machines may write
to one history.

    from placebench.history import History
    history = History.read(Path("placebench-history.jsonl"))
    series_of(history, "cpu_s", order=commits).regressions
"""

from placebench.history.change_points import Point, Step, find_steps
from placebench.history.commits import Commit, ancestors, commits_between, find_commit
from placebench.history.history_file import Blessing, Failure, History, HistoryEntry, Measured, append_lines
from placebench.history.series import Series, SeriesPoint, SeriesStep, all_points, series_of

__all__ = [
    "Blessing",
    "Commit",
    "Failure",
    "History",
    "HistoryEntry",
    "Measured",
    "Point",
    "Series",
    "SeriesPoint",
    "SeriesStep",
    "Step",
    "all_points",
    "ancestors",
    "append_lines",
    "commits_between",
    "find_commit",
    "find_steps",
    "series_of",
]
