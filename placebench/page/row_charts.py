"""Charts with one row per item: `bars` from zero, and `forest` for estimates with their intervals."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench import units
from placebench.page.svg import Role, Scale, chart, element, image, line, log_scale, percent, shorten_labels, text

_BAR_ROW = 38
_LABEL = 14
_BAR_TOP = 20
_BAR_HEIGHT = 10
_WHOLE_ROW = 58
_WHOLE_HEIGHT = 20
_SHOWN_FROM = 0.07
"""Minimum share of the whole at which a part is labelled with its share."""


@dataclass(frozen=True)
class Bar:
    """One row of `bars`; the length of the bar is the sum of its parts, which are drawn one after the other."""

    label: str
    parts: tuple[float, ...]
    role: Role = "between"
    value: str = ""
    """The text at the end of the row; if empty, the formatted total."""
    title: str = ""
    """The tooltip; if empty, it is made of label, value and parts."""

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
    is_whole: bool = False,
    is_signed: bool = False,
) -> Markup:
    """Draw a bar for each row, all on one scale, with the total formatted by *show* at the end of its heading.

    part_names: the legend labels of the parts.
    is_whole: whether every bar has the full width and its parts are shares of the bar.
    is_signed: whether zero is in the middle; positive bars have the baseline's colour, negative bars the variant's.
    """
    longest = max((abs(row.total) for row in rows), default=0.0) or 1.0
    height = _WHOLE_ROW if is_whole else _BAR_ROW
    short = shorten_labels(row.label for row in rows)
    drawn = []
    for number, row in enumerate(rows):
        top, value, role = number * height, row.value or show(row.total), row.role
        y = top + _BAR_TOP
        if is_whole:
            parts = _shares(row, y)
        elif is_signed:
            width = abs(row.total) / longest / 2
            x, role = (0.5, "baseline") if row.total > 0 else (0.5 - width, "variant")
            parts = [element("rect", x=percent(x), y=y, width=percent(width), height=_BAR_HEIGHT, rx=1, class_="bar")]
        else:
            track = element("rect", x=0, y=y, width="100%", height=_BAR_HEIGHT, rx=2, class_="track")
            parts = [track, *_stacked(row.parts, longest, y, _BAR_HEIGHT, "bar part")]
        tooltip = row.title
        if not tooltip:
            amounts = [units.percent(part / (row.total or 1.0)) if is_whole else show(part) for part in row.parts]
            named = ", ".join(f"{name} {amount}" for name, amount in zip(part_names, amounts, strict=False))
            tooltip = f"{row.label}: {value}" + (f" ({named})" if named else "")
        heading = _row_heading(short[row.label], value, top, tooltip)
        drawn.append(element("g", *heading, *parts, class_=f"role-{role}"))
    kind = "share" if is_whole else "part"
    keys = [(f"{kind}-{number}", name) for number, name in enumerate(part_names)]
    if is_signed:
        drawn.insert(0, line(x1=0.5, x2=0.5, y1=0, y2=height * len(rows), class_="no-change"))
        keys = [("bar role-variant", "less"), ("bar role-baseline", "more")]
    return chart(image(*drawn, title=title, description=description, height=height * len(rows)), keys=keys)


def _row_heading(name: str, value: str, top: float, title: str) -> list[Markup]:
    return [
        element("title", title),
        text(name, x=0, y=top + _LABEL, class_="label"),
        text(value, x=1, y=top + _LABEL, class_="value"),
    ]


def _shares(bar: Bar, top: float) -> list[Markup]:
    """Draw the parts of a bar, each labelled with its share if there is enough space."""
    whole, start = bar.total or 1.0, 0.0
    drawn = _stacked(bar.parts, whole, top, _WHOLE_HEIGHT, "share share")
    for number, part in enumerate(bar.parts):
        share = part / whole
        if share >= _SHOWN_FROM:
            label, style = units.percent(share, digits=2), f"share-value on-{number}"
            drawn.append(text(label, x=start + share / 2, y=top + _WHOLE_HEIGHT - 6, class_=style, anchor="middle"))
        start += share
    return drawn


def _stacked(parts: Sequence[float], longest: float, top: float, height: float, style: str) -> list[Markup]:
    starts = [sum(parts[:number]) for number in range(len(parts))]
    return [
        element(
            "rect",
            x=percent(start / longest),
            y=top,
            width=percent(part / longest),
            height=height,
            class_=f"{style}-{number}",
        )
        for number, (start, part) in enumerate(zip(starts, parts, strict=True))
    ]


_FIELD = 22
_FIELD_HEIGHT = 28
_PLAIN_HEIGHT = 8
_REACH = 7
_CLEARLY_A_FACTOR = 1.5
_NOTHING = 1e-9
"""Distance from 1 within which a tick is labelled as no change."""


@dataclass(frozen=True)
class Estimate:
    """One row of `forest`: a positive value, with its interval if it has one."""

    label: str
    text: str
    """The text at the end of the row."""
    value: float
    low: float | None = None
    high: float | None = None
    role: Role = "between"
    margin: float | None = None
    """The margin of a ratio (in log ratio), fixed before the run."""
    points: Sequence[float] = ()
    """The values behind the estimate, in order: small dots from the top of the row to its bottom."""


def forest(
    rows: Sequence[Estimate], *, title: str, description: str, show: Callable[[float], str] | None = None
) -> Markup:
    """Draw a row for each estimate on one logarithmic scale, on which equal factors are equal distances.

    show: formats the ticks; None for ratios, which get a line of no change and bands for their margins.
    """
    is_ratio = show is None
    values: list[float] = []
    for row in rows:
        limits = [limit for limit in (row.low, row.high) if limit is not None]
        margins = [] if row.margin is None else [math.exp(-row.margin), math.exp(row.margin)]
        values += [row.value, *row.points, *limits, *margins]
    scale = log_scale(values or [0.9, 1.1], padding=0.06)
    field = _FIELD_HEIGHT if is_ratio else _PLAIN_HEIGHT
    height = _FIELD + field + (10 if is_ratio else 6)
    ticks = [(tick, units.brief(show(tick))) for tick in scale.ticks] if show else ratio_ticks(scale)
    short = shorten_labels(row.label for row in rows)
    drawn = [
        mark
        for number, row in enumerate(rows)
        for mark in _estimate(row, short[row.label], number * height, field, scale, [tick for tick, _ in ticks])
    ]
    drawn += [text(label, x=scale.place(tick), y=height * len(rows) + 14, class_="tick") for tick, label in ticks]
    keys = [("estimate", "estimate and interval")]
    if any(row.points for row in rows):
        keys.append(("mote", "one replicate, the first on top"))
    if is_ratio:
        keys += [("no-change", "no change"), ("margin", "margin: too small to matter")]
    return chart(image(*drawn, title=title, description=description, height=height * len(rows) + 20), keys=keys)


def ratio_ticks(scale: Scale) -> list[tuple[float, str]]:
    """Return the ticks of a scale of ratios: factors if the scale is long, signed percentages if it is short."""
    if scale.high / scale.low > _CLEARLY_A_FACTOR:
        return [(tick, units.brief(units.times(tick))) for tick in scale.ticks]
    return [
        (tick, "0 %" if abs(tick - 1) < _NOTHING else units.brief(units.signed_percent(tick, digits=3)))
        for tick in scale.ticks
    ]


def _estimate(row: Estimate, name: str, top: float, field: float, scale: Scale, ticks: Sequence[float]) -> list[Markup]:
    """Draw a row: its heading, and below it grid, margin, interval and estimate, later ones on top."""
    upper, lower, middle = top + _FIELD, top + _FIELD + field, top + _FIELD + field / 2

    def upright(value: float, style: str) -> Markup:
        place = scale.place(value)
        return line(x1=place, x2=place, y1=upper, y2=lower, class_=style)

    apart = field / max(1, len(row.points))
    motes = [
        element("circle", cx=percent(scale.place(value)), cy=upper + (place + 0.5) * apart, r=1.7, class_="mote")
        for place, value in enumerate(row.points)
    ]
    estimate = element("circle", cx=percent(scale.place(row.value)), cy=middle, r=4.5, class_="estimate")
    heading = _row_heading(name, row.text, top, f"{row.label}: {row.text}")
    whiskers, margin = [], []
    if row.low is not None and row.high is not None:
        left, right = scale.place(row.low), scale.place(row.high)
        ends = [
            line(x1=place, x2=place, y1=middle - _REACH, y2=middle + _REACH, class_="whisker")
            for place in (left, right)
        ]
        whiskers = [line(x1=left, x2=right, y1=middle, y2=middle, class_="whisker"), *ends]
    if row.margin is not None:
        left, right = scale.place(math.exp(-row.margin)), scale.place(math.exp(row.margin))
        width = percent(right - left)
        band = element("rect", x=percent(left), y=upper, width=width, height=field, class_="margin-band")
        margin = [band, upright(1, "no-change")]
    marks = [*heading, *motes, *whiskers, estimate]
    return [*(upright(tick, "grid") for tick in ticks), *margin, element("g", *marks, class_=f"role-{row.role}")]
