"""The difference of two flames: which functions, statements and collections took longer, and which less.

The key piece is `frame_changes`. A frame is known by its function and by its file as seen from where Python found it,
so that two environments or two revisions of one program compare; lines move when code changes and are left out.
"""

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyinstrument.session import Session

_OURS = "profiler"
"""What stands for a file where the profiler itself was at work: no figure of the program's."""
_LEAVES = ("sql", "plan", "gc")
_SMALLEST_SHARE = 0.001

Frame = tuple[str, str]
"""Function, or text of a statement; and its file, or one of _LEAVES."""


@dataclass(frozen=True)
class FrameChange:
    """Own seconds of one frame in one mean request, watched; 0 where it was not seen."""

    name: str
    place: str
    before_s: float
    after_s: float

    @property
    def change_s(self) -> float:
        """Above 0 it got dearer."""
        return self.after_s - self.before_s

    @property
    def is_sql(self) -> bool:
        """Whether it is a statement, or a node of its plan."""
        return self.place in ("sql", "plan")


def frame_changes(before: "Session", after: "Session") -> tuple[FrameChange, ...]:
    """Each frame whose own time changed by 0.1 % of the longer request or more, the largest change first."""
    left, right = own_times(before), own_times(after)
    least = _SMALLEST_SHARE * max(sum(left.values()), sum(right.values()))
    made = (
        FrameChange(*frame, left.get(frame, 0.0), right.get(frame, 0.0)) for frame in dict.fromkeys((*left, *right))
    )
    changed = [each for each in made if abs(each.change_s) >= least > 0]
    return tuple(sorted(changed, key=lambda each: abs(each.change_s), reverse=True))


def own_times(session: "Session") -> dict[Frame, float]:
    """Seconds by the frame that was on top."""
    places: dict[str, str] = {}
    times: dict[Frame, float] = {}
    for stack, seconds in session.frame_records:
        name, _, rest = stack[-1].partition("\x00") if stack else ("?", "", "")
        file = rest.partition("\x00")[0]
        if file != _OURS:
            frame = name, places.setdefault(file, relative(file, session.sys_path))
            times[frame] = times.get(frame, 0.0) + seconds
    return times


def relative(file: str, sys_path: list[str]) -> str:
    """*file* from the longest folder of *sys_path* that holds it; by its last two names where none does."""
    if file in _LEAVES or file.startswith("<"):
        return file
    folders = [folder.rstrip("/") + "/" for folder in sys_path if folder.startswith("/")]
    holding = max((folder for folder in folders if file.startswith(folder)), key=len, default="")
    return file[len(holding) :] if holding else str(PurePath(*PurePath(file).parts[-2:]))
