"""Sentences about a comparison and about how a run ended, in plain words.

The key pieces are `comparison_sentence` and `ending`; the first sentence of a page is in `placebench.report.headline`.
"""

import math
import re
from collections.abc import Iterable, Sequence

from placebench import units
from placebench.experiment.records import MEASURED, FailedPart, RunHead
from placebench.report.environment import masked
from placebench.report.figures import Figures
from placebench.stats import COUNTED, PROFILED, Comparison
from placebench.stats.verdict import ROUGH_BELOW

METRIC_LABELS = {
    "cpu_s": "server CPU",
    "wall_s": "wall time",
    "pss_bytes": "memory (PSS)",
    "statements": "statements",
    "rows": "rows",
    "round_trips": "round trips",
    "bytes_sent": "bytes sent",
    "bytes_received": "bytes received",
    "gc_s": "collector pauses",
}
_THINGS = {"cpu_s": ("with", "server CPU"), "wall_s": ("in", "time")}
DIFFERENT_ANSWERS = "The variants do not give the same answer, so no speed is printed."
_CLEARLY_A_FACTOR = 1.5
_TOLD_WITH_SIGNS = ("equivalent", "inconclusive")
"""Verdicts whose limits may lie on both sides of no change, and are written as changes, apart from the estimate."""
_LONGEST_STATEMENT = 90
_TABLE = re.compile(r"\b(?:from|join|into|update)\s+([\w.\"]+)", re.IGNORECASE)


def comparison_sentence(comparison: Comparison) -> str:
    """Return the verdict as a sentence.

    'tuned answers this request with 3.1 times less server CPU than naive (95 % interval 3.0 to 3.2; …): faster.'
    """
    preposition, thing = _THINGS[comparison.metric]
    question = (
        f"whether {comparison.variant} answers this request {preposition} less {thing} than {comparison.baseline}"
    )
    if comparison.low is None:
        unmeasured = f"{METRIC_LABELS[comparison.metric]} was not measured"
        why = comparison.reason.removeprefix("inconclusive: ") if comparison.measured else unmeasured
        return f"Cannot tell {question}: {why}."
    evidence = f"({interval_text(comparison)}; {units.count(comparison.replicates)} replicates)"
    if comparison.verdict == "inconclusive":
        return f"Cannot tell {question} {evidence}."
    amount = f"as much {thing} as" if comparison.verdict == "equivalent" else f"{effect_text(comparison)} {thing} than"
    said = f"{comparison.variant} answers this request {preposition} {amount} {comparison.baseline} {evidence}"
    return f"{said}: {comparison.verdict}{_of_what_margin(comparison)}."


def thing(metric: str) -> str:
    """What there is less or more of: 'server CPU', 'time'."""
    return _THINGS[metric][1]


def effect_text(comparison: Comparison) -> str:
    """The estimate in words: '3.1 times less', '4.2 % more'; '0 → 5' where there is no ratio; else 'not measured'."""
    without_noise = comparison.metric in COUNTED or comparison.metric in PROFILED
    if comparison.ratio is None or (without_noise and comparison.ratio == 1):
        return _values_text(comparison)
    limits = (None, None) if comparison.verdict in _TOLD_WITH_SIGNS else (comparison.low, comparison.high)
    estimate, *_, unit = _amounts(comparison.ratio, *limits)
    return f"{estimate} {unit} {'less' if comparison.ratio < 1 else 'more'}"


def verdict_text(comparison: Comparison) -> str:
    """The verdict for people: a count or a size is less or more, only times are faster; 'not measured' without one."""
    if not comparison.measured and None in (comparison.baseline_value, comparison.variant_value):
        return units.NOT_MEASURED
    if comparison.metric in _THINGS:
        return comparison.verdict
    return {"faster": "less", "slower": "more"}.get(comparison.verdict, comparison.verdict)


def outcome_text(comparison: Comparison, *, between: str) -> str:
    """Effect and verdict: '3.8 % less: faster'; what says both is said once: '32 % less' of a count."""
    effect, verdict = effect_text(comparison), verdict_text(comparison)
    return effect if effect.endswith(verdict) else f"{effect}{between}{verdict}"


def interval_text(comparison: Comparison) -> str:
    """The limits in the terms of the estimate, the smaller effect first: '95 % interval 3.0 to 3.2'."""
    name = f"{units.level(comparison.confidence)} interval"
    if comparison.ratio is None or comparison.low is None or comparison.high is None:
        return f"no {name}"
    if comparison.verdict in _TOLD_WITH_SIGNS:
        return f"{name} {units.change(comparison.low)} to {units.change(comparison.high)}"
    _, least, most, unit = _amounts(comparison.ratio, comparison.low, comparison.high)
    return f"{name} {least} to {most}" + (" %" if unit == "%" else "")


def power_text(comparison: Comparison) -> str:
    """What the comparison could have seen: 'the smallest effect that it could have seen is about 1.2 %'."""
    if comparison.detectable is None:
        return "fewer than two replicates cannot say which effect they could have seen"
    return f"the smallest effect that it could have seen is about {detectable_text(comparison)}{roughly([comparison])}"


def detectable_text(comparison: Comparison) -> str:
    """The smallest effect that it could have seen, as the change that the effect itself is told by: '1.2 %'."""
    return units.percent(None if comparison.detectable is None else math.expm1(comparison.detectable), digits=2)


def roughly(comparisons: Iterable[Comparison]) -> str:
    """A remark where any of the comparisons rests on too few replicates to say well what they could have seen."""
    few = any(each.detectable is not None and each.replicates < ROUGH_BELOW for each in comparisons)
    return f" (roughly, with fewer than {units.count(ROUGH_BELOW)} replicates)" if few else ""


def value_text(comparison: Comparison, value: float | None) -> str:
    """The value of the comparison's metric for one request, in its unit."""
    return metric_text(comparison.metric, value)


def metric_text(metric: str, value: float | None) -> str:
    """A value of *metric* in its unit."""
    if metric.endswith("_s"):
        return units.duration(value)
    return units.size(value) if "bytes" in metric else units.average(value)


def quantile_text(seconds: float | None) -> str:
    """A quantile of a measured latency; 'too few' where fewer than ten samples lie above it."""
    return "too few" if seconds is None else units.duration(seconds)


def statement_shortened(sql: str) -> str:
    """What tells a statement from others at a glance: its verb and its tables, or as much of it as fits a line."""
    tables = list(dict.fromkeys(_TABLE.findall(sql)))
    shown = f"{sql.partition(' ')[0]} … {', '.join(tables)}" if tables else sql
    return shown if len(shown) <= _LONGEST_STATEMENT else f"{shown[: _LONGEST_STATEMENT - 1]}…"


def moment(stamp: str) -> str:
    """A UTC stamp as people write it: '2026-11-20T14:03:11+00:00' → '2026-11-20 14:03:11 UTC'."""
    return stamp.replace("T", " ").replace("+00:00", " UTC")


def listed(parts: Sequence[str]) -> str:
    """'slots, sets and rows'."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def answered_alike(figures: Figures) -> str:
    """Who gave the same answer: 'all 7 variants', or their names while some were not asked."""
    checked = figures.answers.checked
    if set(checked) == set(figures.run.head.variants) and len(checked) > 2:
        return f"all {units.count(len(checked))} variants"
    return " and ".join(checked) if len(checked) < 3 else ", ".join(checked)


def ending(head: RunHead) -> str:
    """How a run ended that did not come to its end; empty for one that did."""
    how = {
        "running": "This run has not come to its end, or was killed",
        "interrupted": "This run was interrupted",
        "failed": f"This run failed ({head.note})" if head.note else "This run failed",
    }.get(head.status)
    return f"{how}: only what was measured until then is shown." if how else ""


def failed_parts(head: RunHead) -> list[str]:
    """'The profile of tuned failed: a worker of uWSGI died …', for each part that was not made; no secrets in it."""
    return [f"{_the_part(each)} failed: {masked(each.reason)}" for each in head.failed_parts if not each.made_again]


def made_again(head: RunHead) -> list[str]:
    """'The profile of tuned: a worker of uWSGI died …', for each part that failed once and then was made."""
    return [f"{_the_part(each)}: {masked(each.reason)}" for each in head.failed_parts if each.made_again]


def _the_part(failed: FailedPart) -> str:
    return f"The {failed.part} of {failed.variant}" if failed.variant else f"The {failed.part}"


def unmeasured(head: RunHead) -> str:
    """Why PostgreSQL's part of the server CPU could not be read; empty where it could."""
    seen = head.manifest.get("server_cpu", MEASURED)
    return "" if seen == MEASURED else f"Server CPU was not measured: {seen}."


def _values_text(comparison: Comparison) -> str:
    """What both variants have, where a ratio would say less: '0 → 5', 'the same'."""
    if None in (comparison.baseline_value, comparison.variant_value):
        return units.NOT_MEASURED
    if not comparison.differs:
        return "the same"
    return " → ".join(value_text(comparison, each) for each in (comparison.baseline_value, comparison.variant_value))


def _of_what_margin(comparison: Comparison) -> str:
    return f" of {units.level(comparison.margin)}" if comparison.verdict == "below the margin" else ""


def _amounts(ratio: float, low: float | None, high: float | None) -> tuple[str, str, str, str]:
    """Estimate, smaller limit, larger limit and their unit; limits that do not exist repeat the estimate."""
    ratios = [ratio if each is None else each for each in (ratio, low, high)]
    if max(ratio, 1 / ratio) >= _CLEARLY_A_FACTOR:
        amounts, unit = [max(each, 1 / each) for each in ratios], "times"
    else:
        amounts, unit = [abs(each - 1) * 100 for each in ratios], "%"
    estimate, *limits = units.alike(*amounts)
    least, most = limits if amounts[1] <= amounts[2] else reversed(limits)
    return estimate, least, most, unit
