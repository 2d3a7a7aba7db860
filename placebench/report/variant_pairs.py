"""Where the difference between two variants is: frames, statements and flame graphs (`difference_section`)."""

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import quote

from markupsafe import Markup

from placebench import units
from placebench.experiment.records import WirePass
from placebench.page.row_charts import Bar, bars
from placebench.profiler.analysis.difference import (
    Change,
    FrameChange,
    StatementChange,
    StatementFigures,
    frame_changes,
    statement_changes,
)
from placebench.profiler.model.fingerprint import normalised
from placebench.profiler.output.flame_svg import flame_difference_svg, flame_svg
from placebench.report.effects import shorten_statement
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

_MOST_FLAMES = 6
"""With more variants the flame graphs are pages of their own: some 40 KB each."""
_MOST_DIFFERENTIAL = 3
"""So many pairs have their differential flame graph on the page."""
_MOST_BARS = 12
_MOST_FRAMES = 60
_INTRODUCTION = (
    "Each variant was profiled in a pass of its own, apart from the timed blocks. A profiler slows down what it "
    "measures: this shows where the time went and which statements were sent; the verdict above says how much it "
    "matters."
)
_FLAME_LEGEND = (
    "The root is on top; each box is as wide as its time. Statements are warm, plan nodes blue, garbage collections "
    "red. Point at a box for its name and time."
)


def difference_section(figures: Figures) -> list[Section]:
    """Return what changed inside each compared pair, and the flame graphs; nothing where neither was recorded."""
    run = figures.run
    names = list(dict.fromkeys((each.baseline, each.variant) for each in figures.comparisons))
    pairs = [block for pair in names for block in _pair_blocks(run, *pair, len(names))]
    graphs = list(_flame_blocks(run)) if figures.variants else []
    if not graphs and not pairs:
        return []
    blocks: list[Block] = [Paragraph(_INTRODUCTION), *pairs] if graphs else pairs
    if graphs:
        blocks += [Heading("Flame graphs"), *graphs, Paragraph(_FLAME_LEGEND, "small")]
    return [Section("Where the difference is", blocks, id="difference")]


def _pair_blocks(run: Run, baseline: str, variant: str, pairs: int) -> Iterator[Block]:
    """What changed from *baseline* to *variant*; nothing where neither frames nor statements are known of both."""
    before, after = run.session(baseline), run.session(variant)
    frames = frame_changes(before, after) if before and after else ()
    counted = run.wire.get(baseline), run.wire.get(variant)
    statements = counted_changes(counted[0], counted[1]) if counted[0] and counted[1] else []
    if not frames and not statements:
        return
    names = [shorten_variant(each, run.head.variants) for each in (baseline, variant)]
    blocks: list[Block] = []
    if frames and before and after:
        blocks += [Heading("Frames by self time"), _frame_chart(frames)]
        if pairs <= _MOST_DIFFERENTIAL:
            blocks.append(_differential(flame_difference_svg(before, after), f"{baseline} and {variant}"))
        blocks.append(Details("All frames that changed", [_frame_table(frames, *names)]))
    else:
        blocks.append(Paragraph("Frames: not measured of both.", "missing"))
    if statements:
        blocks += [Heading("Statements"), _statement_table(statements)]
    else:
        blocks.append(Paragraph("Statements: not counted of both.", "missing"))
    yield Details(_pair_summary((baseline, variant), names, frames), blocks, style="between", is_open=pairs == 1)


def counted_changes(before: WirePass, after: WirePass) -> list[StatementChange]:
    """Return each statement of either pass per request: those that changed first, then by their time in PostgreSQL."""
    left, right = _statement_figures(before), _statement_figures(after)
    order = list(dict.fromkeys((*left, *right)))

    def place(change: StatementChange) -> tuple[bool, float, int]:
        longest = max(change.seconds.before or 0.0, change.seconds.after or 0.0)
        return change.state == "same", -longest, order.index(change.fingerprint)

    return sorted(statement_changes(left, right), key=place)


def _statement_figures(counted: WirePass) -> dict[str, StatementFigures]:
    """Calls, rows and seconds by fingerprint."""
    figures: dict[str, StatementFigures] = {}
    for each in counted.by_statement:
        key = normalised(each.sql)
        known = figures.get(key, StatementFigures(each.sql, 0.0, 0.0, 0.0))
        calls, rows, seconds = (
            known.calls + each.calls,
            (known.rows or 0.0) + each.rows,
            (known.seconds or 0.0) + each.exec_s,
        )
        figures[key] = StatementFigures(known.sql, calls, rows, seconds)
    return figures


def _pair_summary(pair: tuple[str, str], names: list[str], frames: Sequence[FrameChange]) -> Text:
    roles = zip(("baseline", "variant"), pair, names, strict=True)
    spans = [Markup('<span class="role-{}" title="{}">{}</span>').format(*each) for each in roles]
    less = sum(max(-each.change_s, 0.0) for each in frames)
    more = sum(max(each.change_s, 0.0) for each in frames)
    sums = f"frames: −{units.duration(less)}, +{units.duration(more)}"
    return joined(joined(*spans, by=" → "), Markup('<span class="aside">{}</span>').format(sums) if frames else "")


def _frame_chart(frames: Sequence[FrameChange]) -> Chart:
    rows = [
        Bar(
            label=shorten_statement(each.name) if each.is_sql else each.name,
            parts=(each.change_s,),
            title=f"{each.name} ({each.place}): {units.duration(each.before_s)} → {units.duration(each.after_s)}",
        )
        for each in frames[:_MOST_BARS]
    ]
    svg = bars(
        rows,
        title="Frames by change of self time",
        description="Self time of a frame per request of the variant, minus that of the baseline.",
        show=units.step,
        is_signed=True,
    )
    return Chart(svg, "Self time per request in the profiled pass (mean): the largest changes.")


def _differential(svg: Markup, of: str) -> Block:
    legend = Markup(
        'A box is as wide as the longer of its two times: <span class="role-variant">blue and −</span> is less, '
        '<span class="role-baseline">orange and +</span> more, the stronger the larger the change. Point at a box for '
        "both times including its callees; the table below has self times."
    )
    graph = Chart(svg, scrolls=f"Differential flame graph of {of}")
    return Details("Differential flame graph", [graph, Paragraph(legend, "small")], style="flame laid-over")


def _frame_table(frames: Sequence[FrameChange], baseline: str, variant: str) -> Table:
    columns = (
        Column("frame, self time", lambda each: joined(code(each.name), aside(each.place))),
        Column(baseline, lambda each: units.duration(each.before_s) if each.before_s else "–"),
        Column(variant, lambda each: units.duration(each.after_s) if each.after_s else "–"),
        Column("change", lambda each: Markup('<span class="change">{}</span>').format(units.step(each.change_s))),
    )
    return Table(
        "Frames",
        columns,
        frames[:_MOST_FRAMES],
        style="frames",
        row_style=lambda each: f"role-{'baseline' if each.change_s > 0 else 'variant'}",
    )


def _statement_table(statements: Sequence[StatementChange]) -> Table:
    columns = (
        Column("statement", _statement_cell),
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
        note="Per request (mean), counted by PostgreSQL (pg_stat_statements) for every variant alike; without BEGIN, "
        "COMMIT and ROLLBACK.",
    )


def _both(change: Change, show: Callable[[float | None], str] = units.average) -> str:
    return f"{show(change.before)} → {show(change.after)}"


def _statement_cell(statement: StatementChange) -> Text:
    short = code(shorten_statement(statement.sql))
    return Markup("<details><summary>{}</summary><pre>{}</pre></details>").format(short, statement.sql)


def _flame_blocks(run: Run) -> Iterator[Block]:
    """The flame graph of each variant that was profiled, or was to be; one without its data is a link."""
    is_inline = len(run.profiled) <= _MOST_FLAMES
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
    """Return links to a variant's profile, by file name: its page and its file for speedscope."""
    links: list[Text] = []
    if page:
        links.append(Markup('<a href="{}">flame graph</a>').format(quote(page)))
    if speedscope:
        links.append(Markup('<a href="{}" download>speedscope</a>').format(quote(speedscope)))
    return links
