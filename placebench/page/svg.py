"""SVG as text, one escaped element at a time; scales with round ticks; legends."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from markupsafe import Markup, escape


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """One element; strings and values are escaped, `_` in an attribute's name is `-`, one that is None is left out.

    `class_` stands for the attribute class.
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{}{}>{}</{}>").format(Markup(name), written, inside, Markup(name))


def image(*children: str, title: str, description: str, height: float) -> Markup:
    """An SVG as wide as its box, read out as *title* and *description*."""
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
    """A share of the width as an attribute: 0.25 → '25%'."""
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def text(content: str, *, x: float, y: float, class_: str = "", anchor: str | None = None) -> Markup:
    """A line of text at a share of the width; at the borders it turns inwards unless *anchor* says otherwise."""
    inwards = "start" if x < 0.06 else "end" if x > 0.94 else "middle"
    return element("text", content, x=percent(x), y=y, class_=class_ or None, text_anchor=anchor or inwards)


def line(*, x1: float, x2: float, y1: float, y2: float, class_: str) -> Markup:
    """A line between two places."""
    return element("line", x1=percent(x1), x2=percent(x2), y1=y1, y2=y2, class_=class_)


def _value(value: str | float | None) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


_MAX_TICKS = 6
_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))


@dataclass(frozen=True)
class Scale:
    """A stretch of numbers laid on 0 … 1."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Where *value* lies; 0 at the low end, 1 at the high end, held inside."""
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else 0.0
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)


def linear_scale(values: Sequence[float], *, padding: float = 0.0) -> Scale:
    """A scale that holds all *values* and that share of their span more on each side."""
    low, high = min(values), max(values)
    pad = (high - low) * padding or (abs(high) * 0.1 or 1.0) * (low == high)
    low, high = low - pad, high + pad
    return Scale(low, high, False, _linear_ticks(low, high))


def log_scale(values: Sequence[float], *, padding: float = 0.0) -> Scale:
    """A scale on which equal factors are equal lengths, for positive *values*; *padding* as in `linear_scale`."""
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
    """The finest of the usual series that fits; linear steps where the stretch is too short for any."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    series = [
        tuple(tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high)
        for steps in _STEPS
    ]
    fitting = [ticks for ticks in series if 3 <= len(ticks) <= _MAX_TICKS]
    if fitting:
        return fitting[-1]
    return _linear_ticks(low, high) if len(series[0]) <= _MAX_TICKS else _thinned(series[0])


def _thinned(ticks: tuple[float, ...]) -> tuple[float, ...]:
    return ticks[:: math.ceil(len(ticks) / _MAX_TICKS)]


Role = Literal["baseline", "variant", "between"]
"""Which accent a series has: what is compared with, what is judged, and what lies between them."""

_MAX_LABEL_LENGTH = 34


def chart(drawing: Markup, *, keys: Sequence[tuple[str, str]] = ()) -> Markup:
    """Return an image with its keys above, as one block of the page; a key is (class of the swatch, label)."""
    items = (element("li", element("i", class_=f"key {class_}"), label) for class_, label in keys)
    legend = element("ul", *items, class_="legend") if keys else Markup("")
    return element("div", legend, drawing, class_="chart-box")


def shorten_labels(labels: Iterable[str]) -> dict[str, str]:
    """Return each label short enough for a value beside it on a phone; labels that differ still differ.

    A long one is cut in its middle, because names often differ at an end; the others where they begin to differ.
    """
    alike: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        alike.setdefault(_cut(label), []).append(label)
    made: dict[str, str] = {}
    for short, found in alike.items():
        made |= {found[0]: short} if len(found) == 1 else _distinct_ends(found)
    return made


def _cut(label: str) -> str:
    if len(label) <= _MAX_LABEL_LENGTH:
        return label
    half = (_MAX_LABEL_LENGTH - 1) // 2
    return f"{label[:half]}…{label[half + 1 - _MAX_LABEL_LENGTH :]}"


def _distinct_ends(labels: Sequence[str]) -> dict[str, str]:
    """Labels whose ends are the same, without what they begin with alike."""
    same = len(list(takewhile(lambda letters: len(set(letters)) == 1, zip(*labels, strict=False))))
    rest = shorten_labels(label[same:] for label in labels)
    return {label: f"…{rest[label[same:]]}" for label in labels}
