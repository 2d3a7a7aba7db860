"""A report as text: `render_text` for a terminal, `render_markdown` and `render_junit` for CI, `render_json`."""

import json
from collections.abc import Sequence
from xml.etree import ElementTree

from markupsafe import Markup

from placebench.report.model import Report, Table, Text

_JUNIT_TAGS = {"failed": "failure", "inconclusive": "skipped"}


def render_text(report: Report) -> str:
    """Return headline, notices, summary and the tables of the overview for a terminal."""
    lines = [report.headline, *report.notices, *map(_plain, report.summary)]
    for table in report.overview:
        lines += ["", *align([[_plain(column.label) for column in table.columns], *_cells(table)])]
    return "\n".join([*lines, *(f"  {each}" for each in report.remarks)])


def render_markdown(report: Report) -> str:
    """Return the same as Markdown, with the gates."""
    lines = [f"### {report.headline}", ""]
    lines += [f"* {each}" for each in (*report.notices, *map(_plain, report.summary))]
    gates = [each for each in report.checks if each.variant]
    if gates:
        rows = [[f"`{each.name}`", each.variant, f"**{each.outcome}**", each.measured] for each in gates]
        lines += ["", *_markdown_table(["gate", "variant", "outcome", "measured"], rows)]
    for table in report.overview:
        lines += ["", *_markdown_table([_plain(column.label) for column in table.columns], _cells(table))]
    lines += ["", *(f"* {each}" for each in report.remarks)] if report.remarks else []
    return "\n".join([*lines, *(["", report.about] if report.about else []), ""])


def render_junit(report: Report) -> bytes:
    """Return the checks as JUnit XML: a test for the responses, and one for each gate and variant."""
    suite = ElementTree.Element("testsuite", name=f"placebench {report.name}")
    for each in report.checks:
        classname = f"placebench.{each.variant}" if each.variant else "placebench"
        case = ElementTree.SubElement(suite, "testcase", classname=classname, name=each.name)
        if each.outcome != "passed":
            message = f"{each.outcome}: {each.measured}" if each.variant else each.measured
            ElementTree.SubElement(case, _JUNIT_TAGS[each.outcome], message=message)
    for name, outcome in (("failures", "failed"), ("skipped", "inconclusive")):
        suite.set(name, str(sum(each.outcome == outcome for each in report.checks)))
    suite.set("tests", str(len(report.checks)))
    document: bytes = ElementTree.tostring(suite, xml_declaration=True)
    return document


def render_json(report: Report) -> str:
    """Return the document as JSON."""
    return json.dumps(report.document, indent=1, ensure_ascii=False)


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def _cells(table: Table) -> list[list[str]]:
    return [[_plain(column.cell(row)) for column in table.columns] for row in table.rows]


def _plain(text: Text) -> str:
    """*text* without tags."""
    return text.striptags() if isinstance(text, Markup) else text


def _markdown_table(labels: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(_escaped(cell) for cell in row)} |" for row in (labels, *rows)]
    return [lines[0], "| --- " * len(labels) + "|", *lines[1:]]


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
