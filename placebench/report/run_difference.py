"""Two runs side by side: what each variant took in the one and in the other, and what it asks of the database.

The key pieces are `differences` and `statements_changed`. The runs were made at different times, so times have no
verdict here: on a shared machine the same code differs by 44 % from one run to the next. Counts have one: no noise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from placebench import units
from placebench.report import sentences
from placebench.report.comparisons import comparisons_of
from placebench.report.text import aligned
from placebench.report.variant_pairs import StatementChange, statement_changes
from placebench.results import Run
from placebench.stats import COUNTED

_HEADINGS = ("variant and metric", "before", "after", "ratio", "")
_STATEMENT_HEADINGS = ("variant and statement", "", "calls before", "after", "rows before", "after")
_MADE_WITH = {
    "commit of placebench": ("commit",),
    "processor": ("machine", "processor"),
    "PostgreSQL": ("postgresql", "version"),
}


@dataclass(frozen=True)
class Difference:
    """One metric of one variant, for one request, in both runs."""

    variant: str
    metric: str
    before: float
    after: float

    @property
    def ratio(self) -> float | None:
        """After over before; None where before is 0."""
        return self.after / self.before if self.before else None

    @property
    def note(self) -> str:
        """What can be said: counts are the same or not, times are not comparable across runs."""
        if self.metric not in COUNTED:
            return "not interleaved"
        return "same" if self.after == self.before else "more" if self.after > self.before else "less"


def differences(before: Run, after: Run) -> list[Difference]:
    """What both runs measured, in the order of the earlier one."""
    then, now = dict(_values(before)), dict(_values(after))
    return [Difference(*key, then[key], now[key]) for key in then if key in now]


def doubts(before: Run, after: Run) -> list[str]:
    """Why the two runs are not about the same thing."""
    names = ("request", "topology", "trees", "seed")
    pairs = [(name, getattr(before.head, name), getattr(after.head, name)) for name in names]
    made_with = [(name, *(_of_manifest(run, path) for run in (before, after))) for name, path in _MADE_WITH.items()]
    known = [*pairs, *(each for each in made_with if None not in each)]
    return [f"another {name}: {then} before, {now} after" for name, then, now in known if then != now]


def statements_changed(before: Run, after: Run) -> list[tuple[str, StatementChange]]:
    """Each statement that a variant asks only now, not any more, or more or less often, with the variant.

    None where a run's answers differ, or its statements were not counted one by one.
    """
    if not all(run.head.same_responses.get("equal") for run in (before, after)):
        return []
    return [
        (variant, each)
        for variant, then in before.wire.items()
        if (now := after.wire.get(variant)) and then.by_statement and now.by_statement
        for each in statement_changes(then, now)
        if each.state != "same"
    ]


def difference_table(before: Run, after: Run) -> str:
    """Both runs as an aligned table, with what makes them different first."""
    rows = [_row(each) for each in differences(before, after)]
    lines = [f"{before.head.name} before, {after.head.name} after", *doubts(before, after), ""]
    lines += aligned([_HEADINGS, *rows]) if rows else ["nothing that both runs measured"]
    if asked := [_statement_row(*each) for each in statements_changed(before, after)]:
        lines += ["", *aligned([_STATEMENT_HEADINGS, *asked])]
    return "\n".join(lines)


def difference_document(before: Run, after: Run) -> dict[str, Any]:
    """The same for `--json`."""
    found = differences(before, after)
    return {
        "before": str(before.folder),
        "after": str(after.folder),
        "doubts": doubts(before, after),
        "differences": [{**asdict(each), "ratio": each.ratio, "note": each.note} for each in found],
        "statements": [
            {"variant": variant, "state": each.state, **asdict(each)}
            for variant, each in statements_changed(before, after)
        ],
    }


def _values(run: Run) -> Iterator[tuple[tuple[str, str], float]]:
    """Each metric of each variant, where the answers were the same."""
    if not run.head.same_responses.get("equal"):
        return
    for made in comparisons_of(run):
        for variant, value in ((made.baseline, made.baseline_value), (made.variant, made.variant_value)):
            if value is not None:
                yield (variant, made.metric), value
    for variant, loaded in run.closed.items():
        if loaded.result.latency_s:
            yield (variant, "closed_wall_s"), median(loaded.result.latency_s)
        if (cpu_s := loaded.cpu_s_per_request) is not None:
            yield (variant, "closed_cpu_s"), cpu_s


def _of_manifest(run: Run, path: Sequence[str]) -> Any:
    found: Any = run.head.manifest
    for name in path:
        found = (found or {}).get(name)
    return found


def _statement_row(variant: str, found: StatementChange) -> Sequence[str]:
    told = f"{variant}: {sentences.statement_shortened(found.sql)}"
    return told, found.state, *(units.average(each) for each in (*found.calls, *found.rows))


def _row(found: Difference) -> Sequence[str]:
    before, after = (sentences.metric_text(found.metric, value) for value in (found.before, found.after))
    label = sentences.METRIC_LABELS.get(found.metric, found.metric)
    return f"{found.variant}: {label}", before, after, units.ratio(found.ratio), found.note
