"""Which line of the application ran a statement: a short walk up the stack, past SQLAlchemy and the profiler."""

from pathlib import Path
from types import FrameType

import sqlalchemy

from placebench.profiler.stacks import running_greenlet
from placebench.profiler.statement import Caller

_DEEPEST = 80
_MOST_FILES = 4096
PROFILER_FOLDER = str(Path(__file__).parent)
_SQLALCHEMY = (str(Path(sqlalchemy.__file__).parent), "<sqlalchemy generated", "<string>")
_LIBRARIES = (PROFILER_FOLDER, *_SQLALCHEMY)
# By folders: whether each file that was met lies in one of them.
_INSIDE: dict[tuple[str, ...], dict[str, bool]] = {}


def caller_of(frame: FrameType | None) -> Caller | None:
    """The nearest line at or above *frame* that is neither SQLAlchemy's nor the profiler's; None if there is none.

    Under asyncio SQLAlchemy works in a greenlet of its own whose stack holds none of the application's frames: the
    walk goes on where that greenlet was entered. At most 80 frames a stack are looked at.
    """
    found = _nearest(frame, _LIBRARIES) or _nearest(_frame_before_greenlet(), _LIBRARIES)
    return None if found is None else Caller(found.f_code.co_filename, found.f_lineno, found.f_code.co_qualname)


def outside_profiler(frame: FrameType | None) -> FrameType | None:
    """The nearest frame at or above *frame* that is not the profiler's own."""
    return _nearest(frame, (PROFILER_FOLDER,))


def _nearest(frame: FrameType | None, libraries: tuple[str, ...]) -> FrameType | None:
    """The nearest frame whose file lies in none of *libraries*; some 50 ns a frame."""
    inside = _INSIDE.setdefault(libraries, {})
    for _ in range(_DEEPEST):
        if frame is None:
            return None
        filename = frame.f_code.co_filename
        lies_in = inside.get(filename)
        if lies_in is None:
            if len(inside) > _MOST_FILES:
                inside.clear()
            lies_in = inside[filename] = filename.startswith(libraries)
        if not lies_in:
            return frame
        frame = frame.f_back
    return None


def _frame_before_greenlet() -> FrameType | None:
    """The frame that entered the running greenlet; None outside of one. Never imports greenlet itself."""
    parent = getattr(running_greenlet(), "parent", None)
    frame: FrameType | None = None if parent is None else parent.gr_frame
    return frame
