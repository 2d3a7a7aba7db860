"""The report of a comparison, an experiment, a calibration or a perfload run: `run_report`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Literal

from markupsafe import Markup

from placebench import units
from placebench.compare.keep.documents import WorkloadDocument
from placebench.compare.keep.phase_timer import harness_share
from placebench.gates import Gate, Outcome
from placebench.report import effects
from placebench.report.comparison_sections import comparison_section, pair_columns
from placebench.report.conclusion import cautions, conclusion, miscounted
from placebench.report.control import control_result
from placebench.report.documents import run_document
from placebench.report.environment import data_text, environment_rows, request_section
from placebench.report.figures import Figures, compared_rate, compared_users, figures_of
from placebench.report.gates import after_failure, judge_gates, needs_control, with_timed_counts, without_control
from placebench.report.load_sections import (
    block_section,
    latency_section,
    over_time_section,
    steps_section,
    steps_table,
)
from placebench.report.model import (
    Block,
    Check,
    Column,
    Heading,
    Items,
    Paragraph,
    Report,
    Section,
    SummaryFigure,
    Table,
    Text,
    code,
)
from placebench.report.routes import RouteResult, route_results, route_sentences, route_table
from placebench.report.source_changes import source_sentences, unexecuted_changes, without_machine
from placebench.report.trial_results import (
    ExperimentResults,
    experiment_results,
    hypotheses_table,
    keep_sentence,
    results_section,
    results_table,
)
from placebench.report.variant_pairs import difference_section, statement_sentences
from placebench.results import Run
from placebench.stats.error_shares import MORE_ERRORS, ErrorShare
from placebench.stats.replicates import valid_replicates

_METHOD = (
    "Timed passes ran without any profiler; profiled passes were not timed.",
    "Statements, rows and GC time come from a third pass that was counted and not timed.",
    "Server CPU is that of the service's workers and of the database's backends, or its MariaDB, without the client.",
    "CPU times are read from the kernel before and after.",
)
_METHOD_OF_LOADS = (
    "The closed-loop load shows the capacity of the service; the open-loop load shows how long a user waits. Requests "
    "that were in flight when a pass ended are counted and reported."
)
_METHOD_OF_USERS = (
    "{} users at a time sent the requests of each block, each the next one after its response. Throughput is requests "
    "over the time of the block; percentiles are those of all requests of a replicate."
)
_ERRORS_NOTE = (
    "Failed requests discard their replicate, and are in no time; the shares are those of all requests in rounds of "
    "both variants, warm-ups with failed requests among them. More errors: any where the baseline has none, or "
    "p ≤ 0.001 by Fisher's exact test. Intervals: Wilson, as if requests were independent."
)

_METHOD_OF_A_RATE = (
    "{:g} requests per second arrived in each block, with exponential gaps that are the same for all variants of a "
    "round, and whatever the responses. Latency counts from the moment a request was due; percentiles are those of all "
    "requests of a replicate."
)
_UNREACHED_SHARE, _UNREACHED_FACTOR = 0.1, 3
"""A rate is not reached if the work left after the last arrival takes more than a tenth of the time of the arrivals,
and three times as long as an early request."""


def run_report(run: Run, gates: Sequence[Gate] = ()) -> Report:
    """Build the report of *run*; it has no speeds if the responses differ.

    Takes 1.5 s of CPU and 200 MiB for a run of a million samples (`tox -e bench -- report`).
    """
    figures, head = figures_of(run), run.head
    results, routes = experiment_results(figures), route_results(figures)
    compared = _compared_variants(figures)
    checks = _checks(figures, gates)
    concluded = conclusion(figures, checks) if head.command == "compare" else ""
    control = control_result(run)
    replicates = units.numbered(figures.primary.replicates, "replicate") if figures.primary else "no replicates"
    return Report(
        folder=run.folder,
        name=head.name,
        started_at=head.started_at,
        status=head.status,
        headline=effects.headline(figures),
        document={
            **run_document(figures, results),
            "conclusion": concluded,
            "checks": [each.to_json() for each in checks],
        },
        notices=[
            *([figures.responses.difference] if figures.responses.difference else []),
            *effects.status_sentences(head),
            *effects.unknown_cpu(figures),
            *effects.uncounted(figures),
            *effects.reconnecting(figures),
            *effects.failed_parts(head),
        ],
        summary=[
            *source_sentences(run, unexecuted_changes(run, figures.comparisons)),
            *effects.summary_sentences(figures),
            *statement_sentences(figures),
            *([control.sentence] if control else []),
            *(cautions(figures) if head.command == "compare" and head.is_comparable else ()),
            *route_sentences(figures, routes),
            *keep_sentence(results),
        ],
        figures=_summary_figures(figures),
        figures_of=(figures.short_name(compared[0]), figures.short_name(compared[1])) if compared else None,
        overview=[*_overview(figures, results), *([route_table(figures, routes)] if routes else [])],
        remarks=_remarks(figures, results),
        request=_request(figures),
        sections=_sections(figures, results, routes) if figures.variants else (),
        notes=_notes(figures) if figures.variants else (),
        failures=_failures(figures),
        environment=environment_rows(head),
        about=f"{data_text(head)}; {replicates}; {head.request}",
        conclusion=concluded,
        checks=checks,
    )


def _compared_variants(figures: Figures) -> tuple[str, str] | None:
    """Return the two variants of the summary: the ends of an experiment, or the only pair; None for several pairs."""
    if figures.all_changes:
        return figures.all_changes.pair
    return figures.pairs[0].pair if len(figures.pairs) == 1 else None


def _summary_figures(figures: Figures) -> list[SummaryFigure]:
    """Return the large values of `_compared_variants`, as far as both variants were measured."""
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
    """Return the section on request and data, which also says whether the responses are the same."""
    made = figures.responses
    if made.off and made.equal is None:
        same: Text = f"not compared: {made.off}"
    elif made.equal is None:
        same = "no response was compared before the run ended"
    elif made.equal:
        checked, variants = made.checked, figures.run.head.variants
        is_all = set(checked) == set(variants) and len(checked) > 2
        same = f"the same from {f'all {units.count(len(checked))} variants' if is_all else effects.join_and(checked)}"
        if made.allocation_requests is not None:
            same += f": {units.count(made.allocation_requests)} allocation requests, "
            same += f"{units.count(made.provider_summaries)} provider summaries"
    else:
        same = Markup('<strong class="wrong">not the same</strong>: {}').format(made.difference)
    digest = [("Digest of the response", code(made.digest))] if made.digest else []
    broken = "A variant whose response differs is broken: no speed is shown for any variant until they agree."
    notes = [Paragraph(broken, "notice")] if made.equal is False else []
    varying = "; ".join(f"{route}: {', '.join(places)}" for route, places in made.varying.items())
    own = [
        ("Differ from time to time", f"{varying} (two responses of {figures.run.head.variants[0]}), not compared"),
        ("Left out", "; ".join(f"{route}: {reason}" for route, reason in made.left_out.items())),
        ("Changed alike by all variants", f"{', '.join(made.changing_tables)}, not compared"),
    ]
    own = [each for each, is_there in zip(own, (varying, made.left_out, made.changing_tables), strict=True) if is_there]
    load = []
    if (users := compared_users(figures.run)) > 1:
        load = [("Load", f"{units.numbered(users, 'user')} at the same time")]
    if rate := compared_rate(figures.run):
        load = [("Load", f"{rate:g} requests per second, whatever the responses")]
    facts = [*load, ("Responses", same), *own, *digest, *_workload_facts(figures.run.head.settings.get("workload", {}))]
    return request_section(figures.run.head, facts, *notes)


_NOT_COMPARED = {
    "ignore": "values at {}",
    "unordered": "the order of lists at {}",
    "tolerance": "differences between numbers up to {}",
    "ignore_headers": "headers {}",
    "ignore_text": "text that matches {}",
}
"""What each rule of a plan's `same_responses` leaves out of the comparison, for readers."""


def _workload_facts(workload: WorkloadDocument) -> list[tuple[Text, Text]]:
    """Return the request mix if there are several requests, the login, and the rules for comparing responses."""
    requests = workload.get("requests", [])
    cycle = sum(each["weight"] for each in requests)
    mix = ", ".join(f"{each['weight']} of {cycle} {each['request']}" for each in requests)
    rules = workload.get("same_responses", {})
    listed = {name: ", ".join(value) if isinstance(value, list) else value for name, value in rules.items()}
    if listed.get("ignore_headers") == "*":
        listed["ignore_headers"] = "and the status"
    shown = "; ".join(text.format(listed[name]) for name, text in _NOT_COMPARED.items() if name in listed)
    facts = (
        ("Requests", mix if len(requests) > 1 else ""),
        ("Login", ", ".join(workload.get("login", []))),
        ("Not compared", shown),
        ("Notes", "; ".join(workload.get("notes", []))),
    )
    return [(name, text) for name, text in facts if text]


def _sections(figures: Figures, results: ExperimentResults, routes: Sequence[RouteResult]) -> list[Section]:
    is_inside = bool(figures.primary or figures.run.profiled or figures.run.wire)
    return [
        *([steps_section(figures)] if figures.is_loaded else []),
        *([results_section(results, metric=figures.metric)] if results.changes else []),
        comparison_section(figures),
        *([Section("Routes", [route_table(figures, routes)], id="routes")] if routes else []),
        *(block_section(figures) if is_inside else []),
        *(difference_section(figures) if is_inside else []),
        *([latency_section(figures)] if figures.is_loaded else []),
        *(over_time_section(figures) if figures.is_loaded else []),
    ]


def _overview(figures: Figures, results: ExperimentResults) -> list[Table]:
    """Return the existing tables for a terminal and Markdown: steps, results, hypotheses, comparisons and errors."""
    tables = [steps_table(figures)] if figures.is_loaded else []
    if results.changes:
        tables.append(results_table(results, metric=figures.metric))
    if results.hypotheses:
        tables.append(hypotheses_table(results))
    known = [each for each in figures.comparisons if (each.baseline_value, each.variant_value) != (None, None)]
    if known and not results.changes:
        named, values = pair_columns(figures)
        columns = [
            *named,
            *values,
            effects.effect_column(known),
            Column("MDE", effects.detectable_text, optional=True),
            Column("verdict", effects.verdict_text),
        ]
        tables.append(Table("Comparisons", columns, known))
    if figures.errors_seen:
        tables.append(_error_table(figures))
    return tables


def _remarks(figures: Figures, results: ExperimentResults) -> list[str]:
    """Return lines on uncompared responses, changes that should show on other requests, interactions, and reasons."""
    reasons: dict[str, dict[str, None]] = {}
    for each in figures.comparisons:
        if each.reason and each.baseline_value is not None:
            reasons.setdefault(effects.reason_text(each), {})[effects.METRIC_LABELS[each.metric]] = None
    several = len(reasons) > 1
    elsewhere = {change.name: change.shows_on for change in results.changes if change.is_elsewhere}
    other = (f"{name} should show on another request: {request}" for name, request in elsewhere.items())
    off = [f"the responses were not compared: {figures.responses.off}"] if figures.responses.off else []
    return [
        *off,
        *_arrivals(figures),
        *other,
        *results.interaction_sentences,
        *(f"inconclusive: {why}" + f" ({', '.join(labels)})" * several for why, labels in reasons.items()),
    ]


def _arrivals(figures: Figures) -> Iterator[str]:
    """Yield what the generator of arrivals at a rate itself took, and the variants that did not keep up with it."""
    rate = compared_rate(figures.run)
    made = [each for blocks in valid_replicates(figures.run.blocks).values() for each in blocks]
    made = [each for each in made if "at_rate_s" in each.counters]
    if not rate or not made:
        return
    busy = sum(each.counters["client_cpu_s"] for each in made) / sum(each.counters["at_rate_s"] for each in made)
    late = sum(each.counters["late_arrivals"] for each in made) / sum(each.requests for each in made)
    yield (
        f"the generator used {units.percent(busy, digits=2)} of a core, and sent {units.percent(late, digits=2)} of "
        "the arrivals late by its own doing"
    )
    for variant in figures.run.head.variants:
        own = [each for each in made if each.variant == variant]
        if not own:
            continue
        scheduled_s = fmean(each.counters["scheduled_s"] for each in own)
        left_s = fmean(each.counters["at_rate_s"] for each in own) - scheduled_s
        early_s = median(median(each.wall_s[: max(1, len(each.wall_s) // 4)]) for each in own)
        if left_s > max(_UNREACHED_SHARE * scheduled_s, _UNREACHED_FACTOR * early_s):
            served = sum(each.requests for each in own) / sum(each.counters["at_rate_s"] for each in own)
            yield (
                f"{variant} does not keep up with {units.rate(rate)}: it serves {units.rate(served)}, and has work "
                f"for {units.duration(left_s)} left when the last request of a block arrives; its latencies grow with "
                "the length of a block"
            )


_PHASES = {
    "data": "data",
    "count": "counts",
    "profile": "profiles",
    "closed_load": "closed-loop loads",
    "open_load": "open-loop loads",
    "control": "control",
    "comparison": "comparison",
    "measurements": "measurements",
}
_SETTINGS = (
    (("processes", "threads"), "The service ran as {processes} processes with {threads} threads each."),
    (("users", "closed_s"), "Closed-loop load: {users} users for {closed_s:g} s per variant."),
    (
        ("open_s",),
        "Open-loop load: {open_s:g} s per variant, or three times as long; seeded arrivals at half its throughput.",
    ),
    (("client_host",), "Timed requests came from another machine, {client_host}: wall times have the network in them."),
    (("counted_requests",), "Counted pass: {counted_requests} requests per variant."),
    (("profiled_requests",), "Profiled pass: {profiled_requests} requests, merged into one flame graph."),
    (
        ("sequential", "rounds", "block_s"),
        "Comparison: replicates of {rounds} rounds, in blocks of about {block_s:g} s, until there was a decision.",
    ),
    (
        ("replicates", "rounds", "block_s"),
        "Comparison: {replicates} replicates of {rounds} rounds, in blocks of about {block_s:g} s.",
    ),
)
"""Sentences on the settings of a run, each with the settings that it requires."""


def _notes(figures: Figures) -> list[str]:
    """Return the notes on the method; sentences on settings that the run lacks are left out."""
    head = figures.run.head
    known = [
        text.format(**head.settings)
        for names, text in _SETTINGS
        if all(name in head.settings for name in names) and (figures.run.blocks or "rounds" not in names)
    ]
    profiled: dict[str, list[str]] = {}
    for variant, made in figures.run.profiled.items():
        for note in made.notes:
            profiled.setdefault(note, []).append(variant)
    return [
        *_METHOD,
        *([_METHOD_OF_LOADS] if figures.is_loaded else []),
        *known,
        *([_METHOD_OF_USERS.format(users)] if (users := compared_users(figures.run)) > 1 else []),
        *([_METHOD_OF_A_RATE.format(rate)] if (rate := compared_rate(figures.run)) else []),
        *(f"Profile of {', '.join(variants)}: {note}." for note, variants in profiled.items()),
        *_time_spent(head.spent_s),
    ]


def _time_spent(spent_s: Mapping[str, float]) -> Iterator[str]:
    """Yield sentences on the time spent in each phase of the run and in each part of its replicates."""
    phases = [(label, spent_s[name]) for name, label in _PHASES.items() if name in spent_s]
    if phases:
        parts = ", ".join(f"{units.duration(seconds)} {label}" for label, seconds in phases)
        yield f"Where the time of the run went: {parts}."
    share = harness_share(spent_s)
    if share is not None:
        parts = ", ".join(
            f"{units.percent(spent_s.get(name, 0.0) / spent_s['replicates'], digits=2)} {label}"
            for name, label in (("requests", "requests"), ("start", "starts and warm-up"), ("stop", "stops"))
        )
        whole, rest = units.duration(spent_s["replicates"]), units.percent(share, digits=2)
        yield f"The replicates took {whole}: {parts}, {rest} placebench itself."


def _failures(figures: Figures) -> list[Block]:
    """Return blocks on failed and late requests, repeated parts, and discarded replicates."""
    head, blocks = figures.run.head, list[Block]()
    passes = [
        (variant, kind, load)
        for variant in figures.variants
        for kind, load in (("closed-loop", variant.closed), ("open-loop", variant.open))
        if load
    ]
    troubled = [each for each in passes if each[2].failures or each[2].missed or each[2].repeats]
    if troubled:
        columns = (
            Column("variant", lambda each: each[0].label),
            Column("load", lambda each: each[1]),
            Column("requests", lambda each: units.count(each[2].requests)),
            Column("failed", lambda each: units.count(each[2].failures)),
            Column("started late", lambda each: units.count(each[2].missed)),
            Column("sent again", lambda each: units.count(each[2].repeats)),
        )
        note = "Failed requests are in no latency and no throughput."
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
    if figures.errors_seen:
        blocks.append(_error_table(figures))
    if repeated := effects.repeated_parts(head):
        blocks += [Heading("Repeated after a failure"), Items(repeated)]
    reasons: dict[int, str] = {}
    for block in figures.run.blocks if figures.variants else ():
        if block.invalid:
            reasons.setdefault(block.replicate + 1, f"{block.variant}: {block.invalid}")
    if reasons:
        discarded = [f"Replicate {number}: {reason}" for number, reason in sorted(reasons.items())]
        blocks += [Heading("Discarded replicates"), Items(discarded)]
    return blocks


def _error_table(figures: Figures) -> Table:
    """Return the table of the pairs of which a variant failed a request, with shares, intervals and verdicts."""
    columns = (
        Column("variant", lambda each: figures.short_name(each.variant)),
        Column("errors", lambda each: _error_text(each.after)),
        Column("baseline", lambda each: figures.short_name(each.baseline)),
        Column("its errors", lambda each: _error_text(each.before)),
        Column("verdict", lambda each: each.verdict),
    )
    return Table("Errors", columns, figures.errors_seen, id="errors", note=_ERRORS_NOTE)


def _error_text(share: ErrorShare) -> str:
    """Return failed and sent requests, and their share: '2 of 960, 0.208 % [95 % CI 0.0571, 0.756]'."""
    low, high = (units.significant(100 * each) for each in (share.low, share.high))
    return (
        f"{units.count(share.failed)} of {units.count(share.sent)}, {units.percent(share.share)} "
        f"[95 % CI {low}, {high}]"
    )


def _checks(figures: Figures, gates: Sequence[Gate]) -> list[Check]:
    """Return the checks: the same responses, errors of each pair that has any, the control, and each variant's gates.

    The gates of a comparison apply to all variants that were to be measured, those of another run to the measured ones.
    """
    made, head = figures.responses, figures.run.head
    if head.is_comparable:
        same = Check("same responses", "", "passed", f"off: {made.off}" if made.off else "")
    else:
        outcome: Outcome | Literal["error"] = "failed" if made.difference else "error"
        same = Check("same responses", "", outcome, made.difference or "no response was compared")
    variants = [comparison.variant for comparison in figures.comparisons]
    if head.command == "compare":
        variants = [trial["variant"] for trial in head.settings.get("trials", ())] or head.variants[1:]
    checks = judge_gates(gates, figures.comparisons, list(dict.fromkeys(variants)))
    checks = with_timed_counts(gates, checks, miscounted(figures))
    if control := control_result(figures.run):
        is_timed, is_default = control.control.is_timed, control.control.is_default
        is_needed = not is_default or any(needs_control(gate, is_timed=is_timed) for gate in gates)
        missed = not control.is_found and not (is_default and control.comparison is None)
        made_check = control.check if is_needed and (control.is_found or missed) else replace(control.check, variant="")
        checks = [made_check, *(without_control(gates, checks, is_timed=is_timed) if missed else checks)]
    if changes := unexecuted_changes(figures.run, figures.comparisons):
        checks = without_machine(gates, checks, changes)
    if head.status == "failed":
        checks = after_failure(gates, checks)
    errors = [
        Check(
            "errors",
            each.variant,
            "failed" if each.verdict == MORE_ERRORS else "passed",
            f"{_error_text(each.after)}, {each.baseline} {_error_text(each.before)}: {each.verdict}",
        )
        for each in figures.errors_seen
    ]
    return [same, *errors, *checks]
