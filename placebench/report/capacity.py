"""The report of a search for the capacity of a service: `capacity_report`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from placebench import units
from placebench.compare.load.load_steps import PERCENTILES, LoadStep, Saturation, parse_objective
from placebench.page.axis_charts import Line, lines
from placebench.page.svg import Role
from placebench.report.effects import percentile_text
from placebench.report.environment import request_block
from placebench.report.knee import capacity_text, full_text, knee_curve, settling_text
from placebench.report.model import Chart, Column, Details, Items, Report, Section, Table

_ENDED = {
    "running": "This search is still under way, or was killed: the report shows what was measured until then.",
    "interrupted": "This search was interrupted: the report shows what was measured until then.",
    "failed": "This search failed: the report shows what was measured until then.",
}
_OUTCOMES = {"held": "passed", "broken": "failed", "generator": "discarded"}
_USERS_LINES: Final[Sequence[tuple[str, Role]]] = (("p50", "between"), ("p95", "variant"))
_STYLES = {"held": "role-variant", "broken": "role-baseline", "generator": "state-same"}
_NOTES = {
    "rate": "Arrivals follow a seeded schedule (seed {seed}), whatever the service does. The rate is doubled until the "
    "objective fails, then bisected until the highest that passes and the lowest that fails are 5 % apart, or 20 % if "
    "replicates follow.",
    "users": "Users are doubled until requests fail or time out.",
}
_REPLICATES = (
    "A replicate has five rates of its own around the capacity found before; its capacity is where the percentile "
    "crosses the limit among them. The interval is Hodges and Lehmann's over the replicates."
)
_DISCARDED = (
    "A step in which the load generator used more than 70 % of a core, or itself started more than 1 % of the arrivals "
    "late, says nothing about the service and is discarded. Every sample is in step-<n>.json."
)


def capacity_report(folder: Path) -> Report:
    """Build the report of the capacity search in *folder*; raise RunFolderError if there is none."""
    made = Saturation.load(folder / "saturation.json")
    table, headline = _step_table(made), _headline(made)
    steps = [*made.steps, *(step for knee in made.knees for step in knee.steps)]
    reasons = [f"{_load(made, each)}: {_OUTCOMES[each.outcome]}{each.why and f', {each.why}'}" for each in steps]
    order = Details("In the order they were made, with their reasons", [Items(reasons, ordered=True)])
    return Report(
        folder=folder,
        name=made.name,
        started_at=made.started_at,
        status=made.status,
        headline=headline,
        document={"run": str(folder), "headline": headline, **made.to_json()},
        notices=[_ENDED[made.status]] if made.status in _ENDED else [],
        summary=list(_summary(made)),
        overview=[table],
        request=Section("Request", [request_block(f"{made.url}  {made.request or ''}")]),
        sections=[*_charts(made), Section("Steps", [table, order])],
        notes=[
            _NOTES[made.kind].format(seed=made.seed),
            *([_REPLICATES] if made.knees else []),
            _DISCARDED,
        ],
        can_rebuild=False,
    )


def _headline(made: Saturation) -> str:
    held, broken, unclear = made.held, made.broken, made.unclear
    if made.capacity:
        return f"{made.url} meets {_goal(made)} up to {capacity_text(made.capacity)}."
    if made.knees and made.status != "running":
        return f"The capacity of {made.url} is inconclusive: {made.knees[-1].why}."
    if held is None:
        if broken is None:
            return f"The capacity of {made.url} is inconclusive{f': {unclear.why}' if unclear else ''}."
        goal = f"meet {_goal(made)}" if made.objective else "respond without errors"
        return f"{made.url} does not {goal} even {_with(made, broken.load)}: {broken.why}."
    goal = f"meets {_goal(made)}" if made.objective else "responds without errors"
    reach = "up to" if broken and not unclear else _at(made)
    said = f"{made.url} {goal} {reach} {_amount(made, held.load)}"
    if unclear:
        return f"{said}; higher loads are inconclusive: {_with(made, unclear.load)} {unclear.why}."
    if broken:
        return f"{said}; {_with(made, broken.load)} {broken.why}."
    return f"{said}; nothing higher was measured."


def _summary(made: Saturation) -> Iterator[str]:
    """Yield what was full, the replicates that show no capacity, and whether the steps were too short."""
    if made.saturated is None:
        return
    yield full_text(made.saturated)
    if lost := [knee.why for knee in made.knees if knee.rate_per_s is None]:
        yield f"{units.numbered(len(lost), 'replicate')} of {len(made.knees)} show no capacity: {lost[-1]}."
    if made.step_s and made.objective:
        yield from filter(None, [settling_text(parse_objective(made.objective), made.saturated.alone_s, made.step_s)])


def _goal(made: Saturation) -> str:
    objective = parse_objective(str(made.objective))
    return f"{objective.name} ≤ {units.duration(objective.limit_s)}"


def _at(made: Saturation) -> str:
    return "at" if made.kind == "rate" else "with"


def _amount(made: Saturation, load: float) -> str:
    return f"{units.significant(load)} arrivals/s" if made.kind == "rate" else f"{units.count(load)} users"


def _with(made: Saturation, load: float) -> str:
    return f"{_at(made)} {_amount(made, load)}"


def _load(made: Saturation, step: LoadStep) -> str:
    return units.rate(step.load) if made.kind == "rate" else units.count(step.load)


def _step_table(made: Saturation) -> Table:
    def percentile(name: str) -> Column:
        return Column(name, lambda step: percentile_text(step.latency_s.get(name)))

    columns = [
        Column("arrivals" if made.kind == "rate" else "users", lambda step: _load(made, step)),
        Column("outcome", lambda step: _OUTCOMES[step.outcome]),
        Column("requests", lambda step: units.count(step.requests)),
        Column("failed", lambda step: units.count(step.failures)),
        Column("throughput", lambda step: units.rate(step.throughput_per_s)),
        *map(percentile, PERCENTILES),
        Column("generator CPU", lambda step: units.percent(step.client_cpu, digits=2)),
        Column("started late", lambda step: units.count(step.missed)),
        Column("sent again", lambda step: units.count(step.repeats), optional=True),
    ]
    steps = sorted([*made.steps, *(step for knee in made.knees for step in knee.steps)], key=lambda step: step.load)
    return Table("Steps", columns, steps, id="steps", row_style=lambda step: _STYLES[step.outcome])


def _charts(made: Saturation) -> list[Section]:
    if made.objective:
        steps = [*made.steps, *(step for knee in made.knees for step in knee.steps)]
        curve = knee_curve({"": steps}, parse_objective(made.objective), {"": made.capacity})
        return [Section("Latency", [curve])] if curve else []
    steps = sorted((step for step in made.steps if step.outcome != "generator"), key=lambda step: step.load)
    if len(steps) < 2:
        return []
    latencies = [Line(name, [(step.load, step.latency_s[name]) for step in steps], role) for name, role in _USERS_LINES]
    svg = lines(
        latencies,
        title="Latency",
        description="Latency from the intended start against the load; lower is better.",
        show=units.duration,
        show_where=units.count,
    )
    throughput = lines(
        [Line("throughput", [(step.load, step.throughput_per_s) for step in steps], "variant")],
        title="Throughput",
        description="Requests per second against users.",
        show=units.rate,
        show_where=units.count,
    )
    caption = "Against closed-loop users: where it no longer rises, the service is saturated."
    return [
        Section("Latency", [Chart(svg, "Against closed-loop users.")]),
        Section("Throughput", [Chart(throughput, caption)]),
    ]
