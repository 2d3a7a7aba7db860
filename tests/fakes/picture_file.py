"""A chart as an SVG file, for a document that shows it as an image: `picture_file`."""

from pathlib import Path

from markupsafe import Markup

from placebench import page

_STYLE = Path(page.__file__).parent / "templates" / "page.css"
_MARGIN = 16


def picture_file(chart: Markup, *, width: int = 900) -> str:
    """Return the SVG of a chart with the style of the pages inside, *width* pixels wide; it follows light and dark."""
    text = str(chart)
    picture = text[text.index("<svg") : text.rindex("</svg>") + len("</svg>")]
    height = float(picture.partition(' height="')[2].partition('"')[0])
    box = f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 2 * _MARGIN:g}"'
    inside = picture.replace('width="100%"', f'x="{_MARGIN}" y="{_MARGIN}" width="{width - 2 * _MARGIN}"', 1)
    paper = '<rect width="100%" height="100%" style="fill: var(--paper)"/>'
    return f"<svg {box}><style>{_STYLE.read_text()}</style>{paper}{inside}</svg>\n"
