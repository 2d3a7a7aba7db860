"""A flame graph as data: `FlameSession`, with the attributes and the file format of a session of pyinstrument's.

Recordings, merging and drawing use this class, so that they need no pyinstrument: its import loads a C module, which
has no wheel for Python 3.15 and switches the GIL of a free-threaded Python on (`pyinstrument_defect`).
"""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

from placebench.profiler.model.files import with_slashes

_IS_INSTALLED = find_spec("pyinstrument") is not None
WAITING_LEAVES = {name: f"{name}\x00{name}\x000" for name in ("[await]", "[self]", "[out-of-context]")}
"""Leaves that pyinstrument writes as a name alone, each as a frame with a file and a line."""


def frame_identifier(frame: str) -> str:
    """Return a frame's function, file and first line, without its class and its current line."""
    return frame.partition("\x01")[0]


def whole_frames(stack: list[str]) -> list[str]:
    """Return a stack of pyinstrument in which every frame has a file and a line."""
    return [WAITING_LEAVES.get(frame, frame) for frame in stack]


@dataclass(eq=False)
class FlameSession:
    """The stacks of one record, or of the mean request of many.

    `pyinstrument.session.Session.from_json(session.to_json())` is the session for pyinstrument's renderers.

    frame_records: each stack, outermost frame first, with its seconds. duration, cpu_time, intervals: in seconds.
    start_time: Unix time. start_call_stack: the stack at which the record began. sys_prefixes: installed files begin
        with one of these.
    """

    frame_records: list[tuple[list[str], float]]
    start_time: float
    duration: float
    min_interval: float
    max_interval: float
    sample_count: int
    start_call_stack: list[str]
    target_description: str
    cpu_time: float
    sys_path: list[str]
    sys_prefixes: list[str]

    @staticmethod
    def current_sys_prefixes() -> list[str]:
        """Return the folders of this Python and of its environment."""
        return list(map(with_slashes, (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)))

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Return the session of a `.pyisession` file. Raises KeyError or TypeError for another document."""
        values = {
            "min_interval": 0.001,
            "max_interval": 0.001,
            "sys_path": list(map(with_slashes, sys.path)),
            "sys_prefixes": cls.current_sys_prefixes(),
            **document,
            "cpu_time": document["cpu_time"] or 0,
        }
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, Any]:
        """Return the session as the document of a `.pyisession` file."""
        return dict(vars(self))


def gil_is_off() -> bool:
    """Return whether this is a free-threaded Python whose GIL is off; it can be switched on at any time, not off."""
    return not getattr(sys, "_is_gil_enabled", lambda: True)()


def pyinstrument_defect() -> str | None:
    """Return why this process does not use pyinstrument; None if it may."""
    if gil_is_off():
        return "pyinstrument would switch the GIL on"
    return (
        None if _IS_INSTALLED else "pyinstrument is not installed (pip install pyinstrument, which needs a C compiler)"
    )
