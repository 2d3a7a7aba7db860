"""SVG as text, one escaped element at a time; scales with round ticks; legends."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from markupsafe import Markup, escape


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """Return one element; strings and values are escaped, and attributes that are None are left out.

    In attribute names `_` becomes `-`, and `class_` becomes `class`.
    """
    written = Markup("")
    for key, value in attributes.items():
        if value is not None:
            shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
            written += Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), shown)
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{}{}>{}</{}>").format(Markup(name), written, inside, Markup(name))


def image(*children: str, title: str, description: str, height: float) -> Markup:
    """Return an SVG as wide as its box; screen readers read *title* and *description*."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *children,
        class_="chart",
        role="img",
        aria_label=f"{title}. {description}",
        width="100%",
        height=height,
    )


def percent(share: float) -> str:
    """Return a share of the width as an attribute value: 0.25 → '25%'."""
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def text(content: str, *, x: float, y: float, class_: str = "", anchor: str | None = None) -> Markup:
    """Return a line of text at *x*, a share of the width; without *anchor*, text at a border extends inwards."""
    inwards = "start" if x < 0.06 else "end" if x > 0.94 else "middle"
    return element("text", content, x=percent(x), y=y, class_=class_ or None, text_anchor=anchor or inwards)


def line(*, x1: float, x2: float, y1: float, y2: float, class_: str) -> Markup:
    """Return a line between two points; *x1* and *x2* are shares of the width."""
    return element("line", x1=percent(x1), x2=percent(x2), y1=y1, y2=y2, class_=class_)


_MAX_TICKS = 6
_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))


@dataclass(frozen=True)
class Scale:
    """A range of numbers that is mapped to 0 … 1, with its ticks."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Return the position of *value*: 0 at the low end, 1 at the high end, values outside are clipped."""
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else 0.0
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)


def linear_scale(values: Sequence[float], *, padding: float = 0.0) -> Scale:
    """Return a linear scale that holds all *values*, with *padding* as a share of their span on each side."""
    low, high = min(values), max(values)
    pad = (high - low) * padding or (abs(high) * 0.1 or 1.0) * (low == high)
    low, high = low - pad, high + pad
    return Scale(low, high, False, _linear_ticks(low, high))


def log_scale(values: Sequence[float], *, padding: float = 0.0) -> Scale:
    """Return a logarithmic scale that holds all *values*, which must be positive; *padding* as in `linear_scale`."""
    low, high = min(values), max(values)
    pad = math.log(high / low) * padding or 0.1 * (low == high)
    low, high = low * math.exp(-pad), high * math.exp(pad)
    return Scale(low, high, True, _log_ticks(low, high))


def _linear_ticks(low: float, high: float) -> tuple[float, ...]:
    rough = (high - low) / (_MAX_TICKS - 1)
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(magnitude * factor for factor in (1, 2, 5, 10) if magnitude * factor >= rough)
    return tuple(step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return the ticks of the finest series that fits; linear ticks if the range is too short for any series."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    series = [
        tuple(tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high)
        for steps in _STEPS
    ]
    fitting = [ticks for ticks in series if 3 <= len(ticks) <= _MAX_TICKS]
    if fitting:
        return fitting[-1]
    if len(series[0]) <= _MAX_TICKS:
        return _linear_ticks(low, high)
    return series[0][:: math.ceil(len(series[0]) / _MAX_TICKS)]


Role = Literal["baseline", "variant", "between"]
"""The role of a series, which decides its colour: the reference, the one that is judged, or one between them."""

_MAX_LABEL_LENGTH = 34


def chart(drawing: Markup, *, keys: Sequence[tuple[str, str]] = ()) -> Markup:
    """Return an image with its legend above, as one block of the page; a key is (class of the swatch, label)."""
    items = (element("li", element("i", class_=f"key {class_}"), label) for class_, label in keys)
    legend = element("ul", *items, class_="legend") if keys else Markup("")
    return element("div", legend, drawing, class_="chart-box")


def shorten_labels(labels: Iterable[str]) -> dict[str, str]:
    """Return a shortened text for each label, which leaves space for a value beside it on a phone; all stay distinct.

    A long label is cut in its middle, because names often differ at an end. Labels that would become equal lose their
    common beginning instead.
    """
    half = (_MAX_LABEL_LENGTH - 1) // 2
    by_short: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        is_long = len(label) > _MAX_LABEL_LENGTH
        short = f"{label[:half]}…{label[half + 1 - _MAX_LABEL_LENGTH :]}" if is_long else label
        by_short.setdefault(short, []).append(label)
    made: dict[str, str] = {}
    for short, same in by_short.items():
        if len(same) == 1:
            made[same[0]] = short
            continue
        common = len(list(takewhile(lambda letters: len(set(letters)) == 1, zip(*same, strict=False))))
        ends = shorten_labels(label[common:] for label in same)
        made |= {label: f"…{ends[label[common:]]}" for label in same}
    return made
