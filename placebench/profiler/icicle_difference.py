"""The difference of two flames as one still picture: what got dearer or cheaper, where it is called.

The key piece is `icicle_difference`. Both flames are laid over each other: a box is as wide as the longer of its two
times, so that what is gone is still seen; a sign before its name and its colour say which way it went, and how strong
the colour is by how much.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from markupsafe import Markup

from placebench import units
from placebench.page.svg import element, percent, picture
from placebench.profiler.icicle import Box, tree_of

if TYPE_CHECKING:
    from pyinstrument.session import Session

_ROW = 19
_SMALLEST_SHARE = 0.004
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
        *(_drawn(*each) for each in boxes),
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
    if share < _SMALLEST_SHARE:
        return
    yield box, left, share, depth
    for called in sorted(box.calls, key=lambda each: each.width_s, reverse=True):
        yield from _laid(called, left, depth + 1, whole)
        left += called.width_s / whole


def _drawn(box: _Both, left: float, share: float, depth: int) -> Markup:
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
