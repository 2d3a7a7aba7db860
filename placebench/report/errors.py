"""Failed requests in a report: `error_table` of the pairs, `error_text` of one variant."""

from placebench import units
from placebench.report.figures import Figures
from placebench.report.model import Column, Table
from placebench.stats.error_shares import ErrorShare

_NOTE = (
    "Failed requests discard their replicate, and are in no time; the shares are those of all requests in rounds of "
    "both variants, warm-ups with failed requests among them. More errors: any where the baseline has none, or "
    "p ≤ 0.001 by Fisher's exact test. Intervals: Wilson, as if requests were independent."
)


def error_table(figures: Figures) -> Table:
    """Return the table of the pairs of which a variant failed a request, with shares, intervals and verdicts."""
    columns = (
        Column("variant", lambda each: figures.short_name(each.variant)),
        Column("errors", lambda each: error_text(each.after)),
        Column("baseline", lambda each: figures.short_name(each.baseline)),
        Column("its errors", lambda each: error_text(each.before)),
        Column("verdict", lambda each: each.verdict),
    )
    return Table("Errors", columns, figures.errors_seen, id="errors", note=_NOTE)


def error_text(share: ErrorShare) -> str:
    """Return failed and sent requests, and their share: '2 of 960, 0.208 % [95 % CI 0.0571, 0.756]'."""
    low, high = (units.significant(100 * each) for each in (share.low, share.high))
    return (
        f"{units.count(share.failed)} of {units.count(share.sent)}, {units.percent(share.share)} "
        f"[95 % CI {low}, {high}]"
    )
