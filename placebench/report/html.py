"""Pages: `render_html` of a report, and `write_page` of any document."""

import functools
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from placebench.page import environment, shell
from placebench.report.environment import moment
from placebench.report.model import Column, Items, Report, Table


def render_html(report: Report) -> str:
    """Return the whole document, which needs no other file."""
    variables = Table("Environment", _NAME_AND_VALUE, report.environment, id="environment")
    return render_page(
        "report.html",
        f"{report.name} · placebench",
        description=report.headline,
        report=report,
        notes=[Items(report.notes)],
        limits=[Items(report.limits)],
        environment=[variables],
    )


def render_page(template: str, title: str, *, description: str = "", **variables: Any) -> str:
    """Return the document around a template of this package."""
    body = _templates().get_template(template).render(**variables)
    return shell(title, Markup(body), description=description)


def write_page(path: Path, document: str) -> Path:
    """Write *document* to *path* in one step, so that a browser sees the old page or the new one, never half of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(document, encoding="utf-8")
    return partial.replace(path)


_NAME_AND_VALUE = (Column("name", lambda row: row[0]), Column("value", lambda row: row[1]))


@functools.cache
def _templates() -> jinja2.Environment:
    made = environment(Path(__file__).parent / "templates")
    made.filters["moment"] = moment
    return made
