"""The ledger of an experiment: what was tried, on which request, with what effect, kept or dropped and why.

The key piece is `ledger_of`. The decision is the primary metric's verdict; a change that CPU cannot tell is kept when
it asks the database for less, because counts have no noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placebench.compare import PRIMARY, Comparison
from placebench.experiment.records import RunHead
from placebench.report import words
from placebench.report.claims import claims_of
from placebench.report.comparisons import comparisons_of
from placebench.report.interactions import in_words, interactions_of
from placebench.report.tried import arm_shortened
from placebench.results import Run

KEPT, DROPPED, OPEN = "kept", "dropped", "open"
_ASKED = ("statements", "rows", "round_trips")
"""What a change may ask less of, which counts for it where its CPU cannot tell."""
_OF_THE_CATALOGUE = ("rung", "alone", "missed")
"""Kinds of trials that bear the name of a step, which can be tried by itself."""
_MEANT = {"faster": KEPT, "slower": DROPPED, "equivalent": DROPPED, "small": DROPPED, "cannot tell": OPEN}


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
    if not run.head.same_answers.get("equal"):
        return "\n".join([*lines, *_no_speed(run.head.same_answers), ""])
    entries = ledger_of(run)
    lines += ["| tried | arms | effect on server CPU | verdict | should show in | decision | why |", "| --- " * 7 + "|"]
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
    return [words.DIFFERENT_ANSWERS, *(["", f"`{answers['difference']}`"] if answers.get("difference") else [])]


def _row(entry: Entry) -> str:
    cells = (
        f"{entry.name} ({entry.kind})",
        entry.tried,
        entry.effect,
        entry.verdict,
        f"{words.METRIC_LABELS[entry.shows_in]}, {entry.shown or 'not measured'}" if entry.shows_in else "",
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
        tried=" → ".join(arm_shortened(trial[role], head.variants) for role in ("baseline", "variant")),
        request=head.request,
        effect=f"{words.effect_text(primary)}, {words.interval_text(primary)}",
        shows_on=trial.get("shows_on", ""),
        shows_in=trial.get("shows_in", ""),
        shown=words.outcome_text(expected, between=": ") if expected else "",
        ratio=primary.ratio,
        low=primary.low,
        high=primary.high,
        verdict=words.verdict_text(primary),
        decision=decision,
        why=why,
    )


def _decision(primary: Comparison, counted: Sequence[Comparison]) -> tuple[str, str]:
    changed = [each for each in counted if each.differs]
    less = [
        words.METRIC_LABELS[each.metric] for each in changed if (each.variant_value or 0) < (each.baseline_value or 0)
    ]
    fewer = f"fewer {', '.join(less)}" if changed and len(less) == len(changed) else ""
    if fewer and primary.low is not None and primary.verdict not in ("faster", "slower"):
        if primary.low <= 1:
            return KEPT, f"{fewer}, at no more CPU that could be seen"
        return DROPPED, f"{fewer}, but {words.effect_text(primary)} server CPU"
    reasons = {
        "faster": "less server CPU beyond the margin",
        "slower": "more server CPU beyond the margin",
        "equivalent": "no change beyond the margin",
        "small": "a small change: its estimate is under the margin",
        "cannot tell": primary.reason.removeprefix("cannot tell: ") + f"; {words.power_text(primary)}",
    }
    return _MEANT[primary.verdict], reasons[primary.verdict]
