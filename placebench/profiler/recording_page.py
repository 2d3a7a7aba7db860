"""A recording, and the difference of two, as a page: self-contained, without a script, everything escaped.

The key pieces are `write_recording_page` and `write_difference_page`.
"""

from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from placebench.page import environment, shell
from placebench.profiler.difference import Difference, shown
from placebench.profiler.findings import find
from placebench.profiler.fingerprint import one_line
from placebench.profiler.icicle import icicle
from placebench.profiler.plans import PlanNode
from placebench.profiler.recording import Recording, write_whole
from placebench.profiler.statement import Statement

_TEMPLATES = Path(__file__).parent / "templates"
_MOST_STATEMENTS = 500


def write_recording_page(recording: Recording, path: Path) -> None:
    """Write the recording as one HTML file that a browser opens without a network; no script, no outside request."""
    body = _template("recording.html").render(
        recording=recording,
        summary=recording.summary(),
        findings=find(recording),
        plans=dearest_plans(recording),
        flame=None if recording.session is None else icicle(recording.session),
        statements=recording.statements[:_MOST_STATEMENTS],
    )
    write_whole(path, shell(recording.name, Markup(body), description="What one recording of the SQL profiler saw."))


def write_difference_page(difference: Difference, path: Path) -> None:
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
    made.globals["shown"] = shown
    made.filters["one_line"] = one_line
    return made.get_template(name)
