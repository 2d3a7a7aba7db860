"""The report of a comparison, an experiment, a calibration or a perfload run: `run_report`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from markupsafe import Markup

from placebench import units
from placebench.experiment.capacity import PERCENTILES
from placebench.experiment.records import WatchedPass
from placebench.experiment.replicate import harness_share
from placebench.gates import Gate
from placebench.report import effects, run_charts
from placebench.report.calibration import calibration_sentences
from placebench.report.effects import METRIC_LABELS, percentile_text
from placebench.report.environment import environment_rows, masked, request_section
from placebench.report.figures import Figures, LoadFigures, VariantFigures, figures_of, shorten_variant
from placebench.report.gates import judge_gates
from placebench.report.model import (
    Block,
    Check,
    Column,
    Details,
    Facts,
    Heading,
    Items,
    Pair,
    Paragraph,
    Report,
    Section,
    SummaryFigure,
    Table,
    Text,
    aside,
    code,
    joined,
)
from placebench.report.optimizations import (
    ExperimentResults,
    experiment_results,
    hypotheses_table,
    keep_sentence,
    results_document,
    results_section,
    results_table,
)
from placebench.report.variant_pairs import difference_section, profile_links
from placebench.results import Run
from placebench.stats import Comparison, samples_needed

_METHOD = (
    "Timed passes ran without any profiler; profiled passes were not timed.",
    "Statements, rows and GC time come from a third pass that was counted and not timed.",
    "Server CPU is that of the service's workers and of this database's PostgreSQL backends, without the client.",
    "CPU times are read from the kernel before and after.",
)
_METHOD_OF_LOADS = (
    "The closed-loop load shows the capacity of the service; the open-loop load shows how long a user waits. Requests "
    "that were in flight when a pass ended are counted and reported."
)
_METHOD_OF_BLOCKS = (
    "The variants run side by side in fresh processes, each on its own copy of the data. They take turns in blocks, in "
    "a random order and then backwards (A B B A or B A A B), so that machine drift affects all variants equally. A "
    "replicate is a number of such rounds by fresh processes, which are started anew after at most eight rounds. The "
    "intervals rest on the replicates, never on single requests."
)
_VALUES_NOTE = (
    "Effect and ratio are of pairs: of what ran side by side in each replicate. The values of the two variants are "
    "medians over the replicates (of counts, means over the requests), each by itself, and need not have that ratio."
)


def run_report(run: Run, gates: Sequence[Gate] = ()) -> Report:
    """Build the report of *run*; where the responses differ it has no speeds.

    A run of a million samples takes 1.5 s of CPU and 200 MiB (`tox -e bench -- report`).
    """
    figures, head = figures_of(run), run.head
    results = experiment_results(figures)
    compared = _compared_variants(figures)
    replicates = f"{figures.primary.replicates} replicates" if figures.primary else "no replicates"
    return Report(
        folder=run.folder,
        name=head.name,
        started_at=head.started_at,
        status=head.status,
        headline=effects.headline(figures),
        document=_document(figures, results),
        notices=[*effects.ending(head), *effects.failed_parts(head)],
        summary=[*effects.summary_sentences(figures), *keep_sentence(results)],
        figures=_summary_figures(figures),
        figures_of=(_short(figures, compared[0]), _short(figures, compared[1])) if compared else None,
        overview=_overview(figures, results),
        remarks=_remarks(figures, results),
        request=_request(figures),
        sections=_sections(figures, results) if figures.variants else (),
        notes=_notes(figures) if figures.variants else (),
        failures=_failures(figures),
        environment=environment_rows(head),
        about=f"{head.topology}, {units.count(head.trees)} trees, seed {head.seed}; {replicates}; {head.request}",
        checks=_checks(figures, gates),
    )


def _short(figures: Figures, variant: str) -> str:
    return shorten_variant(variant, figures.run.head.variants)


def _document(figures: Figures, results: ExperimentResults) -> dict[str, Any]:
    """Plain values in seconds and bytes; ratios are variant over baseline.

    `steps` and `comparisons` are empty where the responses differ: no speed is reported then.
    """
    head = figures.run.head
    return {
        "run": str(figures.run.folder),
        "name": head.name,
        "started_at": head.started_at,
        "status": head.status,
        "note": head.note,
        "failed_parts": [{**asdict(each), "reason": masked(each.reason)} for each in head.failed_parts],
        "headline": effects.headline(figures),
        "request": head.request,
        "topology": head.topology,
        "trees": head.trees,
        "seed": head.seed,
        "data_digest": head.receipt.get("digest"),
        "same_responses": figures.responses.equal,
        "responses": asdict(figures.responses),
        "replicates": figures.replicates,
        "invalidated": figures.invalidated,
        "comparisons": [each.to_json() for each in figures.comparisons],
        "steps": [_step_document(each) for each in figures.variants],
        **(results_document(results) if head.settings.get("trials") else {}),
    }


def _step_document(figures: VariantFigures) -> dict[str, Any]:
    return {
        "variant": figures.variant,
        "adds": figures.adds,
        "closed": _load_document(figures.closed),
        "open": _load_document(figures.open),
        "counted": asdict(figures.counted) if figures.counted else None,
        "profile": figures.profile,
        "speedscope": figures.speedscope,
    }


def _load_document(load: LoadFigures | None) -> dict[str, Any] | None:
    if load is None:
        return None
    latencies = (("latency", load.latency), ("service", load.service))
    percentiles = {name: {f"{key}_s": value for key, value in each.percentiles.items()} for name, each in latencies}
    return {**asdict(load), **percentiles}


def _compared_variants(figures: Figures) -> tuple[str, str] | None:
    """The two variants of the headline: the ends of an experiment, or the only pair; None for several pairs."""
    if figures.all_changes:
        return figures.all_changes.baseline, figures.all_changes.variant
    return (figures.pairs[0].baseline, figures.pairs[0].variant) if len(figures.pairs) == 1 else None


def _summary_figures(figures: Figures) -> list[SummaryFigure]:
    """What changed between the two variants of the headline; only what was measured of both."""
    compared = _compared_variants(figures)
    if compared is None:
        return []
    first, last = (next(each for each in figures.variants if each.variant == name) for name in compared)
    shown: list[SummaryFigure] = []
    if first.closed and last.closed:
        cpu = first.closed.cpu_s, last.closed.cpu_s
        rates = first.closed.throughput_per_s, last.closed.throughput_per_s
        medians = first.closed.latency.percentiles["p50"], last.closed.latency.percentiles["p50"]
        if None not in cpu:
            shown.append(SummaryFigure("server CPU per request", *map(units.duration, cpu)))
        shown.append(SummaryFigure("throughput", *map(units.rate, rates)))
        if None not in medians:
            shown.append(SummaryFigure("median latency", *map(units.duration, medians)))
    if first.counted and last.counted:
        counts = first.counted.statements, last.counted.statements
        shown.append(SummaryFigure("statements per request", *map(units.average, counts)))
    return shown


def _request(figures: Figures) -> Section:
    """Request, data, and whether the responses are the same."""
    made = figures.responses
    if made.equal is None:
        same: Text = "no response was requested before the run ended"
    elif made.equal:
        checked, variants = made.checked, figures.run.head.variants
        is_all = set(checked) == set(variants) and len(checked) > 2
        same = f"the same from {f'all {units.count(len(checked))} variants' if is_all else effects.listed(checked)}"
        if made.allocation_requests is not None:
            same += f": {units.count(made.allocation_requests)} allocation requests, "
            same += f"{units.count(made.provider_summaries)} provider summaries"
    else:
        same = Markup('<strong class="wrong">not the same</strong>: {}').format(made.difference)
    digest = [("Digest of the response", code(made.digest))] if made.digest else []
    broken = "A variant whose response differs is broken: no speed is shown for any variant until they agree."
    notes = [Paragraph(broken, "notice")] if made.equal is False else []
    return request_section(figures.run.head, [("Responses", same), *digest], *notes)


def _sections(figures: Figures, results: ExperimentResults) -> list[Section]:
    is_inside = bool(figures.primary or figures.run.watched or figures.run.wire)
    return [
        *([_steps_section(figures)] if figures.is_loaded else []),
        *([results_section(results)] if results.changes else []),
        _comparison_section(figures),
        *(_block_section(figures) if is_inside else []),
        *(difference_section(figures) if is_inside else []),
        *([_latency_section(figures)] if figures.is_loaded else []),
    ]


def _overview(figures: Figures, results: ExperimentResults) -> list[Table]:
    """The tables of a terminal and of Markdown: steps, results, hypotheses and comparisons, as far as there are any."""
    tables = [_table_of_steps(figures)] if figures.is_loaded else []
    if results.changes:
        tables.append(results_table(results))
    if results.hypotheses:
        tables.append(hypotheses_table(results))
    if figures.comparisons and not results.changes:
        columns = [
            Column("variant", lambda each: figures.names[each.baseline, each.variant]),
            Column("metric", lambda each: METRIC_LABELS[each.metric]),
            *(_value_column("baseline", "baseline_value"), _value_column("variant", "variant_value")),
            Column("effect", effects.effect_text),
            Column("MDE", effects.detectable_text),
            Column("verdict", effects.verdict_text),
        ]
        tables.append(Table("Comparisons", columns, figures.comparisons))
    return tables


def _remarks(figures: Figures, results: ExperimentResults) -> list[str]:
    """Why comparisons are inconclusive; interactions; and where the responses differ."""
    inconclusive = (each for each in figures.comparisons if each.reason and each.baseline_value is not None)
    difference = [figures.responses.difference] if figures.responses.difference else []
    reasons = dict.fromkeys(map(effects.reason_text, inconclusive))
    elsewhere = {each.name: each.shows_on for each in results.changes if each.is_elsewhere}
    other = (f"{name} should show on another request: {request}" for name, request in elsewhere.items())
    return [*difference, *other, *results.interaction_sentences, *(f"inconclusive: {each}" for each in reasons)]


def _value_column(label: Text, name: str) -> Column:
    return Column(label, lambda each: effects.value_text(each.metric, getattr(each, name)))


def _steps_section(figures: Figures) -> Section:
    reliable = Markup('; the reliable comparison is in <a href="#comparison">{}</a>').format(
        _comparison_heading(figures)
    )
    introduction = Markup(
        "Each step up to <code>tuned</code> adds one change to the step before; what follows it is another program or "
        "another algorithm. The steps were measured one after the other under closed-loop load, so differences of a "
        "few percent may be noise{}."
    ).format(reliable if figures.primary else "")
    blocks: list[Block] = [Paragraph(introduction)]
    if chart := run_charts.steps_chart(figures):
        blocks.append(chart)
    blocks += [_speed_table(figures), _work_table(figures)]
    explained = [each for each in figures.variants if each.why]
    if explained:
        facts = [_explanation(each, figures.run.head.request) for each in explained]
        blocks += [Heading("What each step adds, and why"), Facts(facts, "steps")]
    return Section("Cumulative steps", blocks, id="steps")


def _explanation(step: VariantFigures, request: str) -> tuple[Text, Text]:
    makes = aside(f"makes {step.variant}") if step.adds and "+" not in step.variant else ""
    shows: Text = ""
    if step.shows_in:
        where = Markup(" on {}").format(code(step.shows_on)) if step.shows_on != request else ""
        shows = aside(Markup("Should show in {}{}.").format(METRIC_LABELS[step.shows_in], where))
    return joined(step.adds or step.variant, makes), joined(step.why, aside(step.source) if step.source else "", shows)


_STEP = Column("variant", lambda each: each.label)


def _loaded(label: Text, kind: str, show: Any, pick: Any) -> Column:
    """A column of a load pass; 'not measured' for a variant without one."""
    return Column(label, lambda each: show(pick(getattr(each, kind))) if getattr(each, kind) else units.NOT_MEASURED)


def _percentiles(kind: str) -> list[Column]:
    def column(name: str) -> Column:
        return _loaded(name, kind, percentile_text, lambda load: load.latency.percentiles[name])

    return [column(name) for name in PERCENTILES]


def _counted(label: Text, show: Any, name: str) -> Column:
    return Column(label, lambda each: show(getattr(each.counted, name)) if each.counted else units.NOT_MEASURED)


def _step_table(label: str, columns: Sequence[Column], rows: Sequence[VariantFigures], **options: Any) -> Table:
    """A table with a row for each variant."""
    return Table(
        label,
        [_STEP, *columns],
        rows,
        row_style=lambda each: f"role-{each.role}",
        row_title=lambda each: each.variant,
        **options,
    )


def _table_of_steps(figures: Figures) -> Table:
    """Speed and work of each step in one table, for a terminal."""
    columns = [
        _loaded("throughput", "closed", units.rate, lambda load: load.throughput_per_s),
        *(each for each in _percentiles("closed") if each.label in ("p50", "p95")),
        _loaded("CPU/request", "closed", units.duration, lambda load: load.cpu_s),
        _loaded("peak PSS", "closed", units.size, lambda load: load.peak_pss_bytes),
        _counted("statements", units.average, "statements"),
        _counted("rows", units.average, "rows"),
        _counted("body", units.size, "body_bytes"),
        _counted("in GC", units.percent, "gc_share"),
    ]
    return _step_table("Steps", columns, figures.variants)


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


def _comparison_heading(figures: Figures) -> str:
    """What is compared with what."""
    pairs, variants = figures.pairs, figures.run.head.variants
    if len(pairs) > 1 and figures.are_changes:
        return "Each change, with and without"
    ends = (pairs[0].baseline, pairs[0].variant) if pairs else (variants[0], variants[-1])
    baseline, variant = (_short(figures, each) for each in ends)
    return (
        f"{units.count(len(pairs))} variants compared with {baseline}"
        if len(pairs) > 1
        else f"{baseline} and {variant}"
    )


def _comparison_section(figures: Figures) -> Section:
    heading, primary = _comparison_heading(figures), figures.primary
    if primary is None and not figures.comparisons:
        return Section(heading, [Paragraph("Not measured.", "missing")], id="comparison")
    if primary is None:
        counted = Paragraph("Counted in a few requests of each; no time was measured.")
        return Section(heading, [counted, _comparison_table(figures)], id="comparison")
    blocks: list[Block] = [Paragraph(_METHOD_OF_BLOCKS)]
    effects_chart = run_charts.effects_chart(figures)
    if len(figures.primaries) == 1:
        power = run_charts.power_chart(figures.primaries[0])
        right = [run_charts.replicates_chart(figures), *([power] if power else [])]
        blocks += [Pair([effects_chart], right), _comparison_table(figures)]
    else:
        blocks += [effects_chart, Details("Every metric of every pair", [_comparison_table(figures)])]
    if run_charts.shown_replicates(figures):
        blocks.append(Details("Every replicate", [_replicate_table(figures)]))
    blocks.append(Paragraph(_estimate_note(figures, primary), "small"))
    if sentences := calibration_sentences(figures.run.head):
        blocks.append(Paragraph(sentences, "small"))
    return Section(f"{heading}, interleaved", blocks, id="comparison")


def _estimate_note(figures: Figures, primary: Comparison) -> str:
    pair = primary.baseline, primary.variant
    margins = ", ".join(
        f"{units.level(each.margin)} for {METRIC_LABELS[each.metric]}"
        for each in figures.comparisons
        if (each.baseline, each.variant) == pair
    )
    return (
        f"Estimate: Hodges-Lehmann of the replicates' log ratios, with the exact signed-rank interval at "
        f"{units.level(primary.confidence)}. Margins, fixed before the run: {margins}. A change below its margin is "
        "reported as below the margin or equivalent."
    )


def _comparison_table(figures: Figures) -> Table:
    """Every metric of every pair."""
    several, baseline, variant = len(figures.pairs) > 1, "baseline", "variant"
    if not several:
        baseline, variant = (_short(figures, each) for each in (figures.pairs[0].baseline, figures.pairs[0].variant))
    pair = Column(
        "change" if figures.are_changes else "variant",
        lambda each: _short(figures, figures.names[each.baseline, each.variant]),
    )
    columns = [
        Column("metric", lambda each: METRIC_LABELS[each.metric]),
        *([pair] if several else []),
        Column("effect", effects.effect_text, wide=True),
        Column("verdict", _verdict_cell, wide=True),
        _value_column(baseline, "baseline_value"),
        _value_column(variant, "variant_value"),
        *(Column(each, _ratio_cell(each)) for each in ("ratio", "low", "high")),
        Column("replicates", lambda each: units.count(each.replicates)),
        Column("discarded", lambda each: units.count(each.invalidated)),
        Column("MDE", effects.detectable_text),
        Column(Markup("p,<br>adjusted"), lambda each: units.probability(each.p_adjusted)),
    ]
    caption: Text = "Ratios of the variant to the baseline"
    if figures.primary:
        caption = joined(caption, aside(_VALUES_NOTE))
    return Table(
        "Comparisons",
        columns,
        figures.comparisons,
        id="comparisons",
        caption=caption,
        row_title=lambda each: f"{each.baseline} → {each.variant}",
    )


def _ratio_cell(name: str) -> Any:
    return lambda comparison: units.ratio(getattr(comparison, name))


def _verdict_cell(comparison: Comparison) -> Text:
    verdict = Markup("<strong>{}</strong>").format(effects.verdict_text(comparison))
    return joined(verdict, aside(effects.reason_text(comparison)) if comparison.reason else "")


def _replicate_table(figures: Figures) -> Table:
    shown = run_charts.shown_replicates(figures)

    def name(made: Comparison) -> str:
        if len(figures.primaries) > 1:
            return _short(figures, figures.names[made.baseline, made.variant])
        return METRIC_LABELS[made.metric]

    def ratio(number: int) -> Column:
        return Column(
            str(number + 1), lambda each: units.ratio(each.ratios[number]) if number < len(each.ratios) else ""
        )

    columns = [Column("", name), *map(ratio, range(max(len(each.ratios) for each in shown)))]
    caption = "Ratio of the variant to the baseline, in the order they were made"
    return Table("Replicates", columns, shown, id="replicates", caption=caption)


def _block_section(figures: Figures) -> list[Section]:
    if not figures.blocks:
        return []

    def percentile(name: str) -> Column:
        return Column(name, lambda each: percentile_text(each.latency.percentiles[name]))

    columns = [
        Column("variant", lambda each: _short(figures, each.variant)),
        Column("requests", lambda each: units.count(len(each.wall_s))),
        *map(percentile, PERCENTILES),
        Column("longest", lambda each: units.duration(each.wall_s[-1])),
    ]
    note = (
        f"{_percentile_note()} One client sends one request at a time, so that none waits in a queue. For latency "
        "under load see the load test; these percentiles do not enter the verdict."
    )
    table = Table(
        "Latency in the blocks",
        columns,
        figures.blocks,
        id="blocks",
        note=note,
        row_style=lambda each: f"role-{each.role}",
        row_title=lambda each: each.variant,
    )
    return [Section("Latency without load", [run_charts.blocks_chart(figures), Details("The figures", [table])])]


def _latency_section(figures: Figures) -> Section:
    closed, opened = run_charts.latency_charts(figures)
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
        "All variants get the same seeded schedule of arrivals. 'Started late' counts arrivals that the load generator "
        "itself began more than 10 ms after their time."
    )
    caption = "Open-loop load, latency from the intended start (corrected for coordinated omission)"
    blocks.append(_step_table("Open-loop load", columns, rows, id="open", caption=caption, note=note))
    return Section("Latency under load", blocks)


_SETTINGS = (
    (("processes", "threads"), "The service ran as {processes} processes with {threads} threads each."),
    (("users", "closed_s"), "Closed-loop load: {users} users for {closed_s:g} s per variant."),
    (
        ("open_s",),
        "Open-loop load: {open_s:g} s per variant, seeded arrivals at half the throughput of the slowest variant.",
    ),
    (("counted_requests",), "Counted pass: {counted_requests} requests per variant."),
    (("profiled_requests",), "Profiled pass: {profiled_requests} requests, merged into one flame graph."),
    (
        ("replicates", "rounds", "block_s"),
        "Comparison: {replicates} replicates of {rounds} rounds, in blocks of about {block_s:g} s.",
    ),
)
"""Which settings a sentence needs, and the sentence."""


def _notes(figures: Figures) -> list[str]:
    """How it was measured; sentences on settings that the run does not name are left out."""
    run = figures.run
    settings = run.head.settings
    known = [text.format(**settings) for names, text in _SETTINGS if all(name in settings for name in names)]
    return [
        *_METHOD,
        *([_METHOD_OF_LOADS] if figures.is_loaded else []),
        *known,
        *_estimates(run.watched),
        *_time_spent(settings.get("spent_s", {})),
    ]


def _estimates(watched: Mapping[str, WatchedPass]) -> Iterator[str]:
    """What the profiled passes had to estimate, with the variants for which it is true."""
    variants: dict[str, list[str]] = {}
    for variant, each in watched.items():
        for note in each.notes:
            variants.setdefault(note, []).append(variant)
    for note, names in variants.items():
        yield f"Profile of {', '.join(names)}: {note}."


def _time_spent(spent_s: Mapping[str, float]) -> Iterator[str]:
    """Where the time of the replicates went."""
    share = harness_share(spent_s)
    if share is not None:
        parts = ", ".join(
            f"{units.percent(spent_s.get(name, 0.0) / spent_s['replicates'], digits=2)} {label}"
            for name, label in (("requests", "requests"), ("start", "starts and warm-up"), ("stop", "stops"))
        )
        whole, rest = units.duration(spent_s["replicates"]), units.percent(share, digits=2)
        yield f"The replicates took {whole}: {parts}, {rest} placebench itself."


def _failures(figures: Figures) -> list[Block]:
    """Failed and late requests, parts that were repeated, and discarded replicates."""
    head, blocks = figures.run.head, list[Block]()
    passes = [(each, kind, load) for each in figures.variants for kind, load in _loads(each)]
    troubled = [each for each in passes if each[2].failures or each[2].missed]
    if troubled:
        columns = (
            Column("variant", lambda each: each[0].label),
            Column("load", lambda each: each[1]),
            Column("requests", lambda each: units.count(each[2].requests)),
            Column("failed", lambda each: units.count(each[2].failures)),
            Column("started late", lambda each: units.count(each[2].missed)),
        )
        note = "Failed requests are in the figures of their pass."
        blocks.append(
            Table(
                "Failures", columns, troubled, id="failures", note=note, row_style=lambda each: f"role-{each[0].role}"
            )
        )
        for variant, kind, load in troubled:
            if load.failure_messages:
                blocks += [
                    Heading(f"{variant.label}, {kind} load"),
                    Items([code(each) for each in load.failure_messages]),
                ]
    if repeated := effects.repeated_parts(head):
        blocks += [Heading("Repeated after a failure"), Items(repeated)]
    if discarded := _discarded(figures):
        blocks += [Heading("Discarded replicates"), Items(discarded)]
    return blocks


def _loads(figures: VariantFigures) -> Iterator[tuple[str, LoadFigures]]:
    if figures.closed:
        yield "closed-loop", figures.closed
    if figures.open:
        yield "open-loop", figures.open


def _discarded(figures: Figures) -> list[str]:
    """Number, from 1, and first reason of each discarded replicate."""
    reasons: dict[int, str] = {}
    for block in figures.run.blocks if figures.variants else ():
        if block.invalid:
            reasons.setdefault(block.replicate + 1, f"{block.variant}: {block.invalid}")
    return [f"Replicate {number}: {reason}" for number, reason in sorted(reasons.items())]


def _checks(figures: Figures, gates: Sequence[Gate]) -> list[Check]:
    """That the responses are the same, and each gate for each variant."""
    made = figures.responses
    difference = "" if made.equal else made.difference or "no response was requested"
    same = Check("same responses", "", "passed" if made.equal else "failed", difference)
    return [same, *(judge_gates(gates, figures.comparisons) if made.equal else ())]
