"""How the report turns its templates into files: `templates` and `write_page`."""

import functools
from pathlib import Path

import jinja2

from placebench.page import environment
from placebench.report import sentences
from placebench.report.comparisons import variant_shortened


@functools.cache
def templates() -> jinja2.Environment:
    """The report's templates."""
    made = environment(Path(__file__).parent / "templates")
    made.filters["quantile"] = sentences.quantile_text
    made.filters["shortened"] = sentences.statement_shortened
    made.filters["short_name"] = _short_name
    return made


@jinja2.pass_context
def _short_name(context: jinja2.runtime.Context, variant: str) -> str:
    """A short name that no other variant of the run has."""
    return variant_shortened(variant, context["head"].variants)


def write_page(path: Path, document: str) -> Path:
    """Put *document* at *path* in one step: a browser sees the old page or the new one, never half of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(document, encoding="utf-8")
    return partial.replace(path)
