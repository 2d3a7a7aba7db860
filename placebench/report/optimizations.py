"""The results table of an experiment: hypothesis, effect and decision of each, and whether effects add up."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placebench import units
from placebench.experiment.records import CountedPass, RunHead
from placebench.report import sentences
from placebench.report.comparisons import comparisons_of, variant_shortened
from placebench.report.sentences import listed
from placebench.results import Run
from placebench.stats import METRICS, PRIMARY, Comparison, hodges_lehmann
from placebench.stats.hodges_lehmann import FEWEST_REPLICATES, count_replicates, signed_rank_p
from placebench.stats.multiple_testing import Pair, benjamini_hochberg, interaction_effects
from placebench.stats.replicates import valid_replicates

YES, NO, IT_DEPENDS, CANNOT_TELL = "yes", "no", "it depends", "inconclusive"
_MARGIN = METRICS[PRIMARY].margin
_SAID = {
    "summaries": ("what every group needs is made once a request", 0.0),
    "usages": ("what was read is not to be asked again", 0.0),
    "sets": ("sets instead of lists speed up", 0.0),
    "expanding": ("expanding parameters save compiling", 0.0),
    "rows": ("a dict for each row is dear", 0.0),
    "slots": ("`__slots__` really does speed up", 0.0),
    "copies": ("copying objects is what makes it slow", 0.1),
    "orjson": ("json is slow, and orjson is not", 0.0),
    "freeze": ("gc.freeze() is worth its line", 0.0),
}
"""What was said of an optimization, by its name, and the least share of the server CPU that it would have to save."""


@dataclass(frozen=True)
class Claim:
    """A saying, and what became of it in one run."""

    said: str
    answer: str
    """yes, no, it depends, or cannot tell."""
    evidence: str


def claims_of(run: Run, ledger: Sequence["Entry"]) -> Iterator[Claim]:
    """A claim for each saying that this run has something to say to; none without a ledger."""
    first = run.counted.get(run.head.variants[0])
    if ledger and first is not None and first.elapsed_s:
        yield _of_share("most of the time is the database", 0.5, first.sql_s, first, "in SQL")
        yield _of_share("a third of the time is the garbage collector's", 0.3, first.gc_s, first, "in its pauses")
    for name, (said, least) in _SAID.items():
        entries = [each for each in ledger if each.name == name and each.ratio is not None]
        if entries:
            yield _of_change(said, least, entries)


def _of_share(said: str, least: float, part_s: float, counted: CountedPass, where: str) -> Claim:
    share = part_s / counted.elapsed_s
    spent = f"{units.percent(share, digits=2)} of a request of {counted.variant} is spent {where}"
    return Claim(said, YES if share >= least else NO, spent)


def _of_change(said: str, least: float, entries: Sequence["Entry"]) -> Claim:
    """One answer, also where a change was tried alone and missed."""
    answers = {_answer(each, least) for each in entries}
    mixed = CANNOT_TELL if CANNOT_TELL in answers else IT_DEPENDS
    evidence = "; ".join(f"{_where(each)}{each.effect}" for each in entries)
    elsewhere = any(each.shows_on not in ("", each.request) for each in entries)
    note = ", on a request that is not the one on which it should show" if elsewhere else ""
    return Claim(said, answers.pop() if len(answers) == 1 else mixed, evidence + note)


def _answer(entry: "Entry", least: float) -> str:
    """By the whole interval: yes beyond *least*, no within it."""
    if entry.low is None or entry.high is None:
        return CANNOT_TELL
    if entry.verdict == "faster" and 1 - entry.high >= least:
        return YES
    return NO if 1 - entry.low < max(least, _MARGIN) else CANNOT_TELL


def _where(entry: "Entry") -> str:
    return {"alone": "alone ", "leave_one_out": "among the others "}.get(entry.kind, "")


_AMONG_THE_OTHERS = "{} does {} among the others than alone"
_TOGETHER = "{} do {} together than each by itself adds up to"
_NONE = "No interaction was seen: changes do together what they do apart, as far as this run can tell."
_UNTOLD = "Whether there is an interaction cannot be told of {}: {}."


@dataclass(frozen=True)
class Interaction:
    """Changes that do something else together than apart; log ratios, below 0 is more gain than apart."""

    name: str
    estimate: float
    low: float
    high: float
    p_adjusted: float
    said: str = _AMONG_THE_OTHERS

    def __str__(self) -> str:
        """'Slots does more among the others than alone: 33 % less server CPU (95 % interval 32 % to 34 %)'."""
        more = self.estimate < 0
        low, high = sorted(abs(math.expm1(each)) for each in (self.low, self.high))
        change = f"{units.percent(abs(math.expm1(self.estimate)), digits=2)} {'less' if more else 'more'} server CPU"
        limits = f"95 % interval {units.percent(low, digits=2)} to {units.percent(high, digits=2)}"
        told = self.said.format(self.name, "more" if more else "less")
        return f"{told[0].upper()}{told[1:]}: {change} ({limits})"


@dataclass(frozen=True)
class _Remainder:
    """What changes do together, less what they do apart; one log ratio a replicate."""

    name: str
    said: str
    log_ratios: list[float]

    @property
    def told(self) -> bool:
        return len(self.log_ratios) >= FEWEST_REPLICATES


def interactions_of(run: Run) -> list[Interaction]:
    """Where the interval of the remainder excludes 0, adjusted over all that could be told.

    Empty where no change was tried both apart and together, where the replicates are too few, and where the answers
    differ: there is no speed to be read then.
    """
    told = [each for each in _remainders(run) if each.told]
    intervals = [hodges_lehmann(each.log_ratios) for each in told]
    adjusted = benjamini_hochberg(signed_rank_p(each.log_ratios) for each in told)
    return [
        Interaction(each.name, interval.estimate, interval.low, interval.high, p, each.said)
        for each, interval, p in zip(told, intervals, adjusted, strict=True)
        if p <= 1 - interval.confidence and not interval.low <= 0 <= interval.high
    ]


def in_words(run: Run, interactions: Sequence[Interaction]) -> list[str]:
    """A sentence for each interaction, or that none was seen; then of which changes it cannot be told, and why."""
    asked = list(_remainders(run))
    untold: dict[str, list[str]] = {}
    for each in asked:
        if not each.told:
            untold.setdefault(_why_untold(run, each), []).append(each.name)
    none_seen = [_NONE] if not interactions and any(each.told for each in asked) else []
    cannot_tell = [_UNTOLD.format(listed(names), why) for why, names in untold.items()]
    return [*(f"{each}." for each in interactions), *none_seen, *cannot_tell]


def _why_untold(run: Run, asked: _Remainder) -> str:
    if not asked.log_ratios and valid_replicates(run.blocks):
        return "server CPU was not measured"
    return f"{count_replicates(len(asked.log_ratios))}, {FEWEST_REPLICATES} needed"


def _remainders(run: Run) -> Iterator[_Remainder]:
    """Of everything that can be asked; nothing where the answers differ, or nobody was asked."""
    if run.head.same_responses.get("equal"):
        for name, said, whole, parts in _asked(run):
            yield _Remainder(name, said, interaction_effects(run.blocks, whole, parts))


def _asked(run: Run) -> Iterator[tuple[str, str, Pair, list[Pair]]]:
    """Name, words, the whole and its parts: each change alone and missed; all of them; two at once and each alone."""
    trials = run.head.settings.get("trials", ())
    pairs = {(each["name"], each["kind"]): (each["baseline"], each["variant"]) for each in trials}
    twice = [name for name, kind in pairs if kind == "leave_one_out" and (name, "alone") in pairs]
    for name in twice:
        yield name, _AMONG_THE_OTHERS, pairs[name, "leave_one_out"], [pairs[name, "alone"]]
    if len(twice) > 1:
        alone = [pairs[name, "alone"] for name in twice]
        yield "all changes", _TOGETHER, (alone[0][0], pairs[twice[0], "leave_one_out"][1]), alone
    yield from _combined([pair for (_, kind), pair in pairs.items() if kind == "own"])


def _combined(pairs: Sequence[Pair]) -> Iterator[tuple[str, str, Pair, list[Pair]]]:
    """Variants such as tuned+a+b, where tuned+a and tuned+b were held against tuned as well."""
    single = {(pair[0], added[0]): pair for pair in pairs if len(added := _added(*pair)) == 1}
    for baseline, variant in pairs:
        parts = [(baseline, part) for part in _added(baseline, variant)]
        if len(parts) > 1 and all(part in single for part in parts):
            yield (
                " and ".join(part for _, part in parts),
                _TOGETHER,
                (baseline, variant),
                [single[part] for part in parts],
            )


def _added(baseline: str, variant: str) -> list[str]:
    """What *variant* has more than *baseline*, by name: 'tuned+a+b' has a and b."""
    return variant.removeprefix(f"{baseline}+").split("+") if variant.startswith(f"{baseline}+") else []


KEPT, DROPPED, OPEN = "kept", "dropped", "open"
_ASKED = ("statements", "rows", "round_trips")
"""What a change may ask less of, which counts for it where its CPU cannot tell."""
_OF_THE_CATALOGUE = ("step", "alone", "leave_one_out")
"""Kinds of trials that bear the name of a step, which can be tried by itself."""
_MEANT = {"faster": KEPT, "slower": DROPPED, "equivalent": DROPPED, "below the margin": DROPPED, "inconclusive": OPEN}


@dataclass(frozen=True)
class Entry:
    """One trial and what became of it."""

    name: str
    kind: str
    tried: str
    request: str
    effect: str
    shows_on: str
    """The request on which the catalogue says that it should show; empty where it says nothing."""
    shows_in: str
    """The metric in which it should show first."""
    shown: str
    """What it did to that metric here."""
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    decision: str
    why: str


def ledger_of(run: Run, comparisons: Sequence[Comparison] | None = None) -> list[Entry]:
    """An entry for each trial of the run, in the order they were named; empty for a run without trials.

    comparisons: those of the run, where they are at hand.
    """
    known = comparisons_of(run) if comparisons is None else comparisons
    made = {(each.baseline, each.variant, each.metric): each for each in known}
    entries = []
    for trial in run.head.settings.get("trials", ()):
        pair = trial["baseline"], trial["variant"]
        if primary := made.get((*pair, PRIMARY)):
            counted = [each for key, each in made.items() if key[:2] == pair and each.metric in _ASKED]
            expected = made.get((*pair, trial.get("shows_in", "")))
            entries.append(_entry(trial, primary, counted, expected, run.head))
    return entries


def ledger_document(run: Run) -> dict[str, Any]:
    """All of it for `--json`."""
    ledger = ledger_of(run)
    return {
        "ledger": [asdict(each) for each in ledger],
        "interactions": [{**asdict(each), "said": str(each)} for each in interactions_of(run)],
        "claims": [asdict(each) for each in claims_of(run, ledger)],
    }


def write_ledger(run: Run) -> Path:
    """ledger.md in the run's folder; returns its path."""
    path = run.folder / "ledger.md"
    path.write_text(ledger_text(run))
    return path


def ledger_text(run: Run) -> str:
    """All of it as Markdown; where the answers differ, or nobody was asked, that alone."""
    lines = [f"# Ledger of {run.head.name}", "", f"Request: `{run.head.request}`", ""]
    if not run.head.same_responses.get("equal"):
        return "\n".join([*lines, *_no_speed(run.head.same_responses), ""])
    entries = ledger_of(run)
    lines += [
        "| tried | variants | effect on server CPU | verdict | should show in | decision | why |",
        "| --- " * 7 + "|",
    ]
    lines += [_row(each) for each in entries]
    elsewhere = {each.name: each.shows_on for each in entries if each.shows_on not in ("", run.head.request)}
    for name, request in elsewhere.items():
        lines += ["", f"{name} should show on another request than this run's: `{request}`."]
    for sentence in in_words(run, interactions_of(run)):
        lines += ["", sentence]
    if claims := list(claims_of(run, entries)):
        lines += ["", "| it was said | here | because |", "| --- " * 3 + "|"]
        lines += [f"| {each.said} | **{each.answer}** | {each.evidence} |" for each in claims]
    return "\n".join([*lines, ""])


def _no_speed(answers: Mapping[str, Any]) -> list[str]:
    """Why there is no ledger."""
    if answers.get("equal") is None:
        return ["No variant was asked before the run ended, so no speed is printed."]
    return [sentences.DIFFERENT_ANSWERS, *(["", f"`{answers['difference']}`"] if answers.get("difference") else [])]


def _row(entry: Entry) -> str:
    cells = (
        f"{entry.name} ({entry.kind})",
        entry.tried,
        entry.effect,
        entry.verdict,
        f"{sentences.METRIC_LABELS[entry.shows_in]}, {entry.shown or 'not measured'}" if entry.shows_in else "",
        f"**{entry.decision}**",
        entry.why,
    )
    return f"| {' | '.join(cells)} |"


def _entry(
    trial: dict[str, Any],
    primary: Comparison,
    counted: Sequence[Comparison],
    expected: Comparison | None,
    head: RunHead,
) -> Entry:
    decision, why = _decision(primary, counted)
    elsewhere = trial["kind"] in _OF_THE_CATALOGUE and trial.get("shows_on", "") not in ("", head.request)
    if primary.ratio is None:
        why = "server CPU was not measured"
    elif decision != KEPT and elsewhere:
        why += f"; but this is not the request for it: `placebench experiment {trial['name']}` asks that one"
    return Entry(
        name=trial["name"],
        kind=trial["kind"],
        tried=" → ".join(variant_shortened(trial[role], head.variants) for role in ("baseline", "variant")),
        request=head.request,
        effect=f"{sentences.effect_text(primary)}, {sentences.interval_text(primary)}",
        shows_on=trial.get("shows_on", ""),
        shows_in=trial.get("shows_in", ""),
        shown=sentences.outcome_text(expected, between=": ") if expected else "",
        ratio=primary.ratio,
        low=primary.low,
        high=primary.high,
        verdict=sentences.verdict_text(primary),
        decision=decision,
        why=why,
    )


def _decision(primary: Comparison, counted: Sequence[Comparison]) -> tuple[str, str]:
    changed = [each for each in counted if each.differs]
    less = [
        sentences.METRIC_LABELS[each.metric]
        for each in changed
        if (each.variant_value or 0) < (each.baseline_value or 0)
    ]
    fewer = f"fewer {', '.join(less)}" if changed and len(less) == len(changed) else ""
    if fewer and primary.low is not None and primary.verdict not in ("faster", "slower"):
        if primary.low <= 1:
            return KEPT, f"{fewer}, at no more CPU that could be seen"
        return DROPPED, f"{fewer}, but {sentences.effect_text(primary)} server CPU"
    reasons = {
        "faster": "less server CPU beyond the margin",
        "slower": "more server CPU beyond the margin",
        "equivalent": "no change beyond the margin",
        "below the margin": "a small change: its estimate is under the margin",
        "inconclusive": primary.reason.removeprefix("inconclusive: ") + f"; {sentences.power_text(primary)}",
    }
    return _MEANT[primary.verdict], reasons[primary.verdict]
