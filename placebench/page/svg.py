"""SVG as text, one escaped element at a time.

The key piece is `element`. Horizontal places are percentages of the picture's width and vertical ones are pixels: the
picture takes any width, and its text keeps its size, on a phone as on paper.
"""

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


def picture(*children: str, title: str, description: str, height: float) -> Markup:
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
