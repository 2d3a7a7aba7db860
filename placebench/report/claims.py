"""What was always said of these changes, and what a run says to it: yes, no, it depends or cannot tell, and why.

The key piece is `claims_of`. A claim about a share is answered by the counted pass of the first arm, one about a
change by the interval of its effect.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placebench import units
from placebench.compare import METRICS, PRIMARY
from placebench.experiment.records import CountedPass
from placebench.results import Run

if TYPE_CHECKING:
    from placebench.report.ledger import Entry

YES, NO, IT_DEPENDS, CANNOT_TELL = "yes", "no", "it depends", "cannot tell"
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
    return {"alone": "alone ", "missed": "among the others "}.get(entry.kind, "")
