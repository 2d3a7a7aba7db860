"""A flame graph as a static SVG, and the difference of two flame graphs as one SVG."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
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
        title="Flame graph",
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


_SMALLEST_SHARE_ICICLE_DIFFERENCE = 0.004
_SAME = 0.02
"""Share of the longer time below which a change has no colour."""
_STRENGTHS = 3


@dataclass(frozen=True)
class _Both:
    """One frame in both flames, with the frames that it calls."""

    frame: str
    before_s: float
    after_s: float
    calls: "tuple[_Both, ...]"

    @cached_property
    def width_s(self) -> float:
        """Its longer time; more where what it calls changed places and needs more together."""
        return max(self.before_s, self.after_s, sum(each.width_s for each in self.calls))

    @property
    def change(self) -> float:
        """As a share of its longer time: −1 is gone, 1 is new."""
        longer = max(self.before_s, self.after_s)
        return (self.after_s - self.before_s) / longer if longer else 0.0


def icicle_difference(before: "Session", after: "Session") -> Markup:
    """Both sessions as one SVG; frames of less than 0.4 % of its width are left out."""
    root = _merged(tree_of(before), tree_of(after))
    boxes = list(_laid(root, 0.0, 0, root.width_s or 1.0))
    return picture(
        *(_drawn_icicle_difference(*each) for each in boxes),
        title="Difference of the flames",
        description="Each box is a frame, as wide as its longer time; with a sign and a colour where it got dearer or "
        "cheaper.",
        height=(max((depth for *_, depth in boxes), default=0) + 1) * _ROW,
    )


def _merged(before: Box, after: Box) -> _Both:
    nothing = Box("")
    calls = (
        _merged(before.calls.get(name, nothing), after.calls.get(name, nothing))
        for name in dict.fromkeys((*before.calls, *after.calls))
    )
    return _Both(after.frame or before.frame, before.seconds, after.seconds, tuple(calls))


def _laid(box: _Both, left: float, depth: int, whole: float) -> Iterator[tuple[_Both, float, float, int]]:
    """The box with its left end, its share of the width and its row, then what it calls."""
    share = box.width_s / whole
    if share < _SMALLEST_SHARE_ICICLE_DIFFERENCE:
        return
    yield box, left, share, depth
    for called in sorted(box.calls, key=lambda each: each.width_s, reverse=True):
        yield from _laid(called, left, depth + 1, whole)
        left += called.width_s / whole


def _drawn_icicle_difference(box: _Both, left: float, share: float, depth: int) -> Markup:
    label, _, rest = box.frame.partition("\x00")
    times = f"{units.duration(box.before_s)} → {units.duration(box.after_s)}"
    told = f"{label} · {times} · {units.step(box.after_s - box.before_s)} · {rest.partition(chr(0))[0]}"
    return element(
        "svg",
        element("title", told),
        element("rect", width="100%", height=_ROW - 1, class_=f"frame {_way(box.change)}"),
        element("text", f"{_sign(box.change)}{label}", x=4, y=_ROW - 6),
        x=percent(left),
        y=depth * _ROW,
        width=percent(share),
        height=_ROW,
        overflow="hidden",
    )


def _sign(change: float) -> str:
    if abs(change) < _SAME:
        return ""
    return "+ " if change > 0 else "− "


def _way(change: float) -> str:
    """Which way it went, and whether a third, two thirds or all of it did."""
    if abs(change) < _SAME:
        return "same"
    return f"{'dearer' if change > 0 else 'cheaper'} by-{math.ceil(abs(change) * _STRENGTHS)}"
