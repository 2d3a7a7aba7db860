"""Report sections on the load tests of perfload: the steps, and latency with and without load."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from placebench import units
from placebench.compare.load.load_steps import PERCENTILES
from placebench.errors import PlacebenchError
from placebench.page.axis_charts import Curve, Line, distribution, lines
from placebench.page.row_charts import Bar, bars
from placebench.report.comparison_sections import comparison_heading
from placebench.report.effects import METRIC_LABELS, is_ordinary_case, percentile_text
from placebench.report.figures import Figures, LoadFigures, VariantFigures, compared_rate, compared_users
from placebench.report.model import (
    Block,
    Chart,
    Column,
    Details,
    Facts,
    Heading,
    Pair,
    Paragraph,
    Section,
    Table,
    Text,
    aside,
    code,
    joined,
)
from placebench.report.telemetry import full_points
from placebench.report.variant_pairs import profile_links
from placebench.stats import samples_needed

_SHOWN_SHARE = 0.999
"""Share of a variant's requests that the latency axis of blocks covers: a single stall would flatten the curves."""


def steps_section(figures: Figures) -> Section:
    """Return the section with the speed and the work of each step of the cumulative series."""
    reliable = Markup('; the reliable comparison is in <a href="#comparison">{}</a>').format(
        comparison_heading(figures)
    )
    best_case = ""
    if is_ordinary_case(figures):
        best_case = (
            " The same request came again and again, and nothing was written: the best case of a variant that keeps "
            "rows or responses. The ordinary case is in the comparison."
        )
    introduction = Markup(
        "Each step up to <code>tuned</code> adds one change to the step before; what follows it is another program or "
        "another algorithm. The steps were measured one after the other under closed-loop load, so differences of a "
        "few percent may be noise{}.{}"
    ).format(reliable if figures.primary else "", best_case)
    blocks: list[Block] = [Paragraph(introduction)]
    if chart := _steps_chart(figures):
        blocks.append(chart)
    blocks += [_speed_table(figures), _work_table(figures)]
    explained = [each for each in figures.variants if each.why]
    if explained:
        facts: list[tuple[Text, Text]] = []
        for step in explained:
            makes = aside(f"makes {step.variant}") if step.adds and "+" not in step.variant else ""
            source, shows = aside(step.source) if step.source else "", Markup("")
            if step.shows_in:
                is_here = step.shows_on == figures.run.head.request
                where = "" if is_here else Markup(" on {}").format(code(step.shows_on))
                shows = aside(Markup("Should show in {}{}.").format(METRIC_LABELS[step.shows_in], where))
            facts.append((joined(step.adds or step.variant, makes), joined(step.why, source, shows)))
        blocks += [Heading("What each step adds, and why"), Facts(facts, "steps")]
    return Section("Cumulative steps", blocks, id="steps")


_STEP = Column("variant", lambda each: each.label)


def _loaded(label: Text, kind: str, show: Any, pick: Any) -> Column:
    """Return a column with a value of a load pass; 'not measured' for variants without that pass."""
    return Column(label, lambda each: show(pick(getattr(each, kind))) if getattr(each, kind) else units.NOT_MEASURED)


def _percentiles(kind: str) -> list[Column]:
    def column(name: str) -> Column:
        return _loaded(name, kind, percentile_text, lambda load: load.latency.percentiles[name])

    return [column(name) for name in PERCENTILES]


def _counted(label: Text, show: Any, name: str) -> Column:
    return Column(label, lambda each: show(getattr(each.counted, name)) if each.counted else units.NOT_MEASURED)


def _step_table(label: str, columns: Sequence[Column], rows: Sequence[VariantFigures], **options: Any) -> Table:
    return Table(
        label,
        [_STEP, *columns],
        rows,
        row_style=lambda each: f"role-{each.role}",
        row_title=lambda each: each.variant,
        **options,
    )


def steps_table(figures: Figures) -> Table:
    """Return speed and work of each step in one table, for a terminal."""
    columns = [
        _loaded("throughput", "closed", units.rate, lambda load: load.throughput_per_s),
        *(each for each in _percentiles("closed") if each.label in ("p50", "p95")),
        _loaded("CPU/request", "closed", units.duration, lambda load: load.cpu_s),
        _loaded("peak PSS", "closed", units.size, lambda load: load.peak_pss_bytes),
        _counted("statements", units.average, "statements"),
    ]
    optional = [
        _counted("rows", units.average, "rows"),
        _counted("body", units.size, "body_bytes"),
        _counted("in GC", units.percent, "gc_share"),
    ]
    return _step_table("Steps", [*columns, *(replace(each, optional=True) for each in optional)], figures.variants)


def _speed_table(figures: Figures) -> Table:
    columns = [
        _loaded("requests", "closed", units.count, lambda load: load.requests),
        _loaded(Markup("in flight<br>at the end"), "closed", units.count, lambda load: load.in_flight),
        _loaded("throughput", "closed", units.rate, lambda load: load.throughput_per_s),
        *_percentiles("closed"),
        _loaded(Markup("server CPU<br>per request"), "closed", units.duration, lambda load: load.cpu_s),
        _loaded(Markup("peak memory<br>(PSS)"), "closed", units.size, lambda load: load.peak_pss_bytes),
    ]
    note = f"{_percentile_note()} Requests in flight when the pass ended are in no other figure."
    return _step_table(
        "Speed of each step", columns, figures.variants, id="speed", caption="Speed under closed-loop load", note=note
    )


def _work_table(figures: Figures) -> Table:
    columns = [
        _counted("statements", units.average, "statements"),
        _counted("rows", units.average, "rows"),
        _counted("body", units.size, "body_bytes"),
        _counted("time in SQL", units.percent, "sql_share"),
        _counted("time in GC", units.percent, "gc_share"),
        Column("profile", lambda each: joined(*profile_links(each.profile, each.speedscope)) or "none"),
    ]
    caption = "Work per request, and its profile"
    return _step_table("Work per request", columns, figures.variants, id="work", caption=caption)


def _percentile_note() -> str:
    needed = ", ".join(f"{name} needs {units.count(samples_needed(share))}" for name, share in PERCENTILES.items())
    return f"A percentile is shown only where ten requests were slower: {needed} requests."


def block_section(figures: Figures) -> list[Section]:
    """Return the section with the latency of requests in blocks; an empty list if there are no blocks."""
    if not figures.blocks:
        return []

    def percentile(name: str) -> Column:
        return Column(name, lambda each: percentile_text(each.latency.percentiles[name]))

    columns = [
        Column("variant", lambda each: figures.short_name(each.variant)),
        Column("requests", lambda each: units.count(len(each.wall_s))),
        *map(percentile, PERCENTILES),
        Column("longest", lambda each: units.duration(each.wall_s[-1])),
    ]
    users = compared_users(figures.run)
    how = (
        "One client sends one request at a time, so that none waits in a queue. For latency under load see the load "
        "test; these percentiles do not enter the verdict."
        if users == 1
        else f"{users} users send requests at the same time, each the next one after its response."
    )
    if rate := compared_rate(figures.run):
        how = f"{rate:g} requests per second arrive, whatever the responses; latency counts from when each was due."
    note = f"{_percentile_note()} {how}"
    table = Table(
        "Latency in the blocks",
        columns,
        figures.blocks,
        id="blocks",
        note=note,
        row_style=lambda each: f"role-{each.role}",
        row_title=lambda each: each.variant,
    )
    title = "Latency without load" if users == 1 else f"Latency with {users} users"
    title = f"Latency at {rate:g} requests per second" if rate else title
    return [Section(title, [_blocks_chart(figures), Details("The figures", [table])])]


def latency_section(figures: Figures) -> Section:
    """Return the section with the latency under closed-loop and open-loop load."""
    closed, opened = _latency_charts(figures)
    blocks: list[Block] = (
        [Pair([closed], [opened])] if closed and opened else [each for each in (closed, opened) if each]
    )
    rows = [each for each in figures.variants if each.open]
    if not rows:
        return Section("Latency under load", [*blocks, Paragraph("Open-loop load: not measured.", "missing")])
    columns = [
        _loaded("arrivals", "open", units.rate, lambda load: load.rate_per_s),
        _loaded("requests", "open", units.count, lambda load: load.requests),
        *_percentiles("open"),
        _loaded("started late", "open", units.count, lambda load: load.missed),
        _loaded(Markup("in flight<br>at the end"), "open", units.count, lambda load: load.in_flight),
    ]
    note = (
        "Each variant gets seeded random arrivals at half of its own closed-loop throughput. 'Started late' counts "
        "arrivals that the load generator itself began more than 10 ms after their time."
    )
    caption = "Open-loop load, latency from the intended start (corrected for coordinated omission)"
    blocks.append(_step_table("Open-loop load", columns, rows, id="open", caption=caption, note=note))
    return Section("Latency under load", blocks)


def over_time_section(figures: Figures) -> list[Section]:
    """Return the section with the closed-loop load second by second; an empty list if the run has no telemetry."""
    try:
        telemetry = figures.run.telemetry
    except PlacebenchError:
        return []
    loaded = [each for each in figures.variants if each.closed and each.open]
    seconds = {each.label: (each.role, telemetry.part(f"{each.variant}-closed")) for each in loaded}
    frames = {label: (role, part.over_time()) for label, (role, part) in seconds.items() if len(part.durations)}
    charts = [
        Chart(
            lines(
                [Line(label, full_points(frame, name), role) for label, (role, frame) in frames.items()],
                title=title,
                description="A line for each variant, over the seconds that were full of requests.",
                show=show,
                show_where=units.duration,
            ),
            caption,
        )
        for name, title, show, caption in _OVER_TIME
        if any(value is not None for _, frame in frames.values() for _, value in full_points(frame, name))
    ]
    return [Section("Over time", charts, id="over-time")] if charts else []


_OVER_TIME = (
    (
        "requests_per_s",
        "Requests per second",
        units.rate,
        "Requests that began in each full second of the closed-loop load.",
    ),
    (
        "user_to_kernel",
        "User over kernel CPU time",
        units.times,
        "Of all workers; above 1: more user than kernel CPU time.",
    ),
    (
        "rss_bytes",
        "Memory of the workers",
        units.mebibytes,
        "RSS of all workers together, shared pages counted in each.",
    ),
)
"""Columns of `Telemetry.over_time`, each with title, unit and caption of its chart."""


def _steps_chart(figures: Figures) -> Chart | None:
    """Draw server CPU per request, split into service and PostgreSQL; median latency if CPU was not measured."""
    loads = [(each, each.closed) for each in figures.variants if each.closed]
    cpu = [
        Bar(each.label, (load.worker_cpu_s, load.backend_cpu_s), each.role)
        for each, load in loads
        if load.worker_cpu_s is not None and load.backend_cpu_s is not None
    ]
    medians = [(each, load.latency.percentiles["p50"]) for each, load in loads]
    latency = [Bar(each.label, (median,), each.role) for each, median in medians if median is not None]
    if not cpu and not latency:
        return None
    title = "Server CPU per request" if cpu else "Median latency under closed-loop load"
    svg = bars(
        cpu or latency,
        title=title,
        description="One bar for each step; shorter is better.",
        show=units.duration,
        part_names=("service (Python)", "PostgreSQL") if cpu else (),
    )
    return Chart(svg, f"{title} under closed-loop load; shorter is better." if cpu else f"{title}.")


def _blocks_chart(figures: Figures) -> Chart:
    curves = [Curve(figures.short_name(each.variant), each.latency.curve, each.role) for each in figures.blocks]
    ends = [each.wall_s[min(len(each.wall_s) - 1, int(_SHOWN_SHARE * len(each.wall_s)))] for each in figures.blocks]
    svg = distribution(
        curves,
        title="Latency of the requests in the blocks",
        description="Share of the requests that took at most the time below; further left is better.",
        show=units.duration,
        longest=max(ends),
    )
    users = compared_users(figures.run)
    rate = compared_rate(figures.run)
    at_once = f"{rate:g} per second" if rate else "one at a time" if users == 1 else f"{users} at a time"
    return Chart(svg, f"How long the requests of the blocks took, {at_once}. Dots are medians.")


def _latency_charts(figures: Figures) -> tuple[Chart | None, Chart | None]:
    closed = "Closed-loop load: each user waits for a response before the next request. Dots are medians."
    opened = (
        "Open-loop load: requests arrive on a schedule, whether or not the last response has come, and are timed from "
        "when they should have started."
    )
    return (
        _latency_chart(figures, lambda each: each.closed, "Latency under closed-loop load", closed),
        _latency_chart(figures, lambda each: each.open, "Latency under open-loop load", opened),
    )


def _latency_chart(
    figures: Figures, pick: Callable[[VariantFigures], LoadFigures | None], title: str, caption: str
) -> Chart | None:
    passes = [(each, load) for each in figures.variants if (load := pick(each)) and load.requests]
    if not passes:
        return None
    svg = distribution(
        [Curve(each.label, load.latency.curve, each.role) for each, load in passes],
        title=title,
        description="Share of the requests that were served within a time; further left is better.",
        show=units.duration,
    )
    return Chart(svg, caption)
