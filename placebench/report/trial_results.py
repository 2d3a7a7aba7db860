"""Results of an experiment: effect and decision for each change, interactions between changes, and hypotheses.

`experiment_results` computes them once; `results_section` and `results_document` show them.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from markupsafe import Markup

from placebench import units
from placebench.compare.keep.records import ProfiledReplicate, RunHead
from placebench.report.effects import (
    METRIC_LABELS,
    detectable_text,
    effect_text,
    join_and,
    reason_text,
    verdict_text,
    written_effect,
)
from placebench.report.figures import Figures, shorten_variant
from placebench.report.model import Block, Column, Heading, Paragraph, Section, Table, Text, aside, code, joined
from placebench.results import Run
from placebench.stats import METRICS, PRIMARY, Comparison, hodges_lehmann
from placebench.stats.hodges_lehmann import MIN_REPLICATES, count_replicates, pseudo_median, signed_rank_p
from placebench.stats.multiple_testing import Pair, benjamini_hochberg, interaction_effects
from placebench.stats.replicates import valid_replicates
from placebench.stats.verdict import BELOW_MARGIN, EQUIVALENT, FASTER, INCONCLUSIVE, SLOWER

KEPT, DROPPED, UNDECIDED = "kept", "dropped", "undecided"
_YES, _NO, _IT_DEPENDS = "yes", "no", "it depends"
_MARGIN = METRICS[PRIMARY].margin
_HYPOTHESES = {
    "summaries": ("building each provider's summary once per request saves CPU", 0.0),
    "usages": ("keeping the usages that were read saves CPU", 0.0),
    "sets": ("sets are faster than lists", 0.0),
    "expanding": ("expanding parameters save compilation", 0.0),
    "rows": ("a dict per row is expensive", 0.0),
    "slots": ("`__slots__` saves CPU", 0.0),
    "copies": ("copying objects is a main cost", 0.1),
    "orjson": ("orjson is faster than json", 0.0),
    "freeze": ("gc.freeze() saves CPU", 0.0),
}
"""Common beliefs about an optimization, each with the minimum share of server CPU that it would have to save."""
_PROFILER = "profiler"
_COUNTS = ("statements", "rows", "round_trips")
"""Counts that decide for a change if they fall while its effect on CPU is undecided."""
_CATALOGUE_KINDS = ("step", "alone", "leave_one_out")
"""Kinds of trials that are named after an optimization, which can be measured by itself."""
_DECISIONS = {FASTER: KEPT, SLOWER: DROPPED, EQUIVALENT: DROPPED, BELOW_MARGIN: DROPPED, INCONCLUSIVE: UNDECIDED}


@dataclass(frozen=True)
class ChangeResult:
    """The effect of one trial on the primary metric, server CPU but under load, and the decision on the change."""

    name: str
    kind: str
    compared: str
    """Baseline and variant, such as 'naive → naive+slots'."""
    request: str
    effect: str
    shows_on: str
    """The request on which the change should show, according to the catalogue; empty if the catalogue names none."""
    shows_in: str
    """The metric in which the change should show first."""
    shown: str
    """The effect on `shows_in` in this run."""
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    decision: str
    why: str

    @property
    def is_elsewhere(self) -> bool:
        """Whether the change should show on a request that this run did not send."""
        return self.shows_on not in ("", self.request)


@dataclass(frozen=True)
class Hypothesis:
    """A common belief, and what this run says about it."""

    hypothesis: str
    result: str
    """The result: 'yes', 'no', 'it depends' or 'inconclusive'."""
    evidence: str


@dataclass(frozen=True)
class Interaction:
    """Changes whose combined effect differs from their individual effects; log ratios, negative for a larger gain."""

    name: str
    estimate: float
    low: float
    high: float
    p_adjusted: float
    replicates: int
    confidence: float = 0.95
    is_together: bool = False
    """Whether several changes are combined; False if one change with all others is compared with it alone."""

    def __str__(self) -> str:
        """Return a sentence: 'Slots has a larger effect with the other changes than alone: −33 % CPU [95 % CI …]'."""
        ratios = (math.exp(each) for each in (self.estimate, self.low, self.high))
        effect = written_effect(*ratios, of="CPU", confidence=self.confidence, n=self.replicates, is_time=False)
        larger = "larger" if self.estimate < 0 else "smaller"
        said = (
            f"{self.name} have a {larger} effect together than the product of their individual effects"
            if self.is_together
            else f"{self.name} has a {larger} effect with the other changes than alone"
        )
        return f"{said[0].upper()}{said[1:]}: {effect}"


@dataclass(frozen=True)
class ExperimentResults:
    """All results of an experiment; empty for a run without trials."""

    changes: Sequence[ChangeResult]
    interactions: Sequence[Interaction]
    interaction_sentences: Sequence[str]
    hypotheses: Sequence[Hypothesis]


def experiment_results(figures: Figures) -> ExperimentResults:
    """Compute the results of an experiment from its comparisons and blocks."""
    changes = list(_change_results(figures))
    remainders = list(_remainders(figures.run))
    interactions = _interactions(remainders)
    return ExperimentResults(
        changes=changes,
        interactions=interactions,
        interaction_sentences=_interaction_sentences(figures.run, remainders, interactions),
        hypotheses=list(_hypotheses(figures.run, changes)),
    )


def results_document(results: ExperimentResults) -> dict[str, Any]:
    """Return the results as a JSON document for `--json`."""
    return {
        "results": [asdict(each) for each in results.changes],
        "interactions": [{**asdict(each), "sentence": str(each)} for each in results.interactions],
        "hypotheses": [asdict(each) for each in results.hypotheses],
    }


def results_table(results: ExperimentResults, *, metric: str = PRIMARY) -> Table:
    """Return the results table: one row per trial, with its effect on *metric*."""

    def name(result: ChangeResult) -> Text:
        kind = {"alone": "alone", "leave_one_out": "leave-one-out"}.get(result.kind, "")
        return joined(result.name, Markup('<span class="aside">{}</span>').format(kind) if kind else "")

    def expected(result: ChangeResult) -> Text:
        if not result.shows_in:
            return ""
        elsewhere = aside(Markup("on {}, which this run did not request").format(code(result.shows_on)))
        shown = f"{METRIC_LABELS[result.shows_in]}: {result.shown or units.NOT_MEASURED}"
        return joined(shown, elsewhere if result.is_elsewhere else "")

    columns = [
        Column("change", name),
        Column(f"effect on {METRIC_LABELS[metric]}", lambda each: each.effect, wide=True),
        Column("verdict", lambda each: each.verdict),
        Column("decision", lambda each: _strong(each.decision)),
        Column("why", lambda each: each.why.replace("`", ""), wide=True),
    ]
    if any(each.shows_in for each in results.changes):
        columns.append(Column("should show in", expected, wide=True))
    return Table(
        "Results",
        columns,
        results.changes,
        style="results",
        caption=f"Effect of each change on {METRIC_LABELS[metric]}, and whether to keep it",
        row_style=lambda each: f"decision-{each.decision}",
        row_title=lambda each: each.compared,
    )


def results_section(results: ExperimentResults, *, metric: str = PRIMARY) -> Section:
    """Return the section with the results table, the interactions and the hypotheses."""
    blocks: list[Block] = [
        results_table(results, metric=metric),
        *(Paragraph(each) for each in results.interaction_sentences),
    ]
    if results.hypotheses:
        blocks += [Heading("Hypotheses"), hypotheses_table(results)]
    return Section("Results", blocks, id="results")


def hypotheses_table(results: ExperimentResults) -> Table:
    """Return the table of hypotheses, with one row per hypothesis."""
    columns = (
        Column("hypothesis", lambda each: each.hypothesis.replace("`", ""), wide=True),
        Column("result", lambda each: _strong(each.result)),
        Column("evidence", lambda each: each.evidence, wide=True),
    )
    return Table(
        "Hypotheses",
        columns,
        results.hypotheses,
        style="results hypotheses",
        row_style=lambda each: f"result-{each.result.replace(' ', '-')}",
    )


def keep_sentence(results: ExperimentResults) -> list[str]:
    """Return a sentence on which changes to keep, largest effect first; if known, the leave-one-out effect decides."""
    has_left_out = any(each.kind == "leave_one_out" for each in results.changes)
    kept = [each for each in results.changes if each.decision == KEPT and not (has_left_out and each.kind == "alone")]
    names = dict.fromkeys(each.name for each in sorted(kept, key=lambda each: each.ratio or 1.0))
    return [f"Worth keeping, the largest effect first: {join_and(list(names))}."] if names else []


def _strong(text: str) -> Text:
    return Markup("<strong>{}</strong>").format(text)


def _change_results(figures: Figures) -> Iterator[ChangeResult]:
    """Yield the result of each trial that was compared, in the order the trials were named."""
    made = {(*each.pair, each.metric): each for each in figures.comparisons}
    for trial in figures.run.head.settings.get("trials", ()):
        pair = trial["baseline"], trial["variant"]
        if primary := made.get((*pair, figures.metric)):
            counted = [each for key, each in made.items() if key[:2] == pair and each.metric in _COUNTS]
            expected = made.get((*pair, trial.get("shows_in", "")))
            yield _change_result(trial, primary, counted, expected, figures.run.head)


def _change_result(
    trial: Mapping[str, Any],
    primary: Comparison,
    counted: Sequence[Comparison],
    expected: Comparison | None,
    head: RunHead,
) -> ChangeResult:
    decision, why = _decision(primary, counted)
    result = ChangeResult(
        name=trial["name"],
        kind=trial["kind"],
        compared=" → ".join(shorten_variant(trial[role], head.variants) for role in ("baseline", "variant")),
        request=head.request,
        effect=effect_text(primary),
        shows_on=trial.get("shows_on", ""),
        shows_in=trial.get("shows_in", ""),
        shown=f"{effect_text(expected)}: {verdict_text(expected)}" if expected else "",
        ratio=primary.ratio,
        low=primary.low,
        high=primary.high,
        verdict=verdict_text(primary),
        decision=decision,
        why=f"{METRIC_LABELS[primary.metric]} was not measured" if primary.ratio is None else why,
    )
    if primary.ratio is None or decision == KEPT or not result.is_elsewhere or trial["kind"] not in _CATALOGUE_KINDS:
        return result
    hint = f"{why}; it should show on another request: `placebench lab steps --only {trial['name']}`"
    return replace(result, decision=UNDECIDED, why=hint)


def _decision(primary: Comparison, counted: Sequence[Comparison]) -> tuple[str, str]:
    changed = [each for each in counted if each.differs]
    less = [METRIC_LABELS[each.metric] for each in changed if (each.variant_value or 0) < (each.baseline_value or 0)]
    fewer = f"fewer {', '.join(less)}" if changed and len(less) == len(changed) else ""
    if fewer and primary.low is not None and primary.verdict not in (FASTER, SLOWER):
        if primary.low <= 1:
            return KEPT, f"{fewer}, and no detectable increase of {METRIC_LABELS[primary.metric]}"
        return DROPPED, f"{fewer}, but {effect_text(primary, named=True)}"
    detectable = f"minimum detectable effect {detectable_text(primary)}"
    reasons = {
        FASTER: f"less {METRIC_LABELS[primary.metric]} beyond the margin",
        SLOWER: f"more {METRIC_LABELS[primary.metric]} beyond the margin",
        EQUIVALENT: "no change beyond the margin",
        BELOW_MARGIN: "the estimate is below the margin",
        INCONCLUSIVE: f"{reason_text(primary)}; {detectable}",
    }
    return _DECISIONS[primary.verdict], reasons[primary.verdict]


def _hypotheses(run: Run, changes: Sequence[ChangeResult]) -> Iterator[Hypothesis]:
    first = run.head.variants[0]
    profiled = [each for each in run.profiled_replicates if each.variant == first]
    if changes and profiled:
        yield _share_hypothesis("most of the time is spent in the database", 0.5, profiled, "in SQL", ("sql", "plan"))
        yield _share_hypothesis("a third of the time is spent in GC pauses", 0.3, profiled, "in GC pauses", ("gc",))
    for name, (hypothesis, least) in _HYPOTHESES.items():
        measured = [each for each in changes if each.name == name and each.ratio is not None]
        if measured:
            yield _change_hypothesis(hypothesis, least, measured)


def _share_hypothesis(
    hypothesis: str, least: float, profiled: Sequence[ProfiledReplicate], where: str, places: Collection[str]
) -> Hypothesis:
    """Judge a hypothesis by the interval of the time share of *places* over the profiled replicates."""
    shares = []
    for replicate in profiled:
        frames = [frame for frame in replicate.frames if frame.place != _PROFILER]
        inside_s = sum(frame.self_s for frame in frames if frame.place in places)
        shares.append(inside_s / (sum(frame.self_s for frame in frames) or 1.0))
    share, n = pseudo_median(shares), len(shares)
    said = f"{profiled[0].variant} spends {units.percent(share, digits=2)}"
    if n < MIN_REPLICATES:
        evidence = f"{said} of a request {where}; {count_replicates(n)}, {MIN_REPLICATES} needed"
        return Hypothesis(hypothesis, INCONCLUSIVE, evidence)
    found = hodges_lehmann(shares)
    result = _YES if found.low >= least else _NO if found.high < least else INCONCLUSIVE
    limits = ", ".join(units.percent(each, digits=2) for each in (found.low, found.high))
    return Hypothesis(hypothesis, result, f"{said} [95 % CI {limits}; n = {n}] of a request {where}, profiled")


def _change_hypothesis(hypothesis: str, least: float, changes: Sequence[ChangeResult]) -> Hypothesis:
    """Judge a hypothesis by the trials of one change, which may have been measured alone and leave-one-out."""
    results = {_result(each, least) for each in changes}
    mixed = INCONCLUSIVE if INCONCLUSIVE in results else _IT_DEPENDS
    places = {"alone": "alone ", "leave_one_out": "leave-one-out "}
    evidence = "; ".join(f"{places.get(each.kind, '')}{each.effect}" for each in changes)
    is_elsewhere = any(each.is_elsewhere for each in changes)
    note = ", on another request than the one on which it should show" if is_elsewhere else ""
    return Hypothesis(hypothesis, results.pop() if len(results) == 1 else mixed, evidence + note)


def _result(change: ChangeResult, least: float) -> str:
    """Judge one trial by its interval: yes if it surely saves *least*, no if surely less, else inconclusive."""
    if change.low is None or change.high is None:
        return INCONCLUSIVE
    if change.verdict == FASTER and 1 - change.high >= least:
        return _YES
    return _NO if 1 - change.low < max(least, _MARGIN) and not change.is_elsewhere else INCONCLUSIVE


@dataclass(frozen=True)
class _Remainder:
    """The effect of combined changes over the product of their individual effects; one log ratio per replicate."""

    name: str
    is_together: bool
    log_ratios: list[float]

    @property
    def is_decidable(self) -> bool:
        return len(self.log_ratios) >= MIN_REPLICATES


def _interactions(remainders: Sequence[_Remainder]) -> list[Interaction]:
    """Return the remainders whose interval excludes 0, with p adjusted over all that have enough replicates.

    The list is empty if no change was measured both alone and combined, or if the responses differ.
    """
    decidable = [each for each in remainders if each.is_decidable]
    intervals = [hodges_lehmann(each.log_ratios) for each in decidable]
    adjusted = benjamini_hochberg(signed_rank_p(each.log_ratios) for each in decidable)
    return [
        Interaction(
            name=each.name,
            estimate=interval.estimate,
            low=interval.low,
            high=interval.high,
            p_adjusted=p,
            replicates=len(each.log_ratios),
            confidence=interval.confidence,
            is_together=each.is_together,
        )
        for each, interval, p in zip(decidable, intervals, adjusted, strict=True)
        if p <= 1 - interval.confidence and not interval.low <= 0 <= interval.high
    ]


def _interaction_sentences(
    run: Run, remainders: Sequence[_Remainder], interactions: Sequence[Interaction]
) -> list[str]:
    """Return sentences on each interaction, or that none was found, and on undecided ones with the reason."""
    undecided: dict[str, list[str]] = {}
    for remainder in remainders:
        if remainder.is_decidable:
            continue
        why = f"{count_replicates(len(remainder.log_ratios))}, {MIN_REPLICATES} needed"
        if not remainder.log_ratios and valid_replicates(run.blocks):
            why = "server CPU was not measured"
        undecided.setdefault(why, []).append(remainder.name)
    sentences = [f"{each}." for each in interactions]
    if not interactions and any(each.is_decidable for each in remainders):
        sentences.append("No interaction was found: the changes have the same effect together as apart.")
    return [
        *sentences,
        *(f"Interactions of {join_and(names)} are undecided: {why}." for why, names in undecided.items()),
    ]


def _remainders(run: Run) -> Iterator[_Remainder]:
    """Yield the remainders of changes measured alone and leave-one-out, of all changes, and of other combinations.

    Nothing is yielded if the responses differ, or if no response was requested.
    """
    if not run.head.is_comparable:
        return
    trials = run.head.settings.get("trials", ())
    pairs = {(each["name"], each["kind"]): (each["baseline"], each["variant"]) for each in trials}
    twice = [name for name, kind in pairs if kind == "leave_one_out" and (name, "alone") in pairs]
    for name in twice:
        yield _remainder(run, name, pairs[name, "leave_one_out"], [pairs[name, "alone"]])
    if len(twice) > 1:
        alone = [pairs[name, "alone"] for name in twice]
        yield _remainder(
            run, "all changes", (alone[0][0], pairs[twice[0], "leave_one_out"][1]), alone, is_together=True
        )
    own = [pair for (_, kind), pair in pairs.items() if kind == "own"]
    single = {(pair[0], added[0]): pair for pair in own if len(added := _added(*pair)) == 1}
    for baseline, variant in own:
        parts = _added(baseline, variant)
        if len(parts) > 1 and all((baseline, part) in single for part in parts):
            apart = [single[baseline, part] for part in parts]
            yield _remainder(run, " and ".join(parts), (baseline, variant), apart, is_together=True)


def _remainder(run: Run, name: str, whole: Pair, parts: list[Pair], *, is_together: bool = False) -> _Remainder:
    return _Remainder(name, is_together, interaction_effects(run.blocks, whole, parts))


def _added(baseline: str, variant: str) -> list[str]:
    """Return the names of the changes that *variant* adds to *baseline*: 'tuned+a+b' adds a and b to 'tuned'."""
    return variant.removeprefix(f"{baseline}+").split("+") if variant.startswith(f"{baseline}+") else []
