"""What a slow link costs, told from the measurements of `placebench link`: the key piece is `tell`.

Predicted is arithmetic: what the baseline takes longer than a variant grows with the latency by the difference of their
counted turnarounds times the latency. Measured is that growth against the shortest latency of the run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placebench import units
from placebench.compare import Middle, middle
from placebench.experiment.records import Measurement
from placebench.page.charts import Flow, Line, Role, flows, lines
from placebench.report.surveys.telling import Column, Picture, Told, counted
from placebench.results import Run

_AGREES_WITHIN = 0.2
_COUNTS = ("round_trips", "connections", "bytes_sent", "bytes_received", "body_bytes")
_LESS = {"elapsed_s": "less time", "cpu_s": "less CPU", "turns": "fewer turnarounds", "bytes": "fewer bytes"}
_MORE = {"elapsed_s": "more time", "cpu_s": "more CPU", "turns": "more turnarounds", "bytes": "more bytes"}
_ABOUT_AS_MUCH = 1.05

Key = tuple[str, float]


@dataclass(frozen=True)
class _Point:
    """One arm at one latency, in medians over its repeats."""

    arm: str
    latency_ms: float
    elapsed: Middle
    values: dict[str, float | None]
    typical: Measurement
    """The one whose time is nearest to the median."""

    @property
    def turns(self) -> float:
        """Turnarounds, and the handshakes of the connections that were opened."""
        return (self.values["round_trips"] or 0.0) + (self.values["connections"] or 0.0)


def tell(run: Run) -> Told:
    """A row for each arm and latency; the pictures show time over latency, and bytes over time at the longest one."""
    points = {(each.arm, each.latency_ms): each for each in _points(run)}
    rows = [_row(each, points, run.head.settings) for each in points.values()]
    return Told(
        headline=_headline(rows, run.head.settings),
        rows=rows,
        columns=_columns(rows, run.head.settings),
        pictures=list(_pictures(points, run.head.settings)) if points else (),
        remarks=list(_remarks(rows)),
        reading=list(_reading(run.head.settings)),
        limits=_LIMITS,
    )


def _points(run: Run) -> Iterator[_Point]:
    for point, made in counted(run):
        elapsed = middle([each.values["elapsed_s"] for each in made])
        names = (*_COUNTS, "cpu_s", "under_way_s", "proxy_cpu_s")
        yield _Point(
            arm=point["variant"] + (", gzip" if point.get("compress") else ""),
            latency_ms=point["latency_ms"],
            elapsed=elapsed,
            values={name: _median([each.values[name] for each in made]) for name in names},
            typical=min(made, key=lambda each: abs(each.values["elapsed_s"] - elapsed.median)),
        )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return middle(known).median if len(known) == len(values) else None


def _row(point: _Point, points: Mapping[Key, _Point], settings: Mapping[str, Any]) -> dict[str, Any]:
    baseline = _baseline(points)
    latency_s, values = point.latency_ms / 1e3, point.values
    against = points.get((baseline, point.latency_ms)) if point.arm != baseline else None
    predicted_s, measured_s = _growth(point, points, settings["hops"]) if against else (None, None)
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
        "body_bytes": values["body_bytes"],
        "round_trip_ms": latency_s * 1e3 * settings["hops"],
        "less": None if against is None else _less(against, point),
        "predicted_growth_s": predicted_s,
        "measured_growth_s": measured_s,
        "agrees": None
        if not predicted_s or measured_s is None
        else abs(measured_s / predicted_s - 1) <= _AGREES_WITHIN,
    }


def _published(point: _Point, settings: Mapping[str, Any]) -> float | None:
    """Runtime over round-trip time over operations; None where the round trip takes no time."""
    round_trip_s = point.latency_ms / 1e3 * settings["hops"]
    return point.elapsed.median / round_trip_s / settings["operations"] if round_trip_s else None


def _growth(point: _Point, points: Mapping[Key, _Point], hops: int) -> tuple[float | None, float | None]:
    """By how many seconds the baseline's surplus should have grown since the shortest latency, and by how many it did."""
    baseline = _baseline(points)
    shortest_ms = min(latency_ms for arm, latency_ms in points if arm in (baseline, point.arm))
    here, there = points.get((baseline, point.latency_ms)), points.get((baseline, shortest_ms))
    begun = points.get((point.arm, shortest_ms))
    if here is None or there is None or begun is None or point.latency_ms == shortest_ms:
        return None, None
    surplus = _waits(here, hops) - _waits(point, hops)
    grown = (here.elapsed.median - point.elapsed.median) - (there.elapsed.median - begun.elapsed.median)
    return surplus * (point.latency_ms - shortest_ms) / 1e3, grown


def _waits(point: _Point, hops: int) -> float:
    """How many latencies of one hop it waits: every turnaround for all hops, a handshake for the nearest."""
    return (point.values["round_trips"] or 0.0) * hops + (point.values["connections"] or 0.0)


def _less(baseline: _Point, point: _Point) -> str:
    """'2.3 times less time, as much CPU, 2.2 times fewer turnarounds, 1.3 times fewer bytes'."""
    before, after = _amounts(baseline), _amounts(point)
    return ", ".join(_compared(name, before[name], after[name]) for name in _LESS)


def _amounts(point: _Point) -> dict[str, float | None]:
    sent, received = point.values["bytes_sent"] or 0.0, point.values["bytes_received"] or 0.0
    return {
        "elapsed_s": point.elapsed.median,
        "cpu_s": point.values["cpu_s"],
        "turns": point.turns,
        "bytes": sent + received,
    }


def _compared(name: str, before: float | None, after: float | None) -> str:
    noun = _LESS[name].split()[1]
    if not before or not after:
        return f"{noun} {units.NOT_MEASURED}"
    factor = before / after
    if 1 / _ABOUT_AS_MUCH < factor < _ABOUT_AS_MUCH:
        return f"about as {'many' if _LESS[name].startswith('fewer') else 'much'} {noun}"
    return f"{units.significant(max(factor, 1 / factor), digits=2)} times {(_LESS if factor > 1 else _MORE)[name]}"


def _headline(rows: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> str:
    where = "its database" if settings["between"] == "database" else "its client"
    if not rows:
        return f"What a slow link between a service and {where} costs: nothing was measured."
    longest = max(row["latency_ms"] for row in rows)
    there = [row for row in rows if row["latency_ms"] == longest]
    first, last = there[0], there[-1]
    away = f"With {where} {units.duration(first['round_trip_ms'] / 1e3)} away"
    took = f"{first['variant']} takes {units.duration(first['elapsed_s'])}"
    turns = f"in {units.average(first['round_trips'])} turnarounds"
    if first is last:
        return f"{away}, {took} {turns}."
    other = f"{last['variant']} {units.duration(last['elapsed_s'])} in {units.average(last['round_trips'])}"
    return f"{away}, {took} {turns} and {other}: {last['less'].split(',')[0]}."


def _remarks(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    longest = max((row["latency_ms"] for row in rows), default=0.0)
    for row in rows:
        if row["latency_ms"] == longest and row["less"]:
            yield f"At {units.duration(longest / 1e3)}, {row['variant']} takes {row['less']}."
    held = [row["agrees"] for row in rows if row["agrees"] is not None]
    if held:
        yield (
            f"The difference grew as its turnarounds predict, within {units.level(_AGREES_WITHIN)}, at "
            f"{units.count(sum(held))} of {units.count(len(held))} latencies."
        )


def _columns(rows: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> list[Column]:
    turned = "turnarounds" if settings["between"] == "database" else "turnarounds (and handshakes)"
    columns = [
        Column("variant", "variant"),
        Column("latency_ms", "latency", lambda value: units.duration(value / 1e3)),
        Column("n", "n", units.count),
        Column("elapsed_s", "time", units.duration),
        Column("elapsed_low_s", "from", units.duration),
        Column("elapsed_high_s", "to", units.duration),
        Column("cpu_s", "server CPU", units.duration),
        Column("bytes_sent", "sent", units.size),
        Column("bytes_received", "received", units.size),
        Column("round_trips", turned, units.average),
        Column("round_trips_published", "round trips, published", units.average),
        Column("idle_share", "idle on the link", units.percent),
    ]
    if any(row["less"] for row in rows):
        columns += [
            Column("predicted_growth_s", "growth predicted", _or_dash),
            Column("measured_growth_s", "growth measured", _or_dash),
            Column("less", f"against {rows[0]['variant']}", lambda value: value or "–"),
        ]
    return columns


def _or_dash(seconds: float | None) -> str:
    return "–" if seconds is None else units.duration(seconds)


def _pictures(points: Mapping[Key, _Point], settings: Mapping[str, Any]) -> Iterator[Picture]:
    arms = list(dict.fromkeys(arm for arm, _ in points))
    if len({latency_ms for _, latency_ms in points}) > 1:
        yield Picture(
            "Time over latency",
            lines(
                [Line(arm, _over_latency(arm, points), _role(arm, arms)) for arm in arms],
                title="Time over latency",
                description="One line for each variant; its slope is the number of its turnarounds.",
                show=units.duration,
                show_where=lambda latency_ms: units.duration(latency_ms / 1e3),
            ),
            "Medians. The slope of a line is the number of turnarounds; where it begins is what the work itself takes.",
        )
    longest = max(latency_ms for _, latency_ms in points)
    yield Picture(
        f"Bytes over time at {units.duration(longest / 1e3)}",
        flows(
            [_flow(point, _role(point.arm, arms)) for point in points.values() if point.latency_ms == longest],
            title="Bytes over time",
            description="A field for each variant on one time axis.",
            names=_sides(settings),
            show=units.duration,
        ),
        "The repeat nearest to the median of each. Each direction has one scale for all variants, its greatest rate.",
    )


def _sides(settings: Mapping[str, Any]) -> tuple[str, str]:
    if settings["between"] == "database":
        return "received from the database", "sent to it"
    return "received from the service", "sent to it"


def _over_latency(arm: str, points: Mapping[Key, _Point]) -> list[tuple[float, float]]:
    return [(latency_ms, point.elapsed.median) for (name, latency_ms), point in points.items() if name == arm]


def _flow(point: _Point, role: Role) -> Flow:
    trace, values = point.typical.values["trace"], point.typical.values
    return Flow(
        label=point.arm,
        value=f"{units.size(values['bytes_received'])} received, {units.size(values['bytes_sent'])} sent",
        bin_s=trace["bin_s"],
        came=[amount / trace["bin_s"] for amount in trace["received"]],
        went=[amount / trace["bin_s"] for amount in trace["sent"]],
        role=role,
    )


def _role(arm: str, arms: Sequence[str]) -> Role:
    return "baseline" if arm == arms[0] else "variant" if arm == arms[-1] else "between"


def _baseline(points: Mapping[Key, _Point]) -> str:
    return next(iter(points))[0]


def _reading(settings: Mapping[str, Any]) -> Iterator[str]:
    sides = "the service and its database" if settings["between"] == "database" else "the client and the service"
    job = {
        "query": "A job is the request",
        "tiny": "A job is small reads one after the other (GET /resource_providers/UUID)",
        "waits": "A job is the request after 250 ms of pg_sleep() in the database, one statement of the service's own",
    }[settings["job"]]
    yield f"{job}, {units.count(settings['operations'])} a job, by one client of one worker with one thread."
    yield (
        f"A proxy of ours stands between {sides}. Each byte leaves it half of the latency after it came; "
        "a connection that is opened costs one latency more, for its handshake."
    )
    if settings["hops"] > 1:
        yield f"{units.count(settings['hops'])} links stand in a row, each with the latency of the row."
    if settings["bytes_per_s"]:
        yield f"The link passes {units.size(settings['bytes_per_s'])} a second in each direction."
    yield "Turnarounds are counted: the side that asks sends after it received. Bytes are TCP's payload."
    yield (
        "Round trips as published are time over round-trip time over operations. They count the work itself as if it "
        "were travel, so they are too many where the link is fast, and not measured where it takes no time."
    )
    yield "Idle on the link is the share of the time in which a byte of the job was on its way."
    yield (
        "Growth is by how much longer the first variant takes than this one, less the same at the shortest latency; "
        "predicted is the difference of turnarounds times the difference of latencies."
    )


_LIMITS = (
    "A link that loses packets, whose delay varies, or whose TCP begins slowly: here a long answer crosses in one latency, "
    "however long it is, unless the bandwidth is limited.",
    "What several clients at once would see: requests that wait for the link leave the worker's CPU to others only where "
    "it has threads for them.",
    "Times at the shortest latencies hold the proxy's own 0.05 ms a round trip, and so do those of all variants alike.",
)
