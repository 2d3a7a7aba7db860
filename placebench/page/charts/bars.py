"""Bar charts: bars in parts, shares of a whole, and diverging bars around zero."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench import units
from placebench.page.svg import Role, chart, element, line, percent, picture, shortened, text

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


_ROW_SHARES = 58
_BAR_HEIGHT_SHARES = 20
_SHOWN_FROM = 0.07


@dataclass(frozen=True)
class Whole:
    """One row: its parts, none of them negative, are drawn as shares of their sum."""

    label: str
    parts: tuple[float, ...]
    value: str
    """What the sum is, in words."""


def shares(rows: Sequence[Whole], *, part_names: Sequence[str], title: str, description: str) -> Markup:
    """A bar for each row, all of the same length."""
    short = shortened(row.label for row in rows)
    drawn = [_row_shares(row, short[row.label], number * _ROW_SHARES, part_names) for number, row in enumerate(rows)]
    keys = [(f"share-{number}", name) for number, name in enumerate(part_names)]
    return chart(picture(*drawn, title=title, description=description, height=_ROW_SHARES * len(rows)), keys=keys)


def _row_shares(row: Whole, name: str, top: float, part_names: Sequence[str]) -> Markup:
    return element(
        "g",
        element("title", _told_shares(row, part_names)),
        text(name, x=0, y=top + _BASELINE, class_="label"),
        text(row.value, x=1, y=top + _BASELINE, class_="value"),
        *_parts_shares(row, top + _BAR_TOP),
    )


def _parts_shares(row: Whole, top: float) -> list[Markup]:
    drawn, start, whole = [], 0.0, sum(row.parts) or 1.0
    for number, part in enumerate(row.parts):
        share = part / whole
        drawn.append(
            element(
                "rect",
                x=percent(start),
                y=top,
                width=percent(share),
                height=_BAR_HEIGHT_SHARES,
                class_=f"share share-{number}",
            )
        )
        if share >= _SHOWN_FROM:
            label = units.percent(share, digits=2)
            drawn.append(
                text(
                    label,
                    x=start + share / 2,
                    y=top + _BAR_HEIGHT_SHARES - 6,
                    class_=f"share-value on-{number}",
                    anchor="middle",
                )
            )
        start += share
    return drawn


def _told_shares(row: Whole, part_names: Sequence[str]) -> str:
    whole = sum(row.parts) or 1.0
    told = (f"{name} {units.percent(part / whole)}" for name, part in zip(part_names, row.parts, strict=True))
    return f"{row.label}: {row.value} ({', '.join(told)})"


_ROW_DIVERGING = 34
_LABEL = 13
_BAR_TOP_DIVERGING = 18
_BAR_HEIGHT_DIVERGING = 9
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
    height = _ROW_DIVERGING * len(rows)
    short = shortened(row.label for row in rows)
    drawn = [
        line(x1=_MIDDLE, x2=_MIDDLE, y1=0, y2=height, class_="no-change"),
        *(
            _row_diverging(row, short[row.label], number * _ROW_DIVERGING, longest, show)
            for number, row in enumerate(rows)
        ),
    ]
    keys = [("bar role-variant", "less: cheaper"), ("bar role-baseline", "more: dearer")]
    return chart(picture(*drawn, title=title, description=description, height=height), keys=keys)


def _row_diverging(row: Step, name: str, top: float, longest: float, show: Callable[[float], str]) -> Markup:
    width = abs(row.change) / longest * _MIDDLE
    left = _MIDDLE if row.change > 0 else _MIDDLE - width
    return element(
        "g",
        element("title", row.told or f"{row.label}: {show(row.change)}"),
        text(name, x=0, y=top + _LABEL, class_="label"),
        text(show(row.change), x=1, y=top + _LABEL, class_="value"),
        element(
            "rect",
            x=percent(left),
            y=top + _BAR_TOP_DIVERGING,
            width=percent(width),
            height=_BAR_HEIGHT_DIVERGING,
            rx=1,
            class_="bar",
        ),
        class_=f"role-{'baseline' if row.change > 0 else 'variant'}",
    )
