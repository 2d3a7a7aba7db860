"""The shell of a self-contained page: one HTML document with its style inside, and nothing fetched or run.

The key piece is `shell`.
"""

from pathlib import Path

import jinja2
from markupsafe import Markup

from placebench import units

GENERATOR = "placebench"
_TEMPLATES = Path(__file__).parent / "templates"
_FILTERS = (
    units.average,
    units.change,
    units.count,
    units.duration,
    units.level,
    units.percent,
    units.rate,
    units.ratio,
    units.probability,
    units.size,
    units.step,
)


def shell(title: str, body: Markup, *, description: str = "") -> str:
    """The whole document around *body*; *title* and *description* are escaped, *body* is markup already.

    Its content security policy lets nothing be loaded or run, so that a name that slipped through stays text.
    """
    template = environment(_TEMPLATES).get_template("shell.html")
    style = Markup((_TEMPLATES / "page.css").read_text())
    return template.render(title=title, body=body, description=description, style=style, generator=GENERATOR)


def environment(folder: Path) -> jinja2.Environment:
    """Templates of *folder* that escape what they are given and know the numbers of `units` as filters."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update({each.__name__: each for each in _FILTERS})
    return made
