"""What a run says, for eyes and for programs: its page, the list of runs, a table for a terminal, a JSON document.

    from placebench.report import write_report
    write_report("profiles/latest")

The way of a page: `figures` (records → numbers) → `words`, `drawings`, `details` (numbers → sentences, charts, rows) →
`page` (templates/). Numbers are rounded by `placebench.units` and nowhere else.
"""

from placebench.report.comparisons import comparisons_of
from placebench.report.document import document_of, summary, text_of
from placebench.report.export import published
from placebench.report.page import write_report
from placebench.report.run_difference import difference_document, difference_table
from placebench.report.run_list import write_index
from placebench.report.text import comparison_table, terminal_table

__all__ = [
    "comparison_table",
    "comparisons_of",
    "difference_document",
    "difference_table",
    "document_of",
    "published",
    "summary",
    "terminal_table",
    "text_of",
    "write_index",
    "write_report",
]
