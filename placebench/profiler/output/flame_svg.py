"""A flame graph as a static SVG, and the difference of two flame graphs as one.

The functions are `flame_svg`, `flame_chart` (with a legend) and `flame_difference_svg`.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from placebench import units
from placebench.page.svg import chart, element, image, percent
from placebench.profiler.analysis.merging import DRIVER_PACKAGES, INSTALLED_PACKAGE
from placebench.profiler.analysis.sampling_error import SamplingError, is_exact

if TYPE_CHECKING:
    from placebench.profiler.model.session import FlameSession

_ROW = 19
_MAX_DEPTH = 60
_MIN_LABELLED = 0.025
"""The share of the width that three letters take; narrower boxes have their names in the tooltip only."""
_STANDARD = re.compile(r"/lib/python3\.\d+t?/|^[A-Za-z]:/.*[Pp]ython.*/Lib/")
_FOLDERS = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+t?)/|^[A-Za-z]:/.*[Pp]ython.*/Lib/")
_LEAVES = {
    "sql": "SQL statement",
    "plan": "node of a query plan",
    "gc": "garbage collection",
    "profiler": "profiler",
    "wait": "wait",
}
"""The kinds of leaves, each with its label in the legend."""
_UNCHANGED = 0.02
"""The share of the longer time below which a change has no colour."""
_STRENGTHS = 3


def flame_svg(session: "FlameSession") -> Markup:
    """Draw the session as an SVG; frames of less than 0.3 % of the whole are left out.

    The tooltip of a frame has its share, with the half-width of the share's 95 % interval if it was sampled.
    """
    error = SamplingError.of(session)
    above = {_name(frame) for frame in session.start_call_stack}
    return _draw(
        _tree(session),
        lambda box, share: _drawn(box, share, None if _name(box.frame) in above else error),
        smallest=0.003,
        title="Flame graph",
        description="Each box is a frame, as wide as its time; below it what it called, SQL and plan nodes at the end.",
    )


def flame_chart(session: "FlameSession") -> Markup:
    """Return the drawing of `flame_svg` below a legend of the colours that it has."""
    kinds = {_place(frame) for stack, _ in session.frame_records for frame in stack}
    keys = [("frame", "Python"), *((f"frame {kind}", label) for kind, label in _LEAVES.items() if kind in kinds)]
    return chart(flame_svg(session), keys=keys)


def flame_difference_svg(before: "FlameSession", after: "FlameSession") -> Markup:
    """Draw both sessions as one SVG; frames of less than 0.4 % of its width are left out."""
    return _draw(
        _tree(before, after),
        _drawn_difference,
        smallest=0.004,
        title="Difference of the flame graphs",
        description="Each box is a frame, as wide as its longer time; with a sign and a colour where it takes more or "
        "less time than before.",
    )


@dataclass
class _Box:
    """One frame with its seconds in each session, including the frames that it called."""

    frame: str
    seconds: list[float]
    estimated_s: float = 0.0
    """The part of the first session's seconds that was sampled, not measured."""
    calls: "dict[str, _Box]" = field(default_factory=dict)

    @cached_property
    def width_s(self) -> float:
        """The longest time of the frame; more if the frames that it called changed places and need more together."""
        if len(self.seconds) == 1:
            return self.seconds[0]
        return max(*self.seconds, sum(each.width_s for each in self.calls.values()))

    @property
    def label(self) -> str:
        """The function, or the text of a leaf."""
        return self.frame.partition("\x00")[0]

    @property
    def place(self) -> str:
        """The file of a Python frame, or the kind of a leaf."""
        return _place(self.frame)


def _tree(*sessions: "FlameSession") -> _Box:
    """Return the sessions as one tree of boxes, with runs of a library's frames folded."""
    root = _Box("whole\x00\x00", [0.0] * len(sessions))
    deep = any(len(_folded(stack)) > _MAX_DEPTH for session in sessions for stack, _ in session.frame_records)
    for number, session in enumerate(sessions):
        for stack, seconds in session.frame_records:
            box = root
            box.seconds[number] += seconds
            estimated_s = 0.0 if number or is_exact(stack) else seconds
            frames = _folded(stack, every_package=deep)
            if len(frames) > _MAX_DEPTH:  # the statement is at the end
                half = _MAX_DEPTH // 2
                frames = [*frames[:half], f"… {len(frames) - 2 * half} frames\x00\x00", *frames[-half:]]
            for frame in frames:
                box = box.calls.setdefault(_name(frame), _Box(frame, [0.0] * len(sessions)))
                box.seconds[number] += seconds
                box.estimated_s += estimated_s
    first = next(iter(root.calls.values()), root)
    return first if first.seconds == root.seconds else root


def _folded(stack: list[str], *, every_package: bool = False) -> list[str]:
    """Return the stack with each run of frames of SQLAlchemy, a driver or Python itself replaced by its first frame.

    every_package: also replace runs of other installed packages by their first and last frames. The last one is
    what called SQLAlchemy, even if the application is installed.
    """
    kept: list[str] = []
    before = ""
    inside = False  # whether the last frame kept is a later one of a run that goes on
    for frame in stack:
        library = _library(_place(frame), every_package=every_package)
        is_first = not library or library != before
        if is_first or library not in (*DRIVER_PACKAGES, "python"):
            if not is_first and inside:
                kept.pop()
            kept.append(frame)
        inside = not is_first
        before = library
    return kept


@lru_cache(maxsize=4096)
def _library(file: str, *, every_package: bool) -> str:
    """Return the library that a file belongs to; empty for files that may be the application's."""
    package = INSTALLED_PACKAGE.search(file)
    if package:
        return package[1] if every_package or package[1] in DRIVER_PACKAGES else ""
    return "python" if file.startswith("<") or _STANDARD.search(file) else ""


def _name(frame: str) -> str:
    """Return function and file, which are equal for two lines of one function."""
    return "\x00".join(frame.split("\x00")[:2])


def _place(frame: str) -> str:
    return frame.split("\x00")[1] if "\x00" in frame else ""


def _installed_as(file: str) -> str:
    """Return a file relative to the folder that Python found it in; keep the paths of the application's own files."""
    return _FOLDERS.split(file)[-1]


def _draw(
    root: _Box, draw: Callable[[_Box, float], tuple[str, str, str]], *, smallest: float, title: str, description: str
) -> Markup:
    """Draw the boxes of at least the *smallest* share. *draw* returns the tooltip, text and class of a box."""
    boxes = list(_laid_out(root, 0.0, 0, root.width_s or 1.0, smallest))
    height = (max((depth for *_, depth in boxes), default=0) + 1) * _ROW
    drawn = [_element(*draw(box, share), left, share, depth) for box, left, share, depth in boxes]
    return image(*drawn, title=title, description=description, height=height)


def _laid_out(
    box: _Box, left: float, depth: int, whole: float, smallest: float
) -> Iterator[tuple[_Box, float, float, int]]:
    """Yield the box with its left end, its share of the width and its row, then the boxes that it calls."""
    share = box.width_s / whole
    if share < smallest:
        return
    yield box, left, share, depth
    for called in sorted(box.calls.values(), key=lambda each: each.width_s, reverse=True):
        yield from _laid_out(called, left, depth + 1, whole, smallest)
        left += called.width_s / whole


def _element(tooltip: str, text: str, style: str, left: float, share: float, depth: int) -> Markup:
    """Draw one box as a nested SVG; its text is HTML, which a browser cuts between two letters, with an ellipsis."""
    label = element("foreignObject", element("div", text, class_="label"), width="100%", height=_ROW - 1)
    return element(
        "svg",
        element("title", tooltip),
        element("rect", width="100%", height=_ROW - 1, class_=f"frame {style}"),
        *([label] if share >= _MIN_LABELLED else []),
        x=percent(left),
        y=depth * _ROW,
        width=percent(share),
        height=_ROW,
        overflow="hidden",
    )


def _drawn(box: _Box, share: float, error: SamplingError | None) -> tuple[str, str, str]:
    margin = None if error is None else error.margin(box.estimated_s)
    shown = units.percent(share)
    if margin:
        shown = f"{units.percent(share, digits=2)} ± {units.significant(margin * 100, digits=1)}"
    times = f"{box.label} · {units.duration(box.seconds[0])} · {shown}"
    if box.place in _LEAVES:
        return times, box.label, box.place
    return f"{times} · {_installed_as(box.place)}", box.label, "python"


def _drawn_difference(box: _Box, _share: float) -> tuple[str, str, str]:
    before_s, after_s = box.seconds
    longer_s = max(before_s, after_s)
    change = (after_s - before_s) / longer_s if longer_s else 0.0
    times = f"{units.duration(before_s)} → {units.duration(after_s)} · {units.signed_duration(after_s - before_s)}"
    tooltip = f"{box.label} · {times} · {_installed_as(box.place)}"
    if abs(change) < _UNCHANGED:
        return tooltip, box.label, "same"
    # In three strengths: a third, two thirds or all of the longer time.
    style = f"{'more' if change > 0 else 'less'} by-{math.ceil(abs(change) * _STRENGTHS)}"
    return tooltip, f"{'+' if change > 0 else '−'} {box.label}", style
