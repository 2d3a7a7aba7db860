"""The latency breakdown: what a request's time is made of, endpoint by endpoint."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from placebench import units
from placebench.compare.keep.records import Measurement
from placebench.lab.studies.breakdown import NOOP
from placebench.page.row_charts import Bar, bars
from placebench.report.model import Chart
from placebench.report.study_report import (
    CLIENT_IS_BUSY,
    StudyResults,
    interval_columns,
    interval_figures,
    measured,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval

_PARTS = {
    "http_s": "connection and HTTP, as of a no-op",
    "framework_s": "framework",
    "python_s": "handler, in Python",
    "pool_s": "connection-pool wait",
    "database_s": "database (driver)",
    "unexplained_s": "unexplained",
}
_UNEVEN = 1.1
_ABOVE_NOOP = 1.05


def results(run: Run) -> StudyResults:
    """Return a row for each endpoint; charts of what its latency is made of, and of throughput beside the no-op's."""
    endpoints = {point["endpoint"]: made for point, made in valid_points(run)}
    rows = [_row(name, made, endpoints.get(NOOP, [])) for name, made in endpoints.items()]
    return StudyResults(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS,
        charts=list(_charts(rows)),
        summary=list(_summary(rows)),
        notes=_NOTES,
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
        **interval_figures("throughput", "_per_s", throughput),
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
        return "Latency breakdown: the no-op was not measured, so there is no ceiling to compare with."
    noop = named[NOOP]
    framework = units.duration(noop["framework_s"])
    ceiling = f"Ceiling: {units.rate(noop['throughput_per_s'])} for a no-op ({framework} framework time per request)"
    others = [row for row in rows if row["endpoint"] != NOOP]
    if not others:
        return f"{ceiling}."
    row = others[0]
    database = row["database_share"]
    share = "" if database is None else f"; {units.percent(database)} of its handler time is spent in the database"
    reached = units.percent(row["share_of_noop"], digits=2)
    return f"{ceiling}. {row['endpoint']} reaches {reached} of it{share}."


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    busy = [row["endpoint"] for row in rows if row["client_cpu_share"] > CLIENT_IS_BUSY]
    if busy:
        yield (
            f"The load generator took more than {units.round_percent(CLIENT_IS_BUSY)} of a core at {', '.join(busy)}: "
            "it may have limited their throughput."
        )
    above = [row["endpoint"] for row in rows if (row["share_of_noop"] or 0.0) > _ABOVE_NOOP]
    if above:
        yield (
            f"{', '.join(above)} had a higher throughput than the no-op, which is impossible: the machine was busy "
            "with other work. Do not rely on throughputs; the parts of a bar still add up."
        )
    uneven = [row for row in rows if row["busiest_share"] * row["workers"] > _UNEVEN]
    if uneven:
        shares = (f"{row['endpoint']} {units.percent(row['busiest_share'])} by the busiest" for row in uneven)
        yield f"The {uneven[0]['workers']} workers were not used evenly: {', '.join(shares)}."
    elif rows and rows[0]["workers"] > 1:
        most = max(row["busiest_share"] for row in rows)
        yield f"The {rows[0]['workers']} workers were used evenly: the busiest served at most {units.percent(most)}."


_COLUMNS = (
    measured("endpoint", "endpoint"),
    measured("n", "n", units.count),
    *interval_columns("throughput", "_per_s", "throughput", units.rate),
    measured("share_of_noop", "of the no-op", units.percent),
    measured("client_s", "latency, one user", units.duration),
    measured("http_s", "HTTP", units.duration),
    measured("framework_s", "framework", units.duration),
    measured("python_s", "Python", units.duration),
    measured("pool_s", "pool", units.duration),
    measured("database_s", "database", units.duration),
    measured("unexplained_s", "unexplained", units.duration),
    measured("database_share", "database of handler", units.percent),
    measured("statements", "statements", units.average),
    measured("busiest_share", "busiest worker", units.percent),
)


def _charts(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Chart]]:
    if not rows:
        return
    latency = bars(
        [
            Bar(row["endpoint"], tuple(max(row[part], 0.0) for part in _PARTS), value=units.duration(row["client_s"]))
            for row in rows
        ],
        part_names=list(_PARTS.values()),
        title="Latency at the client by part",
        description="A bar for each endpoint, whose parts add up to the mean latency at the client.",
        show=units.duration,
        is_whole=True,
    )
    caption = "One user, one worker, each statement recorded: the mean of all requests."
    yield "Latency at the client by part", Chart(latency, caption)
    throughput = bars(
        [
            Bar(row["endpoint"], (row["throughput_per_s"],), "baseline" if row["endpoint"] == NOOP else "variant")
            for row in rows
        ],
        title="Throughput",
        description="Requests per second of each endpoint, all workers busy; the no-op is the ceiling.",
        show=units.rate,
    )
    yield "Throughput", Chart(throughput, "As many users as workers, the profiler off.")


_NOTES = (
    "The no-op is GET /: through uWSGI and the whole framework, without a database. No endpoint can be faster here.",
    "A bar is of requests whose every statement was recorded; its parts add up to the client's mean latency.",
    "Connection and HTTP: what a no-op needs outside of the application, from sending to the last byte read.",
    "Framework: the application without its handler: routing, headers and checks.",
    "Database: inside the driver, so network and PostgreSQL. SQLAlchemy's own work is part of Python.",
    "Unexplained: time outside of the application beyond a no-op's, such as sending a large response.",
    "Claims are PUT /allocations/<id> for a new consumer each; their rate contains the GET before every ten of them.",
    "Busiest worker: its share of the requests; one over the number of workers is even.",
)
_LIMITS = (
    "The profiler's overhead: it is in the bars, as part of Python, and not in the throughput.",
    "Where the time inside the driver went: execution plans and the network study show that.",
    "The wait for a busy worker: the bars are of one user.",
    "How another machine would do: client, workers and database share this one.",
)
