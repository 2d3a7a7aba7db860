"""Effects, verdicts and run summaries as text: `effect_text` of one comparison, `headline` of a run.

An effect is written one way everywhere: `−77.0 % CPU [95 % CI −77.3, −76.4; n = 30], 4.3× faster`.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile

from placebench import units
from placebench.compare.keep.records import MEASURED, ChangedPlan, FailedPart, RunHead
from placebench.profiler.analysis.difference import Frame
from placebench.profiler.model.shortened_sql import one_line, shortened
from placebench.report.environment import masked
from placebench.report.figures import Figures
from placebench.report.model import Column
from placebench.results import Run
from placebench.stats import COUNTED, PROFILED, Comparison, PartChange
from placebench.stats.replicates import LIFETIME, valid_replicates
from placebench.stats.verdict import BELOW_MARGIN, EQUIVALENT, FASTER, INCONCLUSIVE, ROUGH_BELOW, SLOWER

METRIC_LABELS = {
    "cpu_s": "server CPU",
    "wall_s": "wall time",
    "pss_bytes": "memory (PSS)",
    "elapsed_s": "time per request under load",
    "p50_s": "p50 latency under load",
    "p95_s": "p95 latency under load",
    "p99_s": "p99 latency under load",
    "start_s": "time to the first response",
    "start_cpu_s": "CPU of the start",
    "start_pss_bytes": "memory after the start",
    "slow_share": "share of slow requests",
    "memory_growth": "memory growth per 1000 requests",
    "late_slowdown": "slow-down within a process",
    "statements": "statements",
    "rows": "rows",
    "round_trips": "round trips",
    "bytes_sent": "bytes sent",
    "bytes_received": "bytes received",
    "gc_s": "GC pauses",
}
_NOT_THE_SAME = "The variants do not do the same, so no speed is printed."
_TIMES = {
    "cpu_s": "CPU",
    "wall_s": "wall time",
    "elapsed_s": "time per request under load",
    "p50_s": "p50 latency",
    "p95_s": "p95 latency",
    "p99_s": "p99 latency",
    "start_s": "time to the first response",
    "start_cpu_s": "CPU of the start",
}
_CLEARLY_A_FACTOR = 1.5
_MAX_STATEMENT_LENGTH = 90
_TABLE = re.compile(r"\b(?:from|join|into|update)\s+([\w.\"]+)(?![\w.\"…])", re.IGNORECASE)


def written_effect(
    ratio: float, low: float | None, high: float | None, *, of: str, confidence: float | None, n: int, is_time: bool
) -> str:
    """Return an effect as text, such as '−77.0 % CPU [95 % CI −77.3, −76.4; n = 30], 4.3× faster'.

    All percentages have the same number of decimals, as few as keep them distinct.

    ratio: variant over baseline; *low* and *high* are its confidence interval, None if the replicates are too few.
    of: the metric that changes, such as 'CPU'; empty if a heading names it.
    confidence: level of the interval; None if a heading names it, as in '−77.0 % [−77.3, −76.4], 4.3×'.
    n: number of replicates; 0 for profiled requests of one process, or if a heading names the number.
    is_time: whether less means faster; a factor of 1.5 or more is written then.
    """
    known = [each for each in (ratio, low, high) if each is not None]
    estimate, *limits = map(_signed, units.distinct_digits(*((each - 1) * 100 for each in known)))
    level = f"{units.round_percent(confidence)} CI " if confidence else ""
    interval = level + ", ".join(limits) if limits else "no CI"
    effect = f"{estimate} %{of and f' {of}'} [{interval}{f'; n = {n}' if n else ''}]"
    factor = max(ratio, 1 / ratio) if ratio else 0.0
    if not is_time or factor < _CLEARLY_A_FACTOR:
        return effect
    direction = "" if confidence is None else " faster" if ratio < 1 else " slower"
    return f"{effect}, {units.significant(factor, digits=2)}×{direction}"


def _signed(number: str) -> str:
    return number.replace("-", "−") if number.startswith("-") else f"+{number}"


def effect_text(comparison: Comparison, *, named: bool = False, heading: Comparison | None = None) -> str:
    """Return the effect with its interval; '0 → 5' if there is no ratio, 'the same', or 'not measured'.

    A count that is the same for every request has no interval.

    named: whether the text includes the metric's name.
    heading: the comparison whose confidence level and replicates are in the column heading, and are not repeated.
    """
    confidence, replicates = comparison.confidence, comparison.replicates
    is_exact = comparison.metric in COUNTED or comparison.metric in PROFILED
    if comparison.ratio is None or (is_exact and comparison.ratio == 1):
        values = comparison.baseline_value, comparison.variant_value
        if None in values:
            return units.NOT_MEASURED
        if not comparison.differs:
            return "the same"
        return " → ".join(value_text(comparison.metric, value) for value in values)
    low, high = comparison.low, comparison.high
    if is_exact and low is not None and high is not None and math.isclose(low, high):
        return f"{units.signed_percent(comparison.ratio)}{f' {METRIC_LABELS[comparison.metric]}' if named else ''}"
    return written_effect(
        comparison.ratio,
        low,
        high,
        of=_TIMES.get(comparison.metric, METRIC_LABELS[comparison.metric]) if named else "",
        confidence=None if heading and heading.confidence == confidence else confidence,
        n=0 if heading and heading.replicates == replicates else replicates,
        is_time=comparison.metric in _TIMES,
    )


def effect_column(comparisons: Sequence[Comparison]) -> Column:
    """Return the column of effects; its heading has the confidence level and replicates of the first comparison.

    Counts have no replicates: their n is that of the counted requests.
    """
    measured = (each for each in comparisons if each.metric not in COUNTED and each.metric not in PROFILED)
    first = next((each for each in measured if each.ratio is not None), None)
    if first is None:
        return Column("effect", effect_text)
    label = f"effect [{units.round_percent(first.confidence)} CI; n = {first.replicates}]"
    return Column(label, partial(effect_text, heading=first))


def verdict_text(comparison: Comparison) -> str:
    """Return the verdict as text: times are 'faster' or 'slower', other metrics 'less' or 'more'."""
    if not comparison.measured and None in (comparison.baseline_value, comparison.variant_value):
        return units.NOT_MEASURED
    verdict = comparison.verdict
    if comparison.metric in _TIMES:
        return verdict
    return "less" if verdict == FASTER else "more" if verdict == SLOWER else verdict


def reason_text(comparison: Comparison) -> str:
    """Return the reason why the comparison is inconclusive or was not measured; empty if it has a verdict."""
    return comparison.reason.removeprefix(f"{comparison.verdict}: ")


def unmeasured_text(comparison: Comparison) -> str:
    """Return 'not measured', and what a percentile would need: 'not measured: it needs 200 requests of a variant …'."""
    return f"{units.NOT_MEASURED}: it {comparison.needs}" if comparison.needs else units.NOT_MEASURED


def comparison_sentence(comparison: Comparison) -> str:
    """Return a sentence with the verdict and the effect of a comparison.

    'tuned is faster than naive: −68 % CPU [95 % CI −69, −67; n = 6], 3.1× faster.'
    """
    variant, baseline, verdict = comparison.variant, comparison.baseline, comparison.verdict
    if comparison.low is None:
        unmeasured = f"{METRIC_LABELS[comparison.metric]} was {unmeasured_text(comparison)}"
        why = reason_text(comparison) if comparison.measured else unmeasured
        return f"{variant} against {baseline} is inconclusive: {why}."
    margin = units.round_percent(comparison.margin)
    label, is_time = METRIC_LABELS[comparison.metric], comparison.metric in _TIMES
    said = {
        FASTER: f"{variant} is faster than {baseline}"
        if is_time
        else f"The {label} of {variant} is lower than that of {baseline}",
        SLOWER: f"{variant} is slower than {baseline}"
        if is_time
        else f"The {label} of {variant} is higher than that of {baseline}",
        EQUIVALENT: f"{variant} and {baseline} are equivalent (margin {margin})",
        BELOW_MARGIN: f"{variant} differs from {baseline} by less than the margin of {margin}",
        INCONCLUSIVE: f"{variant} against {baseline} is inconclusive",
    }
    needed = f"; {more}" if (more := needed_text(comparison)) else ""
    is_named = is_time or verdict not in (FASTER, SLOWER)
    return f"{said[verdict]}: {effect_text(comparison, named=is_named)}{needed}."


def lifetime_sentences(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a sentence for each metric of a process's lifetime that differs beyond its margin."""
    sizes = {each.pair: each for each in comparisons if each.metric == "start_pss_bytes"}
    said = []
    for each in comparisons:
        if each.metric not in LIFETIME or each.verdict not in (FASTER, SLOWER):
            continue
        sentence = comparison_sentence(each)
        size = sizes.get(each.pair)
        if each.metric == "memory_growth" and size and size.variant_value and each.variant_low and each.variant_high:
            slopes = (each.variant_value or 1.0, each.variant_low, each.variant_high)
            shown, *limits = (units.size(abs(value - 1) * size.variant_value / 1000) for value in slopes)
            sentence += f" That is {shown} per request [{', '.join(limits)}]."
        elif each.metric == "slow_share":
            after, before = (value_text(each.metric, value) for value in (each.variant_value, each.baseline_value))
            sentence += f" That is {after} of the requests instead of {before}."
        said.append(sentence)
    return said


def needed_text(comparison: Comparison) -> str:
    """Return how many replicates an inconclusive comparison needs, such as 'about 40 find 3 % in 4 of 5 runs'."""
    if (needed := comparison.replicates_to_decide) is None:
        return ""
    effect = units.percent(math.expm1(comparison.undecided_effect), digits=2)
    return f"about {units.count(needed)} replicates find a change of {effect} in 4 of 5 runs"


def detectable_text(comparison: Comparison) -> str:
    """Return the minimum detectable effect, such as '1.2 %'."""
    return units.percent(None if comparison.detectable is None else math.expm1(comparison.detectable), digits=2)


def power_sentence(comparisons: Sequence[Comparison]) -> str:
    """Return a sentence with the range of the comparisons' minimum detectable effects."""
    label = METRIC_LABELS[comparisons[0].metric]
    known = sorted((each for each in comparisons if each.detectable is not None), key=lambda each: each.detectable or 0)
    if not known:
        return f"Minimum detectable effect on {label}: unknown with so few replicates."
    least, most = (detectable_text(each) for each in (known[0], known[-1]))
    effects = least if most == least else f"{least} to {most}"
    return f"Minimum detectable effect (MDE) on {label} at 80 % power: {effects}{rough_note(known)}."


def rough_note(comparisons: Iterable[Comparison]) -> str:
    """Return a remark if any comparison has too few replicates for an exact minimum detectable effect, else ''."""
    few = any(each.detectable is not None and each.replicates < ROUGH_BELOW for each in comparisons)
    return f" (rough with fewer than {units.count(ROUGH_BELOW)} replicates)" if few else ""


def value_text(metric: str, value: float | None) -> str:
    """Return a value of *metric* per request, with its unit; for the time under load with the throughput."""
    if metric == "elapsed_s" and value:
        return f"{units.duration(value)}, {units.rate(1 / value)}"
    if metric == "slow_share":
        return units.percent(value, digits=2)
    if metric in ("memory_growth", "late_slowdown"):
        return units.NOT_MEASURED if value is None else units.signed_percent(value)
    if metric.endswith("_s"):
        return units.duration(value)
    return units.size(value) if "bytes" in metric else units.average(value)


def percentile_text(seconds: float | None) -> str:
    """Return a percentile of a latency; 'too few' if fewer than ten samples lie above it."""
    return "too few" if seconds is None else units.duration(seconds)


def shorten_statement(sql: str) -> str:
    """Return the verb and the tables of a statement, or its text if no table is found, cut to one line."""
    tables = list(dict.fromkeys(_TABLE.findall(sql)))
    shown = f"{sql.partition(' ')[0]} … {', '.join(tables)}" if tables else sql
    return shown if len(shown) <= _MAX_STATEMENT_LENGTH else f"{shown[: _MAX_STATEMENT_LENGTH - 1]}…"


def shorten_statements(statements: Sequence[str]) -> list[str]:
    """Return the short forms of several statements; of different ones that have the same form, more of their texts.

    A text that is too long leaves out columns: the ones that all have if other columns differ, else all but the first.
    """
    words = {each: one_line(each).replace(",", " ,").split() for each in statements}
    alike = defaultdict[str, list[list[str]]](list)
    for statement, its_words in words.items():
        alike[shorten_statement(statement)].append(its_words)
    shown = []
    for statement in statements:
        short, line = shorten_statement(statement), one_line(statement)
        if len(alike[short]) > 1:
            at_each_place = zip(*alike[short], strict=False)
            common = [words_here[0] for words_here in takewhile(lambda each: len(set(each)) == 1, at_each_place)]
            if len(line) > _MAX_STATEMENT_LENGTH and "from" not in map(str.lower, common):
                different = " ".join(words[statement][len(common) :]).replace(" ,", ",").lstrip(" ,")
                line = f"{words[statement][0]} … {different}"
            short = shortened(line, _MAX_STATEMENT_LENGTH)
        shown.append(short)
    return shown


def frame_labels(parts: Sequence[PartChange[Frame]]) -> list[str]:
    """Return the labels of frames: a file is added to ambiguous names, statements and plans are shortened."""
    names = Counter(name for name, _ in {each.part for each in parts})
    statements = [name for name, place in (each.part for each in parts) if place in ("sql", "plan")]
    short = dict(zip(statements, shorten_statements(statements), strict=True))
    labels = []
    for name, place in (each.part for each in parts):
        if place in ("sql", "plan"):
            labels.append(short[name])
        elif place and names[name] > 1:
            labels.append(f"{name} ({'/'.join(place.split('/')[-2:])})")
        else:
            labels.append(name)
    return labels


def join_and(parts: Sequence[str]) -> str:
    """Join texts with commas and a final 'and', such as 'slots, sets and rows'."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def status_sentences(head: RunHead) -> list[str]:
    """Return sentences on how an incomplete run ended, and on why its server CPU was not measured.

    The reason of a failure is left out if it is how responses differ, which every report says where it is about them.
    """
    difference = " ".join((head.same_responses.get("difference") or "").split())  # as the note was written
    reason = "" if difference and difference in head.note else head.note
    how = {
        "running": "This run is still under way, or was killed",
        "interrupted": "This run was interrupted",
        "failed": f"This run failed ({reason})" if reason else "This run failed",
    }.get(head.status)
    goes_on = "" if difference or head.command == "perfload" else ", and the same command with --resume goes on"
    partial = [f"{how}: the report shows what was measured until then{goes_on}."] if how else []
    seen = head.manifest.get("server_cpu", MEASURED)
    return [*partial, *([] if seen == MEASURED else [f"Server CPU was not measured: {seen}."])]


def unknown_cpu(figures: Figures) -> list[str]:
    """Return a sentence on variants without server CPU although the database reports the CPU of its backends."""
    timed = [block for blocks in valid_replicates(figures.run.blocks).values() for block in blocks]
    known = {block.variant for block in timed if block.cpu_s is not None}
    unknown = list(dict.fromkeys(block.variant for block in timed if block.variant not in known))
    if not unknown or figures.run.head.manifest.get("server_cpu", MEASURED) != MEASURED:
        return []
    why = "the database connections did not stay the same, as when each request connects anew"
    return [f"Server CPU of {join_and(unknown)} was not measured: {why}. A pool keeps them, or CONN_MAX_AGE of Django."]


def uncounted(figures: Figures) -> list[str]:
    """Return a sentence for each reason why statements and rows of variants are not counted."""
    named = defaultdict[str, list[str]](list)
    for variant in figures.run.head.variants:
        if (counted := figures.run.wire.get(variant)) and counted.uncounted:
            named[counted.uncounted].append(variant)
    return [f"Statements and rows of {join_and(names)} are not counted: {why}." for why, names in named.items()]


def reconnecting(figures: Figures) -> list[str]:
    """Return a sentence on variants whose connections to the database came and went, which widens their server CPU."""
    timed = [block for blocks in valid_replicates(figures.run.blocks).values() for block in blocks]
    names = list(dict.fromkeys(each.variant for each in timed if each.cpu_s and each.counters.get("reconnected")))
    if not names:
        return []
    covered = "server CPU is that of the service and of all processes of PostgreSQL, whoever else uses it"
    return [f"Connections of {join_and(names)} came and went: {covered}."]


def failed_parts(head: RunHead) -> list[str]:
    """Return a sentence for each part of the run that failed, without secrets: 'The profile of tuned failed: …'."""
    return [f"{_part(each)} failed: {masked(each.reason)}" for each in head.failed_parts if not each.made_again]


def repeated_parts(head: RunHead) -> list[str]:
    """Return a sentence for each part that failed once and was repeated: 'The profile of tuned: …'."""
    return [f"{_part(each)}: {masked(each.reason)}" for each in head.failed_parts if each.made_again]


def _part(failed: FailedPart) -> str:
    return f"The {failed.part} of {failed.variant}" if failed.variant else f"The {failed.part}"


_OUTCOMES = {
    FASTER: ("reduces {}", "reduce {}"),
    SLOWER: ("increases {}", "increase {}"),
    BELOW_MARGIN: ("is below the margin", "are below the margin"),
    EQUIVALENT: ("is equivalent", "are equivalent"),
    INCONCLUSIVE: ("is inconclusive", "are inconclusive"),
    units.NOT_MEASURED: ("was not measured", "were not measured"),
}
"""The predicate for one change and for several changes, by verdict."""
_MAX_PAIRS_IN_DETAIL = 4
"""Maximum number of pairs that are described individually."""


_OTHER_COUNT = 0.5
"""Allowed difference between timed and counted statements per request: absolute, and as a share of the counted ones."""
_ORDINARY_CASE = "With one write per ten requests, all of them different"


def is_ordinary_case(figures: Figures) -> bool:
    """Return whether the run compared its variants by a mix of requests, and loaded them by one request as well."""
    return figures.is_loaded and len(figures.run.head.settings.get("workload", {}).get("requests", [])) > 1


def _best_case(figures: Figures) -> Iterator[str]:
    """Yield a sentence on the load by one request, which is the best case of variants that keep what they computed."""
    compared = {name for pair in figures.pairs for name in pair.pair}
    loads = [(each.variant, each.closed) for each in figures.variants if each.variant in compared and each.closed]
    shown = [f"{name} {units.duration(load.cpu_s)}" for name, load in loads if load.cpu_s is not None]
    if shown and is_ordinary_case(figures):
        yield (
            "Best case, the same request again and again and nothing written (one load each, without an interval): CPU "
            f"per request of {join_and(shown)}."
        )


def headline(figures: Figures) -> str:
    """Return the result of a run in one or two sentences."""
    if figures.responses.equal is False:
        return _NOT_THE_SAME
    if figures.primary is None:
        return _untimed_headline(figures)
    if len(figures.primaries) == 1:
        return speed_sentence(figures, figures.primary)
    if figures.is_experiment:
        names = {pair.name for pair in figures.pairs}
        changes = units.numbered(len(names), "change")
        if len(names) != len(figures.primaries):  # changes that were measured more than once
            changes = f"{units.count(len(figures.primaries))} trials of {changes}"
        return several_headline(figures.primaries, figures.names, many=changes)
    variants = f"{units.count(len(figures.primaries))} variants"
    text = several_headline(figures.primaries, figures.names, many=variants, baseline=figures.primary.baseline)
    return f"{_ORDINARY_CASE}: {text[0].lower()}{text[1:]}" if is_ordinary_case(figures) else text


def speed_sentence(figures: Figures, primary: Comparison) -> str:
    """Return `comparison_sentence` of a pair, unless one of its times is shorter and another longer: then both.

    A variant that is faster because it keeps results has a second sentence, which says so.
    """
    if (slower := figures.slower_time(primary)) is None:
        said = comparison_sentence(primary)
        if primary.verdict != FASTER or not keeps_results(figures.run, *primary.pair):
            return said
        return f"{said} It keeps results between requests: this is its speed if the same requests repeat."
    both = "; ".join(effect_text(each, named=True) for each in (primary, slower))
    if primary.metric == "cpu_s":
        return f"{primary.variant} takes less CPU than {primary.baseline}, and more time: {both}."
    return f"{primary.variant} is faster than {primary.baseline} by one time, and slower by another: {both}."


def keeps_results(run: Run, baseline: str, variant: str) -> bool:
    """Return whether later requests to the variant send fewer statements on tables because its first ones sent them.

    The baseline does not do so alike, or keeps fewer results.
    """
    before, after = run.wire.get(baseline), run.wire.get(variant)
    if before is None or after is None:
        return False
    old, new = before.table_statements, after.table_statements
    if old is None or new is None:
        return False
    if new < old and (after.first_statements or 0.0) - (before.first_statements or 0.0) >= 1:
        return True
    old_timed, new_timed = before.timed_statements, after.timed_statements
    if old_timed is None or new_timed is None:
        return False
    return (new_timed - old_timed) < (new - old) - allowed_difference(max(old, new))


def allowed_difference(counted: float) -> float:
    """Return by how much timed statements per request may differ from *counted* ones that count as the same."""
    return max(_OTHER_COUNT, _OTHER_COUNT * counted)


def several_headline(
    primaries: Sequence[Comparison], names: Mapping[tuple[str, str], str], *, many: str, baseline: str = ""
) -> str:
    """Return how many pairs have each verdict, and the largest effect.

    '8 of 10 changes reduce CPU, 1 increases it, 1 is inconclusive. Largest: freeze −34 % CPU […].'

    primaries: one comparison per pair, all by the same metric.
    names: short names of the pairs, by (baseline, variant).
    many: number and kind of the pairs, such as '10 changes'.
    baseline: the common baseline of all pairs; empty if they have different ones.
    """
    seen = Counter(verdict_text(each) for each in primaries)
    against = f" compared with {baseline}" if baseline else ""
    parts: list[str] = []
    for verdict in (each for each in _OUTCOMES if seen[each]):
        amount = f"{_TIMES[primaries[0].metric]}{against}" if not parts else "it"
        who = units.count(seen[verdict])
        if not parts:
            everyone = f"Both {many.removeprefix('2 ')}" if many.startswith("2 ") else f"All {many}"
            who = f"{who} of {many}" if len(seen) > 1 else everyone
        is_several = seen[verdict] > 1 or len(seen) == 1
        parts.append(f"{who} {_OUTCOMES[verdict][is_several].format(amount)}")
    return " ".join([f"{', '.join(parts)}.", *_largest_sentence(primaries, names)])


def _largest_sentence(primaries: Sequence[Comparison], names: Mapping[tuple[str, str], str]) -> list[str]:
    """Return the sentence on the largest effect whose interval excludes no change, or on why there is none."""
    measured = [each for each in primaries if each.measured]
    decided = [each for each in measured if each.ratio and each.verdict in (FASTER, SLOWER, BELOW_MARGIN)]
    if decided:
        largest = max(decided, key=lambda each: abs(math.log(each.ratio or 1.0)))
        return [f"Largest: {names[largest.pair]} {effect_text(largest, named=True)}."]
    if all(each.verdict == EQUIVALENT for each in measured):
        return ["No effect reaches its margin."]
    return [f"{reason_text(each)}." for each in measured if each.low is None][:1]


def _untimed_headline(figures: Figures) -> str:
    """Return the counts of a run that measured no time; `status_sentences` says how the run ended."""
    counted = [each for each in figures.comparisons if each.metric == "statements" and each.variant_value is not None]
    if not counted:
        counted_none = "No statements were counted; no time was measured."
        return counted_none if figures.comparisons else "This run compared no two variants."
    if len(counted) > _MAX_PAIRS_IN_DETAIL:
        return f"Statements of {units.count(len(counted))} pairs were counted; no time was measured."
    counts = (
        f"{each.variant} {units.average(each.variant_value)}, {each.baseline} {units.average(each.baseline_value)}"
        for each in counted
    )
    return f"Statements per request: {join_and(list(counts))}; no time was measured."


def summary_sentences(figures: Figures) -> list[str]:
    """Return the sentences of the summary: all changes together, or each of a few pairs, and the detectable effect."""
    if figures.primary is None:
        return list(_changed_plans(figures))
    if len(figures.primaries) == 1:
        shown = [each for each in figures.comparisons if each.low is not None and each.metric in ("wall_s", "p95_s")]
        sentences = [comparison_sentence(each) for each in shown if each is not figures.primary]
    else:
        few = figures.primaries if len(figures.primaries) <= _MAX_PAIRS_IN_DETAIL else ()
        sentences = [comparison_sentence(each) for each in ([figures.all_changes] if figures.all_changes else few)]
    lifetime = lifetime_sentences(figures.comparisons)
    where = [*_where(figures), *_changed_plans(figures)]
    return [*sentences, *lifetime, *where, power_sentence(figures.primaries), *_best_case(figures)]


def _where(figures: Figures) -> Iterator[str]:
    """Yield a sentence on the first frames that changed significantly under the profiler, if there is a single pair.

    The profiled replicates are few, and not the timed ones. If these frames together say the opposite of the verdicts
    on times, only those that agree are named.
    """
    for pair, parts in figures.parts.items() if len(figures.parts) == 1 else ():
        shown = [each for each in parts if each.is_decided]
        decided = [
            each for each in shown if each.low is not None and each.high is not None and each.low * each.high > 0
        ]
        timed = [each for each in figures.comparisons if each.metric in _TIMES and each.metric not in LIFETIME]
        told = {each.verdict for each in timed if each.pair == pair} & {FASTER, SLOWER}
        if len(told) == 1 and (sum(each.change for each in decided) > 0) == (FASTER in told):
            decided = [each for each in decided if each.verdict in told]
        few = decided[:_MAX_PAIRS_IN_DETAIL]
        named = [
            f"{label} {units.signed_duration(each.change)}" for label, each in zip(frame_labels(few), few, strict=True)
        ]
        if named:
            more = len(decided) - len(named)
            others = f", and {units.numbered(more, 'more frame')}" if more else ""
            yield f"Where it changed, under the profiler: {', '.join(named)}{others}."


def _changed_plans(figures: Figures) -> Iterator[str]:
    """Yield a sentence on each of the first statements with another plan, if there is a single pair."""
    plans = figures.run.plans if len(figures.parts) == 1 else []
    for each in plans[:_MAX_PAIRS_IN_DETAIL]:
        yield f"Where it changed: {plan_text(each)}."
    if more := len(plans[_MAX_PAIRS_IN_DETAIL:]):
        yield f"The plans of {units.numbered(more, 'more statement')} changed."


def plan_text(changed: ChangedPlan) -> str:
    """Return the statement, the line that runs it, and the plan nodes before and after."""
    after = " and ".join(changed.after)
    what = f"{' and '.join(changed.before)} → {after}" if changed.before else f"{after}, in a new statement"
    place = f" ({changed.place})" if changed.place else ""
    return f"the plan of {shorten_statement(changed.sql)}{place}: {what}"
