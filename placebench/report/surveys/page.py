"""The page of a survey, its table for a terminal, and its JSON document.

The key pieces are `render`, `survey_table` and `survey_document`.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from markupsafe import Markup

from placebench import units
from placebench.page import shell
from placebench.report import words
from placebench.report.calibrated import calibrated
from placebench.report.manifest import manifest, masked
from placebench.report.surveys import told
from placebench.report.surveys.telling import Told
from placebench.report.templating import templates
from placebench.report.text import aligned
from placebench.results import Run


def render(run: Run) -> str:
    """The whole document."""
    said, head = told(run), run.head
    body = (
        templates()
        .get_template("survey.html")
        .render(
            told=said,
            head=head,
            cells=[cells(said, row) for row in said.rows],
            warnings=list(filter(None, [words.ending(head), words.unmeasured(head)])),
            impossible=list(impossible(run)),
            discarded=[(_together([each.point]), each.invalid) for each in run.measurements if each.invalid],
            repeats=head.settings["repeats"],
            calibrated=calibrated(head),
            manifest=manifest(head),
            words=words,
        )
    )
    return shell(f"{head.name} · placebench", Markup(body), description=said.headline)


def survey_table(run: Run) -> str:
    """The first sentence, how the run ended, a line a row, and what could not be measured."""
    said = told(run)
    lines = [said.headline, *said.remarks, *filter(None, [words.ending(run.head), words.unmeasured(run.head)])]
    if said.rows:
        lines += ["", *aligned([[column.label for column in said.columns], *(cells(said, row) for row in said.rows)])]
    return "\n".join([*lines, *(f"  not measured: {point}: {reason}" for point, reason in impossible(run))])


def survey_document(run: Run) -> dict[str, Any]:
    """The rows with the first sentence and how the run ended, for `--json`."""
    said, head = told(run), run.head
    return {
        "run": str(run.folder),
        "status": head.status,
        "note": head.note,
        "headline": said.headline,
        "remarks": list(said.remarks),
        "request": head.request,
        "topology": head.topology,
        "trees": head.trees,
        "seed": head.seed,
        "data_digest": head.receipt.get("digest"),
        "rows": list(said.rows),
        "impossible": head.settings["impossible"],
    }


def cells(said: Told, row: dict[str, Any]) -> list[str]:
    """What stands in the columns of this row."""
    return [column.show(row.get(column.name)) for column in said.columns]


def impossible(run: Run) -> Iterator[tuple[str, str]]:
    """What cannot be measured, as text, and why; points with the same reason together."""
    by_reason: dict[str, list[dict[str, Any]]] = {}
    for each in run.head.settings["impossible"]:
        by_reason.setdefault(each["reason"], []).append(each["point"])
    for reason, points in by_reason.items():
        yield _together(points), masked(reason)


def _together(points: Sequence[dict[str, Any]]) -> str:
    """'service naive, tuned; server none'; '3 of service …' where these are not all of such points; no secrets."""
    values = {name: list(dict.fromkeys(point[name] for point in points)) for name in points[0]}
    said = "; ".join(f"{name} {', '.join(masked(str(each)) for each in found)}" for name, found in values.items())
    every = prod(len(found) for found in values.values()) == len(points)
    return said if every else f"{units.count(len(points))} of {said}"
