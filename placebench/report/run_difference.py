"""The difference of two runs: what each variant took in the one and in the other: `difference_report`.

The runs were made at different times, so times have no verdict here: on a shared machine the same code differs by 44 %
from one run to the next. Counts have one: they have no noise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from placebench import units
from placebench.profiler.analysis.difference import StatementChange
from placebench.report.effects import METRIC_LABELS, shorten_statement, value_text
from placebench.report.figures import comparisons_of
from placebench.report.model import Column, Report, Table
from placebench.report.variant_pairs import counted_changes
from placebench.results import Run
from placebench.stats import COUNTED

_MADE_WITH = {
    "commit of placebench": ("commit",),
    "processor": ("machine", "processor"),
    "PostgreSQL": ("postgresql", "version"),
    "MariaDB": ("mariadb", "version"),
}


@dataclass(frozen=True)
class _MetricChange:
    """One metric of one variant per request, in both runs."""

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
        """Counts are the same or not; times are not comparable across runs."""
        if self.metric not in COUNTED:
            return "not interleaved"
        return "same" if self.after == self.before else "more" if self.after > self.before else "less"


def difference_report(before: Run, after: Run) -> Report:
    """Build the report of two runs side by side, with what makes them different first."""
    metrics, statements = _metric_changes(before, after), _changed_statements(before, after)
    differences = _other_conditions(before, after)
    tables = [Table("Metrics", _METRIC_COLUMNS, metrics)] if metrics else []
    if statements:
        tables.append(Table("Statements", _STATEMENT_COLUMNS, statements))
    return Report(
        folder=after.folder,
        name=after.head.name,
        started_at=after.head.started_at,
        status=after.head.status,
        headline=f"{before.head.name} before, {after.head.name} after",
        document={
            "before": str(before.folder),
            "after": str(after.folder),
            "other_conditions": differences,
            "metrics": [{**asdict(each), "ratio": each.ratio, "note": each.note} for each in metrics],
            "statements": [_statement_document(variant, each) for variant, each in statements],
        },
        notices=differences,
        overview=tables,
        remarks=[] if tables else ["nothing that both runs measured"],
    )


_METRIC_COLUMNS = (
    Column("variant and metric", lambda each: f"{each.variant}: {METRIC_LABELS.get(each.metric, each.metric)}"),
    Column("before", lambda each: value_text(each.metric, each.before)),
    Column("after", lambda each: value_text(each.metric, each.after)),
    Column("ratio", lambda each: units.ratio(each.ratio)),
    Column("", lambda each: each.note),
)
_STATEMENT_COLUMNS = (
    Column("variant and statement", lambda each: f"{each[0]}: {shorten_statement(each[1].sql)}"),
    Column("", lambda each: each[1].state),
    Column("calls before", lambda each: units.average(each[1].calls.before)),
    Column("after", lambda each: units.average(each[1].calls.after)),
    Column("rows before", lambda each: units.average(each[1].rows.before)),
    Column("after", lambda each: units.average(each[1].rows.after)),
)


def _metric_changes(before: Run, after: Run) -> list[_MetricChange]:
    """What both runs measured, in the order of the earlier one."""
    then, now = dict(_values(before)), dict(_values(after))
    return [_MetricChange(*key, then[key], now[key]) for key in then if key in now]


def _other_conditions(before: Run, after: Run) -> list[str]:
    """Why the two runs are not about the same thing."""
    names = ("request", "topology", "trees", "seed")
    pairs = [(name, getattr(before.head, name), getattr(after.head, name)) for name in names]
    made_with = [(name, *(_manifest_value(run, path) for run in (before, after))) for name, path in _MADE_WITH.items()]
    known = [*pairs, *(each for each in made_with if None not in each)]
    return [f"another {name}: {then} before, {now} after" for name, then, now in known if then != now]


def _changed_statements(before: Run, after: Run) -> list[tuple[str, StatementChange]]:
    """Each statement that a variant sends only now, no more, or more or less often, with the variant.

    None where a run's responses differ, or its statements were not counted one by one.
    """
    if not all(run.head.is_comparable for run in (before, after)):
        return []
    return [
        (variant, each)
        for variant, then in before.wire.items()
        if (now := after.wire.get(variant)) and then.by_statement and now.by_statement
        for each in counted_changes(then, now)
        if each.state != "same"
    ]


def _statement_document(variant: str, change: StatementChange) -> dict[str, Any]:
    figures = {"calls": change.calls, "rows": change.rows, "exec_s": change.seconds}
    both = {name: [each.before, each.after] for name, each in figures.items()}
    return {"variant": variant, "state": change.state, "sql": change.sql, **both}


def _values(run: Run) -> Iterator[tuple[tuple[str, str], float]]:
    """Each metric of each variant, where the responses were the same."""
    if not run.head.is_comparable:
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


def _manifest_value(run: Run, path: Sequence[str]) -> Any:
    value: Any = run.head.manifest
    for name in path:
        value = (value or {}).get(name)
    return value
