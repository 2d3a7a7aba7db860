"""The report of a network study: medians per variant and link, round trips and bytes, with charts.

`network_results` is for every study whose points have a variant and a latency: `placebench.study.network` has the
user's own commands and applications, the laboratory brings its own variants and jobs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from placebench import units
from placebench.compare.keep.records import Measurement
from placebench.page.axis_charts import Line, TrafficSeries, flows, lines
from placebench.page.svg import Role
from placebench.report.effects import written_effect
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
from placebench.runtime.network.delay_queue import PACKET_BYTES
from placebench.stats import MedianInterval, median_interval
from placebench.study.overheads import paired_ratio

_AGREES_WITHIN = 0.2
_GZIP = ", gzip"
_COUNTS = ("round_trips", "connections", "bytes_sent", "bytes_received", "body_bytes")

_Link = tuple[float, ...]
"""The latencies in milliseconds of the links that follow one another, nearest first; more than one for jump boxes."""
_Key = tuple[str, _Link]
"""A variant's name, and the link."""


@dataclass(frozen=True)
class _Point:
    """One variant behind one link, with medians over its repeats."""

    axes: dict[str, Any]
    link: _Link
    elapsed: MedianInterval
    values: dict[str, float | None]
    times: dict[int, float]
    """Duration in seconds, by repeat."""
    typical: Measurement
    """The measurement whose duration is nearest to the median."""

    @property
    def variant(self) -> str:
        return str(self.axes["variant"])

    @property
    def key(self) -> _Key:
        return self.variant, self.link

    @property
    def round_trip_s(self) -> float:
        """The round-trip time through all links in a row."""
        return sum(self.link) / 1e3

    @property
    def round_trips(self) -> float:
        """Number of round trips, including the handshakes of new connections."""
        return (self.values["round_trips"] or 0.0) + (self.values["connections"] or 0.0)

    def wait_s(self, link: _Link) -> float:
        """Return how long the job waits for *link*: a round trip passes all its parts, a handshake only the nearest."""
        return ((self.values["round_trips"] or 0.0) * sum(link) + (self.values["connections"] or 0.0) * link[0]) / 1e3


def axes_of(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variant of a point, with its compression of responses, the latency, and the link if it is named."""
    variant = point["variant"] + (_GZIP if point.get("compress") else "")
    link = {"link": point["link"]} if "link" in point else {}
    return {"variant": variant, "latency_ms": point["latency_ms"], **link}


def read_link(text: str) -> _Link:
    """Return the latencies of a link as text, such as 26 or 50+180; raises ValueError for anything else."""
    return tuple(float(part) for part in text.split("+"))


def _points(run: Run) -> Iterator[_Point]:
    for point, made in valid_points(run):
        elapsed = median_interval([each.values["elapsed_s"] for each in made])
        link = read_link(point["link"]) if "link" in point else (point["latency_ms"],) * run.head.settings["proxies"]
        names = (*_COUNTS, "cpu_s", "client_cpu_s", "in_transit_s", "proxy_cpu_s", "starved_s")
        yield _Point(
            axes=axes_of(point),
            link=link,
            elapsed=elapsed,
            values={name: median_of_all([each.values.get(name) for each in made]) for name in names},
            times={each.repeat: each.values["elapsed_s"] for each in made},
            typical=min(made, key=lambda each: abs(each.values["elapsed_s"] - elapsed.median)),
        )


def _row(point: _Point, points: Mapping[_Key, _Point], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a point; `ratios` are relative to the baseline, None if a value is 0 or was not measured.

    `round_trips_published` is the runtime divided by round-trip time and operations; None without latency, or if
    several clients share the runtime. `round_trips_by_slope` is the growth of the runtime per millisecond of latency,
    which leaves out the work itself.
    """
    baseline, values = _baseline(points), point.values
    is_alone, operations = settings.get("clients", 1) == 1, settings.get("operations", 1)
    against = points.get((baseline, point.link)) if point.variant != baseline else None
    growth = _growth(point, points) if is_alone else _Growth()
    idle_s = values["in_transit_s"] if is_alone else None
    has_apparent = is_alone and point.round_trip_s
    ratios = None
    if against is not None:
        before, after = _amounts(against), _amounts(point)
        ratios = {name: after[name] / before[name] if before[name] and after[name] else None for name in before}
    ratio = paired_ratio("ratio", point.times, against.times if against else {})
    return {
        **point.axes,
        "operations": operations,
        "n": point.elapsed.n,
        **interval_figures("elapsed", "_s", point.elapsed),
        "confidence": point.elapsed.confidence,
        **{name: values[name] for name in ("cpu_s", "bytes_sent", "bytes_received", "round_trips", "connections")},
        "round_trips_published": point.elapsed.median / point.round_trip_s / operations if has_apparent else None,
        **interval_figures("round_trips_by_slope", "", _slope(point, points) if is_alone else None),
        "idle_share": None if idle_s is None else idle_s / point.elapsed.median,
        "idle_s": idle_s,
        "client_cpu_s": values["client_cpu_s"],
        "proxy_cpu_s": values["proxy_cpu_s"],
        "starved_s": values["starved_s"],
        "body_bytes": values["body_bytes"],
        "round_trip_ms": sum(point.link),
        **ratio,
        "ratios": ratios,
        "predicted_growth_s": growth.predicted_s,
        "measured_growth_s": growth.measured_s,
        "measured_growth_low_s": growth.low_s,
        "measured_growth_high_s": growth.high_s,
        "agrees": growth.agrees,
        "change": _change(ratios, ratio, point.elapsed.n),
    }


def _slope(point: _Point, points: Mapping[_Key, _Point]) -> MedianInterval | None:
    """Return the round trips that explain the added time: its ratio to the added latency, within each repeat."""
    shortest = points.get((point.variant, _shortest(points)))
    added_s = point.round_trip_s - shortest.round_trip_s if shortest else 0.0
    if shortest is None or added_s <= 0:
        return None
    repeats = sorted(point.times.keys() & shortest.times.keys())
    slopes = [(point.times[each] - shortest.times[each]) / added_s for each in repeats]
    return median_interval(slopes) if slopes else None


def _shortest(points: Mapping[_Key, _Point]) -> _Link:
    return min((link for _, link in points), key=sum)


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


def _growth(point: _Point, points: Mapping[_Key, _Point]) -> _Growth:
    """Return the growth, measured per repeat, because a disturbance affects one repeat's measurements alike."""
    baseline, shortest = _baseline(points), _shortest(points)
    places = [(baseline, point.link), (baseline, shortest), (point.variant, shortest)]
    if point.variant == baseline or point.link == shortest or not all(place in points for place in places):
        return _Growth()
    here, there, begun = (points[place] for place in places)
    repeats = here.times.keys() & there.times.keys() & begun.times.keys() & point.times.keys()
    grown = [here.times[n] - point.times[n] - there.times[n] + begun.times[n] for n in sorted(repeats)]
    predicted_s = sum(
        sign * (each.wait_s(point.link) - each.wait_s(shortest)) for sign, each in ((1, here), (-1, point))
    )
    if not grown:
        return _Growth(predicted_s)
    made = median_interval(grown)
    return _Growth(predicted_s, made.median, made.low, made.high)


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


_ABOUT_AS_MUCH = 1.05
_STARVED_FROM = 0.5
"""Share of runnable time waiting for a CPU that means a busy machine; client and proxies alone cause a third."""


def network_results(run: Run, job: str, limits: Sequence[str] = ()) -> StudyResults:
    """Return one row per variant and link; charts of duration over latency, and of bytes over time.

    job: a sentence on what is measured. limits: what the study cannot show, beside what no network study can.
    """
    points = {each.key: each for each in _points(run)}  # the first one's variant is the baseline
    rows = [_row(each, points, run.head.settings) for each in points.values()]
    return StudyResults(
        headline=_headline(rows, run.head.settings),
        rows=rows,
        columns=_columns(rows, run.head.settings),
        charts=list(_charts(points, run.head.settings)) if points else (),
        summary=list(_summary(rows)),
        notes=[job, *_notes(run.head.settings)],
        limits=(*_limits(run.head.settings), *limits),
        axes=axes_of,
    )


def _change(ratios: Mapping[str, float | None] | None, paired: Mapping[str, float | None], n: int) -> str | None:
    """Return the ratios as text: '−57 % time, about equal CPU, −55 % round trips, −23 % bytes'; None for None."""
    if ratios is None:
        return None
    changes = []
    for what, ratio in ratios.items():
        low, high = paired["ratio_low"], paired["ratio_high"]
        if what == "time" and paired["ratio"] and low and high:
            changes.append(written_effect(paired["ratio"], low, high, of=what, confidence=0.95, n=n, is_time=False))
        elif ratio is None:
            changes.append(f"{what} {units.NOT_MEASURED}")
        else:
            is_equal = 1 / _ABOUT_AS_MUCH < ratio < _ABOUT_AS_MUCH
            changes.append(f"{'about equal' if is_equal else units.signed_percent(ratio)} {what}")
    return ", ".join(changes)


def _other_side(settings: Mapping[str, Any]) -> tuple[str, str]:
    if "target" in settings:
        return "the command", str(settings["target"])
    return ("the service", "its database") if settings["between"] == "database" else ("the service", "its client")


def _headline(rows: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> str:
    here, there = _other_side(settings)
    if not rows:
        return f"The effect of latency between {here} and {there}: nothing was measured."
    furthest = max(rows, key=lambda row: float(row["round_trip_ms"]))
    behind_it = [row for row in rows if _link_text(row) == _link_text(furthest)]
    first, last = behind_it[0], behind_it[-1]
    away = f"At a round-trip time of {_milliseconds(furthest['round_trip_ms'])} to {there}"
    took = f"{first['variant']} takes {units.duration(first['elapsed_s'])}"
    trips = f"in {units.average(first['round_trips'])} round trip{'s' * (first['round_trips'] != 1)}"
    if first is last:
        return f"{away}, {took} {trips}."
    other = f"{last['variant']} {units.duration(last['elapsed_s'])} in {units.average(last['round_trips'])}"
    change = last["change"] or ""
    of_time = change[: change.index("]") + 1] if "[" in change else change.split(",")[0]
    return f"{away}, {took} {trips} and {other}{of_time and f': {of_time}'}."


def _summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    furthest = max(rows, key=lambda row: float(row["round_trip_ms"]), default={})
    for row in rows:
        if row["change"] and _link_text(row) == _link_text(furthest):
            yield f"At {_link_text(row)}, {row['variant']} compared with {rows[0]['variant']}: {row['change']}."
    packed = [row for row in rows if row["variant"].endswith(_GZIP) and row["ratios"] is not None]
    for variant in dict.fromkeys(row["variant"] for row in packed if not _is_smaller(row, rows)):
        yield f"{variant}: as many bytes came as without it, so the application does not compress these responses."
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


def _is_smaller(packed: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether fewer bytes came with gzip than in the row of the same variant and link without it."""
    plain = packed["variant"].removesuffix(_GZIP)
    same = (row for row in rows if row["variant"] == plain and _link_text(row) == _link_text(packed))
    return any((packed["bytes_received"] or 0) * _ABOUT_AS_MUCH < (row["bytes_received"] or 0) for row in same)


def _agreement(row: Mapping[str, Any]) -> str:
    """Return a sentence on the growth predicted by round trips, and on the measured one, as time saved or lost."""
    sign = -1 if row["predicted_growth_s"] < 0 else 1
    low, high = row["measured_growth_low_s"], row["measured_growth_high_s"]
    limits = () if low is None else sorted((sign * low, sign * high))
    interval = f" [CI {', '.join(map(signed_duration, limits))}]" if limits else ""
    margin, agreement = units.round_percent(_AGREES_WITHIN), "NOT within"
    if row["agrees"]:
        agreement = "within"
    elif limits and limits[0] <= sign * row["predicted_growth_s"] <= limits[1]:
        agreement = "which does not contradict it, but is not within"
    return (
        f"By its round trips {row['variant']} should {'lose' if sign < 0 else 'gain'} "
        f"{signed_duration(sign * row['predicted_growth_s'])} from the shortest latency to "
        f"{_link_text(row)}; measured: {signed_duration(sign * row['measured_growth_s'])}{interval}, "
        f"{agreement} {margin}."
    )


def _milliseconds(latency_ms: float) -> str:
    return f"{latency_ms:g} ms"


def _link_text(row: Mapping[str, Any]) -> str:
    """Return the latency of a row as text; through a jump box the latencies of both links, as in 50 + 180 ms."""
    link = read_link(row["link"]) if "link" in row else (row["latency_ms"],)
    return f"{' + '.join(f'{each:g}' for each in link)} ms"


def _columns(rows: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> list[Column]:
    has_handshakes = settings["between"] == "client" or any(row["connections"] for row in rows)
    opened = [measured("connections", "handshakes", units.average)] if has_handshakes else []
    has_client = any(row["client_cpu_s"] is not None for row in rows)
    columns = [
        measured("variant", "variant"),
        Column("latency", _link_text, name="latency_ms"),
        measured("n", "n", units.count),
        *interval_columns("elapsed", "_s", "time", units.duration),
        measured("cpu_s", "CPU of the command" if "target" in settings else "server CPU", units.duration),
        *([measured("client_cpu_s", "client CPU", units.duration)] if has_client else []),
        measured("bytes_sent", "sent", units.size),
        measured("bytes_received", "received", units.size),
        measured("round_trips", "round trips", units.average),
        *opened,
        measured(
            "round_trips_by_slope",
            Markup("round trips<br>(slope)"),
            lambda number: units.average(number).replace("-", "−"),
        ),
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
    hops = min(len(link) for _, link in points)
    alike = [point for point in points.values() if len(point.link) == hops]  # those through a jump box are on no line
    if len({point.link for point in alike}) > 1:
        over_latency = lines(
            [
                Line(
                    variant,
                    [(point.axes["latency_ms"], point.elapsed.median) for point in alike if point.variant == variant],
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
    longest = max((link for _, link in points), key=sum)
    there = [point for point in points.values() if point.link == longest]
    bin_s = max(point.typical.values["trace"]["bin_s"] for point in there)
    other = _other_side(settings)[1] if settings["between"] != "client" else "the service"
    over_time = flows(
        [_traffic(point, _role(point.variant, variants), bin_s) for point in there],
        title="Bytes over time",
        description="A row for each variant on one time axis.",
        names=(f"received from {other.replace('its', 'the')}", "sent to it"),
        show=units.duration,
    )
    caption = "The repeat nearest to the median of each. Each direction has one scale for all variants."
    yield f"Bytes over time at {_link_text(there[0].axes)}", Chart(over_time, caption)


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
    here, there = _other_side(settings)
    sides = f"{here} and {there}" if settings["between"] != "client" else "the client and the service"
    yield (
        f"A proxy between {sides} emulates the network. Each byte leaves it half of the latency after it came; "
        "opening a connection takes one latency more, for its handshake."
    )
    if settings.get("proxies", 1) > 1:
        yield f"{units.count(settings['proxies'])} proxies follow one another, each with the latency of the row."
    if any("+" in point.get("link", "") for point in settings["points"]):
        yield "A row with two latencies, such as 50 + 180 ms, is through a jump box: two links, one behind the other."
    if settings["bytes_per_s"]:
        yield f"The bandwidth is {units.size(settings['bytes_per_s'])} per second in each direction of a connection."
    if settings.get("loss"):
        yield (
            f"{units.percent(settings['loss'])} of the packets (of {PACKET_BYTES} bytes) are lost, at random from the "
            "seed: each, and what follows it, arrives 200 ms and a latency later, as after TCP's time-out."
        )
    yield "A round trip is counted when the requesting side sends after it received. Bytes are TCP's payload."
    yield (
        "Round trips by the slope: time added since the shortest latency, over the latency added, within each repeat. "
        "What it has beyond the counted ones is handshakes, and work that waits longer where the network does."
    )
    yield (
        "Apparent round trips, as they were published, are time over round-trip time over operations. They include the "
        "work itself, so they are too many at low latency, and undefined without any."
    )
    yield "Bytes in flight: the share of the time in which a byte of the job was on its way."
    yield (
        "Predicted gain: (difference in round trips) × (added latency). Measured gain: how much further the variants "
        "moved apart compared with the shortest latency."
    )


def _limits(settings: Mapping[str, Any]) -> Iterator[str]:
    if not settings.get("loss"):
        yield (
            "A network that loses packets, whose delay varies, or TCP slow start: here all bytes cross in one latency."
        )
    else:
        yield "A delay that varies, TCP slow start, and recovery from a loss that is faster than the time-out."
    yield "Times at the shortest latencies include the proxy's own 0.05 ms per round trip, for all variants alike."
