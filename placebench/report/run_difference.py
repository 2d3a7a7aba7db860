"""The difference of two runs, variant by variant: `difference_report`.

The runs were made at different times, so times have no verdict: on a shared machine the same code differs by up to
44 % between runs. Counts have no noise, so they have a verdict.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from placebench import units
from placebench.compare.keep.documents import RUNS
from placebench.errors import RunFolderError
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
    """The values per request of one metric of one variant in both runs."""

    variant: str
    metric: str
    before: float
    after: float

    @property
    def ratio(self) -> float | None:
        """The later value over the earlier one; None if the earlier one is 0."""
        return self.after / self.before if self.before else None

    @property
    def note(self) -> str:
        """Whether a count is the same, more or less; for other metrics a reminder that runs are not interleaved."""
        if self.metric not in COUNTED:
            return "not interleaved"
        return "same" if self.after == self.before else "more" if self.after > self.before else "less"


def difference_report(before: Run, after: Run) -> Report:
    """Build the report of two runs side by side; conditions that differ between the runs come first.

    Raises RunFolderError for the run of a study, which has rows of its own instead of metrics of variants.
    """
    for run in (before, after):
        if (kind := RUNS.get(run.head.command)) and kind.measurement:
            raise RunFolderError(
                f"{run.folder} is the run of a study: expected a run of `placebench compare` or `lab perfload`; "
                "`placebench report open` shows it"
            )
    then, now = dict(_values(before)), dict(_values(after))
    metrics = [_MetricChange(*key, then[key], now[key]) for key in then if key in now]
    statements = _changed_statements(before, after)
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
            "statements": [
                {
                    "variant": variant,
                    "state": change.state,
                    "sql": change.sql,
                    "calls": [change.calls.before, change.calls.after],
                    "rows": [change.rows.before, change.rows.after],
                    "exec_s": [change.seconds.before, change.seconds.after],
                }
                for variant, change in statements
            ],
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


def _other_conditions(before: Run, after: Run) -> list[str]:
    """Return a sentence for each condition that differs: request, data, commit, processor and database version."""
    names = ("request", "topology", "trees", "seed")
    known = [(name, getattr(before.head, name), getattr(after.head, name)) for name in names]
    for name, keys in _MADE_WITH.items():
        values: list[Any] = [before.head.manifest, after.head.manifest]
        for key in keys:
            values = [(value or {}).get(key) for value in values]
        if None not in values:
            known.append((name, values[0], values[1]))
    return [f"another {name}: {then} before, {now} after" for name, then, now in known if then != now]


def _changed_statements(before: Run, after: Run) -> list[tuple[str, StatementChange]]:
    """Return (variant, statement) for each statement that is new, gone, or sent more or less often.

    The list is empty if a run's responses differ, or if statements were not counted individually.
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


def _values(run: Run) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the value of each metric of each variant; nothing if the responses differ."""
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
