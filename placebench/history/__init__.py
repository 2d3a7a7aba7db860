"""The history of an application: each entry is the ratio of a commit to a pinned reference, measured in one run.

Because both sides of a ratio ran interleaved on one machine, machines cancel, and several may write to one history.

    from placebench.history import History
    history = History.read(Path("placebench-history.jsonl"))
    series_of(history, "cpu_s", order=commits).regressions
"""

from placebench.history.change_points import Point, Step, find_steps
from placebench.history.history_file import Blessing, Entry, Failure, History, Measured, append_lines
from placebench.history.series import Series, SeriesPoint, SeriesStep, series_of

__all__ = [
    "Blessing",
    "Entry",
    "Failure",
    "History",
    "Measured",
    "Point",
    "Series",
    "SeriesPoint",
    "SeriesStep",
    "Step",
    "append_lines",
    "find_steps",
    "series_of",
]
