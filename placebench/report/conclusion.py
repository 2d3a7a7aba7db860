"""The paragraph that ends the Markdown of a comparison, for people and agents: `conclusion`.

It says whether the responses are the same, what is faster, by how much, how sure that is, what was not measured, and
which speed-up may be claimed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from statistics import median

from placebench import units
from placebench.compare.keep.records import WirePass
from placebench.report import effects
from placebench.report.control import control_result
from placebench.report.effects import METRIC_LABELS, join_and
from placebench.report.figures import ComparedPair, Figures, compared_rate, compared_users
from placebench.report.model import Check
from placebench.report.source_changes import source_sentences, unexecuted_changes
from placebench.stats import Comparison
from placebench.stats.replicates import LIFETIME, MeasuredBlock, valid_replicates
from placebench.stats.verdict import FASTER, INCONCLUSIVE, SLOWER

_MAX_DESCRIBED = 4
"""Maximum number of pairs that are described individually."""
_MAX_BACKGROUND_CPU_SHARE = 0.1
"""Share of a service's CPU time spent after its responses, from which on a remark says so."""
_MUCH_LONGER_START = 1.25
_MUCH_LONGER_START_S = 0.1
_NO_CLAIM = "No speed-up may be claimed."


def conclusion(figures: Figures, checks: Sequence[Check] = ()) -> str:
    """Return the conclusion as one paragraph on one line.

    checks: the results of the gates, one for each gate and variant.
    """
    return " ".join(
        [
            *_responses(figures),
            *effects.status_sentences(figures.run.head),
            *effects.unknown_cpu(figures),
            *effects.uncounted(figures),
            *effects.reconnecting(figures),
            *_result(figures, checks),
        ]
    )


def _responses(figures: Figures) -> Iterator[str]:
    made = figures.responses
    if made.equal:
        yield f"Same responses: yes, each response of {join_and(made.checked)} was compared."
    elif made.equal is False:
        yield "Same responses: no."
    elif made.off:
        yield f"Same responses: not compared, because {made.off}; that the variants do the same is not shown."
    else:
        yield "Same responses: not known, the run ended before they were compared."


def _result(figures: Figures, checks: Sequence[Check]) -> Iterator[str]:
    """Yield the speeds, their certainty and the permitted claim; if responses differ, only that there is none."""
    if not figures.run.head.is_comparable:
        yield _NO_CLAIM
        return
    yield from _speeds(figures)
    yield from _several(effects.lifetime_sentences(figures.comparisons), "metrics that differ")
    if figures.primary is not None:
        yield from _certainty(figures)
    if control := control_result(figures.run):
        yield control.sentence
    yield from source_sentences(figures.run, unexecuted_changes(figures.run, figures.comparisons))
    yield from cautions(figures)
    yield from _not_measured(figures)
    for outcome in ("failed", "inconclusive"):
        found = [
            f"{check.name} ({check.variant}: {check.measured})"
            for check in checks
            if check.outcome == outcome and not check.is_control
        ]
        if found:
            yield f"Gates {outcome}: {', '.join(found)}."
    yield _claim(figures, checks)


def _speeds(figures: Figures) -> Iterator[str]:
    if figures.primary is None:
        yield f"Faster: not known, nothing was timed. {effects.headline(figures)}"
        return
    if len(figures.primaries) > _MAX_DESCRIBED:
        yield effects.headline(figures)
        return
    for primary in figures.primaries:
        is_known = primary.verdict != INCONCLUSIVE
        faster = "yes" if _is_faster(figures, primary) else "no" if is_known else "not known"
        yield f"Faster: {faster}. {effects.speed_sentence(figures, primary)}"
        if figures.slower_time(primary) is None:
            for other in figures.comparisons:
                is_other_time = (
                    other.metric in figures.times and other.metric != primary.metric and other.low is not None
                )
                if is_other_time and other.pair == primary.pair:
                    yield effects.comparison_sentence(other)


def _is_faster(figures: Figures, primary: Comparison) -> bool:
    return primary.verdict == FASTER and figures.slower_time(primary) is None


def _certainty(figures: Figures) -> Iterator[str]:
    measured = [each for each in figures.primaries if each.measured]
    numbers = sorted({each.replicates for each in measured})
    shown = " to ".join(dict.fromkeys(map(units.count, (numbers[0], numbers[-1]))))
    design = ", with intervals that hold at any moment of the run" if measured[0].is_sequential else ""
    were = "was" if figures.invalidated == 1 else "were"
    discarded = f"; {units.count(figures.invalidated)} {were} discarded" if figures.invalidated else ""
    word = "replicate" if numbers == [1] else "replicates"
    yield f"How sure: {shown} {word} of fresh processes{design}{discarded}. {effects.power_sentence(measured)}"


def cautions(figures: Figures) -> list[str]:
    """Return the first few sentences on what limits the meaning of the effects, and the number of the others."""
    return list(_several(_cautions(figures), "remarks of this kind"))


def _cautions(figures: Figures) -> Iterator[str]:
    """Yield what limits the meaning of an effect: crashes, kept results, slow starts, differing counts, work after."""
    lost = defaultdict[str, set[int]](set)
    for sent in figures.run.blocks:
        if sent.counters.get("lost_connections"):
            lost[sent.variant].add(sent.replicate)
    blocks = defaultdict[str, list[MeasuredBlock]](list)
    for block in chain.from_iterable(valid_replicates(figures.run.blocks).values()):
        if block.variant in figures.run.head.variants:  # and not the control
            blocks[block.variant].append(block)
    slower = {(*each.pair, each.metric) for each in figures.comparisons if each.verdict == SLOWER}
    for pair in figures.pairs:
        old_lost, new_lost = (len(lost[each]) for each in pair.pair)
        if new_lost > old_lost:
            are = "is" if new_lost == 1 else "are"
            yield (
                f"{pair.variant} lost connections in {units.numbered(new_lost, 'replicate')} that {are} discarded, "
                f"{pair.baseline} in {old_lost or 'none'}: see whether its process crashes."
            )
        before, after = (figures.run.wire.get(each) for each in pair.pair)
        if before and after:
            yield from _kept_results(pair, before, after)
        old, new = _start_s(blocks[pair.baseline]), _start_s(blocks[pair.variant])
        if old is None or new is None or (*pair.pair, "start_cpu_s") in slower:  # that has a sentence of its own
            continue
        if new > max(old * _MUCH_LONGER_START, old + _MUCH_LONGER_START_S):
            started = f"{units.duration(new)} of CPU time, {pair.baseline} {units.duration(old)}"
            yield f"The start of {pair.variant} takes {started}: no effect contains that."
    for variant, counted in figures.run.wire.items():
        then, now = counted.table_statements, counted.timed_statements
        if then is not None and now is not None and abs(now - then) > effects.allowed_difference(then):
            yield (
                f"{variant} sends {units.numbered(now, 'statement')} on tables per request while it is timed, and "
                f"{units.average(then)} when they are counted: its counts are not those of the timed requests. "
                "--warmup counts and times it once it is warm."
            )
    for variant, made in blocks.items():
        whole_s = sum(block.cpu_s or 0.0 for block in made)
        after_s = sum(block.counters.get("after_cpu_s", 0.0) for block in made if block.cpu_s is not None)
        if whole_s and after_s / whole_s >= _MAX_BACKGROUND_CPU_SHARE:
            yield (
                f"{variant} does {units.percent(after_s / whole_s, digits=2)} of its work after its responses: that "
                "is in the server CPU, and not in the wall time."
            )


def miscounted(figures: Figures) -> set[str]:
    """Return the variants that send fewer or more statements while they are timed than when they are counted.

    One whose baseline does so alike, as with a cache that both have, is not among them: their difference is that of the
    counts.
    """
    found = set()
    for pair in figures.pairs:
        counted = [figures.run.wire.get(each) for each in pair.pair]
        then = [each.table_statements for each in counted if each and each.table_statements is not None]
        now = [each.timed_statements for each in counted if each and each.timed_statements is not None]
        if len(then) < 2 or len(now) < 2:
            continue
        if abs((now[1] - now[0]) - (then[1] - then[0])) > effects.allowed_difference(max(then)):
            found.add(pair.variant)
    return found


def _kept_results(pair: ComparedPair, before: WirePass, after: WirePass) -> Iterator[str]:
    """Yield a remark if the variant sends fewer statements because it kept results of its start or first requests."""
    counted = before.table_statements, after.table_statements, before.first_statements, after.first_statements
    old, new, old_first, new_first = (each if each is not None else -1.0 for each in counted)
    if None in counted or new >= old:
        return
    fewer = f"those send {units.average(new)} per request, {pair.baseline} {units.average(old)}"
    if new_first - old_first >= 1:
        yield (
            f"{pair.variant} keeps results between requests: its start and its first requests sent "
            f"{units.numbered(new_first, 'statement')} on tables that later ones do not need; {fewer}. The effect "
            "is that of repeated requests on data that does not change."
        )
    elif new == 0:
        yield (
            f"{pair.variant} sends no statements on tables, {pair.baseline} {units.average(old)} per request: its "
            "responses come from elsewhere than the database."
        )


def _start_s(blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the median CPU seconds that a start of the service took; None if unknown."""
    seen = [block.counters["start_cpu_s"] for block in blocks if "start_cpu_s" in block.counters]
    return median(seen) if seen else None


def _not_measured(figures: Figures) -> Iterator[str]:
    """Yield the failed parts, then one sentence on the metrics without a value and on what no run can cover."""
    yield from _several((f"{each.rstrip('.')}." for each in effects.failed_parts(figures.run.head)), "failed parts")
    measured = {
        (*comparison.pair, comparison.metric)
        for comparison in figures.comparisons
        if None not in (comparison.baseline_value, comparison.variant_value)
    }
    if compared_rate(figures.run):
        left_out = {"gc_s", "wall_s", "elapsed_s"}
    elif compared_users(figures.run) > 1:
        left_out = {"gc_s", "p50_s"}
    else:
        left_out = {"gc_s", "elapsed_s", "p50_s", "p95_s", "p99_s"}
    missing = [
        label
        for metric, label in METRIC_LABELS.items()
        if metric not in (*left_out, *LIFETIME)
        and any((*compared.pair, metric) not in measured for compared in figures.pairs)
    ]
    unread = figures.run.head.receipt.get("unchecked_tables", [])
    others = [f"changes to {join_and(unread)}"] if unread else []
    if oldest := _seen_requests(figures):
        others.append(f"requests after the first {units.count(oldest)} of a process")
    always = "other requests, other data and other machines"
    yield f"Not measured: {'; '.join([*missing, *others, always])}."


def _seen_requests(figures: Figures) -> int:
    """Return how many requests a process of each variant has served in three of four replicates; 0 if unknown."""
    ages = defaultdict[str, list[float]](list)
    for replicate in valid_replicates(figures.run.blocks).values():
        oldest = defaultdict[str, float](float)
        for block in replicate:
            oldest[block.variant] = max(oldest[block.variant], block.counters.get("served", 0.0))
        for variant in oldest.keys() & set(figures.run.head.variants):
            ages[variant].append(oldest[variant])
    return round(min((sorted(each)[len(each) // 4] for each in ages.values()), default=0.0))


def _claim(figures: Figures, checks: Sequence[Check]) -> str:
    """Return which variants may be claimed: those that are faster and passed every gate; none if the run failed.

    A variant whose counts are not those of the timed requests is none of them.
    """
    faster = [each.variant for each in figures.primaries if _is_faster(figures, each)]
    missed = {each.variant for each in checks if each.variant and each.outcome != "passed"}
    missed |= {variant for _, variant in unexecuted_changes(figures.run, figures.comparisons)} | miscounted(figures)
    claimed = list(dict.fromkeys(each for each in faster if each not in missed))
    if not claimed or figures.run.head.status == "failed":
        return _NO_CLAIM
    where = "with the reason why responses were not compared" if figures.responses.off else "for this run's requests"
    if len(figures.primaries) == 1:
        return f"The speed-up may be claimed {where}."
    return f"A speed-up may be claimed {where} of {join_and(claimed)}, and of no other variant."


def _several(sentences: Iterable[str], kind: str) -> Iterator[str]:
    """Yield the first few sentences, then the number of omitted ones."""
    made = list(sentences)
    yield from made[:_MAX_DESCRIBED]
    if len(made) > _MAX_DESCRIBED:
        yield f"{units.count(len(made) - _MAX_DESCRIBED)} more {kind} are in the report."
