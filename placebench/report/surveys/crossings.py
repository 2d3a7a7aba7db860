"""The numbers of `placebench link`: medians of each arm at each latency, and what its turnarounds predict.

The key pieces are `points_of` and `rows_of`. Predicted is arithmetic: what the baseline takes longer than an arm grows
with the latency by the difference of their counted turnarounds times the latency. Measured is that growth against the
shortest latency of the run, in the median of the repeats.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placebench.compare import Middle, middle
from placebench.experiment.records import Measurement
from placebench.report.surveys.telling import counted
from placebench.results import Run

AGREES_WITHIN = 0.2
_COUNTS = ("round_trips", "connections", "bytes_sent", "bytes_received", "body_bytes")

Key = tuple[str, float]
"""An arm and a latency in milliseconds."""


@dataclass(frozen=True)
class Crossed:
    """One arm at one latency, in medians over its repeats."""

    arm: str
    latency_ms: float
    elapsed: Middle
    values: dict[str, float | None]
    times: dict[int, float]
    """Seconds by repeat."""
    typical: Measurement
    """The one whose time is nearest to the median."""

    @property
    def turns(self) -> float:
        """Turnarounds, and the handshakes of the connections that were opened."""
        return (self.values["round_trips"] or 0.0) + (self.values["connections"] or 0.0)


def points_of(run: Run) -> dict[Key, Crossed]:
    """Every point that was measured, in the order asked for; the first one's arm is the baseline."""
    return {(each.arm, each.latency_ms): each for each in _points(run)}


def axes_of(point: Mapping[str, Any]) -> dict[str, Any]:
    """The arm of a point, with its way to pack answers, and the latency."""
    arm = point["variant"] + (", gzip" if point.get("compress") else "")
    return {"variant": arm, "latency_ms": point["latency_ms"]}


def _points(run: Run) -> Iterator[Crossed]:
    for point, made in counted(run):
        elapsed = middle([each.values["elapsed_s"] for each in made])
        names = (*_COUNTS, "cpu_s", "under_way_s", "proxy_cpu_s", "starved_s")
        yield Crossed(
            arm=axes_of(point)["variant"],
            latency_ms=point["latency_ms"],
            elapsed=elapsed,
            values={name: _median([each.values[name] for each in made]) for name in names},
            times={each.repeat: each.values["elapsed_s"] for each in made},
            typical=min(made, key=lambda each: abs(each.values["elapsed_s"] - elapsed.median)),
        )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return middle(known).median if len(known) == len(values) else None


def rows_of(run: Run, points: Mapping[Key, Crossed]) -> list[dict[str, Any]]:
    """A row a point; `times_less` is the baseline over this one, None where either is 0 or not measured."""
    return [_row(each, points, run.head.settings) for each in points.values()]


def _row(point: Crossed, points: Mapping[Key, Crossed], settings: Mapping[str, Any]) -> dict[str, Any]:
    baseline = _baseline(points)
    latency_s, values = point.latency_ms / 1e3, point.values
    against = points.get((baseline, point.latency_ms)) if point.arm != baseline else None
    growth = _growth(point, points, settings["hops"])
    return {
        "variant": point.arm,
        "latency_ms": point.latency_ms,
        "operations": settings["operations"],
        "n": point.elapsed.n,
        "elapsed_s": point.elapsed.median,
        "elapsed_low_s": point.elapsed.low,
        "elapsed_high_s": point.elapsed.high,
        "confidence": point.elapsed.confidence,
        **{name: values[name] for name in ("cpu_s", "bytes_sent", "bytes_received", "round_trips", "connections")},
        "round_trips_published": _published(point, settings),
        "idle_share": None if values["under_way_s"] is None else values["under_way_s"] / point.elapsed.median,
        "idle_s": values["under_way_s"],
        "proxy_cpu_s": values["proxy_cpu_s"],
        "starved_s": values["starved_s"],
        "body_bytes": values["body_bytes"],
        "round_trip_ms": latency_s * 1e3 * settings["hops"],
        "times_less": None if against is None else _times_less(against, point),
        "predicted_growth_s": growth.predicted_s,
        "measured_growth_s": growth.measured_s,
        "measured_growth_low_s": growth.low_s,
        "measured_growth_high_s": growth.high_s,
        "agrees": growth.agrees,
    }


def _published(point: Crossed, settings: Mapping[str, Any]) -> float | None:
    """Runtime over round-trip time over operations; None where the round trip takes no time."""
    round_trip_s = point.latency_ms / 1e3 * settings["hops"]
    return point.elapsed.median / round_trip_s / settings["operations"] if round_trip_s else None


@dataclass(frozen=True)
class _Growth:
    """By how many seconds the baseline's surplus over an arm grew since the shortest latency."""

    predicted_s: float | None = None
    measured_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None

    @property
    def agrees(self) -> bool | None:
        """None where nothing is predicted."""
        if not self.predicted_s or self.measured_s is None:
            return None
        return abs(self.measured_s / self.predicted_s - 1) <= AGREES_WITHIN


def _growth(point: Crossed, points: Mapping[Key, Crossed], hops: int) -> _Growth:
    """Measured repeat by repeat, for what the machine did meanwhile hits neighbours in time alike."""
    baseline, shortest_ms = _baseline(points), min(latency_ms for _, latency_ms in points)
    places = [(baseline, point.latency_ms), (baseline, shortest_ms), (point.arm, shortest_ms)]
    if point.arm == baseline or point.latency_ms == shortest_ms or not all(place in points for place in places):
        return _Growth()
    here, there, begun = (points[place] for place in places)
    repeats = here.times.keys() & there.times.keys() & begun.times.keys() & point.times.keys()
    grown = [here.times[n] - point.times[n] - there.times[n] + begun.times[n] for n in sorted(repeats)]
    surplus = _waits(here, hops) - _waits(point, hops)
    if not grown:
        return _Growth(surplus * (point.latency_ms - shortest_ms) / 1e3)
    made = middle(grown)
    return _Growth(surplus * (point.latency_ms - shortest_ms) / 1e3, made.median, made.low, made.high)


def _baseline(points: Mapping[Key, Crossed]) -> str:
    return next(iter(points))[0]


def _times_less(baseline: Crossed, point: Crossed) -> dict[str, float | None]:
    before, after = _amounts(baseline), _amounts(point)
    return {name: before[name] / after[name] if before[name] and after[name] else None for name in before}


def _amounts(point: Crossed) -> dict[str, float]:
    """What is better to be less; 0 for what was not measured."""
    values = {name: value or 0.0 for name, value in point.values.items()}
    return {
        "time": point.elapsed.median,
        "CPU": values["cpu_s"],
        "turnarounds": point.turns,
        "bytes": values["bytes_sent"] + values["bytes_received"],
    }


def _waits(point: Crossed, hops: int) -> float:
    """How many latencies of one hop it waits: every turnaround for all hops, a handshake for the nearest."""
    return (point.values["round_trips"] or 0.0) * hops + (point.values["connections"] or 0.0)
