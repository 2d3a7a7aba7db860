"""The network study: medians of each variant at each latency, round trips and bytes, with its charts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placebench import units
from placebench.experiment.records import Measurement
from placebench.page.charts import Flow, Line, Role, flows, lines
from placebench.report.studies.study import Column, Picture, Told, counted, difference
from placebench.results import Run
from placebench.stats import MedianInterval, median_interval

AGREES_WITHIN = 0.2
_COUNTS = ("round_trips", "connections", "bytes_sent", "bytes_received", "body_bytes")

Key = tuple[str, float]
"""A variant and a latency in milliseconds."""


@dataclass(frozen=True)
class Crossed:
    """One variant at one latency, in medians over its repeats."""

    variant: str
    latency_ms: float
    elapsed: MedianInterval
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
    """Every point that was measured, in the order asked for; the first one's variant is the baseline."""
    return {(each.variant, each.latency_ms): each for each in _points(run)}


def axes_of(point: Mapping[str, Any]) -> dict[str, Any]:
    """The variant of a point, with its way to pack answers, and the latency."""
    variant = point["variant"] + (", gzip" if point.get("compress") else "")
    return {"variant": variant, "latency_ms": point["latency_ms"]}


def _points(run: Run) -> Iterator[Crossed]:
    for point, made in counted(run):
        elapsed = median_interval([each.values["elapsed_s"] for each in made])
        names = (*_COUNTS, "cpu_s", "in_transit_s", "proxy_cpu_s", "starved_s")
        yield Crossed(
            variant=axes_of(point)["variant"],
            latency_ms=point["latency_ms"],
            elapsed=elapsed,
            values={name: _median([each.values[name] for each in made]) for name in names},
            times={each.repeat: each.values["elapsed_s"] for each in made},
            typical=min(made, key=lambda each: abs(each.values["elapsed_s"] - elapsed.median)),
        )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median_interval(known).median if len(known) == len(values) else None


def rows_of(run: Run, points: Mapping[Key, Crossed]) -> list[dict[str, Any]]:
    """A row a point; `times_less` is the baseline over this one, None where either is 0 or not measured."""
    return [_row(each, points, run.head.settings) for each in points.values()]


def _row(point: Crossed, points: Mapping[Key, Crossed], settings: Mapping[str, Any]) -> dict[str, Any]:
    baseline = _baseline(points)
    latency_s, values = point.latency_ms / 1e3, point.values
    against = points.get((baseline, point.latency_ms)) if point.variant != baseline else None
    growth = _growth(point, points, settings["proxies"])
    return {
        "variant": point.variant,
        "latency_ms": point.latency_ms,
        "operations": settings["operations"],
        "n": point.elapsed.n,
        "elapsed_s": point.elapsed.median,
        "elapsed_low_s": point.elapsed.low,
        "elapsed_high_s": point.elapsed.high,
        "confidence": point.elapsed.confidence,
        **{name: values[name] for name in ("cpu_s", "bytes_sent", "bytes_received", "round_trips", "connections")},
        "round_trips_published": _published(point, settings),
        "idle_share": None if values["in_transit_s"] is None else values["in_transit_s"] / point.elapsed.median,
        "idle_s": values["in_transit_s"],
        "proxy_cpu_s": values["proxy_cpu_s"],
        "starved_s": values["starved_s"],
        "body_bytes": values["body_bytes"],
        "round_trip_ms": latency_s * 1e3 * settings["proxies"],
        "times_less": None if against is None else _times_less(against, point),
        "predicted_growth_s": growth.predicted_s,
        "measured_growth_s": growth.measured_s,
        "measured_growth_low_s": growth.low_s,
        "measured_growth_high_s": growth.high_s,
        "agrees": growth.agrees,
    }


def _published(point: Crossed, settings: Mapping[str, Any]) -> float | None:
    """Runtime over round-trip time over operations; None where the round trip takes no time."""
    round_trip_s = point.latency_ms / 1e3 * settings["proxies"]
    return point.elapsed.median / round_trip_s / settings["operations"] if round_trip_s else None


@dataclass(frozen=True)
class _Growth:
    """By how many seconds the baseline's surplus over a variant grew since the shortest latency."""

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


def _growth(point: Crossed, points: Mapping[Key, Crossed], proxies: int) -> _Growth:
    """Measured repeat by repeat, for what the machine did meanwhile hits neighbours in time alike."""
    baseline, shortest_ms = _baseline(points), min(latency_ms for _, latency_ms in points)
    places = [(baseline, point.latency_ms), (baseline, shortest_ms), (point.variant, shortest_ms)]
    if point.variant == baseline or point.latency_ms == shortest_ms or not all(place in points for place in places):
        return _Growth()
    here, there, begun = (points[place] for place in places)
    repeats = here.times.keys() & there.times.keys() & begun.times.keys() & point.times.keys()
    grown = [here.times[n] - point.times[n] - there.times[n] + begun.times[n] for n in sorted(repeats)]
    surplus = _waits(here, proxies) - _waits(point, proxies)
    if not grown:
        return _Growth(surplus * (point.latency_ms - shortest_ms) / 1e3)
    made = median_interval(grown)
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


def _waits(point: Crossed, proxies: int) -> float:
    """How many latencies of one proxy it waits: every turnaround for all proxies, a handshake for the nearest."""
    return (point.values["round_trips"] or 0.0) * proxies + (point.values["connections"] or 0.0)


_COUNTED = ("turnarounds", "bytes")
_ABOUT_AS_MUCH = 1.05
_STARVED_FROM = 0.1


def tell(run: Run) -> Told:
    """A row for each variant and latency; the charts show time over latency, and bytes over time at the longest one."""
    points = points_of(run)
    rows = [{**row, "less": _less(row["times_less"])} for row in rows_of(run, points)]
    return Told(
        headline=_headline(rows, run.head.settings),
        rows=rows,
        columns=_columns(rows, run.head.settings),
        pictures=list(_pictures(points, run.head.settings)) if points else (),
        remarks=list(_remarks(rows)),
        reading=list(_reading(run.head.settings)),
        limits=_LIMITS,
        axes=axes_of,
    )


def _less(times_less: Mapping[str, float | None] | None) -> str | None:
    """'2.3 times less time, about as much CPU, 2.2 times fewer turnarounds, 1.3 times fewer bytes'; None for None."""
    if times_less is None:
        return None
    return ", ".join(_compared(what, factor) for what, factor in times_less.items())


def _compared(what: str, factor: float | None) -> str:
    less, more = ("fewer", "many") if what in _COUNTED else ("less", "much")
    if factor is None:
        return f"{what} {units.NOT_MEASURED}"
    if 1 / _ABOUT_AS_MUCH < factor < _ABOUT_AS_MUCH:
        return f"about as {more} {what}"
    times = units.significant(max(factor, 1 / factor), digits=2)
    return f"{times} times {less if factor > 1 else 'more'} {what}"


def _headline(rows: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> str:
    where = "its database" if settings["between"] == "database" else "its client"
    if not rows:
        return f"What a slow link between a service and {where} costs: nothing was measured."
    longest = max(row["latency_ms"] for row in rows)
    there = [row for row in rows if row["latency_ms"] == longest]
    first, last = there[0], there[-1]
    away = f"With {where} {_away(first['round_trip_ms'])} away"
    took = f"{first['variant']} takes {units.duration(first['elapsed_s'])}"
    turns = f"in {units.average(first['round_trips'])} turnaround{'s' * (first['round_trips'] != 1)}"
    if first is last:
        return f"{away}, {took} {turns}."
    other = f"{last['variant']} {units.duration(last['elapsed_s'])} in {units.average(last['round_trips'])}"
    less = f": {last['less'].split(',')[0]}" if last["less"] else ""
    return f"{away}, {took} {turns} and {other}{less}."


def _remarks(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    longest = max((row["latency_ms"] for row in rows), default=0.0)
    for row in rows:
        if row["latency_ms"] == longest and row["less"]:
            yield f"At {_away(longest)}, {row['variant']} takes {row['less']}."
    starved = max(((row["starved_s"] or 0.0) / row["elapsed_s"] for row in rows), default=0.0)
    if starved > _STARVED_FROM:
        yield (
            f"The machine was busy with other things: the server waited for a CPU for up to {units.percent(starved)} "
            "of the time. Counts hold; believe no time."
        )
    predicted = [row for row in rows if row["agrees"] is not None]
    if predicted:
        yield _agreement(predicted[-1])


def _agreement(row: Mapping[str, Any]) -> str:
    """What the turnarounds predict for this row, and what was seen: of what is saved, or of what is lost."""
    way = -1 if row["predicted_growth_s"] < 0 else 1
    low, high = row["measured_growth_low_s"], row["measured_growth_high_s"]
    limits = () if low is None else sorted((way * low, way * high))
    interval = f" ({' to '.join(map(difference, limits))})" if limits else ""
    return (
        f"Of {row['variant']} the turnarounds predict that {difference(way * row['predicted_growth_s'])} more are "
        f"{'lost' if way < 0 else 'saved'} at {_away(row['latency_ms'])} than at the shortest latency; measured are "
        f"{difference(way * row['measured_growth_s'])}{interval}, "
        f"{'within' if row['agrees'] else 'NOT within'} {units.level(AGREES_WITHIN)}."
    )


def _away(latency_ms: float) -> str:
    """A latency as it was asked for."""
    return f"{latency_ms:g} ms"


def _columns(rows: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> list[Column]:
    opened = [Column("connections", "handshakes", units.average)] if settings["between"] == "client" else []
    columns = [
        Column("variant", "variant"),
        Column("latency_ms", "latency", _away),
        Column("n", "n", units.count),
        Column("elapsed_s", "time", units.duration),
        Column("elapsed_low_s", "from", units.duration),
        Column("elapsed_high_s", "to", units.duration),
        Column("cpu_s", "server CPU", units.duration),
        Column("bytes_sent", "sent", units.size),
        Column("bytes_received", "received", units.size),
        Column("round_trips", "turnarounds", units.average),
        *opened,
        Column("round_trips_published", "round trips, published", units.average),
        Column("idle_share", "idle on the link", units.percent),
    ]
    if any(row["less"] for row in rows):
        columns += [
            Column("predicted_growth_s", "growth predicted", difference),
            Column("measured_growth_s", "growth measured", difference),
            Column("less", f"against {rows[0]['variant']}", lambda value: value or "–"),
        ]
    return columns


def _pictures(points: Mapping[Key, Crossed], settings: Mapping[str, Any]) -> Iterator[Picture]:
    variants = list(dict.fromkeys(variant for variant, _ in points))
    if len({latency_ms for _, latency_ms in points}) > 1:
        yield Picture(
            "Time over latency",
            lines(
                [Line(variant, _over_latency(variant, points), _role(variant, variants)) for variant in variants],
                title="Time over latency",
                description="One line for each variant; its slope is the number of its turnarounds.",
                show=units.duration,
                show_where=_away,
            ),
            "Medians. The slope of a line is the number of turnarounds; where it begins is what the work itself takes.",
        )
    longest = max(latency_ms for _, latency_ms in points)
    there = [point for point in points.values() if point.latency_ms == longest]
    bin_s = max(point.typical.values["trace"]["bin_s"] for point in there)
    yield Picture(
        f"Bytes over time at {_away(longest)}",
        flows(
            [_flow(point, _role(point.variant, variants), bin_s) for point in there],
            title="Bytes over time",
            description="A field for each variant on one time axis.",
            names=_sides(settings),
            show=units.duration,
        ),
        "The repeat nearest to the median of each. Each direction has one scale for all variants.",
    )


def _sides(settings: Mapping[str, Any]) -> tuple[str, str]:
    if settings["between"] == "database":
        return "received from the database", "sent to it"
    return "received from the service", "sent to it"


def _over_latency(variant: str, points: Mapping[Key, Crossed]) -> list[tuple[float, float]]:
    return [(latency_ms, point.elapsed.median) for (name, latency_ms), point in points.items() if name == variant]


def _flow(point: Crossed, role: Role, bin_s: float) -> Flow:
    trace, values = point.typical.values["trace"], point.typical.values
    merged = round(bin_s / trace["bin_s"])
    return Flow(
        label=point.variant,
        value=f"{units.size(values['bytes_received'])} received, {units.size(values['bytes_sent'])} sent",
        bin_s=bin_s,
        came=_merged(trace["received"], merged),
        went=_merged(trace["sent"], merged),
        role=role,
    )


def _merged(bins: Sequence[int], count: int) -> list[float]:
    """The bins, each *count* of them as one: a trace that is shorter than another has shorter ones."""
    return [float(sum(bins[at : at + count])) for at in range(0, len(bins), count)]


def _role(variant: str, variants: Sequence[str]) -> Role:
    return "baseline" if variant == variants[0] else "variant" if variant == variants[-1] else "between"


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
    if settings["proxies"] > 1:
        yield f"{units.count(settings['proxies'])} proxies stand in a row, each with the latency of the row."
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
    "A link that loses packets, whose delay varies, or whose TCP begins slowly: here all bytes cross in one latency.",
    "What several clients at once would see: a request that waits for the link holds its thread.",
    "Times at the shortest latencies hold the proxy's own 0.05 ms a round trip, and so do those of all variants alike.",
)
