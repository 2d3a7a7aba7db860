"""The shell of a self-contained HTML page, and the metadata in its head that identifies a page of placebench."""

from html.parser import HTMLParser
from pathlib import Path

import jinja2
from markupsafe import Markup

from placebench import units

_GENERATOR = "placebench"
_TEMPLATES = Path(__file__).parent / "templates"
_FILTERS = (
    units.average,
    units.signed_percent,
    units.count,
    units.duration,
    units.round_percent,
    units.numbered,
    units.percent,
    units.rate,
    units.ratio,
    units.probability,
    units.size,
    units.signed_duration,
    units.unbroken,
)


def shell(title: str, body: Markup, *, description: str = "", scripts: bool = False) -> str:
    """Return the whole document around *body*; *title* and *description* are escaped, *body* must be markup.

    The content security policy forbids loading and running anything, so that unescaped input stays harmless text.
    scripts: allow the scripts in *body* to run; they still cannot load anything.
    """
    template = environment(_TEMPLATES).get_template("shell.html")
    style = Markup((_TEMPLATES / "page.css").read_text(encoding="utf-8"))
    return template.render(
        title=title, body=body, description=description, style=style, generator=_GENERATOR, scripts=scripts
    )


def environment(folder: Path) -> jinja2.Environment:
    """Return the environment for the templates in *folder*: values are escaped, functions of `units` are filters."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update({each.__name__: each for each in _FILTERS})
    return made


_HEAD_CHARACTERS = 8192


def description_of(path: Path) -> str | None:
    """Return the description of the page at *path* as given to `shell`; None if placebench made no page there."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            head = file.read(_HEAD_CHARACTERS)
    except FileNotFoundError:
        return None
    reader = _Metas()
    reader.feed(head)
    return reader.metas.get("description", "") if reader.metas.get("generator") == _GENERATOR else None


class _Metas(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.metas: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "meta" and found.get("name"):
            self.metas[str(found["name"])] = found.get("content") or ""
