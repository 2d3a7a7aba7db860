"""A run as JSON: `run_document` for `--json`, `published_document` for publication.

A published document has the results with one value per replicate, but no samples of requests and no paths.
`published_text` writes it with one line per comparison.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from placebench import units
from placebench.profiler.analysis.difference import Frame
from placebench.report.control import control_result
from placebench.report.effects import headline, summary_sentences
from placebench.report.environment import masked
from placebench.report.figures import Figures, LoadFigures, VariantFigures, figures_of
from placebench.report.routes import route_results
from placebench.report.trial_results import ExperimentResults, experiment_results, keep_sentence, results_document
from placebench.results import Run
from placebench.stats import METRICS, Comparison, PartChange

_FORMAT_VERSION = 1
_DIGITS = 4
_FIGURES = ("ratio", "low", "high", "baseline_value", "variant_value", "detectable")


def run_document(figures: Figures, results: ExperimentResults) -> dict[str, Any]:
    """Return the run as plain values in seconds and bytes; ratios are variant over baseline.

    `steps` and `comparisons` are empty if the responses differ, because no speed is reported then.
    """
    head = figures.run.head
    return {
        "run": str(figures.run.folder),
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
        "cost": head.cost.figures(head.elapsed_s) if head.cost else None,
        "same_responses": figures.responses.equal,
        "responses": asdict(figures.responses),
        "replicates": figures.replicates,
        "invalidated": figures.invalidated,
        "control": control.to_json() if (control := control_result(figures.run)) else None,
        "changed_source": [asdict(each) for each in figures.run.executed],
        "comparisons": [each.to_json() for each in figures.comparisons],
        "routes": [each.to_json() for each in route_results(figures)],
        "errors": [each.to_json() for each in figures.errors],
        "changed_frames": [
            _frame_document(pair, each) for pair, parts in figures.parts.items() for each in parts if each.is_decided
        ],
        "changed_plans": [asdict(each) for each in figures.run.plans],
        "steps": [_step_document(each) for each in figures.variants],
        **(results_document(results) if head.settings.get("trials") else {}),
    }


def _frame_document(pair: tuple[str, str], change: PartChange[Frame]) -> dict[str, Any]:
    return {
        **dict(zip(("baseline", "variant", "frame", "place"), (*pair, *change.part), strict=True)),
        "before_s": change.before,
        "after_s": change.after,
        "change_s": change.change,
        "low_s": change.low,
        "high_s": change.high,
        "p_adjusted": change.p,
        "verdict": change.verdict,
    }


def _step_document(figures: VariantFigures) -> dict[str, Any]:
    return {
        "variant": figures.variant,
        "adds": figures.adds,
        "closed": _load_document(figures.closed),
        "open": _load_document(figures.open),
        "counted": asdict(figures.counted) if figures.counted else None,
        "profile": figures.profile,
        "speedscope": figures.speedscope,
    }


def _load_document(load: LoadFigures | None) -> dict[str, Any] | None:
    if load is None:
        return None
    latencies = (("latency", load.latency), ("service", load.service))
    percentiles = {name: {f"{key}_s": value for key, value in each.percentiles.items()} for name, each in latencies}
    return {**asdict(load), **percentiles}


def published_document(run: Run) -> dict[str, Any]:
    """Return request, data, machine, cost, plan and results; ratios are variant over baseline, values are per request.

    Equal counts and metrics that were not measured are left out.
    """
    figures, head = figures_of(run), run.head
    results = experiment_results(figures)
    shown = [each for each in figures.comparisons if each.differs]
    seeded = {name: head.receipt.get(name) for name in ("providers", "inventories", "provider_traits", "digest")}
    calibration = None
    if kept := head.manifest.get("calibration"):
        about = {name: kept.get(name) for name in ("made_at", "machine", "variant", "topology", "trees", "rounds")}
        calibration = {**about, **{name: _shortened(made) for name, made in kept["metrics"].items()}}
    experiment = results_document(results) if figures.is_experiment else {}
    if experiment:
        experiment["results"] = [
            {"change": result["name"], **{name: result[name] for name in ("kind", "decision", "why")}}
            for result in experiment["results"]
        ]
    return {
        "format_version": _FORMAT_VERSION,
        "name": head.name,
        **provenance(head.manifest, made_at=head.started_at),
        "headline": headline(figures),
        "summary": [*summary_sentences(figures), *keep_sentence(results)],
        "request": head.request,
        "data": {"topology": head.topology, "trees": head.trees, "seed": head.seed, **seeded},
        "replicates": figures.replicates,
        "invalidated": figures.invalidated,
        "calibration": calibration,
        "same_responses": figures.responses.equal,
        "cost": head.cost.figures(head.elapsed_s) if head.cost else None,
        **({"plan": {**head.plan, "replicates": figures.replicates}} if head.plan else {}),
        "variants": head.variants,
        "comparisons": [_comparison(each, figures) for each in (*shown, *filter(None, [figures.all_changes]))],
        **experiment,
    }


def published_study(run: Run, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the *document* of a study's report without its folder, with its provenance and all measurements."""
    head = run.head
    return {
        "format_version": _FORMAT_VERSION,
        "name": head.name,
        **provenance(head.manifest, made_at=head.started_at),
        **{name: value for name, value in document.items() if name != "run"},
        "settings": {name: value for name, value in head.settings.items() if name not in ("points", "impossible")},
        "measurements": [asdict(each) for each in run.measurements],
    }


def provenance(manifest: Mapping[str, Any], *, made_at: str) -> dict[str, Any]:
    """Return when, with which commit and on which machine a run was made: the head of each file in docs/results."""
    return {"made_at": made_at, "commit": manifest.get("commit"), "machine": published_machine(manifest)}


def published_text(document: Mapping[str, Any]) -> str:
    """Return the document as JSON text with one line per key and one per list item."""
    lines = []
    for name, value in document.items():
        written = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value:
            written = "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n ]"
        lines.append(f"{json.dumps(name)}: {written}")
    return "{\n " + ",\n ".join(lines) + "\n}"


def published_machine(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the machine and the software versions of a run."""
    machine, packages = manifest.get("machine", {}), manifest.get("packages", {})
    return {
        "placebench": manifest.get("placebench"),
        "processor": machine.get("processor"),
        "cores": machine.get("cores_allowed"),
        "python": manifest.get("python", {}).get("version"),
        "postgresql": str(manifest.get("postgresql", {}).get("version", "")).partition(" on ")[0],
        **{name: packages.get(name) for name in ("sqlalchemy", "psycopg2-binary", "orjson", "pyuwsgi")},
    }


def _shortened(value: Any) -> Any:
    """Return a JSON value with its numbers rounded to four significant digits."""
    if isinstance(value, dict):
        return {name: _shortened(each) for name, each in value.items()}
    return _short(value) if isinstance(value, float) else value


def _comparison(made: Comparison, figures: Figures) -> dict[str, Any]:
    return {
        "change": figures.names.get(made.pair, "from end to end"),
        "baseline": made.baseline,
        "variant": made.variant,
        "metric": made.metric,
        **{name: _short(getattr(made, name)) for name in _FIGURES},
        "verdict": made.verdict,
        "n": made.replicates,
        **({"ratios": [_short(each) for each in made.ratios]} if made.metric in METRICS else {}),
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(units.significant(value, digits=_DIGITS))
