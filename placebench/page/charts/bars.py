"""Horizontal bars in parts, each row with its name and its value above the bar.

The key piece is `bars`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench.page.charts.legend import Role, chart, shortened
from placebench.page.svg import element, percent, picture, text

_ROW = 38
_BASELINE = 14
_BAR_TOP = 20
_BAR_HEIGHT = 10


@dataclass(frozen=True)
class Bar:
    """One row: its length is the sum of its parts, which are drawn one after the other."""

    label: str
    parts: tuple[float, ...]
    role: Role = "between"

    @property
    def total(self) -> float:
        """The length of the bar."""
        return sum(self.parts)


def bars(
    rows: Sequence[Bar],
    *,
    title: str,
    description: str,
    show: Callable[[float], str],
    part_names: Sequence[str] = (),
) -> Markup:
    """A bar for each row from 0 on, one scale for all, with *show* of its total beside its name."""
    longest = max((row.total for row in rows), default=0.0) or 1.0
    short = shortened(row.label for row in rows)
    drawn = [_row(row, short[row.label], number * _ROW, longest, show, part_names) for number, row in enumerate(rows)]
    keys = [(f"part-{number}", name) for number, name in enumerate(part_names)]
    return chart(picture(*drawn, title=title, description=description, height=_ROW * len(rows)), keys=keys)


def _row(
    bar: Bar, name: str, top: float, longest: float, show: Callable[[float], str], part_names: Sequence[str]
) -> Markup:
    track = element("rect", x=0, y=top + _BAR_TOP, width="100%", height=_BAR_HEIGHT, rx=2, class_="track")
    return element(
        "g",
        element("title", _told(bar, show, part_names)),
        text(name, x=0, y=top + _BASELINE, class_="label"),
        text(show(bar.total), x=1, y=top + _BASELINE, class_="value"),
        track,
        *_parts(bar, top + _BAR_TOP, longest),
        class_=f"role-{bar.role}",
    )


def _parts(bar: Bar, top: float, longest: float) -> list[Markup]:
    drawn, start = [], 0.0
    for number, part in enumerate(bar.parts):
        drawn.append(
            element(
                "rect",
                x=percent(start / longest),
                y=top,
                width=percent(part / longest),
                height=_BAR_HEIGHT,
                class_=f"bar part-{number}",
            )
        )
        start += part
    return drawn


def _told(bar: Bar, show: Callable[[float], str], part_names: Sequence[str]) -> str:
    parts = ", ".join(f"{name} {show(part)}" for name, part in zip(part_names, bar.parts, strict=False))
    return f"{bar.label}: {show(bar.total)}" + (f" ({parts})" if parts else "")
