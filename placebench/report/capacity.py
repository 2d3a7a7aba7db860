"""What a search for a service's limit says: one line, a JSON document and a page with its charts.

The key pieces are `result_line` and `write_saturation`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from markupsafe import Markup

from placebench import units
from placebench.experiment.capacity import PERCENTILES, LoadStep, Saturation, parse_objective
from placebench.page import charts, shell
from placebench.page.charts import Line, Role
from placebench.report.templating import templates, write_page

_SHOWN_UP_TO = 4
"""How many times the objective a latency is drawn up to: a queue that only grows would press all else flat."""
_ENDED = {
    "running": "This search has not come to its end, or was killed: only what was measured until then is shown.",
    "interrupted": "This search was interrupted: only what was measured until then is shown.",
    "failed": "This search failed: only what was measured until then is shown.",
}
OUTCOMES = {"held": "holds", "broken": "does not hold", "generator": "does not count"}


def result_line(made: Saturation) -> str:
    """The result in one sentence: what holds, what does not, or that the generator was the limit."""
    held, broken, unclear = made.held, made.broken, made.unclear
    if held is None:
        if broken is None:
            why = f": {unclear.why}" if unclear else ""
            return f"Nothing can be told of {made.url}{why}."
        goal = f"hold {_goal(made)}" if made.objective else "answer without errors"
        return f"{made.url} does not {goal} even {_with(made, broken.load)}: {broken.why}."
    goal = f"holds {_goal(made)}" if made.objective else "answers without errors"
    reach = "up to" if broken and not unclear else _at(made)
    said = f"{made.url} {goal} {reach} {_amount(made, held.load)}"
    if unclear:
        return f"{said}; more cannot be told: {_with(made, unclear.load)} {unclear.why}."
    if broken:
        return f"{said}; {_with(made, broken.load)} {broken.why}."
    return f"{said}; nothing higher was tried."


def saturation_document(folder: Path, made: Saturation) -> dict[str, Any]:
    """The same for `--json`, with every step."""
    return {"run": str(folder), "headline": result_line(made), **made.to_json()}


def write_saturation(folder: Path) -> Path:
    """Write `index.html` of the search in *folder* and return its path; RunFolderError where there is none."""
    made = Saturation.load(folder / "saturation.json")
    body = (
        templates()
        .get_template("saturation.html")
        .render(
            made=made,
            headline=result_line(made),
            ended=_ENDED.get(made.status, ""),
            drawn=_charts(made),
            quantiles=list(PERCENTILES),
            outcomes=OUTCOMES,
            ordered=sorted(made.steps, key=lambda step: step.load),
        )
    )
    document = shell(f"{made.name} · placebench", Markup(body), description=result_line(made))
    return write_page(folder / "index.html", document)


def _goal(made: Saturation) -> str:
    objective = parse_objective(str(made.objective))
    return f"{objective.name} ≤ {units.duration(objective.limit_s)}"


def _at(made: Saturation) -> str:
    return "at" if made.kind == "rate" else "with"


def _amount(made: Saturation, load: float) -> str:
    return f"{units.significant(load)} arrivals a second" if made.kind == "rate" else f"{units.count(load)} users"


def _with(made: Saturation, load: float) -> str:
    return f"{_at(made)} {_amount(made, load)}"


def _charts(made: Saturation) -> list[tuple[str, Markup]]:
    """Latency, and for users throughput, against the load; steps that do not count are left out."""
    steps = sorted((step for step in made.steps if step.outcome != "generator"), key=lambda step: step.load)
    if len(steps) < 2:
        return []
    where: Callable[[float], str] = units.rate if made.kind == "rate" else units.count
    drawn = [("Latency", _latency(made, steps, where))]
    if made.kind == "users":
        series = [Line("answered", [(step.load, step.throughput_per_s) for step in steps], "variant")]
        title, told = "Requests answered", "Requests a second against users."
        drawn.append((title, charts.lines(series, title=title, description=told, show=units.rate, show_where=where)))
    return drawn


def _latency(made: Saturation, steps: list[LoadStep], where: Callable[[float], str]) -> Markup:
    objective = parse_objective(made.objective) if made.objective else None
    name = objective.name if objective else "p95"
    top = objective.limit_s * _SHOWN_UP_TO if objective else float("inf")
    names = dict.fromkeys(("p50", name))
    series = [_line(each, steps, top, "variant" if each == name else "between") for each in names]
    if objective:
        ends = steps[0].load, steps[-1].load
        series.append(Line("objective", [(load, objective.limit_s) for load in ends], "baseline"))
    return charts.lines(
        series,
        title="Latency",
        description="Latency from the intended start against the load; lower is better.",
        show=units.duration,
        show_where=where,
    )


def _line(name: str, steps: list[LoadStep], top: float, role: Role) -> Line:
    seen = [(step.load, step.latency_s.get(name)) for step in steps]
    return Line(name, [(load, min(value, top)) for load, value in seen if value is not None], role)
