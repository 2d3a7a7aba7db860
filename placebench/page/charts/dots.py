"""Values of very different size, a row each, with their limits on one logarithmic scale.

The key piece is `dots`. A bar has to begin at 0, which a logarithmic scale has not: a dot says where, not how long.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench import units
from placebench.page.charts.forest import whisker
from placebench.page.charts.legend import Role, chart, shortened
from placebench.page.scale import Scale, log_scale
from placebench.page.svg import element, line, percent, picture, text

_ROW = 36
_LABEL = 14
_MARK = 25
_REACH = 5
_AXIS = 22


@dataclass(frozen=True)
class Dot:
    """One row: a value above 0, with its limits where it has any."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    role: Role = "between"


def dots(rows: Sequence[Dot], *, title: str, description: str, show: Callable[[float], str]) -> Markup:
    """A dot for each row on one scale that holds all limits, with *show* of its value beside its name."""
    scale = log_scale([place for row in rows for place in _places(row)] or [1.0, 10.0], room=0.04)
    height = _ROW * len(rows)
    short = shortened(row.label for row in rows)
    drawn = [
        *(line(x1=scale.place(tick), x2=scale.place(tick), y1=0, y2=height, class_="grid") for tick in scale.ticks),
        *(_row(row, short[row.label], number * _ROW, scale, show) for number, row in enumerate(rows)),
        *(text(units.brief(show(tick)), x=scale.place(tick), y=height + _LABEL, class_="tick") for tick in scale.ticks),
    ]
    return chart(picture(*drawn, title=title, description=description, height=height + _AXIS))


def _places(row: Dot) -> list[float]:
    return [each for each in (row.low, row.value, row.high) if each is not None]


def _row(row: Dot, name: str, top: float, scale: Scale, show: Callable[[float], str]) -> Markup:
    return element(
        "g",
        element("title", f"{row.label}: {show(row.value)}"),
        text(name, x=0, y=top + _LABEL, class_="label"),
        text(show(row.value), x=1, y=top + _LABEL, class_="value"),
        line(x1=0, x2=1, y1=top + _MARK, y2=top + _MARK, class_="grid"),
        *whisker(row.low, row.high, top + _MARK, scale, reach=_REACH),
        element("circle", cx=percent(scale.place(row.value)), cy=top + _MARK, r=4.5, class_="estimate"),
        class_=f"role-{row.role}",
    )
