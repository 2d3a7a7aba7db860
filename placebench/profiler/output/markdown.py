"""Markdown of recordings and of the difference of two, for pull requests, issues and agents.

The main functions are `recording_markdown` and `difference_markdown`. The most expensive comes first, and long lists
are cut.
"""

import html
from collections.abc import Sequence
from pathlib import Path

from placebench import units
from placebench.plain_text import markdown_code as code
from placebench.plain_text import printable
from placebench.profiler.analysis.difference import RecordingDifference
from placebench.profiler.analysis.findings import Finding, find
from placebench.profiler.analysis.summary import RecordingSummary, StatementGroup, summarise
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.shortened_sql import shortened
from placebench.profiler.output.source_places import place_of, repository_root

_MAX_ROWS = 10
_MAX_SQL_LENGTH = 160
_TIMES = {
    "cpu_s": "CPU",
    "sql_s": "SQL",
    "pool_wait_s": "connection-pool wait",
    "python_s": "Python",
    "overhead_s": "profiler overhead",
}


def recording_markdown(recording: RecordingData, *, root: Path | None = None) -> str:
    """Return figures, findings with advice and the most expensive statements of the mean request.

    root: the folder that file names are relative to (default: the repository of the current folder).
    """
    root = root or repository_root()
    summary, findings = summarise(recording), find(recording)
    parts = [f"## {_escaped(recording.name)}", _sums(summary)]
    parts += [f"> {_escaped(note)}" for note in recording.notes]
    if findings:
        parts += ["### Findings", *(_finding(*each, root) for each in enumerate(findings[:_MAX_ROWS], 1))]
    parts += _left_out(len(findings), "findings")
    if summary.groups:
        rows = [_statement(group, summary.requests, root) for group in summary.groups[:_MAX_ROWS]]
        parts += ["### Statements", *table(("time", "calls", "rows", "line", "statement"), rows)]
        parts += _left_out(len(summary.groups), "statements")
    return "\n\n".join(parts) + "\n"


def difference_markdown(difference: RecordingDifference) -> str:
    """Return the changes per request: figures, then the statements that changed most, then plans."""
    parts = [f"## {_escaped(difference.before)} → {_escaped(difference.after)}, per request"]
    parts += [f"> {_escaped(note)}" for note in difference.notes]
    measured = [each for each in difference.totals if each.before is not None or each.after is not None]
    parts += table(("figure", "change"), [(each.label, str(each)) for each in measured])
    # Times differ between recordings of the same program; added and removed statements do not.
    changed = [each for each in difference.statements if each.state != "same"]
    same = [each for each in difference.statements if each.state == "same"]
    rows = []
    for change in (*changed, *same)[:_MAX_ROWS]:
        before, after = units.average(change.calls.before), units.average(change.calls.after)
        calls = after if before == after else f"{before} → {after}"
        rows.append((change.state, calls, str(change.seconds), _sql(change.sql)))
    if rows:
        parts += ["### Statements", *table(("state", "calls", "time", "statement"), rows)]
        parts += _left_out(len(difference.statements), "statements")
    if difference.plans:
        plans = [
            (code(each.sql), code(" | ".join(each.before)), code(" | ".join(each.after))) for each in difference.plans
        ]
        parts += ["### Plans", *table(("statement", "before", "after"), plans[:_MAX_ROWS])]
    return "\n\n".join(parts) + "\n"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a Markdown table as one paragraph; nothing without rows."""
    if not rows:
        return []
    lines = [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
    return ["\n".join(lines)]


def _sums(summary: RecordingSummary) -> str:
    """Return the times, the counts and the error of the mean request in two lines."""
    of_many = f", mean of {summary.requests} requests" if summary.requests > 1 else ""
    times = [
        f"{label} {units.duration(summary.mean(seconds))}"
        for name, label in _TIMES.items()
        if (seconds := getattr(summary, name)) is not None
    ]
    counts = [
        f"{units.average(summary.mean(value))} {label}"
        for value, label in (
            (summary.statements, "statements"),
            (summary.row_count, "rows"),
            (summary.round_trips, "round trips"),
        )
        if value is not None
    ]
    error = f" Ended with {code(summary.error)}." if summary.error else ""
    elapsed = units.duration(summary.mean(summary.elapsed_s))
    return f"**{elapsed}**{', '.join([of_many, *times])}.\n{', '.join(counts)}; mode {summary.mode}.{error}"


def _finding(number: int, finding: Finding, root: Path) -> str:
    """Return one entry of a numbered list: pattern, place, time and advice."""
    callers = (finding.caller, finding.outer_caller if " called from " in finding.place else None)
    places = " called from ".join(code(place_of(each, root)) for each in callers if each is not None)
    what = f"{places + ': ' if places else ''}{_escaped(finding.title)} ({units.duration(finding.mean_s)})"
    parents = "" if finding.parents is None else finding.parents.shown(lambda caller: place_of(caller, root))
    lines = [
        f"{number}. **{finding.kind}** {what}",
        code(finding.shortened_sql),
        f"parents: {_escaped(parents)}" if parents else "",
        f"→ {_escaped(finding.advice)}",
    ]
    return "\n   ".join(line for line in lines if line)


def _statement(group: StatementGroup, requests: int, root: Path) -> tuple[str, ...]:
    """Return one row with all executions of one statement, per request."""
    others = f" and {len(group.callers) - 1} more" if len(group.callers) > 1 else ""
    return (
        units.duration(group.elapsed_s / requests),
        units.average(group.calls / requests) + (f" ({units.count(group.errors)} failed)" if group.errors else ""),
        "" if group.row_count is None else units.average(group.row_count / requests),
        code(place_of(group.callers[0], root)) + others if group.callers else "",
        _sql(group.sql),
    )


def _sql(sql: str) -> str:
    return code(shortened(sql, _MAX_SQL_LENGTH))


def _left_out(count: int, what: str) -> list[str]:
    return [f"And {units.count(count - _MAX_ROWS)} more {what}."] if count > _MAX_ROWS else []


def _escaped(text: str) -> str:
    escaped = html.escape(printable(" ".join(text.split())), quote=False).replace("@", "@\u200b")
    for character in "\\`*_~[]|":
        escaped = escaped.replace(character, f"\\{character}")
    return escaped
