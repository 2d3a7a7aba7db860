"""Short ways to the renderings of a run's report: `document_of` and `text_of`."""

from typing import Any

from placebench.report import build_report, render_text
from placebench.results import Run


def document_of(run: Run) -> dict[str, Any]:
    """Return what `--json` prints."""
    return dict(build_report(run).document)


def text_of(run: Run) -> str:
    """Return what a terminal shows."""
    return render_text(build_report(run))
