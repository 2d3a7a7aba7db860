"""A flame as a self-contained page, and as a file for speedscope.

The key pieces are `write_flame_page` and `write_speedscope`. The page is pyinstrument's own in a shell of ours, which
fetches nothing and lets no statement's text become markup.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import jinja2
import pyinstrument
from markupsafe import Markup
from pyinstrument.renderers import ConsoleRenderer, SpeedscopeRenderer
from pyinstrument.renderers.html import JSONForHTMLRenderer
from pyinstrument.session import Session

from placebench import units
from placebench.profiler.model.recording import write_whole

_TEMPLATES = Path(__file__).parent / "templates"
_RESOURCES = Path(pyinstrument.__file__).parent / "renderers" / "html_resources"
# pyinstrument's page asks Google for two fonts; without them it takes the machine's. Should a later version ask in
# another way, the page's content security policy still lets nothing out.
_FONT_LINK = re.compile(
    r'const (\w+)=document\.createElement\("link"\);\1\.rel="preload".*?document\.head\.appendChild\(\1\);', re.DOTALL
)


def write_flame_page(
    session: Session,
    path: Path,
    *,
    title: str,
    requests: int = 1,
    slowdown: float | None = None,
    notes: Iterable[str] = (),
    back: str = "index.html",
) -> None:
    """Write the session as one HTML file of some 100 kB and up that a browser opens without a network.

    title: what was profiled, such as the variant's name. requests: how many were merged into the session.
    slowdown: how many times slower a request was while profiled, if that was measured. notes: what a reader has to
    know, such as the recordings' own. back: the link to the run.
    Without JavaScript the page shows the same flame as text.
    """
    page = _template().render(
        title=title,
        requests=requests,
        seconds=sum(seconds for _, seconds in session.frame_records),
        slowdown=slowdown,
        notes=notes,
        back=back,
        text=ConsoleRenderer(unicode=True, color=False).render(session),
        style=Markup((_RESOURCES / "app.css").read_text(encoding="utf-8")),
        script=Markup(_FONT_LINK.sub("", (_RESOURCES / "app.js").read_text(encoding="utf-8"))),
        data=_inside_script(JSONForHTMLRenderer().render(session)),
    )
    write_whole(path, page)


def write_speedscope(session: Session, path: Path) -> None:
    """Write the session as a file that https://www.speedscope.app opens, statements among its frames."""
    write_whole(path, SpeedscopeRenderer().render(session))


def _inside_script(json_text: str) -> Markup:
    """JSON that cannot end the script element it stands in, whatever its strings hold."""
    return Markup(json_text.replace("<", "\\u003c"))


@cache
def _template() -> jinja2.Template:
    """The shell, which escapes what it is given."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(count=units.count, duration=units.duration, times=units.times)
    return environment.get_template("flame.html")
