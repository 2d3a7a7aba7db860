"""A recording, and the difference of two, as a page: self-contained, without a script, everything escaped.

The key pieces are `write_recording_page` and `write_difference_page`.
"""

from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from placebench import units
from placebench.page import environment, shell
from placebench.page.charts.bars import Whole, shares
from placebench.profiler.analysis.difference import RecordingDifference
from placebench.profiler.analysis.findings import find
from placebench.profiler.analysis.summary import Summary
from placebench.profiler.model.fingerprint import one_line
from placebench.profiler.model.plan import PlanNode
from placebench.profiler.model.recording import Recording, write_whole
from placebench.profiler.model.statement import Statement
from placebench.profiler.output.flame_svg import icicle

_TEMPLATES = Path(__file__).parent / "templates"
_MOST_STATEMENTS = 500


def write_recording_page(recording: Recording, path: Path, *, flame_page: str | None = None) -> None:
    """Write the recording as one HTML file that a browser opens without a network; no script, no outside request.

    Figures are of the mean request, lists of the first one. flame_page: where its page of `write_flame_page` is.
    """
    summary = recording.summary()
    body = _template("recording.html").render(
        recording=recording,
        summary=summary,
        parts=_parts(summary),
        findings=find(recording),
        plans=dearest_plans(recording),
        flame=None if recording.session is None else icicle(recording.session),
        flame_page=flame_page,
        statements=[each for each in recording.statements if each.request == 1][:_MOST_STATEMENTS],
        steps=[each for each in recording.transactions if each.request == 1][:_MOST_STATEMENTS],
    )
    write_whole(path, shell(recording.name, Markup(body), description="What one recording of the SQL profiler saw."))


def _parts(summary: Summary) -> Markup | None:
    """Where the time went as a bar; None where statements overlapped, whose times are no parts of a whole."""
    if summary.python_s is None:
        return None
    seconds = (
        summary.python_s,
        summary.compile_s,
        summary.pool_wait_s,
        summary.fetch_s,
        summary.execute_s,
        summary.transactions_s,
    )
    return shares(
        [
            Whole(
                "where the time went",
                tuple(part or 0.0 for part in seconds),
                units.duration(summary.mean(summary.elapsed_s)),
            )
        ],
        part_names=("Python", "compile", "pool wait", "fetch", "execute", "transaction steps"),
        title="Where the time went",
        description="A bar whose parts add up to the time of one request.",
    )


def write_difference_page(difference: RecordingDifference, path: Path) -> None:
    """Write the difference of two recordings as one HTML file like that."""
    body = _template("difference.html").render(difference=difference)
    title = f"{difference.before} → {difference.after}"
    write_whole(path, shell(title, Markup(body), description="The difference of two recordings."))


def dearest_plans(recording: Recording) -> list[tuple[Statement, PlanNode]]:
    """For each fingerprint its statement with the longest plan, the longest first."""
    dearest: dict[str, tuple[Statement, PlanNode]] = {}
    for statement in recording.statements:
        if statement.plan is None:
            continue
        known = dearest.get(statement.fingerprint)
        if known is None or (statement.plan.elapsed_s or 0.0) > (known[1].elapsed_s or 0.0):
            dearest[statement.fingerprint] = (statement, statement.plan)
    return sorted(dearest.values(), key=lambda each: each[1].elapsed_s or 0.0, reverse=True)


@cache
def _template(name: str) -> jinja2.Template:
    """A template of the profiler's, which escapes what it is given."""
    made = environment(_TEMPLATES)
    made.filters["one_line"] = one_line
    return made.get_template(name)
