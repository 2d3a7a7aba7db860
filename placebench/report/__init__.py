"""Reports of run folders: pages, tables for a terminal, Markdown, JUnit XML and JSON.

    from placebench.report import build_report, render_text, write_report
    report = build_report("profiles/latest")
    print(render_text(report))
    write_report(report)

`figures` turns records into numbers, builders (`run_report`, `capacity`, `study_report`) make a `Report` of them, and
`renderers` write it. Numbers are rounded by `placebench.units` and nowhere else. Names are imported lazily, because
listing runs needs few of them.
"""

from typing import TYPE_CHECKING

from placebench.lazy_names import load_on_use

if TYPE_CHECKING:
    from placebench.report.building import build_report, export_figures, write_report
    from placebench.report.documents import published_document, published_text
    from placebench.report.figures import comparisons_of
    from placebench.report.gates import parse_gates, raise_for_gates
    from placebench.report.history import history_report
    from placebench.report.model import Report
    from placebench.report.renderers import render_html, render_junit, render_markdown, render_text
    from placebench.report.reproduction import read_published, reproduction_report
    from placebench.report.run_difference import difference_report
    from placebench.report.run_list import write_index

__all__ = [
    "Report",
    "build_report",
    "comparisons_of",
    "difference_report",
    "export_figures",
    "history_report",
    "parse_gates",
    "published_document",
    "published_text",
    "raise_for_gates",
    "read_published",
    "render_html",
    "render_junit",
    "render_markdown",
    "render_text",
    "reproduction_report",
    "write_index",
    "write_report",
]

__getattr__, __dir__ = load_on_use(
    __name__,
    {
        "building": ("build_report", "export_figures", "write_report"),
        "documents": ("published_document", "published_text"),
        "figures": ("comparisons_of",),
        "gates": ("parse_gates", "raise_for_gates"),
        "history": ("history_report",),
        "model": ("Report",),
        "renderers": ("render_html", "render_junit", "render_markdown", "render_text"),
        "reproduction": ("read_published", "reproduction_report"),
        "run_difference": ("difference_report",),
        "run_list": ("write_index",),
    },
)
