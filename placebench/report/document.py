"""A run as one JSON document, and as text for a terminal, whatever command made it."""

from dataclasses import asdict
from typing import Any

from placebench.report import sentences
from placebench.report.environment import masked
from placebench.report.figures import Counted, Latency, Loaded, Rung, figures_of
from placebench.report.headline import headline
from placebench.report.optimizations import ledger_document, ledger_text
from placebench.report.studies import is_survey
from placebench.report.studies.page import survey_document, survey_table
from placebench.report.text import comparison_table, terminal_table
from placebench.results import Run


def summary(run: Run) -> dict[str, Any]:
    """What the page says, as plain values in seconds and bytes; ratios are variant over baseline.

    `ladder` and `comparisons` are empty where the answers differ: there is no speed to be read then.
    """
    figures = figures_of(run)
    head = run.head
    return {
        "run": str(run.folder),
        "name": head.name,
        "started_at": head.started_at,
        "status": head.status,
        "note": head.note,
        "failed_parts": [{**asdict(each), "reason": masked(each.reason)} for each in head.failed_parts],
        "headline": headline(figures),
        "request": head.request,
        "topology": head.topology,
        "trees": head.trees,
        "seed": head.seed,
        "data_digest": head.receipt.get("digest"),
        "same_responses": figures.answers.equal,
        "answers": asdict(figures.answers),
        "replicates": figures.replicates,
        "invalidated": figures.invalidated,
        "comparisons": [each.to_json() for each in figures.comparisons],
        "ladder": [_rung(rung) for rung in figures.rungs],
    }


def _rung(rung: Rung) -> dict[str, Any]:
    return {
        "variant": rung.variant,
        "adds": rung.adds,
        "closed": _loaded(rung.closed),
        "open": _loaded(rung.open),
        "counted": _counted(rung.counted),
        "profile": rung.profile,
        "speedscope": rung.speedscope,
    }


def _loaded(made: Loaded | None) -> dict[str, Any] | None:
    if made is None:
        return None
    return {**asdict(made), "latency": _latency(made.latency), "service": _latency(made.service)}


def _latency(latency: Latency) -> dict[str, float | None]:
    return {f"{name}_s": value for name, value in latency.quantiles.items()}


def _counted(counted: Counted | None) -> dict[str, Any] | None:
    return asdict(counted) if counted else None


def text_of(run: Run) -> str:
    """The first sentence, how the run ended, and its table."""
    if is_survey(run):
        return survey_table(run)
    if run.head.settings.get("trials"):
        return "\n".join([headline(figures_of(run)), *sentences.failed_parts(run.head), "", ledger_text(run)])
    return terminal_table(run) if run.closed else comparison_table(run)


def document_of(run: Run) -> dict[str, Any]:
    """What the page says, as plain values."""
    if is_survey(run):
        return survey_document(run)
    return {**summary(run), **(ledger_document(run) if run.head.settings.get("trials") else {})}
