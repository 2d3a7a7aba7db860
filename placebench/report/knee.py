"""The knee of a service as text and as a picture: its capacity with an interval, what was full, and the curve."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

from placebench import units
from placebench.compare.load.load_steps import Capacity, LoadStep, Objective, Saturated
from placebench.page.axis_charts import Band, Line, lines
from placebench.page.svg import Role
from placebench.report.model import Chart
from placebench.stats.hodges_lehmann import MIN_REPLICATES

FULL_TEXTS: Mapping[str, str] = {
    "generator": "the load generator",
    "machine CPU": "the CPU of the machine",
    "worker CPU": "the CPU of the workers",
    "one thread": "one thread of the service",
    "single-threaded master": "the only busy thread of the master process",
    "database CPU": "the CPU of the database",
    "database lock": "a lock in the database",
    "disk": "the disk",
    "pool wait": "the pool of database connections",
    "one lock": "one lock, or the only thread: requests are served one at a time",
    "workers": "the threads of the workers, which wait",
    "limit": "a pool or another limit of requests at once",
    "nothing": "nothing",
    "unknown": "not known",
}
_SHOWN_UP_TO = 4
"""Multiple of the objective above which latencies are cut off in charts: a growing queue would flatten the others."""
_POINTS = 10
"""Maximum number of points of a curve; each is the median of the steps at about that rate."""
_SETTLING_TIMES = 6
"""A step shows the long-run latency if it lasts this many times as long as a queue needs to settle."""


def capacity_text(found: Capacity) -> str:
    """Return '69.0 arrivals/s [95 % CI 67.9, 70.1; n = 6]'."""
    if found.low_per_s is None or found.high_per_s is None:
        few = f"n = {found.n}, {MIN_REPLICATES} needed for an interval"
        return f"{units.significant(found.rate_per_s)} arrivals/s [{few}]"
    low, high = (units.significant(each) for each in (found.low_per_s, found.high_per_s))
    return f"{units.significant(found.rate_per_s)} arrivals/s [95 % CI {low}, {high}; n = {found.n}]"


def full_text(found: Saturated) -> str:
    """Return what was full at the highest throughput, with the reading that shows it."""
    per_s = units.significant(found.throughput_per_s)
    return f"At the highest throughput, {per_s} requests/s, what is full is {FULL_TEXTS[found.full]} ({found.why})."


def settling_text(objective: Objective, alone_s: float, step_s: float) -> str:
    """Return a warning if the steps are too short for the limit; empty if they are not.

    Near saturation a queue may need longer to reach its usual length than a step lasts, and the knee is then too high.
    The time that it needs is estimated by the relaxation time of an M/M/1 queue, 4/9 × limit² / the time of a request.
    """
    needed_s = _SETTLING_TIMES * 4 / 9 * objective.limit_s**2 / alone_s
    if needed_s <= step_s:
        return ""
    times = units.significant(objective.limit_s / alone_s, digits=2)
    return (
        f"The limit is {times} times the latency of a user who is alone: such a queue grows slowly, and steps of "
        f"{units.duration(step_s)} may show a capacity that is too high; give --time {math.ceil(needed_s)}."
    )


def knee_curve(
    steps: Mapping[str, Sequence[LoadStep]], objective: Objective, capacities: Mapping[str, Capacity | None]
) -> Chart | None:
    """Return the chart of the objective's percentile against the rate, with each knee; None without two steps.

    steps: the steps of each service by its name, which is empty if there is one service only.
    """
    top = objective.limit_s * _SHOWN_UP_TO
    series: list[Line] = []
    roles: list[Role] = ["variant", "baseline", "between"]
    for number, (name, made) in enumerate(steps.items()):
        usable = sorted((step for step in made if step.outcome != "generator"), key=lambda step: step.load)
        if len(usable) < 2:
            continue
        role = roles[min(number, len(roles) - 1)]
        curve = _curve(
            usable,
            lambda step: step.latency_s.get(objective.name) if step.objective_s is None else step.objective_s,
            top,
        )
        series.append(Line(name or objective.name, curve, role))
        if len(steps) == 1:
            series.insert(0, Line("p50", _curve(usable, lambda step: step.latency_s["p50"], top), "between"))
    if not series:
        return None
    rates = [where for line in series for where, _ in line.points]
    series.append(Line("limit", [(rate, objective.limit_s) for rate in (min(rates), max(rates))], "between"))
    svg = lines(
        series,
        title="Latency",
        description=f"{objective.name} of the latency against arrivals per second; lower is better.",
        show=units.duration,
        show_where=units.rate,
        bands=[
            Band(name, each.rate_per_s, each.low_per_s or each.rate_per_s, each.high_per_s or each.rate_per_s)
            for name, each in capacities.items()
            if each
        ],
    )
    caption = (
        "From the intended start, against arrivals per second. The upright line is the capacity, the band its 95 % "
        "interval. Latencies above four times the limit are cut off."
    )
    return Chart(svg, caption)


def _curve(
    steps: Sequence[LoadStep], value: Callable[[LoadStep], float | None], top: float
) -> list[tuple[float, float | None]]:
    """Return the median of neighbouring steps, in ascending order of the rate."""
    apart = max(1, math.ceil(len(steps) / _POINTS))
    groups = [steps[place : place + apart] for place in range(0, len(steps), apart)]
    drawn: list[tuple[float, float | None]] = []
    for group in groups:
        values = [seen for step in group if (seen := value(step)) is not None]
        if values:
            drawn.append((fmean(step.load for step in group), min(top, median(values))))
    return drawn
