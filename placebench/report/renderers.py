"""The renderers of a report: `render_html`, `render_text`, `render_markdown` and `render_junit`."""

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
from markupsafe import Markup, escape

from placebench.page import environment, shell
from placebench.plain_text import markdown, markdown_code
from placebench.report.environment import moment
from placebench.report.model import Column, Items, Report, Table, Text

_GATE_LABELS = ("gate", "variant", "outcome", "measured")
_JUNIT_TAGS = {"failed": "failure", "inconclusive": "skipped", "error": "error"}


def render_html(report: Report) -> str:
    """Return the report as an HTML document that needs no other file."""
    variables = Table("Environment", _NAME_AND_VALUE, report.environment, id="environment")
    columns = [Column(label, itemgetter(at), wide=label == "measured") for at, label in enumerate(_GATE_LABELS)]
    gates = _gates(report)
    return render_page(
        "report.html",
        f"{report.name} · placebench",
        description=report.headline,
        report=report,
        gates=[Table("Gates", columns, gates, id="gates")] if gates else [],
        notes=[Items(report.notes)],
        limits=[Items(report.limits)],
        environment=[variables],
    )


def render_page(template: str, title: str, *, description: str = "", **variables: Any) -> str:
    """Return an HTML document with *template* of this package as its body."""
    body = _templates().get_template(template).render(**variables)
    return shell(title, Markup(body), description=description)


def write_page(path: Path, document: str) -> Path:
    """Write *document* to *path* atomically, so that a browser never sees a partial page; return *path*."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(document, encoding="utf-8")
    return partial.replace(path)


_NAME_AND_VALUE = (Column("name", lambda row: row[0]), Column("value", lambda row: row[1]))


@functools.cache
def _templates() -> jinja2.Environment:
    def inline_code(text: Text) -> Markup:
        return text if isinstance(text, Markup) else Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))

    made = environment(Path(__file__).parent / "templates")
    made.filters["moment"] = moment
    made.filters["inline_code"] = inline_code  # text between backticks
    return made


def render_text(report: Report, *, width: int | None = None) -> str:
    """Return the report as text for a terminal: the result, notices, summary, gates and the tables of the overview.

    width: width of the terminal in characters; None for no limit.
    """
    lines = [report.headline, *report.notices, *map(_plain, report.summary)]
    if gates := _gates(report):
        lines += ["", *align([_GATE_LABELS, *gates])]
    for table in report.overview:
        lines += ["", *_fitted(table, width)]
    return "\n".join([*lines, *(f"  {each}" for each in report.remarks)])


def render_markdown(report: Report) -> str:
    """Return the report as Markdown: the content of `render_text`, then data and request, and the conclusion.

    Remarks that the conclusion repeats are only there.
    """
    lines = [f"### {markdown(report.headline)}", ""]
    lines += [f"* {markdown(each)}" for each in (*report.notices, *map(_plain, report.summary))]
    if gates := _gates(report):
        rows = [
            [markdown_code(gate), markdown(variant), f"**{outcome}**", markdown(measured)]
            for gate, variant, outcome, measured in gates
        ]
        lines += ["", *_markdown_table(_GATE_LABELS, rows)]
    for table in report.overview:
        rows = [list(map(markdown, row)) for row in _cells(table)]
        lines += ["", *_markdown_table([markdown(_plain(column.label)) for column in table.columns], rows)]
    remarks = [each for each in report.remarks if each not in report.conclusion]
    lines += ["", *(f"* {markdown(each)}" for each in remarks)] if remarks else []
    for paragraph in filter(None, (report.about, report.conclusion)):
        lines += ["", markdown(paragraph)]
    return "\n".join([*lines, ""])


def render_junit(report: Report) -> bytes:
    """Return the checks as JUnit XML: one test for the responses, and one for each gate and variant."""
    suite = ElementTree.Element("testsuite", name=f"placebench {report.name}")
    for check in report.checks:
        classname = f"placebench.{check.variant}" if check.variant else "placebench"
        case = ElementTree.SubElement(suite, "testcase", classname=classname, name=check.name)
        if check.outcome != "passed":
            message = f"{check.outcome}: {check.measured}" if check.variant else check.measured
            ElementTree.SubElement(case, _JUNIT_TAGS[check.outcome], message=message)
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(report.checks)))
    document: bytes = ElementTree.tostring(suite, xml_declaration=True)
    return document


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as aligned lines: the first column left-aligned, the others right-aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def _fitted(table: Table, width: int | None) -> list[str]:
    """Return the lines of a table; optional columns are dropped from the end until it is no wider than *width*."""
    lines = align([[_plain(column.label) for column in table.columns], *_cells(table)])
    optional = [each for each in table.columns if each.optional]
    if width is None or not optional or max(map(len, lines)) <= width:
        return lines
    return _fitted(replace(table, columns=[each for each in table.columns if each is not optional[-1]]), width)


def _gates(report: Report) -> list[list[str]]:
    return [[each.name, each.variant, each.outcome, each.measured] for each in report.checks if each.variant]


def _cells(table: Table) -> list[list[str]]:
    return [[_plain(column.cell(row)) for column in table.columns] for row in table.rows]


def _plain(text: Text) -> str:
    return Markup(str(text).replace("<br>", " ")).striptags() if isinstance(text, Markup) else text


def _markdown_table(labels: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (labels, *rows)]
    return [lines[0], "| --- " * len(labels) + "|", *lines[1:]]
