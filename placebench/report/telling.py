"""Any run as text for a terminal and as a JSON document, whatever command made it: `text_of`, `document_of`."""

from typing import Any

from placebench.report import words
from placebench.report.document import summary
from placebench.report.figures import figures_of
from placebench.report.headline import headline
from placebench.report.ledger import ledger_document, ledger_text
from placebench.report.surveys import is_survey
from placebench.report.surveys.page import survey_document, survey_table
from placebench.report.text import comparison_table, terminal_table
from placebench.results import Run


def text_of(run: Run) -> str:
    """The first sentence, how the run ended, and its table."""
    if is_survey(run):
        return survey_table(run)
    if run.head.settings.get("trials"):
        return "\n".join([headline(figures_of(run)), *words.failed_parts(run.head), "", ledger_text(run)])
    return terminal_table(run) if run.closed else comparison_table(run)


def document_of(run: Run) -> dict[str, Any]:
    """What the page says, as plain values."""
    if is_survey(run):
        return survey_document(run)
    return {**summary(run), **(ledger_document(run) if run.head.settings.get("trials") else {})}
