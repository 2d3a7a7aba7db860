"""Check published figures with a new run: `read_published`, and `reproduction_report` of the new run.

The input is the output of `placebench report export`. Each comparison in it that has a verdict is a claim.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from placebench import units
from placebench.decoding import Count, Positive, read_json
from placebench.errors import GateFailedError, PlacebenchError, UndecidedError
from placebench.masking import HIDDEN
from placebench.report.control import control_result
from placebench.report.documents import published_machine
from placebench.report.effects import METRIC_LABELS, effect_text, written_effect
from placebench.report.figures import figures_of
from placebench.report.model import Column, Report, Table
from placebench.results import Run
from placebench.stats import Comparison
from placebench.stats.reproduction import NOT_REPRODUCED, REPRODUCED, UNDECIDED, Claim, Reproduction, judge_reproduction
from placebench.stats.verdict import INCONCLUSIVE, Verdict


class PublishedComparison(Struct, frozen=True):
    """One entry of `comparisons` in a published document."""

    baseline: str
    variant: str
    metric: str
    ratio: Positive | None
    low: Positive | None
    high: Positive | None
    verdict: Verdict
    n: Count

    @property
    def effect(self) -> str:
        """The published effect as text; the verdict if there is no ratio."""
        if self.ratio is None:
            return self.verdict
        return written_effect(self.ratio, self.low, self.high, of="", confidence=0.95, n=self.n, is_time=False)


class PublishedRun(Struct, frozen=True):
    """The parts of a published document that are needed to repeat the run."""

    name: str
    made_at: str
    comparisons: list[PublishedComparison]
    plan: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    data: dict[str, Any] = {}

    @property
    def claims(self) -> list[PublishedComparison]:
        """The comparisons that have a verdict."""
        return [each for each in self.comparisons if each.verdict != INCONCLUSIVE]


@dataclass(frozen=True)
class _ClaimResult:
    """A claim, and its outcome in the new run."""

    claim: PublishedComparison
    new: Comparison | None
    made: Reproduction

    @property
    def name(self) -> str:
        metric = METRIC_LABELS.get(self.claim.metric, self.claim.metric)
        return f"{metric} of {self.claim.variant}, compared with {self.claim.baseline}"

    def to_json(self) -> dict[str, Any]:
        difference = self.made.difference
        limits = (difference.estimate, difference.low, difference.high) if difference else (None, None, None)
        figures = ("ratio", "low", "high", "verdict")
        return {
            **{name: getattr(self.claim, name) for name in ("baseline", "variant", "metric")},
            "outcome": self.made.outcome,
            "reason": self.made.reason,
            "published": {**{name: getattr(self.claim, name) for name in figures}, "n": self.claim.n},
            "new": self.new and {**{name: getattr(self.new, name) for name in figures}, "n": self.new.replicates},
            **dict(zip(("difference_log", "difference_log_low", "difference_log_high"), limits, strict=True)),
            "replicates_needed": self.made.replicates_needed,
        }

    @property
    def difference_text(self) -> str:
        """The change from the published ratio to the new ratio, with its interval, as text."""
        made = self.made.difference
        if made is None:
            return "none"
        estimate, low, high = (units.signed_percent(math.exp(each)) for each in (made.estimate, made.low, made.high))
        return f"{estimate} [{low}, {high}]"


def read_published(path: Path) -> PublishedRun:
    """Read a published document; raise PlacebenchError if it has no plan or no claim."""
    published = read_json(path, PublishedRun, error=PlacebenchError)
    if not published.plan:
        raise PlacebenchError(
            f"{path} has no plan, so the run cannot be made again: expected what `placebench report export` of this "
            "version writes for a run of `placebench compare` or `placebench lab steps`"
        )
    if not published.claims:
        count = len(published.comparisons)
        raise PlacebenchError(f"{path} claims nothing: none of its {count} comparisons has a verdict")
    return published


def hidden_places(document: Any, at: str = "plan") -> Iterator[str]:
    """Yield the path of each value in a plan that was masked before publication, such as 'plan.app.env.SECRET_KEY'."""
    if isinstance(document, Mapping):
        for name, value in document.items():
            yield from hidden_places(value, f"{at}.{name}")
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from hidden_places(value, f"{at}[{number}]")
    elif isinstance(document, str) and HIDDEN in document:
        yield at


def reproduction_report(published: PublishedRun, run: Run) -> Report:
    """Build the report of a new run of the published plan: each claim, its outcome, and the two effects' difference."""
    figures = figures_of(run)
    found = {
        (each.baseline, each.variant, each.metric): each
        for each in (*figures.comparisons, *filter(None, [figures.all_changes]))
    }
    results = []
    for claim in published.claims:
        new = found.get((claim.baseline, claim.variant, claim.metric))
        made = Reproduction(UNDECIDED, "not measured here", None)
        if new is not None:
            made = judge_reproduction(Claim(claim.verdict, claim.ratio, claim.low, claim.high), new)
        results.append(_ClaimResult(claim, new, made))
    outcomes = {result.made.outcome for result in results}
    notices = _other_conditions(published, run)
    control = control_result(run)
    return Report(
        folder=run.folder,
        name=run.head.name,
        started_at=run.head.started_at,
        status=run.head.status,
        headline=_headline(results, published),
        document={
            "outcome": next((each for each in (NOT_REPRODUCED, UNDECIDED) if each in outcomes), REPRODUCED),
            "published": {"name": published.name, "made_at": published.made_at},
            "run": str(run.folder),
            "claims": [each.to_json() for each in results],
            "other_conditions": notices,
            "control": control.to_json() if control else None,
            "cost": run.head.cost.figures(run.head.elapsed_s) if run.head.cost else None,
        },
        notices=notices,
        overview=[Table("Claims", _COLUMNS, results)],
        remarks=[
            *(f"{each.name}: {each.made.reason}" for each in results if each.made.reason),
            *([control.sentence] if control else []),
        ],
    )


def raise_for_claims(report: Report) -> None:
    """Raise GateFailedError if a claim is not reproduced, else UndecidedError if one is inconclusive."""
    outcome = report.document["outcome"]
    if outcome == NOT_REPRODUCED:
        raise GateFailedError(report.headline)
    if outcome == UNDECIDED:
        raise UndecidedError(report.headline)


_COLUMNS = (
    Column("claim", lambda each: each.name),
    Column("outcome", lambda each: each.made.outcome),
    Column("published", lambda each: each.claim.effect),
    Column("here", lambda each: effect_text(each.new) if each.new else units.NOT_MEASURED),
    Column("ratio here / published", lambda each: each.difference_text),
)


def _headline(results: list[_ClaimResult], published: PublishedRun) -> str:
    """Return the result as text, such as '2 of 3 claims of steps are reproduced, 1 is inconclusive'."""
    number = {
        name: sum(each.made.outcome == name for each in results) for name in (REPRODUCED, NOT_REPRODUCED, UNDECIDED)
    }
    others = [
        f"{count} {'is' if count == 1 else 'are'} {name}"
        for name, count in number.items()
        if count and name != REPRODUCED
    ]
    whole = f"{number[REPRODUCED]} of {len(results)} claims of {published.name} are reproduced"
    return ", ".join([whole, *others])


def _other_conditions(published: PublishedRun, run: Run) -> list[str]:
    """Return a sentence for each condition that differs from the published run: data, machine and versions."""
    before, now = published.data.get("digest"), run.head.receipt.get("digest")
    other = ["the data is not the published data: its digest differs"] if before != now else []
    machine = published_machine(run.head.manifest)
    return [
        *other,
        *(
            f"{name}: {published.machine[name]} published, {here} here"
            for name, here in machine.items()
            if name in published.machine and published.machine[name] != here
        ),
    ]
