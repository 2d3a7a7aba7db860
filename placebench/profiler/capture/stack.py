"""Python stacks, taken cheaply and named later."""

import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, TypeVar

from placebench.profiler.model.files import with_slashes

_MAX_LEAF_LENGTH = 160

Frames = list[Any]
"""Code and instruction of each frame in turn, innermost first; one flat list, since tuples would start the GC."""


def frames_of(frame: FrameType | None) -> Frames:
    """Return *frame* and the frames that called it; some 60 ns per frame."""
    frames: Frames = []
    while frame is not None:
        frames.append(frame.f_code)
        frames.append(frame.f_lasti)
        frame = frame.f_back
    return frames


def awaiting_frames() -> Frames:
    """Return the frames that entered the greenlet in which SQLAlchemy works under asyncio; none outside of one."""
    current = running_greenlet()
    parent = getattr(current, "parent", None)
    # Greenlets of gevent are entered by their hub, which called nobody. Old releases of SQLAlchemy only have the class.
    if parent is None or not type(current).__module__.startswith("sqlalchemy."):
        return []
    return frames_of(parent.gr_frame)


def running_greenlet() -> Any:
    """Return the greenlet that runs; None if greenlet is not loaded, or is being loaded at this moment."""
    getcurrent = getattr(sys.modules.get("greenlet"), "getcurrent", None)
    return None if getcurrent is None else getcurrent()


def root_of_thread() -> str:
    """Return the frame that pyinstrument puts above all others: the running thread."""
    thread = threading.current_thread()
    return f"{thread.name}\x00<thread>\x00{thread.ident}"


# Names of frames, since finding a line walks through the code's table. The code is kept so that its id stays its own.
_NAMES: dict[tuple[int, int], tuple[CodeType, str]] = {}
_MAX_NAMES = 20_000


class Stacks:
    """Names frames as pyinstrument writes them; each place in the code is named once per process.

    The frames that a stack has in common with the one before it keep their names.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._before: Frames = []
        self._named: list[str] = [root]
        # By innermost place and depth.
        self._known: dict[tuple[object, ...], tuple[Frames, list[str]]] = {}

    def __call__(self, frames: Frames) -> list[str]:
        """Return the stack from the root to the innermost of *frames*, the same list for equal ones: do not change it.

        That makes a statement in a loop cheap, here and for `once_each`.
        """
        key = (id(frames[0]), frames[1], len(frames)) if frames else ()
        if (same := self._known.get(key)) is not None and same[0] == frames:
            return same[1]
        from_root = frames[::-1]  # instruction and code of each frame, the outermost one first
        known = shared_length(from_root, self._before) // 2
        stack = self._named[: known + 1]
        for instruction, code in zip(from_root[2 * known :: 2], from_root[2 * known + 1 :: 2], strict=True):
            name = _NAMES.get((id(code), instruction))
            if name is None:
                if len(_NAMES) >= _MAX_NAMES:
                    _NAMES.clear()
                name = _NAMES[id(code), instruction] = code, name_frame(code, instruction)
            stack.append(name[1])
        self._before, self._named = from_root, stack
        self._known[key] = frames, stack
        return stack


_Result = TypeVar("_Result")


def once_each(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Return *function* with a memory of its results by the identity of its arguments, for stacks that many share."""
    known: dict[tuple[int, ...], tuple[Any, _Result]] = {}

    def call(*arguments: Any) -> _Result:
        key = tuple(map(id, arguments))
        found = known.get(key)
        if found is None:
            found = known[key] = arguments, function(*arguments)  # kept, so that their ids stay their own
        return found[1]

    return call


def shared_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the number of equal items that both sequences begin with; slices are compared, not items."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def name_frame(code: CodeType, instruction: int) -> str:
    """Return a frame in pyinstrument's form, with its class taken from the code's qualified name."""
    owner = code.co_qualname.rpartition("<locals>.")[2].rpartition(".")[0]
    class_name = f"\x01c{owner}" if owner else ""
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end and line is not None)
    line = next(lines, code.co_firstlineno)
    return f"{code.co_name}\x00{with_slashes(code.co_filename)}\x00{code.co_firstlineno}{class_name}\x01l{line}"


@lru_cache(maxsize=20_000)
def frame_name(qualified_name: str, file: str, first_line: int) -> str:
    """Return a frame in pyinstrument's form, as `name_frame` writes it."""
    *_, function = qualified_name.rpartition(".")
    owner = qualified_name.rpartition("<locals>.")[2].rpartition(".")[0]
    return f"{function}\x00{with_slashes(file)}\x00{first_line}" + (f"\x01c{owner}" if owner else "")


@lru_cache(maxsize=256)
def leaf(label: str, kind: str) -> str:
    """Return a frame of pyinstrument that is not Python code: one line of text, with *kind* instead of a file."""
    text = " ".join(label.replace("\x00", " ").replace("\x01", " ").split())
    shown = text if len(text) <= _MAX_LEAF_LENGTH else f"{text[:_MAX_LEAF_LENGTH]}…"
    return f"{shown}\x00{kind}\x000"
