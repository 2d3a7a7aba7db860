"""HTML pages of the profiler: a recording, the difference of two recordings, and a flame graph.

The main functions are `write_recording_page`, `write_difference_page` and `write_flame_page`. All pages are
self-contained and escape everything; the first two run no script. The flame graph's page has pyinstrument's viewer
below its drawing, if pyinstrument can be used; it fetches nothing, and no statement's text becomes markup.
`write_speedscope` writes the same flame graph for another viewer.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from placebench import __version__, units
from placebench.page import environment, shell
from placebench.page.row_charts import Bar, bars
from placebench.profiler.analysis.difference import RecordingDifference
from placebench.profiler.analysis.findings import Limits, find
from placebench.profiler.analysis.findings.plans import misestimated_nodes
from placebench.profiler.analysis.merging import bounded, shared_depth, unfolded
from placebench.profiler.analysis.sampling_error import SamplingError
from placebench.profiler.analysis.summary import RecordingSummary, summarise
from placebench.profiler.model.files import write_whole
from placebench.profiler.model.plan import PlanNode
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.session import FlameSession, frame_identifier, pyinstrument_defect
from placebench.profiler.model.shortened_sql import one_line
from placebench.profiler.model.statement import Statement
from placebench.profiler.output.flame_svg import flame_chart

_TEMPLATES = Path(__file__).parent / "templates"
_MAX_STATEMENTS = 500
_MAX_FRAMES = 20_000
_MAX_STATEMENT = 154
"""The characters that are kept of a statement whose frame is cut: of a frame 160, of which "fetch " may take six."""
# pyinstrument's page asks Google for two fonts; without them it takes the machine's. Should a later version ask in
# another way, the page's content security policy still lets nothing out.
_FONT_LINK = re.compile(
    r'const (\w+)=document\.createElement\("link"\);\1\.rel="preload".*?document\.head\.appendChild\(\1\);', re.DOTALL
)

# pyinstrument's page begins with the call stack, or with what was chosen last on any page of its own.
_FIRST_VIEW = '"pyinstrument:viewOptions",{viewMode:"call-stack"}'
_FIRST_VIEW_HERE = '"placebench:viewOptions",{viewMode:"timeline"}'


def write_recording_page(
    recording: RecordingData, path: Path, *, flame_page: str | None = None, load: Sequence[str] = ()
) -> None:
    """Write the recording as one HTML file that a browser opens without a network; no script, no outside request.

    Figures are those of the mean request, lists those of the first request. flame_page: the link to the flame graph.
    load: lines on the load under which the requests were recorded.
    """
    write_whole(path, recording_page(recording, flame_page=flame_page, load=load))


def recording_page(recording: RecordingData, *, flame_page: str | None = None, load: Sequence[str] = ()) -> str:
    """Return the page of `write_recording_page` as text."""
    summary = summarise(recording)
    longest_plans: dict[str, tuple[Statement, PlanNode]] = {}
    planned = [(each, each.plan) for each in recording.statements if each.plan is not None]
    for statement, plan in sorted(planned, key=lambda each: each[1].elapsed_s or 0.0, reverse=True):
        longest_plans.setdefault(statement.fingerprint, (statement, plan))
    body = _template("recording.html").render(
        recording=recording,
        summary=summary,
        parts=_parts(summary),
        findings=find(recording),
        plans=[(statement, _plan_rows(plan)) for statement, plan in longest_plans.values()],
        flame_graph=None if recording.session is None else flame_chart(recording.session),
        sampling=None if recording.session is None else SamplingError.of(recording.session),
        flame_page=flame_page,
        load=load,
        statements=[each for each in recording.statements if each.request == 1][:_MAX_STATEMENTS],
        steps=[each for each in recording.transactions if each.request == 1][:_MAX_STATEMENTS],
    )
    return shell(recording.name, Markup(body), description="One recording of the SQL profiler.")


def _plan_rows(plan: PlanNode) -> list[tuple[int, PlanNode, bool]]:
    """Return each node of a plan with its depth, and whether its estimate is far off."""
    misestimated = misestimated_nodes(plan, Limits())
    return [(depth, node, id(node) in misestimated) for depth, node in plan.walk()]


def write_difference_page(difference: RecordingDifference, path: Path | str) -> None:
    """Write the difference of two recordings as one HTML file that a browser opens without a network."""
    write_whole(Path(path), difference_page(difference))


def difference_page(difference: RecordingDifference) -> str:
    """Return the page of `write_difference_page` as text."""
    body = _template("difference.html").render(difference=difference)
    title = f"{difference.before} → {difference.after}"
    return shell(title, Markup(body), description="The difference of two recordings.")


def write_flame_page(
    session: FlameSession,
    path: Path | str,
    *,
    title: str,
    requests: int = 1,
    notes: Iterable[str] = (),
    back: str = "index.html",
) -> None:
    """Write the session as one HTML file of at most 20,000 frames, which a browser opens without a network.

    The flame graph and the table of its statements need no JavaScript. pyinstrument's viewer below them needs it, and
    is replaced by text without it. If a large session is folded, the page says how. If pyinstrument cannot be used, the
    page has no viewer, and says why.

    title: the name of the profiled program, such as the variant's. requests: how many were merged into the session.
    notes: remarks for the reader, such as the notes of the recordings. back: the link to the overview.
    """
    session, folded = bounded(unfolded(session), _MAX_FRAMES)
    statements = _statement_times(session)
    values: dict[str, object] = {
        "title": title,
        "requests": requests,
        "seconds": sum(seconds for _, seconds in session.frame_records),
        "sql_s": sum(seconds for _, seconds in statements),
        "statements": statements,
        "sampling": SamplingError.of(session),
        "flame_graph": flame_chart(session),
        "back": back,
        "script": None,
    }
    notes = [note.rstrip(".") for note in (*notes, *folded)]
    if (defect := pyinstrument_defect()) is not None:
        notes.append(f"an image without a zoom: {defect}")
    else:
        values |= _viewer(session)
    body = Markup(_template("flame.html").render(values, notes=notes))
    description = "A flame graph of Python and SQL."
    write_whole(Path(path), shell(title, body, description=description, scripts=defect is None))


def _statement_times(session: FlameSession) -> list[tuple[str, float]]:
    """Return each statement, connect and transaction step of the session with its seconds, the longest first."""
    times: dict[str, float] = {}
    for stack, stack_s in session.frame_records:
        for frame in stack:
            text, _, kind = frame.partition("\x00")
            if kind.startswith("sql\x00"):
                executed = text.removeprefix("fetch ")
                if executed.endswith("…"):  # cut at the same length, with the prefix or without
                    executed = executed[:_MAX_STATEMENT] + "…"
                times[executed] = times.get(executed, 0.0) + stack_s
    return sorted(times.items(), key=lambda each: -each[1])


def _viewer(session: FlameSession) -> dict[str, object]:
    """Return pyinstrument's viewer for the template: its script, its style, its data, and the same as text."""
    import pyinstrument
    from pyinstrument.renderers import ConsoleRenderer
    from pyinstrument.renderers.html import JSONForHTMLRenderer
    from pyinstrument.session import Session as PyinstrumentSession

    drawn = PyinstrumentSession.from_json(session.to_json())
    resources = Path(pyinstrument.__file__).parent / "renderers" / "html_resources"
    script = _FONT_LINK.sub("", (resources / "app.js").read_text(encoding="utf-8"))
    return {
        "text": ConsoleRenderer(unicode=True, color=False).render(drawn),
        "style": Markup((resources / "app.css").read_text(encoding="utf-8")),
        "script": Markup(script.replace(_FIRST_VIEW, _FIRST_VIEW_HERE)),
        # Nothing in its strings may end the script element.
        "data": Markup(JSONForHTMLRenderer().render(drawn).replace("<", "\\u003c")),
    }


def write_speedscope(session: FlameSession, path: Path | str) -> None:
    """Write the session as a file for https://www.speedscope.app, with statements among its frames.

    Each stack opens and closes the frames in which it differs from the one before it. The frames above the record are
    left out but for the last of them.
    """
    stacks = [[frame_identifier(frame) for frame in stack] for stack, _ in session.frame_records]
    above = [frame_identifier(frame) for frame in session.start_call_stack]
    stem = max(0, min((shared_depth(above, stack) for stack in stacks), default=0) - 1)
    numbers: dict[str, int] = {}
    events: list[dict[str, str | float]] = []
    running: list[str] = []
    at = 0.0
    for stack, seconds in [*zip(stacks, (seconds for _, seconds in session.frame_records), strict=True), ([], 0.0)]:
        frames = stack[stem:]
        kept = shared_depth(running, frames)
        events.extend({"type": "C", "at": at, "frame": numbers[frame]} for frame in reversed(running[kept:]))
        for frame in frames[kept:]:
            events.append({"type": "O", "at": at, "frame": numbers.setdefault(frame, len(numbers))})
        running, at = frames, at + seconds
    profile = {"type": "evented", "name": session.target_description, "unit": "seconds", "startValue": 0.0}
    parts = (frame.split("\x00") for frame in numbers)
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": session.target_description,
        "exporter": f"placebench {__version__}",
        "activeProfileIndex": 0,
        "profiles": [{**profile, "endValue": at, "events": events}],
        "shared": {"frames": [{"name": name, "file": file, "line": int(line)} for name, file, line, *_ in parts]},
    }
    write_whole(Path(path), json.dumps(document))


def _parts(summary: RecordingSummary) -> Markup | None:
    """Return a bar of the parts of the time; None if statements overlapped, since their times then do not add up."""
    if summary.python_s is None:
        return None
    parts = {
        "Python": summary.python_s,
        "compile": summary.compile_s,
        "connection-pool wait": summary.pool_wait_s,
        **({} if summary.connect_s is None else {"connect": summary.connect_s}),
        "fetch": summary.fetch_s,
        "execute": summary.execute_s,
        "transaction steps": summary.transactions_s,
    }
    if summary.plan_setup_s:
        parts["plan set-up"] = summary.plan_setup_s
    total = units.duration(summary.mean(summary.elapsed_s))
    return bars(
        [Bar("where the time went", tuple(part or 0.0 for part in parts.values()), value=total)],
        part_names=tuple(parts),
        title="Where the time went",
        description="A bar whose parts add up to the time of one request.",
        show=units.duration,
        is_whole=True,
    )


@cache
def _template(name: str) -> jinja2.Template:
    templates = environment(_TEMPLATES)
    templates.filters["one_line"] = one_line
    return templates.get_template(name)
