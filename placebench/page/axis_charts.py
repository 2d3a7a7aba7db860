"""Charts with two axes: `lines`, `points`, cumulative `distribution`, and `flows` of bytes over time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench import units
from placebench.page.row_charts import ratio_ticks
from placebench.page.svg import (
    Role,
    Scale,
    chart,
    element,
    image,
    line,
    linear_scale,
    log_scale,
    percent,
    shorten_labels,
    text,
)

_Show = Callable[[float], str]

_TOP = 18
_HEIGHT = 240
_AXIS = 26
_VIEW = 1000
_APART = 15
_LINES_END = 0.86
_POINTS_BEGIN, _POINTS_END = 0.14, 0.94
_BESIDE = 0.018
_LETTER_ON_A_PHONE = 0.02
"""Width of a letter over that of a chart of 360 pixels."""
_NAMED_TO_THE_RIGHT = 0.6
_MAX_DOTS = 60
_MAX_LETTERS_BESIDE = 8
"""Maximum label length to the right of the lines on a 360-pixel screen."""


@dataclass(frozen=True)
class Line:
    """One series of `lines`: points (x, y) in ascending order of x; the line is broken where y is None."""

    label: str
    points: Sequence[tuple[float, float | None]]
    role: Role = "between"

    @property
    def drawn(self) -> list[tuple[float, float]]:
        """The points that have a value."""
        return [(where, value) for where, value in self.points if value is not None]


@dataclass(frozen=True)
class Band:
    """An estimate of a place on the horizontal axis of `lines`, and the interval around it."""

    label: str
    where: float
    low: float
    high: float


def lines(
    series: Sequence[Line],
    *,
    title: str,
    description: str,
    show: _Show,
    show_where: _Show,
    logarithmic: bool = False,
    bands: Sequence[Band] = (),
) -> Markup:
    """Draw the series on linear axes, the vertical one from 0, with the name of each series at the end of its line.

    bands: upright lines with a band around each.
    show: formats the ticks of the vertical axis, *show_where* those of the horizontal axis.
    logarithmic: whether both axes are logarithmic; all numbers must be positive then.
    """
    drawn_series = [each for each in series if each.drawn]
    wheres = [where for each in drawn_series for where, _ in each.points] or [1.0, 10.0]
    wheres += [where for band in bands for where in (band.low, band.high)]
    values = [value for each in drawn_series for _, value in each.drawn] or [1.0, 10.0]
    across = log_scale(wheres) if logarithmic else linear_scale(wheres)
    up = log_scale(values, padding=0.04) if logarithmic else linear_scale([0.0, *values])
    drawn_bands = [_band(each, across, show_where) for each in bands]
    grid, ticks = _grid(across, up, show, show_where)
    drawn = [*drawn_bands, *grid, *(_line(each, across, up) for each in drawn_series), *ticks]
    names = _line_names(drawn_series, up)
    return chart(image(*drawn, *names, title=title, description=description, height=_TOP + _HEIGHT + _AXIS))


def _grid(across: Scale, up: Scale, show: _Show, show_where: _Show) -> tuple[list[Markup], list[Markup]]:
    """Return the lines of the grid, and the texts of its ticks, which lie above the series to be legible."""
    grid, ticks = [], []
    for tick in up.ticks:
        y = _height(tick, up)
        grid.append(line(x1=0, x2=_LINES_END, y1=y, y2=y, class_="axis" if tick == 0 else "grid"))
        if tick:
            ticks.append(text(units.brief(show(tick)), x=0, y=y - 4, class_="tick", anchor="start"))
    for tick in across.ticks:
        x = across.place(tick) * _LINES_END
        ticks.append(text(units.brief(show_where(tick)), x=x, y=_TOP + _HEIGHT + 18, class_="tick"))
    return grid, ticks


def _band(band: Band, across: Scale, show_where: _Show) -> Markup:
    low, where, high = (across.place(each) * _LINES_END for each in (band.low, band.where, band.high))
    field = element("rect", x=percent(low), y=_TOP, width=percent(high - low), height=_HEIGHT, class_="margin-band")
    said = f"{band.label}{': ' if band.label else ''}{show_where(band.where)}"
    title = element("title", f"{said}, from {show_where(band.low)} to {show_where(band.high)}")
    return element("g", title, field, line(x1=where, x2=where, y1=_TOP, y2=_TOP + _HEIGHT, class_="no-change"))


def _line(series: Line, across: Scale, up: Scale) -> Markup:
    """Draw the line in its own SVG, stretched to the width, and a dot at each point, of many only at lone ones."""
    path, values = "", [None, *(value for _, value in series.points), None]
    dotted = []
    for (where, value), before, after in zip(series.points, values, values[2:], strict=False):
        if value is not None:
            path += f"{'M' if before is None else 'L'}{across.place(where) * _VIEW:.1f} {_height(value, up):.1f}"
            if len(series.points) <= _MAX_DOTS or (before is None and after is None):
                dotted.append((where, value))
    stretched = _stretched(
        path, "curve", height=_TOP + _HEIGHT, width=percent(_LINES_END), vector_effect="non-scaling-stroke"
    )
    dots = (
        element("circle", cx=percent(across.place(where) * _LINES_END), cy=_height(value, up), r=3, class_="point disc")
        for where, value in dotted
    )
    return element("g", element("title", series.label), stretched, *dots, class_=f"role-{series.role}")


def _line_names(series: Sequence[Line], up: Scale) -> list[Markup]:
    """Write each name at the end of its line, below names already there.

    A long name reaches back over the chart: above the end of a line that rises, below that of a line that falls.
    """
    short = shorten_labels(one.label for one in series)
    wanted = []
    for one in series:
        is_long = len(one.label) > _MAX_LETTERS_BESIDE
        (_, before), (_, last) = one.drawn[-2:] if len(one.drawn) > 1 else one.drawn * 2
        wanted.append((_height(last, up) + (4 if not is_long else 18 if last < before else -8), is_long, one))
    drawn, free = [], 0.0
    for height, is_long, one in sorted(wanted, key=lambda name: name[0]):
        y = max(height, free)
        free = y + _APART
        x, anchor = (1.0, "end") if is_long else (_LINES_END + 0.015, "start")
        name = text(short[one.label], x=x, y=y, class_="label named", anchor=anchor)
        drawn.append(element("g", element("title", one.label), name, class_=f"role-{one.role}"))
    return drawn


def _height(value: float, up: Scale) -> float:
    return _TOP + _HEIGHT * (1 - up.place(value))


def _stretched(
    path: str,
    style: str,
    *,
    height: float,
    y: float | None = None,
    width: str = "100%",
    vector_effect: str | None = None,
) -> Markup:
    """Draw a path in its own SVG that is stretched to the width without making its stroke thicker."""
    return element(
        "svg",
        element("path", d=path, class_=style, vector_effect=vector_effect),
        y=y,
        width=width,
        height=height,
        viewBox=f"0 0 {_VIEW} {height:g}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


@dataclass(frozen=True)
class PointSeries:
    """A series of points (x, y) of `points`. A single point is named beside it, several points in the legend."""

    label: str
    points: Sequence[tuple[float, float]]
    role: Role = "between"
    is_ring: bool = False
    level: float | None = None
    """The y value of a horizontal line along the points, such as the estimate of the series."""


def points(
    series: Sequence[PointSeries],
    *,
    title: str,
    description: str,
    show: _Show | None,
    show_where: _Show,
    keys: Sequence[tuple[str, str]] = (),
) -> Markup:
    """Draw the points on linear axes from 0, or with a logarithmic vertical axis for ratios.

    show: formats the ticks of the vertical axis; None for ratios.
    keys: class and label of each legend entry; if empty, the series that have several points are the entries.
    """
    wheres = [where for each in series for where, _ in each.points]
    values = [value for each in series for _, value in each.points]
    across = linear_scale([0.0, *(wheres or [1.0])])
    up = linear_scale([0.0, *(values or [1.0])]) if show else log_scale(values or [0.9, 1.1], padding=0.12)
    drawn = _point_grid(across, up, show, show_where)
    dots = [(_across(where, across), _height(value, up)) for each in series for where, value in each.points]
    written = [(x - _BESIDE, x + _BESIDE, y + 4) for x, y in dots]
    for one in sorted((each for each in series if each.points), key=lambda each: -each.points[0][1]):
        where, value = one.points[0]
        shown = f"{one.label}: {show(value)} at {show_where(where)}" if show and len(one.points) == 1 else one.label
        drawn.append(_points(one, across, up, written, shown))
    named = [each for each in series if len(each.points) > 1]
    keys = keys or [(f"{'ring' if each.is_ring else 'disc'} role-{each.role}", each.label) for each in named]
    return chart(image(*drawn, title=title, description=description, height=_TOP + _HEIGHT + _AXIS), keys=keys)


def _point_grid(across: Scale, up: Scale, show: _Show | None, show_where: _Show) -> list[Markup]:
    drawn = []
    for tick, label in [(tick, units.brief(show(tick))) for tick in up.ticks] if show else ratio_ticks(up):
        y, is_axis = _height(tick, up), tick == (0 if show else 1)
        drawn.append(line(x1=_POINTS_BEGIN, x2=1, y1=y, y2=y, class_="axis" if is_axis else "grid"))
        drawn.append(text(label, x=0, y=y + 4, class_="tick", anchor="start"))
    for tick in across.ticks:
        label, y = units.brief(show_where(tick)), _TOP + _HEIGHT + 18
        drawn.append(text(label, x=_across(tick, across), y=y, class_="tick", anchor="middle"))
    return drawn


def _points(
    series: PointSeries, across: Scale, up: Scale, written: list[tuple[float, float, float]], title: str
) -> Markup:
    """Draw the points of a series; the name of a single point is beside it, clear of other points and names.

    It is to the right of a point on the left, and to the left of one on the right, where a phone would cut it. If that
    place is taken, it is at the nearest free height, and a line leads to the point.
    written: the left and right ends of points and names, as wide as on a phone, and the height of a name there.
    """
    style = "point ring" if series.is_ring else "point disc"
    places = [(_across(where, across), _height(value, up)) for where, value in series.points]
    drawn = [element("circle", cx=percent(x), cy=y, r=4.5, class_=style) for x, y in places]
    if series.level is not None:
        y = _height(series.level, up)
        ends = [x for x, _ in places]
        drawn.insert(0, line(x1=min(ends) - _BESIDE, x2=max(ends) + _BESIDE, y1=y, y2=y, class_="level"))
    if len(places) == 1:
        ((x, y),) = places
        at, anchor = (x + _BESIDE, "start") if x < _NAMED_TO_THE_RIGHT else (x - _BESIDE, "end")
        width, beside = len(series.label) * _LETTER_ON_A_PHONE, y + 4
        left, right = (at, at + width) if anchor == "start" else (at - width, at)
        taken = [height for begin, end, height in written if left < end and begin < right]
        name_y = _nearest_free(beside, taken)
        written.append((left, right, name_y))
        if name_y != beside:
            drawn.insert(0, line(x1=x, x2=at, y1=y, y2=name_y - 4, class_="grid"))
        drawn.append(text(series.label, x=at, y=name_y, class_="label named", anchor=anchor))
    return element("g", element("title", title), *drawn, class_=f"role-{series.role}")


def _nearest_free(wanted: float, taken: Sequence[float]) -> float:
    """Return the height inside of the chart nearest to *wanted* that is clear of those *taken*; else one below all."""
    edges = (each + way * _APART for each in taken for way in (-1, 1))
    inside = [y for y in (wanted, *edges) if _TOP <= y <= _TOP + _HEIGHT]
    free = [y for y in inside if all(round(abs(y - each), 6) >= _APART for each in taken)]
    return min(free, key=lambda y: abs(y - wanted), default=max(taken, default=wanted) + _APART)


def _across(value: float, across: Scale) -> float:
    return _POINTS_BEGIN + (_POINTS_END - _POINTS_BEGIN) * across.place(value)


_CURVE_HEIGHT = 220
_LOGARITHMIC_FROM = 4.0


@dataclass(frozen=True)
class Curve:
    """One curve of `distribution`: (value, share of the samples up to that value), ascending in both."""

    label: str
    points: Sequence[tuple[float, float]]
    role: Role = "between"
    marked: float = 0.5
    """The share at which a dot is drawn; curves with the role 'between' have none."""


def distribution(
    curves: Sequence[Curve],
    *,
    title: str,
    description: str,
    show: _Show,
    limit: tuple[float, str] | None = None,
    longest: float | None = None,
) -> Markup:
    """Draw the curves on one axis, which is logarithmic if the largest value is at least 4 times the smallest.

    show: formats the ticks.
    limit: a value to compare with, and its label.
    longest: the end of the axis; None for the largest value.
    """
    drawn_last = sorted((curve for curve in curves if curve.points), key=lambda curve: curve.role != "between")
    values = [value for curve in drawn_last for value, _ in curve.points if not longest or value <= longest]
    if not values:
        scale = linear_scale([0.0, 1.0])
    elif min(values) > 0 and max(values) / min(values) >= _LOGARITHMIC_FROM:
        scale = log_scale(values, padding=0.06)
    else:
        scale = linear_scale(values, padding=0.06)
    shares = sorted({0.0, 0.9, 1.0, *(curve.marked for curve in curves)})
    drawn = [*_curve_grid(scale, show, shares), *(_curve(curve, scale) for curve in drawn_last)]
    keys = [(f"line role-{curve.role}", curve.label) for curve in curves if curve.role != "between"]
    if between := [curve.label for curve in curves if curve.role == "between"]:
        label = between[0] if len(between) == 1 else f"{len(between)} variants between them"
        keys.append(("line role-between", label))
    if limit:
        place = scale.place(limit[0])
        drawn.append(line(x1=place, x2=place, y1=_TOP, y2=_TOP + _CURVE_HEIGHT, class_="no-change"))
        keys.append(("no-change", limit[1]))
    return chart(image(*drawn, title=title, description=description, height=_TOP + _CURVE_HEIGHT + _AXIS), keys=keys)


def _curve_grid(scale: Scale, show: _Show, shares: Sequence[float]) -> list[Markup]:
    drawn = []
    for tick in scale.ticks:
        place = scale.place(tick)
        drawn.append(line(x1=place, x2=place, y1=_TOP, y2=_TOP + _CURVE_HEIGHT, class_="grid"))
        drawn.append(text(units.brief(show(tick)), x=place, y=_TOP + _CURVE_HEIGHT + 18, class_="tick"))
    for share in shares:
        y = _TOP + _CURVE_HEIGHT * (1 - share)
        drawn.append(line(x1=0, x2=1, y1=y, y2=y, class_="grid" if share else "axis"))
        if share:
            drawn.append(text(units.round_percent(share), x=0, y=y - 4, class_="tick", anchor="start"))
    return drawn


def _curve(curve: Curve, scale: Scale) -> Markup:
    """Draw the curve as steps, with a dash pattern by its role and a dot at its marked share."""
    start = f"M{scale.place(curve.points[0][0]) * _VIEW:.1f} {_CURVE_HEIGHT}"
    steps = (f"H{scale.place(value) * _VIEW:.1f}V{_CURVE_HEIGHT * (1 - share):.1f}" for value, share in curve.points)
    stretched = _stretched(
        start + "".join(steps), "curve dashes", y=_TOP, height=_CURVE_HEIGHT, vector_effect="non-scaling-stroke"
    )
    reached = next((value for value, share in curve.points if share >= curve.marked), None)
    mark = []
    if curve.role != "between" and reached is not None:
        y = _TOP + _CURVE_HEIGHT * (1 - curve.marked)
        mark = [element("circle", cx=percent(scale.place(reached)), cy=y, r=4, class_="estimate")]
    return element("g", element("title", curve.label), stretched, *mark, class_=f"role-{curve.role}")


_FLOW_TOP, _FLOW_UP, _FLOW_DOWN = 20, 56, 30
_FLOW_ROW = _FLOW_TOP + _FLOW_UP + _FLOW_DOWN + 14


@dataclass(frozen=True)
class TrafficSeries:
    """One row of `flows`: amounts in both directions, in bins of *bin_s* seconds that start at 0."""

    label: str
    value: str
    """The text at the end of the row's heading."""
    bin_s: float
    came: Sequence[float]
    went: Sequence[float]
    role: Role = "between"

    @property
    def end_s(self) -> float:
        """The end of the last bin in seconds."""
        return max(len(self.came), len(self.went)) * self.bin_s


def flows(
    series: Sequence[TrafficSeries], *, title: str, description: str, names: tuple[str, str], show: _Show
) -> Markup:
    """Draw a row for each series; each direction has one scale for all rows. *names*: their labels in the legend."""
    across = linear_scale([0.0, *(each.end_s for each in series)] if series else [0.0, 1.0])
    most_came = max((amount for each in series for amount in each.came), default=0.0) or 1.0
    most_went = max((amount for each in series for amount in each.went), default=0.0) or 1.0
    drawn = []
    for number, row in enumerate(series):
        top = number * _FLOW_ROW
        middle = top + _FLOW_TOP + _FLOW_UP
        came, went = _columns(row, row.came, across), _columns(row, row.went, across)
        up = "".join(_column(*column, most_came, _FLOW_UP, _FLOW_UP, -1) for column in came)
        down = "".join(_column(*column, most_went, 0, _FLOW_DOWN, 1) for column in went)
        drawn.append(
            element(
                "g",
                element("title", f"{row.label}: {row.value}"),
                text(row.label, x=0, y=top + 14, class_="label"),
                text(row.value, x=1, y=top + 14, class_="value"),
                _stretched(up, "flow-came", y=middle - _FLOW_UP, height=_FLOW_UP),
                _stretched(down, "flow-went", y=middle, height=_FLOW_DOWN),
                line(x1=0, x2=1, y1=middle, y2=middle, class_="axis"),
                class_=f"role-{row.role}",
            )
        )
    height = _FLOW_ROW * len(series)
    ticks = (text(units.brief(show(tick)), x=across.place(tick), y=height + 12, class_="tick") for tick in across.ticks)
    keys = [("flow-came", names[0]), ("flow-went", names[1])]
    return chart(image(*drawn, *ticks, title=title, description=description, height=height + 24), keys=keys)


def _columns(series: TrafficSeries, bins: Sequence[float], across: Scale) -> list[tuple[float, float, float]]:
    """Return left edge, right edge and amount of each bin that is not empty."""
    edges = [across.place(number * series.bin_s) * _VIEW for number in range(len(bins) + 1)]
    return [(edges[number], edges[number + 1], amount) for number, amount in enumerate(bins) if amount]


def _column(left: float, right: float, amount: float, most: float, zero: float, height: float, way: int) -> str:
    tall = zero + way * height * max(amount / most, 1 / height)  # a single byte is seen
    return f"M{left:.1f} {zero:.1f}V{tall:.1f}H{right:.1f}V{zero:.1f}Z"
