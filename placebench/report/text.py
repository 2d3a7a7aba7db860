"""A run as text for a terminal: the first sentence and the ladder as an aligned table.

The key piece is `terminal_table`.
"""

from collections.abc import Sequence

from placebench import units
from placebench.report import sentences
from placebench.report.figures import Counted, Figures, Loaded, Rung, figures_of
from placebench.report.headline import headline
from placebench.results import Run
from placebench.stats import Comparison

_HEADINGS = ("variant", "throughput", "p50", "p95", "CPU/request", "peak PSS", "statements", "rows", "body", "in GC")

_COMPARED = ("variant", "baseline", "variant", "ratio", "low", "high", "could have seen", "verdict")


def terminal_table(run: Run) -> str:
    """The first sentence, how the run ended, and a line for each rung; no speeds where the answers differ."""
    figures = figures_of(run)
    lines = [headline(figures), *_doubts(figures)]
    if figures.rungs:
        lines += ["", *aligned([_HEADINGS, *(_row(rung) for rung in figures.rungs)])]
    return "\n".join(lines)


def comparison_table(run: Run) -> str:
    """The first sentence, how the run ended, and a line for each variant and metric; no speeds where answers differ."""
    figures = figures_of(run)
    lines = [headline(figures), *_doubts(figures)]
    if figures.comparisons:
        lines += ["", *aligned([_COMPARED, *(_compared(each, figures) for each in figures.comparisons)])]
    reasons = dict.fromkeys(
        each.reason for each in figures.comparisons if each.reason and each.baseline_value is not None
    )
    return "\n".join([*lines, *(f"  {reason}" for reason in reasons)])


def _compared(comparison: Comparison, figures: Figures) -> tuple[str, ...]:
    return (
        f"{figures.names[comparison.baseline, comparison.variant]}: {sentences.METRIC_LABELS[comparison.metric]}",
        sentences.value_text(comparison, comparison.baseline_value),
        sentences.value_text(comparison, comparison.variant_value),
        *(units.ratio(each) for each in (comparison.ratio, comparison.low, comparison.high)),
        sentences.detectable_text(comparison),
        sentences.verdict_text(comparison),
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(_padded(row, widths)).rstrip() for row in rows]


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]


def _doubts(figures: Figures) -> list[str]:
    head = figures.run.head
    lines = (
        sentences.ending(head),
        *sentences.failed_parts(head),
        sentences.unmeasured(head),
        figures.answers.difference,
    )
    return [line for line in lines if line]


def _row(rung: Rung) -> tuple[str, ...]:
    missing = (units.NOT_MEASURED,)
    closed, counted = rung.closed, rung.counted
    return (
        rung.label,
        *(_load_cells(closed) if closed else missing * 5),
        *(_work_cells(counted) if counted else missing * 4),
    )


def _load_cells(closed: Loaded) -> tuple[str, ...]:
    return (
        units.rate(closed.throughput_per_s),
        sentences.quantile_text(closed.latency.quantiles["p50"]),
        sentences.quantile_text(closed.latency.quantiles["p95"]),
        units.duration(closed.cpu_s),
        units.size(closed.peak_pss_bytes),
    )


def _work_cells(counted: Counted) -> tuple[str, ...]:
    return (
        units.average(counted.statements),
        units.average(counted.rows),
        units.size(counted.body_bytes),
        units.percent(counted.gc_share),
    )
