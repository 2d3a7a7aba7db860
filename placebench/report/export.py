"""A run as a small document to keep beside a text: figures alone, no samples, no paths, one line a comparison.

The key pieces are `published` and `in_lines`; `placebench report RUN --figures` prints both.
"""

import json
from typing import Any

from placebench import units
from placebench.report.figures import Figures, figures_of
from placebench.report.headline import below_it, headline
from placebench.report.optimizations import ledger_document, ledger_of
from placebench.results import Run
from placebench.stats import Comparison

FORMAT_VERSION = 1
_DIGITS = 4
_FIGURES = ("ratio", "low", "high", "baseline_value", "variant_value", "detectable")


def published(run: Run) -> dict[str, Any]:
    """What was asked, on what, and what came out; ratios are variant over baseline, values of one request.

    Equal counts, and what was not measured, are left out.
    """
    figures, head = figures_of(run), run.head
    shown = [each for each in figures.comparisons if each.differs]
    return {
        "format_version": FORMAT_VERSION,
        "name": head.name,
        "made_at": head.started_at,
        "headline": headline(figures),
        "below": below_it(figures),
        "request": head.request,
        "data": _data(run),
        "machine": _machine(head.manifest),
        "replicates": figures.replicates,
        "invalidated": figures.invalidated,
        "calibration": _calibration(head.manifest),
        "same_responses": figures.answers.equal,
        "variants": head.variants,
        "comparisons": [_comparison(each, figures) for each in (*shown, *filter(None, [figures.ends]))],
        **_decisions(run, figures),
    }


def in_lines(document: dict[str, Any]) -> str:
    """The document as JSON, a line for each of its names and for each row of a list."""
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
    """What the machine could resolve when it was last calibrated before the run; None where it never was."""
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
    """One line: what changed, between whom, by how much."""
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


def _decisions(run: Run, figures: Figures) -> dict[str, Any]:
    """What to keep, by name; empty for a run without trials."""
    if not figures.changes:
        return {}
    made = ledger_document(run)
    decided = [
        {"change": each.name, "kind": each.kind, "decision": each.decision, "why": each.why}
        for each in ledger_of(run, figures.comparisons)
    ]
    return {"ledger": decided, "interactions": made["interactions"], "claims": made["claims"]}
