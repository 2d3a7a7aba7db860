"""Two runs side by side: what each variant took in the one and in the other.

The key piece is `differences`. The runs were made at different times, so times have no verdict here: on a shared
machine the same code differs by 44 % from one run to the next. Counts have one: they have no noise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from placebench import units
from placebench.compare import COUNTED
from placebench.report import words
from placebench.report.comparisons import comparisons_of
from placebench.report.text import aligned
from placebench.results import Run

_HEADINGS = ("variant and metric", "before", "after", "ratio", "")


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
    pairs = ((name, getattr(before.head, name), getattr(after.head, name)) for name in names)
    return [f"another {name}: {then} before, {now} after" for name, then, now in pairs if then != now]


def difference_table(before: Run, after: Run) -> str:
    """Both runs as an aligned table, with what makes them different first."""
    rows = [_row(each) for each in differences(before, after)]
    lines = [f"{before.head.name} before, {after.head.name} after", *doubts(before, after), ""]
    return "\n".join([*lines, *(aligned([_HEADINGS, *rows]) if rows else ["nothing that both runs measured"])])


def difference_document(before: Run, after: Run) -> dict[str, Any]:
    """The same for `--json`."""
    found = differences(before, after)
    return {
        "before": str(before.folder),
        "after": str(after.folder),
        "doubts": doubts(before, after),
        "differences": [{**asdict(each), "ratio": each.ratio, "note": each.note} for each in found],
    }


def _values(run: Run) -> Iterator[tuple[tuple[str, str], float]]:
    """Each metric of each variant, where the answers were the same."""
    if not run.head.same_answers.get("equal"):
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


def _row(found: Difference) -> Sequence[str]:
    before, after = (words.metric_text(found.metric, value) for value in (found.before, found.after))
    label = words.METRIC_LABELS.get(found.metric, found.metric)
    return f"{found.variant}: {label}", before, after, units.ratio(found.ratio), found.note
