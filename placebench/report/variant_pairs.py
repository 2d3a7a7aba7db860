"""The difference between two variants, by frames, statements and flame graphs: `difference_section`."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from urllib.parse import quote

from markupsafe import Markup

from placebench import units
from placebench.compare.keep.records import ChangedPlan, WirePass
from placebench.page.row_charts import Bar, bars
from placebench.profiler.analysis.difference import Change, Frame, StatementChange, StatementFigures, statement_changes
from placebench.profiler.model.normalised_sql import normalised
from placebench.profiler.output.flame_svg import flame_difference_svg, flame_svg
from placebench.report.effects import frame_labels, shorten_statement, shorten_statements
from placebench.report.figures import Figures, shorten_variant
from placebench.report.model import (
    Block,
    Chart,
    Column,
    Details,
    Heading,
    Paragraph,
    Section,
    Table,
    Text,
    aside,
    code,
    joined,
)
from placebench.results import Run
from placebench.stats import PartChange

_MAX_INLINE_GRAPHS = 6
"""Maximum number of variants whose flame graphs are embedded in the page: each takes some 40 KB."""
_MAX_DIFFERENTIAL_GRAPHS = 3
"""Maximum number of pairs whose differential flame graphs are embedded in the page."""
_MAX_BARS = 12
_MAX_STATEMENTS_IN_A_SENTENCE = 3
_MIN_SHARE = 0.001
_MAX_FRAMES = 60
_INTRODUCTION = (
    "Each variant was profiled in a pass of its own, apart from the timed blocks. A profiler slows down what it "
    "measures: this shows where the time went and which statements were sent; the verdict above says how much it "
    "matters."
)
_PARTS_NOTE = (
    "Per request, in replicates of fresh processes under the profiler. The intervals hold together: the chance that "
    "any frame is named although none changed is 5 %, however many frames there are."
)
_NO_INTERVALS_NOTE = "Per request under the profiler, in too few replicates for intervals: a change may be chance."
_FLAME_LEGEND = (
    "The root is on top; each box is as wide as its time. Statements are warm, plan nodes blue, garbage collections "
    "red. Point at a box for its name and time."
)


def difference_section(figures: Figures) -> list[Section]:
    """Return the section on the changes inside each pair and the flame graphs; [] if neither was recorded."""
    run = figures.run
    pairs = [block for pair in figures.parts for block in _pair_blocks(figures, *pair)]
    graphs = list(_flame_blocks(run)) if figures.variants else []
    if not graphs and not pairs:
        return []
    blocks: list[Block] = [Paragraph(_INTRODUCTION), *pairs] if graphs else pairs
    if graphs:
        blocks += [Heading("Flame graphs"), *graphs, Paragraph(_FLAME_LEGEND, "small")]
    return [Section("Where the difference is", blocks, id="difference")]


def _pair_blocks(figures: Figures, baseline: str, variant: str) -> Iterator[Block]:
    """Yield the block on the change from *baseline* to *variant*; nothing if both frames and statements are unknown.

    The frames that changed significantly come first, then those by 0.1 % of a request or more, the largest first.
    """
    run, measured = figures.run, figures.parts.get((baseline, variant), [])
    least = _MIN_SHARE * sum(part.before for part in measured)
    shown = [part for part in measured if part.is_decided or abs(part.change) >= least > 0]
    parts = sorted(shown, key=lambda part: not part.is_decided)
    counted = run.wire.get(baseline), run.wire.get(variant)
    statements = counted_changes(counted[0], counted[1]) if counted[0] and counted[1] else []
    plans = [each for each in run.plans if (each.baseline, each.variant) == (baseline, variant)]
    if not parts and not statements and not plans:
        return
    names = [shorten_variant(each, run.head.variants) for each in (baseline, variant)]
    blocks: list[Block] = []
    if parts:
        blocks += [Heading("Frames by self time"), _frame_chart(parts)]
        before, after = run.session(baseline), run.session(variant)
        if len(figures.parts) <= _MAX_DIFFERENTIAL_GRAPHS and before and after:
            blocks.append(_differential(flame_difference_svg(before, after), f"{baseline} and {variant}"))
        blocks.append(Details("All frames that changed", [_frame_table(parts, *names)]))
    else:
        blocks.append(Paragraph("Frames: not measured for both variants.", "missing"))
    if plans:
        blocks += [Heading("Statements with another plan"), _plan_table(plans)]
    if statements:
        blocks += [Heading("Statements"), _statement_table(statements)]
    else:
        blocks.append(Paragraph("Statements: not counted of both.", "missing"))
    roles = zip(("baseline", "variant"), (baseline, variant), names, strict=True)
    spans = [Markup('<span class="role-{}" title="{}">{}</span>').format(*each) for each in roles]
    less, more = (sum(max(sign * part.change, 0.0) for part in parts) for sign in (-1, 1))
    sums = Markup('<span class="aside">frames: −{}, +{}</span>').format(units.duration(less), units.duration(more))
    summary = joined(joined(*spans, by=" → "), sums if parts else "")
    yield Details(summary, blocks, style="between", is_open=len(figures.parts) == 1)


def counted_changes(before: WirePass, after: WirePass) -> list[StatementChange]:
    """Return each statement of either pass per request: changed ones first, then by their time in PostgreSQL."""
    left, right = _statement_figures(before), _statement_figures(after)
    order = list(dict.fromkeys((*left, *right)))

    def place(change: StatementChange) -> tuple[bool, float, int]:
        longest = max(change.seconds.before or 0.0, change.seconds.after or 0.0)
        return change.state == "same", -longest, order.index(change.fingerprint)

    return sorted(statement_changes(left, right), key=place)


def statement_sentences(figures: Figures) -> list[str]:
    """Return sentences on statements that are new, gone, or sent more or less often, and on rows, of a single pair."""
    counted = [figures.run.wire.get(name) for pair in figures.parts for name in pair]
    if len(counted) != len(("baseline", "variant")) or not counted[0] or not counted[1]:
        return []
    sentences = []
    changed = [each for each in counted_changes(counted[0], counted[1]) if each.calls.size]
    if changed and counted[0].by_statement and counted[1].by_statement:
        shown = changed[:_MAX_STATEMENTS_IN_A_SENTENCE]
        names = shorten_statements([each.sql for each in shown])
        said = [f"{name}: {_both(each.calls)}" for name, each in zip(names, shown, strict=True)]
        more = len(changed) - len(said)
        rest = f"; and {units.numbered(more, 'more statement')}" if more else ""
        sentences.append(f"Statements per request that changed: {'; '.join(said)}{rest}.")
    before, after = (units.average(fmean(each.rows)) if each.rows else "" for each in counted if each)
    if before and after and before != after:
        sentences.append(f"Rows per request: {before} → {after}.")
    return sentences


def _statement_figures(counted: WirePass) -> dict[str, StatementFigures]:
    """Return calls, rows and seconds of each statement, by fingerprint."""
    figures: dict[str, StatementFigures] = {}
    for statement in counted.by_statement:
        key = normalised(statement.sql, "postgresql")
        known = figures.get(key, StatementFigures(statement.sql, 0.0, 0.0, 0.0))
        calls, rows = known.calls + statement.calls, (known.rows or 0.0) + statement.rows
        figures[key] = StatementFigures(known.sql, calls, rows, (known.seconds or 0.0) + statement.exec_s)
    return figures


def _frame_chart(parts: Sequence[PartChange[Frame]]) -> Chart:
    rows = []
    shown = parts[:_MAX_BARS]
    for label, part in zip(frame_labels(shown), shown, strict=True):
        name, place = part.part
        title = f"{name} ({place}): {units.duration(part.before)} → {units.duration(part.after)}"
        rows.append(Bar(label=label, parts=(part.change,), title=title))
    svg = bars(
        rows,
        title="Frames by change of self time",
        description="Self time of a frame per request of the variant, minus that of the baseline.",
        show=units.signed_duration,
        is_signed=True,
    )
    about = "significant changes come first" if any(each.is_decided for each in parts) else "the largest changes"
    return Chart(svg, f"Self time per request under the profiler (mean): {about}.")


def _differential(svg: Markup, of: str) -> Block:
    legend = Markup(
        'A box is as wide as the longer of its two times: <span class="role-variant">blue and −</span> is less, '
        '<span class="role-baseline">orange and +</span> more, the stronger the larger the change. Point at a box for '
        "both times including its callees; the table below has self times."
    )
    graph = Chart(svg, scrolls=f"Differential flame graph of {of}")
    return Details("Differential flame graph", [graph, Paragraph(legend, "small")], style="flame laid-over")


def _frame_table(parts: Sequence[PartChange[Frame]], baseline: str, variant: str) -> Table:
    def interval(part: PartChange[Frame]) -> str:
        if part.low is None or part.high is None:
            return ""
        low, high = units.signed_duration(part.low), units.signed_duration(part.high)
        return f"[{low}, {high}]{'' if part.is_decided else ' inconclusive'}"

    columns = [
        Column("frame, self time", lambda each: joined(code(each.part[0]), aside(each.part[1]))),
        Column(baseline, lambda each: units.duration(each.before) if each.before else "–"),
        Column(variant, lambda each: units.duration(each.after) if each.after else "–"),
        Column(
            "change", lambda each: Markup('<span class="change">{}</span>').format(units.signed_duration(each.change))
        ),
    ]
    if parts[0].low is not None:
        columns.append(Column("95 % CI", interval))
    return Table(
        "Frames",
        tuple(columns),
        parts[:_MAX_FRAMES],
        style="frames",
        row_style=lambda each: f"role-{'baseline' if each.change > 0 else 'variant'}",
        row_title=lambda each: f"{each.part[0]} ({each.part[1]})",
        note=_PARTS_NOTE if parts[0].low is not None else _NO_INTERVALS_NOTE,
    )


def _statement_table(statements: Sequence[StatementChange]) -> Table:
    def sql(statement: StatementChange) -> Text:
        short = code(shorten_statement(statement.sql))
        return Markup("<details><summary>{}</summary><pre>{}</pre></details>").format(short, statement.sql)

    columns = (
        Column("statement", sql),
        Column("", lambda each: each.state),
        Column("calls", lambda each: _both(each.calls)),
        Column("rows", lambda each: _both(each.rows)),
        Column("time in PostgreSQL", lambda each: _both(each.seconds, units.duration)),
    )
    return Table(
        "Statements",
        columns,
        statements,
        style="statements",
        row_style=lambda each: f"state-{each.state}",
        row_title=lambda each: each.sql,
        note="Per request (mean), counted by PostgreSQL (pg_stat_statements) for every variant alike; without BEGIN, "
        "COMMIT and ROLLBACK.",
    )


def _plan_table(plans: Sequence[ChangedPlan]) -> Table:
    def nodes(titles: Sequence[str]) -> str:
        return " · ".join(titles) or "new statement"

    columns = (
        Column("statement", lambda each: code(shorten_statement(each.sql))),
        Column("line", lambda each: each.place),
        Column("plan before", lambda each: nodes(each.before)),
        Column("plan after", lambda each: nodes(each.after)),
    )
    return Table(
        "Statements with another plan",
        columns,
        plans,
        row_title=lambda each: each.sql,
        note="Only the nodes that differ; both plans on the same copy of the data, unless the variants' data differ.",
    )


def _both(change: Change, show: Callable[[float | None], str] = units.average) -> str:
    return f"{show(change.before)} → {show(change.after)}"


def _flame_blocks(run: Run) -> Iterator[Block]:
    """Yield the flame graph of each profiled variant; a link if there are many, or the reason if there is none."""
    is_inline = len(run.profiled) <= _MAX_INLINE_GRAPHS
    for variant, profiled in run.profiled.items():
        session = run.session(variant)
        name = shorten_variant(variant, run.head.variants)
        page, speedscope = run.profile(variant), run.speedscope(variant)
        links = profile_links(page.name if page else None, speedscope.name if speedscope else None)
        about = f"mean of {units.count(profiled.requests)} requests"
        if profiled.reason:
            yield Paragraph(f"{name}: no flame graph, {profiled.reason}.", "small")
        elif session and is_inline:
            summary = joined(name, Markup('<span class="aside">{}</span>').format(joined(about, *links, by=" · ")))
            graph = Chart(flame_svg(session), scrolls=f"Flame graph of {variant}")
            yield Details(summary, [graph], style="flame")
        elif session:
            yield Paragraph(joined(f"{name}:", joined(*links, about, by=", ")), "small")


def profile_links(page: str | None, speedscope: str | None) -> list[Text]:
    """Return links to the files of a variant's profile: its page, and its file for speedscope."""
    links: list[Text] = []
    if page:
        links.append(Markup('<a href="{}">flame graph</a>').format(quote(page)))
    if speedscope:
        links.append(Markup('<a href="{}" download>speedscope</a>').format(quote(speedscope)))
    return links
