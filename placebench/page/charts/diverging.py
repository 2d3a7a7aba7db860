"""Changes to both sides of a middle line: less to the left, more to the right, the name above each bar.

The key piece is `diverging`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench.page.charts.legend import chart, shortened
from placebench.page.svg import element, line, percent, picture, text

_ROW = 34
_LABEL = 13
_BAR_TOP = 18
_BAR_HEIGHT = 9
_MIDDLE = 0.5


@dataclass(frozen=True)
class Step:
    """One change: above 0 is more, and worse."""

    label: str
    change: float
    told: str = ""
    """What a reader who points at it is told."""


def diverging(rows: Sequence[Step], *, title: str, description: str, show: Callable[[float], str]) -> Markup:
    """A bar for each change on one scale, with *show* of it at the end of its row."""
    longest = max((abs(row.change) for row in rows), default=0.0) or 1.0
    height = _ROW * len(rows)
    short = shortened(row.label for row in rows)
    drawn = [
        line(x1=_MIDDLE, x2=_MIDDLE, y1=0, y2=height, class_="no-change"),
        *(_row(row, short[row.label], number * _ROW, longest, show) for number, row in enumerate(rows)),
    ]
    keys = [("bar role-variant", "less: cheaper"), ("bar role-baseline", "more: dearer")]
    return chart(picture(*drawn, title=title, description=description, height=height), keys=keys)


def _row(row: Step, name: str, top: float, longest: float, show: Callable[[float], str]) -> Markup:
    width = abs(row.change) / longest * _MIDDLE
    left = _MIDDLE if row.change > 0 else _MIDDLE - width
    return element(
        "g",
        element("title", row.told or f"{row.label}: {show(row.change)}"),
        text(name, x=0, y=top + _LABEL, class_="label"),
        text(show(row.change), x=1, y=top + _LABEL, class_="value"),
        element(
            "rect", x=percent(left), y=top + _BAR_TOP, width=percent(width), height=_BAR_HEIGHT, rx=1, class_="bar"
        ),
        class_=f"role-{'baseline' if row.change > 0 else 'variant'}",
    )
