"""The study of `placebench lab study network`: how latency and bandwidth change the duration of the same work.

`network_jobs` has the measurement; this module has the options and the report: medians per variant and latency, round
trips and bytes, with charts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from markupsafe import Markup

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import Measurement
from placebench.decoding import Amount, AtLeastOne, Count, Meta, Positive
from placebench.errors import PlacebenchError
from placebench.lab.studies.commands import LATENCIES_MS, PROTOCOL_JOBS, REPLICATES, ByPreset, NetworkOptions
from placebench.lab.studies.study import run_study, study_kind
from placebench.page.axis_charts import Line, TrafficSeries, flows, lines
from placebench.page.svg import Role
from placebench.report.model import Chart, Column
from placebench.report.study_report import (
    StudyResults,
    interval_columns,
    interval_figures,
    measured,
    median_of_all,
    signed_duration,
    valid_points,
)
from placebench.results import Run
from placebench.stats import MedianInterval, median_interval

if TYPE_CHECKING:
    from placebench.lab.inventory.topology import Topology
    from placebench.lab.studies.network_jobs import NetworkStudy, ProtocolStudy


class _NetworkPoint(TypedDict):
    variant: str
    latency_ms: Annotated[float, Meta(ge=0, le=1e6)]
    compress: NotRequired[bool]


class _NetworkSettings(StudySettings[_NetworkPoint]):
    job: Literal["query", "tiny", "waits", "http", "rows", "walk"]
    operations: AtLeastOne
    between: Literal["database", "client"]
    bytes_per_s: Positive | None
    proxies: AtLeastOne
    clients: NotRequired[AtLeastOne]


class _Trace(TypedDict):
    bin_s: Positive
    sent: list[Count]
    received: list[Count]


class _NetworkValues(TypedDict):
    elapsed_s: Positive
    cpu_s: Amount | None
    client_cpu_s: NotRequired[Amount | None]
    starved_s: Amount
    round_trips: Count
    connections: Count
    bytes_sent: Count
    bytes_received: Count
    in_transit_s: Amount
    proxy_cpu_s: Amount
    body_bytes: Count
    trace: _Trace


# --- the command


_QUICK_TINY_OPERATIONS = 40
_OPERATIONS_OF_PROTOCOLS = 20


def run(given: NetworkOptions) -> int:
    """Measure every variant at every latency."""
    from placebench.runtime.network.delay_queue import LinkProfile

    topology = given.topology()
    text = given.latency_ms or given.default(LATENCIES_MS)[given.job]
    try:
        latencies_ms = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError as error:
        raise PlacebenchError(f"--latency-ms {text!r}: expected milliseconds with commas between, as 0,50") from error
    bytes_per_s = None if given.bandwidth_mbit is None else given.bandwidth_mbit * 1e6 / 8
    for latency_ms in latencies_ms:
        LinkProfile(latency_ms / 1e3, bytes_per_s)
    study = (
        _protocol_study(given, latencies_ms, bytes_per_s)
        if given.job in PROTOCOL_JOBS
        else _network_study(given, topology, latencies_ms, bytes_per_s)
    )
    return run_study(given, topology, study.spec(repeats=given.replicates or REPLICATES))


def _network_study(
    given: NetworkOptions, topology: "Topology", latencies_ms: tuple[float, ...], bytes_per_s: float | None
) -> "NetworkStudy":
    from placebench.compare.what.variants import read_variant, require_servers
    from placebench.lab.studies.network_jobs import TINY_OPERATIONS, NetworkStudy

    names = given.variants or ("naive", "tuned")
    variants = tuple(read_variant(name, python=given.placement_python) for name in names)
    for variant in variants:
        if variant.request:
            raise PlacebenchError(f"the variant {variant.name} uses no database: name variants, or placement")
        if not variant.ours and (given.job == "waits" or given.compress):
            what = "--job waits" if given.job == "waits" else "--compress"
            raise PlacebenchError(f"{what} needs the reference service: leave {variant.name} out of --variants")
    require_servers(variants)
    if given.compress and given.between != "client":
        raise PlacebenchError("--compress is for responses to the client: add --between client")
    tiny = given.default(ByPreset(TINY_OPERATIONS, _QUICK_TINY_OPERATIONS))
    return NetworkStudy(
        variants=variants,
        latencies_ms=latencies_ms,
        request=given.request or topology.request,
        job=given.job,
        operations=given.operations or (tiny if given.job == "tiny" else 1),
        between=given.between or "database",
        bytes_per_s=bytes_per_s,
        proxies=given.proxies,
        compress=given.compress,
        clients=given.clients or 1,
    )


def _protocol_study(
    given: NetworkOptions, latencies_ms: tuple[float, ...], bytes_per_s: float | None
) -> "ProtocolStudy":
    from placebench.lab.studies.network_jobs import PROTOCOLS, ProtocolStudy

    known = PROTOCOLS[given.job]
    for option in ("between", "clients", "compress", "request", "placement_python"):
        if getattr(given, option):
            raise PlacebenchError(f"--{option.replace('_', '-')} has no effect on --job {given.job}: leave it away")
    chosen = given.variants or known
    if wrong := [name for name in chosen if name not in known]:
        raise PlacebenchError(f"no protocol {wrong[0]!r} of --job {given.job}: expected {', '.join(known)}")
    operations = given.operations or _OPERATIONS_OF_PROTOCOLS
    return ProtocolStudy(given.job, chosen, latencies_ms, operations, bytes_per_s, given.proxies)


# --- the report


_AGREES_WITHIN = 0.2
_COUNTS = ("round_trips", "connections", "bytes_sent", "bytes_received", "body_bytes")

_Key = tuple[str, float]
"""A variant's name, and a latency in milliseconds."""


@dataclass(frozen=True)
class _Point:
    """One variant at one latency, with medians over its repeats."""

    variant: str
    latency_ms: float
    elapsed: MedianInterval
    values: dict[str, float | None]
    times: dict[int, float]
    """Duration in seconds, by repeat."""
    typical: Measurement
    """The measurement whose duration is nearest to the median."""

    @property
    def round_trips(self) -> float:
        """Number of round trips, including the handshakes of new connections."""
        return (self.values["round_trips"] or 0.0) + (self.values["connections"] or 0.0)


def _axes(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variant of a point, with its compression of responses, and the latency."""
    variant = point["variant"] + (", gzip" if point.get("compress") else "")
    return {"variant": variant, "latency_ms": point["latency_ms"]}


def _points(run: Run) -> Iterator[_Point]:
    for point, made in valid_points(run):
        elapsed = median_interval([each.values["elapsed_s"] for each in made])
        names = (*_COUNTS, "cpu_s", "client_cpu_s", "in_transit_s", "proxy_cpu_s", "starved_s")
        yield _Point(
            variant=_axes(point)["variant"],
            latency_ms=point["latency_ms"],
            elapsed=elapsed,
            values={name: median_of_all([each.values.get(name) for each in made]) for name in names},
            times={each.repeat: each.values["elapsed_s"] for each in made},
            typical=min(made, key=lambda each: abs(each.values["elapsed_s"] - elapsed.median)),
        )


def _row(point: _Point, points: Mapping[_Key, _Point], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a point; `ratios` are relative to the baseline, None if a value is 0 or was not measured.

    `round_trips_published` is the runtime divided by round-trip time and operations; None without latency, or if
    several clients share the runtime.
    """
    baseline = _baseline(points)
    is_alone = settings.get("clients", 1) == 1
    latency_s, values = point.latency_ms / 1e3, point.values
    round_trip_s = latency_s * settings["proxies"]
    against = points.get((baseline, point.latency_ms)) if point.variant != baseline else None
    growth = _growth(point, points, settings["proxies"]) if is_alone else _Growth()
    idle_s = values["in_transit_s"] if is_alone else None
    apparent = point.elapsed.median / round_trip_s / settings["operations"] if is_alone and round_trip_s else None
    ratios = None
    if against is not None:
        before, after = _amounts(against), _amounts(point)
        ratios = {name: after[name] / before[name] if before[name] and after[name] else None for name in before}
    return {
        "variant": point.variant,
        "latency_ms": point.latency_ms,
        "operations": settings["operations"],
        "n": point.elapsed.n,
        **interval_figures("elapsed", "_s", point.elapsed),
        "confidence": point.elapsed.confidence,
        **{name: values[name] for name in ("cpu_s", "bytes_sent", "bytes_received", "round_trips", "connections")},
        "round_trips_published": apparent,
        "idle_share": None if idle_s is None else idle_s / point.elapsed.median,
        "idle_s": idle_s,
        "client_cpu_s": values["client_cpu_s"],
        "proxy_cpu_s": values["proxy_cpu_s"],
        "starved_s": values["starved_s"],
        "body_bytes": values["body_bytes"],
        "round_trip_ms": latency_s * 1e3 * settings["proxies"],
        "ratios": ratios,
        "predicted_growth_s": growth.predicted_s,
        "measured_growth_s": growth.measured_s,
        "measured_growth_low_s": growth.low_s,
        "measured_growth_high_s": growth.high_s,
        "agrees": growth.agrees,
        "change": _change(ratios),
    }


@dataclass(frozen=True)
class _Growth:
    """How much the baseline's extra duration over a variant grew, in seconds, since the shortest latency."""

    predicted_s: float | None = None
    measured_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the measured growth is close to the predicted one; None without a prediction."""
        if not self.predicted_s or self.measured_s is None:
            return None
        return abs(self.measured_s / self.predicted_s - 1) <= _AGREES_WITHIN


def _growth(point: _Point, points: Mapping[_Key, _Point], proxies: int) -> _Growth:
    """Return the growth, measured per repeat, because a disturbance affects one repeat's measurements alike."""
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


def _baseline(points: Mapping[_Key, _Point]) -> str:
    return next(iter(points))[0]


def _amounts(point: _Point) -> dict[str, float]:
    """Return the amounts of which less is better; 0 for those that were not measured."""
    values = {name: value or 0.0 for name, value in point.values.items()}
    return {
        "time": point.elapsed.median,
        "CPU": values["cpu_s"],
        "round trips": point.round_trips,
        "bytes": values["bytes_sent"] + values["bytes_received"],
    }


def _waits(point: _Point, proxies: int) -> float:
    """Return how many proxy latencies the job waits for: a round trip passes all proxies, a handshake only one."""
    return (point.values["round_trips"] or 0.0) * proxies + (point.values["connections"] or 0.0)


_ABOUT_AS_MUCH = 1.05
_STARVED_FROM = 0.5
"""Share of runnable time waiting for a CPU that means a busy machine; client and proxies alone cause a third."""


def results(run: Run) -> StudyResults:
    """Return one row per variant and latency; charts of duration over latency, and of bytes over time."""
    points = {(each.variant, each.latency_ms): each for each in _points(run)}  # the first one's variant is the baseline
    rows = [_row(each, points, run.head.settings) for each in points.values()]
    return StudyResults(
        headline=_headline(rows, run.head.settings),
        rows=rows,
        columns=_columns(rows, run.head.settings),
        charts=list(_charts(points, run.head.settings)) if points else (),
        summary=list(_summary(rows)),
        notes=list(_notes(run.head.settings)),
        limits=_LIMITS,
        axes=_axes,
    )


def _change(ratios: Mapping[str, float | None] | None) -> str | None:
    """Return the ratios as text: '−57 % time, equal CPU, −55 % round trips, −23 % bytes'; None for None."""
    if ratios is None:
        return None
    changes = []
    for what, ratio in ratios.items():
        if ratio is None:
            changes.append(f"{what} {units.NOT_MEASURED}")
        else:
            is_equal = 1 / _ABOUT_AS_MUCH < ratio < _ABOUT_AS_MUCH
            changes.append(f"{'about equal' if is_equal else units.signed_percent(ratio)} {what}")
    return ", ".join(changes)


def _headline(rows: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> str:
    where = "its database" if settings["between"] == "database" else "its client"
    if not rows:
        return f"The effect of latency between a service and {where}: nothing was measured."
    longest = max(row["latency_ms"] for row in rows)
    there = [row for row in rows if row["latency_ms"] == longest]
    first, last = there[0], there[-1]
    away = f"At a round-trip time of {_milliseconds(first['round_trip_ms'])} to {where}"
    took = f"{first['variant']} takes {units.duration(first['elapsed_s'])}"
    trips = f"in {units.average(first['round_trips'])} round trip{'s' * (first['round_trips'] != 1)}"
    if first is last:
        return f"{away}, {took} {trips}."
    other = f"{last['variant']} {units.duration(last['elapsed_s'])} in {units.average(last['round_trips'])}"
    change = f": {last['change'].split(',')[0]}" if last["change"] else ""
    return f"{away}, {took} {trips} and {other}{change}."


def _summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    longest = max((row["latency_ms"] for row in rows), default=0.0)
    for row in rows:
        if row["latency_ms"] == longest and row["change"]:
            yield f"At {_milliseconds(longest)}, {row['variant']} compared with {rows[0]['variant']}: {row['change']}."
    waits = [(row["starved_s"] or 0.0, row["cpu_s"] or 0.0) for row in rows]
    starved = max((starved_s / (starved_s + used_s) for starved_s, used_s in waits if starved_s), default=0.0)
    if starved > _STARVED_FROM:
        yield (
            f"The machine was busy with other work: for up to {units.percent(starved)} of the time that the server had "
            "work to do, it waited for a CPU. Counts are reliable, times are not."
        )
    predicted = [row for row in rows if row["agrees"] is not None]
    if predicted:
        yield _agreement(predicted[-1])


def _agreement(row: Mapping[str, Any]) -> str:
    """Return a sentence on the growth predicted by round trips, and on the measured one, as time saved or lost."""
    sign = -1 if row["predicted_growth_s"] < 0 else 1
    low, high = row["measured_growth_low_s"], row["measured_growth_high_s"]
    limits = () if low is None else sorted((sign * low, sign * high))
    interval = f" [CI {', '.join(map(signed_duration, limits))}]" if limits else ""
    return (
        f"By its round trips {row['variant']} should {'lose' if sign < 0 else 'gain'} "
        f"{signed_duration(sign * row['predicted_growth_s'])} from the shortest latency to "
        f"{_milliseconds(row['latency_ms'])}; measured: {signed_duration(sign * row['measured_growth_s'])}{interval}, "
        f"{'within' if row['agrees'] else 'NOT within'} {units.round_percent(_AGREES_WITHIN)}."
    )


def _milliseconds(latency_ms: float) -> str:
    """Return a latency as text, as it was given."""
    return f"{latency_ms:g} ms"


def _columns(rows: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> list[Column]:
    opened = [measured("connections", "handshakes", units.average)] if settings["between"] == "client" else []
    columns = [
        measured("variant", "variant"),
        measured("latency_ms", "latency", _milliseconds),
        measured("n", "n", units.count),
        *interval_columns("elapsed", "_s", "time", units.duration),
        measured("cpu_s", "server CPU", units.duration),
        measured("client_cpu_s", "client CPU", units.duration),
        measured("bytes_sent", "sent", units.size),
        measured("bytes_received", "received", units.size),
        measured("round_trips", "round trips", units.average),
        *opened,
        measured("round_trips_published", Markup("apparent round trips<br>(time/RTT)"), units.average),
        measured("idle_share", "bytes in flight", units.percent),
    ]
    if any(row["change"] for row in rows):
        columns += [
            measured("predicted_growth_s", "predicted gain", signed_duration),
            measured("measured_growth_s", "measured gain", signed_duration),
            measured("change", f"compared with {rows[0]['variant']}"),
        ]
    return columns


def _charts(points: Mapping[_Key, _Point], settings: Mapping[str, Any]) -> Iterator[tuple[str, Chart]]:
    variants = list(dict.fromkeys(variant for variant, _ in points))
    if len({latency_ms for _, latency_ms in points}) > 1:
        over_latency = lines(
            [
                Line(
                    variant,
                    [
                        (latency_ms, point.elapsed.median)
                        for (name, latency_ms), point in points.items()
                        if name == variant
                    ],
                    _role(variant, variants),
                )
                for variant in variants
            ],
            title="Time over latency",
            description="One line for each variant; its slope is the number of its round trips.",
            show=units.duration,
            show_where=_milliseconds,
        )
        caption = (
            "Medians. The slope of a line is its number of round trips; where it begins is the time of the work itself."
        )
        yield "Time over latency", Chart(over_latency, caption)
    longest = max(latency_ms for _, latency_ms in points)
    there = [point for point in points.values() if point.latency_ms == longest]
    bin_s = max(point.typical.values["trace"]["bin_s"] for point in there)
    over_time = flows(
        [_traffic(point, _role(point.variant, variants), bin_s) for point in there],
        title="Bytes over time",
        description="A row for each variant on one time axis.",
        names=(
            "received from the database" if settings["between"] == "database" else "received from the service",
            "sent to it",
        ),
        show=units.duration,
    )
    caption = "The repeat nearest to the median of each. Each direction has one scale for all variants."
    yield f"Bytes over time at {_milliseconds(longest)}", Chart(over_time, caption)


def _traffic(point: _Point, role: Role, bin_s: float) -> TrafficSeries:
    trace, values = point.typical.values["trace"], point.typical.values
    merged = round(bin_s / trace["bin_s"])
    return TrafficSeries(
        label=point.variant,
        value=f"{units.size(values['bytes_received'])} received, {units.size(values['bytes_sent'])} sent",
        bin_s=bin_s,
        came=_merged(trace["received"], merged),
        went=_merged(trace["sent"], merged),
        role=role,
    )


def _merged(bins: Sequence[int], count: int) -> list[float]:
    """Return the sums of each *count* consecutive bins: a trace with shorter bins is merged to fit the others."""
    return [float(sum(bins[at : at + count])) for at in range(0, len(bins), count)]


def _role(variant: str, variants: Sequence[str]) -> Role:
    return "baseline" if variant == variants[0] else "variant" if variant == variants[-1] else "between"


def _notes(settings: Mapping[str, Any]) -> Iterator[str]:
    sides = "the service and its database" if settings["between"] == "database" else "the client and the service"
    clients = settings.get("clients", 1)
    by_service = (
        "by one client of one worker with one thread"
        if clients == 1
        else f"by each of {clients} clients at once, of as many workers; time is that of the slowest client, and the "
        "rest is of all"
    )
    job = {
        "query": f"A job is the request, N per job, {by_service}",
        "tiny": f"A job is small reads one after the other (GET /resource_providers/UUID), N per job, {by_service}",
        "waits": "A job is the request after 250 ms of pg_sleep() in the database, one statement of the service, N per "
        f"job, {by_service}",
        "http": "A job is N small reads (GET /resource_providers/UUID) of tuned under granian, one worker: connection "
        "opens one for each, keep-alive one for all, pipelining sends all requests before it reads a response",
        "rows": "A job writes N rows in a transaction, with psycopg 3 on an open connection: insert is an INSERT for "
        "each, pipeline the same in pipeline mode, multi-row one INSERT, copy a COPY",
        "walk": "A job follows a list of N rows, each with the key of the next, with psycopg 3 on an open connection: "
        "loop is a SELECT for each, recursive one WITH RECURSIVE, function a loop in PL/pgSQL",
    }[settings["job"]]
    yield f"{job.replace('N ', units.count(settings['operations']) + ' ')}."
    yield (
        f"A proxy between {sides} emulates the network. Each byte leaves it half of the latency after it came; "
        "opening a connection takes one latency more, for its handshake."
    )
    if settings["proxies"] > 1:
        yield f"{units.count(settings['proxies'])} proxies follow one another, each with the latency of the row."
    if settings["bytes_per_s"]:
        yield f"The bandwidth is {units.size(settings['bytes_per_s'])} per second in each direction of a connection."
    yield "A round trip is counted when the requesting side sends after it received. Bytes are TCP's payload."
    yield (
        "Apparent round trips, as they were published, are time over round-trip time over operations. They include the "
        "work itself, so they are too many at low latency, and undefined without any."
    )
    yield "Bytes in flight: the share of the time in which a byte of the job was on its way."
    yield (
        "Predicted gain: (difference in round trips) × (added latency). Measured gain: how much further the variants "
        "moved apart compared with the shortest latency."
    )


_LIMITS = (
    "A network that loses packets, whose delay varies, or TCP slow start: here all bytes cross in one latency.",
    "Several clients at once: a request that waits for the network holds its thread.",
    "Times at the shortest latencies include the proxy's own 0.05 ms per round trip, for all variants alike.",
)


KIND = study_kind(__name__, _NetworkSettings, _NetworkPoint, _NetworkValues)
