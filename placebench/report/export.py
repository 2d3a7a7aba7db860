"""A run as a small document to publish: figures alone, no samples, no paths, one line per comparison.

`published_document` makes it, `published_text` writes it.
"""

import json
from collections.abc import Mapping
from typing import Any

from placebench import units
from placebench.report.effects import headline, summary_sentences
from placebench.report.figures import Figures, figures_of
from placebench.report.optimizations import experiment_results, keep_sentence, results_document
from placebench.results import Run
from placebench.stats import Comparison

_FORMAT_VERSION = 1
_DIGITS = 4
_FIGURES = ("ratio", "low", "high", "baseline_value", "variant_value", "detectable")


def published_document(run: Run) -> dict[str, Any]:
    """Return request, data, machine and results; ratios are variant over baseline, values are per request.

    Equal counts, and what was not measured, are left out.
    """
    figures, head = figures_of(run), run.head
    results = experiment_results(figures)
    shown = [each for each in figures.comparisons if each.differs]
    return {
        "format_version": _FORMAT_VERSION,
        "name": head.name,
        "made_at": head.started_at,
        "headline": headline(figures),
        "summary": [*summary_sentences(figures), *keep_sentence(results)],
        "request": head.request,
        "data": _data(run),
        "machine": _machine(head.manifest),
        "replicates": figures.replicates,
        "invalidated": figures.invalidated,
        "calibration": _calibration(head.manifest),
        "same_responses": figures.responses.equal,
        "variants": head.variants,
        "comparisons": [_comparison(each, figures) for each in (*shown, *filter(None, [figures.all_changes]))],
        **(_results(results_document(results)) if figures.are_changes else {}),
    }


def published_text(document: Mapping[str, Any]) -> str:
    """Return the document as JSON, with a line for each of its names and for each row of a list."""
    return "{\n " + ",\n ".join(f"{json.dumps(name)}: {_value(each)}" for name, each in document.items()) + "\n}"


def _value(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return json.dumps(value, ensure_ascii=False)
    return "[\n  " + ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in value) + "\n ]"


def _data(run: Run) -> dict[str, Any]:
    head = run.head
    seeded = {name: head.receipt.get(name) for name in ("providers", "inventories", "provider_traits", "digest")}
    return {"topology": head.topology, "trees": head.trees, "seed": head.seed, **seeded}


def _machine(manifest: dict[str, Any]) -> dict[str, Any]:
    machine, packages = manifest.get("machine", {}), manifest.get("packages", {})
    return {
        "processor": machine.get("processor"),
        "cores": machine.get("cores_allowed"),
        "python": manifest.get("python", {}).get("version"),
        "postgresql": str(manifest.get("postgresql", {}).get("version", "")).partition(" on ")[0],
        **{name: packages.get(name) for name in ("sqlalchemy", "psycopg2-binary", "orjson", "pyuwsgi")},
    }


def _calibration(manifest: dict[str, Any]) -> dict[str, Any] | None:
    """The machine's last calibration before the run; None where it was never calibrated."""
    kept = manifest.get("calibration")
    if not kept:
        return None
    about = {name: kept.get(name) for name in ("made_at", "machine", "variant", "topology", "trees", "rounds")}
    return {**about, **{name: _shortened(made) for name, made in kept["metrics"].items()}}


def _shortened(value: Any) -> Any:
    """The same document with its numbers as short as they are published."""
    if isinstance(value, dict):
        return {name: _shortened(each) for name, each in value.items()}
    return _short(value) if isinstance(value, float) else value


def _comparison(made: Comparison, figures: Figures) -> dict[str, Any]:
    """One line: what changed, between which variants, by how much."""
    return {
        "change": figures.names.get((made.baseline, made.variant), "from end to end"),
        "baseline": made.baseline,
        "variant": made.variant,
        "metric": made.metric,
        **{name: _short(getattr(made, name)) for name in _FIGURES},
        "verdict": made.verdict,
        "n": made.replicates,
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(units.significant(value, digits=_DIGITS))


def _results(document: dict[str, Any]) -> dict[str, Any]:
    """The decisions, by name, with interactions and hypotheses."""
    decisions = [
        {"change": each["name"], **{name: each[name] for name in ("kind", "decision", "why")}}
        for each in document["results"]
    ]
    return {**document, "results": decisions}
