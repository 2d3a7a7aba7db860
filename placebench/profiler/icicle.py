"""A flame as a still picture, for pages that run no script: SVG, the root on top, widths are times.

The key piece is `icicle`. A run of SQLAlchemy's own frames is one box, for they alone would fill the page.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from markupsafe import Markup

from placebench import units
from placebench.page.svg import element, percent, picture

if TYPE_CHECKING:
    from pyinstrument.session import Session

_ROW = 19
_SMALLEST_SHARE = 0.003
_DEEPEST = 60
_PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)")
_STANDARD = re.compile(r"/lib/python3\.\d+/")
_FOLDED = ("sqlalchemy", "psycopg2", "psycopg", "psycopg_pool", "greenlet")
_KINDS = ("sql", "plan", "gc", "profiler")


@dataclass
class Box:
    """One frame with the seconds below it, by the frames it called."""

    frame: str
    seconds: float = 0.0
    calls: "dict[str, Box]" = field(default_factory=dict)


def icicle(session: "Session") -> Markup:
    """The session as an SVG; frames of less than 0.3 % of the whole are left out."""
    root = tree_of(session)
    boxes: list[Markup] = []
    deepest = _lay(root, 0.0, 0, root.seconds or 1.0, boxes)
    return picture(
        *boxes,
        title="Flame",
        description="Each box is a frame, as wide as its time; below it what it called, SQL and plan nodes at the end.",
        height=(deepest + 1) * _ROW,
    )


def tree_of(session: "Session") -> Box:
    """The session as a tree of boxes, runs of frames of a library folded."""
    root = Box("whole\x00\x00")
    for stack, seconds in session.frame_records:
        box = root
        box.seconds += seconds
        for frame in _folded(stack)[:_DEEPEST]:
            box = box.calls.setdefault(_name(frame), Box(frame))
            box.seconds += seconds
    return root


def _folded(stack: list[str]) -> list[str]:
    """The stack with each run of frames of SQLAlchemy, of a driver or of Python itself as its first one."""
    kept: list[str] = []
    before = ""
    for frame in stack:
        library = _library(_kind(frame))
        if not library or library != before:
            kept.append(frame)
        before = library
    return kept


def _library(file: str) -> str:
    """Which of those a file belongs to; empty for all others: whose application it is, nobody can tell."""
    package = _PACKAGE.search(file)
    if package:
        return package[1] if package[1] in _FOLDED else ""
    return "python" if file.startswith("<") or _STANDARD.search(file) else ""


def _lay(box: Box, left: float, depth: int, whole: float, boxes: list[Markup]) -> int:
    """Draw *box* and what it called from *left* on; gives the deepest row."""
    share = box.seconds / whole
    if share < _SMALLEST_SHARE:
        return depth - 1
    boxes.append(_drawn(box, left, depth, share))
    deepest = depth
    for called in sorted(box.calls.values(), key=lambda each: each.seconds, reverse=True):
        deepest = max(deepest, _lay(called, left, depth + 1, whole, boxes))
        left += called.seconds / whole
    return deepest


def _drawn(box: Box, left: float, depth: int, share: float) -> Markup:
    """One box; an SVG inside of the SVG cuts its text off."""
    label = box.frame.partition("\x00")[0]
    kind = _kind(box.frame)
    style = kind if kind in _KINDS else "python"
    told = f"{label} · {units.duration(box.seconds)} · {units.percent(share)}"
    return element(
        "svg",
        element("title", told if kind in _KINDS else f"{told} · {kind}"),
        element("rect", width="100%", height=_ROW - 1, class_=f"frame {style}"),
        element("text", label, x=4, y=_ROW - 6),
        x=percent(left),
        y=depth * _ROW,
        width=percent(share),
        height=_ROW,
        overflow="hidden",
    )


def _kind(frame: str) -> str:
    """The file of a frame of Python's, or what stands there for a leaf of ours."""
    return frame.split("\x00")[1] if "\x00" in frame else ""


def _name(frame: str) -> str:
    """Function and file: equal for two lines of one function."""
    return "\x00".join(frame.split("\x00")[:2])
