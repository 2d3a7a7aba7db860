"""What a request is made of, told from the measurements of `placebench gauge`: the key piece is `tell`."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from placebench import units
from placebench.experiment.breakdown_study import NOOP
from placebench.experiment.records import Measurement
from placebench.page.charts import Bar, Whole, bars, shares
from placebench.report.studies.study import Column, Picture, Told, counted
from placebench.results import Run
from placebench.stats import median_interval

_PARTS = {
    "http_s": "connection and HTTP, as of a no-op",
    "framework_s": "framework",
    "python_s": "handler, in Python",
    "pool_s": "waiting for a connection",
    "database_s": "database (driver)",
    "unexplained_s": "left unexplained",
}
_CLIENT_IS_BUSY = 0.7
_UNEVEN = 1.1
_ABOVE_NOOP = 1.05


def tell(run: Run) -> Told:
    """A row an endpoint; a bar each that adds up to the client's latency, and throughputs beside the no-op's."""
    measured = {point["endpoint"]: made for point, made in counted(run)}
    rows = [_row(name, made, measured.get(NOOP, [])) for name, made in measured.items()]
    return Told(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS,
        pictures=list(_pictures(rows)),
        remarks=list(_remarks(rows)),
        reading=_READING,
        limits=_LIMITS,
    )


def _row(name: str, made: Sequence[Measurement], noop: Sequence[Measurement]) -> dict[str, Any]:
    values = [each.values for each in made]
    throughput = median_interval([each["throughput_per_s"] for each in values])
    ways_s = _mean(values, "way_in_s") + _mean(values, "way_out_s")
    # Parts are means of means, which add up; a median of each part would not.
    floor_s = fmean(each.values["way_in_s"] + each.values["way_out_s"] for each in noop) if noop else None
    http_s = ways_s if floor_s is None else min(ways_s, floor_s)
    parts = {part: _mean(values, part) for part in ("framework_s", "python_s", "pool_s", "database_s")}
    handler_s = parts["python_s"] + parts["pool_s"] + parts["database_s"]
    return {
        "endpoint": name,
        "path": values[0]["path"],
        "n": throughput.n,
        "requests": sum(each["requests"] for each in values),
        "throughput_per_s": throughput.median,
        "throughput_low_per_s": throughput.low,
        "throughput_high_per_s": throughput.high,
        "share_of_noop": _share_of(made, noop),
        "client_s": _mean(values, "client_s"),
        "http_s": http_s,
        **parts,
        "unexplained_s": ways_s - http_s,
        "database_share": parts["database_s"] / handler_s if handler_s and parts["database_s"] else None,
        "statements": _mean(values, "statements"),
        "workers": len(values[0]["shares"]),
        "busiest_share": median(max(each["shares"]) for each in values),
        "chi_square": median(each["chi_square"] for each in values),
        "client_cpu_share": median(each["client_cpu_share"] for each in values),
    }


def _mean(values: Sequence[Mapping[str, Any]], name: str) -> float:
    return fmean(each[name] for each in values)


def _share_of(made: Sequence[Measurement], noop: Sequence[Measurement]) -> float | None:
    """The median of the repeats' ratios: both were measured within the same minutes."""
    of_noop = {each.repeat: each.values["throughput_per_s"] for each in noop}
    ratios = [each.values["throughput_per_s"] / of_noop[each.repeat] for each in made if each.repeat in of_noop]
    return median(ratios) if ratios else None


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    named = {row["endpoint"]: row for row in rows}
    if NOOP not in named:
        return "What a request is made of: the no-op was not measured, so nothing can be held against it."
    noop = named[NOOP]
    framework = units.duration(noop["framework_s"])
    said = (
        f"The most that this service can answer is {units.rate(noop['throughput_per_s'])}, "
        f"a no-op, of which {framework} each are the framework's"
    )
    others = [row for row in rows if row["endpoint"] != NOOP]
    if not others:
        return f"{said}."
    row = others[0]
    database = row["database_share"]
    of_it = "" if database is None else f", and {units.percent(database)} of their handler's time is the database's"
    reached = units.percent(row["share_of_noop"], digits=2)
    return f"{said}; {row['endpoint']} reach {reached} of that{of_it}."


def _remarks(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    busy = [row["endpoint"] for row in rows if row["client_cpu_share"] > _CLIENT_IS_BUSY]
    if busy:
        yield (
            f"The load's own process took more than {units.level(_CLIENT_IS_BUSY)} of a core at {', '.join(busy)}: "
            "their throughput may be the client's limit, not the service's."
        )
    above = [row["endpoint"] for row in rows if (row["share_of_noop"] or 0.0) > _ABOVE_NOOP]
    if above:
        yield (
            f"More than the no-op was answered by {', '.join(above)}, which nothing can: the machine had other things "
            "to do meanwhile. Believe no throughput; the parts of a bar still add up."
        )
    uneven = [row for row in rows if row["busiest_share"] * row["workers"] > _UNEVEN]
    if uneven:
        told = (f"{row['endpoint']} {units.percent(row['busiest_share'])} by the busiest" for row in uneven)
        yield f"The {uneven[0]['workers']} workers were not used evenly: {', '.join(told)}."
    elif rows and rows[0]["workers"] > 1:
        most = max(row["busiest_share"] for row in rows)
        yield f"The {rows[0]['workers']} workers were used evenly: the busiest had {units.percent(most)} at the most."


_COLUMNS = (
    Column("endpoint", "endpoint"),
    Column("n", "n", units.count),
    Column("throughput_per_s", "throughput", units.rate),
    Column("throughput_low_per_s", "from", units.rate),
    Column("throughput_high_per_s", "to", units.rate),
    Column("share_of_noop", "of the no-op's", units.percent),
    Column("client_s", "latency, one user", units.duration),
    Column("http_s", "HTTP", units.duration),
    Column("framework_s", "framework", units.duration),
    Column("python_s", "Python", units.duration),
    Column("pool_s", "pool", units.duration),
    Column("database_s", "database", units.duration),
    Column("unexplained_s", "unexplained", units.duration),
    Column("database_share", "database of handler", units.percent),
    Column("statements", "statements", units.average),
    Column("busiest_share", "busiest worker", units.percent),
)


def _pictures(rows: Sequence[Mapping[str, Any]]) -> Iterator[Picture]:
    if not rows:
        return
    yield Picture(
        "What the client's latency is made of",
        shares(
            [
                Whole(row["endpoint"], tuple(max(row[part], 0.0) for part in _PARTS), units.duration(row["client_s"]))
                for row in rows
            ],
            part_names=list(_PARTS.values()),
            title="What the client's latency is made of",
            description="A bar for each endpoint, whose parts add up to the mean latency at the client.",
        ),
        "One user, one worker, each statement recorded: the mean of all requests, each bar the whole of it.",
    )
    yield Picture(
        "Throughput beside the no-op's",
        bars(
            [
                Bar(row["endpoint"], (row["throughput_per_s"],), "baseline" if row["endpoint"] == NOOP else "variant")
                for row in rows
            ],
            title="Throughput beside the no-op's",
            description="Requests per second of each endpoint, all workers busy; the no-op is the most there can be.",
            show=units.rate,
        ),
        "As many users as workers, the profiler off.",
    )


_READING = (
    "The no-op is GET /: through uWSGI and the whole framework, without a database. No endpoint can be faster here.",
    "A bar is of requests whose every statement was recorded; its parts add up to the client's mean latency.",
    "Connection and HTTP: what a no-op needs outside of the application, from sending to the last byte read.",
    "Framework: the application without its handler, which is routing, headers and checks.",
    "Database: inside the driver, so the wire and PostgreSQL. What SQLAlchemy does itself is Python's.",
    "Left unexplained: what is outside of the application beyond a no-op's, such as a large answer's way.",
    "A busiest worker's share of one over the number of workers is even.",
)
_LIMITS = (
    "What the profiler costs: it is in the bars, as Python's, not in the throughput (docs/explanation/overhead.md).",
    "Where the time inside the driver went: see docs/howto/query-plans.md for plans, docs/lab/network.md for latency.",
    "What waiting for a busy worker costs: the bars are of one user.",
    "How another machine would do: client, workers and database share this one.",
)
