"""The page of a survey, its table for a terminal, and its JSON document.

The key pieces are `render`, `survey_table` and `survey_document`.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from markupsafe import Markup

from placebench import units
from placebench.page import shell
from placebench.report import sentences
from placebench.report.calibration import calibrated
from placebench.report.environment import manifest, masked
from placebench.report.studies import failed, told
from placebench.report.studies.study import Told
from placebench.report.templating import templates
from placebench.report.text import aligned
from placebench.results import Run


def render(run: Run) -> str:
    """The whole document."""
    said, head = told(run), run.head
    rows, lost = rows_of(run, said), [point for point, _ in failed(run)]
    body = (
        templates()
        .get_template("survey.html")
        .render(
            told=said,
            head=head,
            rows=[(cells(said, row), row["reason"]) for row in rows],
            warnings=list(filter(None, [sentences.ending(head), sentences.unmeasured(head)])),
            impossible=list(_by_reason(_impossible(run))),
            discarded=[
                (_together([each.point]), masked(each.invalid))
                for each in run.measurements
                if each.invalid and each.point not in lost
            ],
            repeats=head.settings["repeats"],
            calibrated=calibrated(head),
            manifest=manifest(head),
            sentences=sentences,
        )
    )
    return shell(f"{head.name} · placebench", Markup(body), description=said.headline)


def survey_table(run: Run) -> str:
    """The first sentence, how the run ended, a line a row, and what could not be measured."""
    said = told(run)
    lines = [said.headline, *said.remarks, *filter(None, [sentences.ending(run.head), sentences.unmeasured(run.head)])]
    unmeasured = _by_reason([*_impossible(run), *failed(run)])
    if rows := rows_of(run, said):
        lines += ["", *aligned([[column.label for column in said.columns], *(cells(said, row) for row in rows)])]
    return "\n".join([*lines, *(f"  not measured: {point}: {reason}" for point, reason in unmeasured)])


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
        "rows": rows_of(run, said),
        "impossible": head.settings["impossible"],
    }


def rows_of(run: Run, said: Told) -> list[dict[str, Any]]:
    """The rows of the survey, each with the `reason` why it could not be measured, or not in all repeats, else None.

    A point of which no measurement counts is a row too, with its axes and None for all that is measured; there is none
    where no speed is shown.
    """
    rows = [{**row, "reason": None} for row in said.rows]
    for point, reason in failed(run) if said.columns else ():
        axes = said.axes(point)
        row = next((row for row in rows if axes.items() <= row.items()), None)
        if row is None:
            row = {**dict.fromkeys(rows[0] if rows else [column.name for column in said.columns]), **axes}
            rows.append(row)
        row["reason"] = reason
    return rows


def cells(said: Told, row: dict[str, Any]) -> list[str]:
    """What stands in the columns of this row."""
    return [column.show(row.get(column.name)) for column in said.columns]


def _impossible(run: Run) -> list[tuple[dict[str, Any], str]]:
    """The points that cannot be measured, each with the reason."""
    return [(each["point"], masked(each["reason"])) for each in run.head.settings["impossible"]]


def _by_reason(points: Iterable[tuple[dict[str, Any], str]]) -> Iterator[tuple[str, str]]:
    """Points as text, those with the same reason together, and the reason."""
    by_reason: dict[str, list[dict[str, Any]]] = {}
    for point, reason in points:
        by_reason.setdefault(reason, []).append(point)
    for reason, together in by_reason.items():
        yield _together(together), reason


def _together(points: Sequence[dict[str, Any]]) -> str:
    """'service naive, tuned; server none'; '3 of service …' where these are not all of such points; no secrets."""
    values = {name: list(dict.fromkeys(point[name] for point in points)) for name in points[0]}
    said = "; ".join(f"{name} {', '.join(masked(str(each)) for each in found)}" for name, found in values.items())
    every = prod(len(found) for found in values.values()) == len(points)
    return said if every else f"{units.count(len(points))} of {said}"
