"""The page and the tables of a folder of telemetry: `telemetry_report`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench import units
from placebench.errors import PlacebenchError
from placebench.page.axis_charts import Line, lines
from placebench.page.svg import Role
from placebench.profiler.model.shortened_sql import shortened
from placebench.report.model import Chart, Column, Report, Section, Table, code

if TYPE_CHECKING:
    import pandas as pd

    from placebench.telemetry import Telemetry

_MAX_POINTS = 240
_STEPS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_MAX_ROWS = 20
_STATEMENT_WIDTH = 60
_ORDER = ("client", "server", "framework", "handler", "timed", "statement", "transaction", "pool", "recorded")


def telemetry_report(folder: Path, telemetry: "Telemetry") -> Report:
    """Build the report of the telemetry that was read from *folder*: tables of durations, and charts over time.

    Raises PlacebenchError if it holds no request.
    """
    telemetry, notices = _on_one_clock(telemetry)
    has_client = bool((telemetry.durations["series"] == "client").any())
    requests = telemetry.durations[telemetry.durations["series"] == ("client" if has_client else "server")]
    if not len(requests):
        raise PlacebenchError(f"the telemetry in {folder} holds no request of a client or a server")
    began_s = float(requests["started_s"].min())
    elapsed_s = float(requests["started_s"].max()) - began_s
    step_s = next((each for each in _STEPS_S if elapsed_s / each <= _MAX_POINTS), math.ceil(elapsed_s / _MAX_POINTS))
    seconds = telemetry.over_time(step_s)
    full = seconds[seconds["state"] == "full"]
    states = {name: int((seconds["state"] == name).sum()) for name in ("full", "cut", "idle")}
    means = {"requests_per_s": _number(full["requests_per_s"].mean())}
    for name in ("client_s", "server_s"):  # of the requests, not of the steps
        means[name] = _number((full[name] * full["requests"]).sum(min_count=1) / full["requests"].sum())
    is_profiled = bool(full["database_s"].notna().any())
    means["database_share"] = float(full["database_s"].sum() / full["measured_s"].sum()) if is_profiled else None
    means["rss_bytes"] = _number(full["rss_bytes"].mean())
    rows, workers = _rows(telemetry.summary()), _rows(telemetry.by_worker())
    shown = [row for row in rows if row["series"] != "recorded"]  # about the server's time once more
    durations = _durations_columns(telemetry.statements)
    where = "at the client" if has_client else "at the server"
    mean_s, p95_s = requests["duration_s"].mean(), requests["duration_s"].quantile(0.95)
    headline = (
        f"{units.numbered(len(requests), 'request')}, {units.duration(mean_s)} in the mean {where}, "
        f"95 % within {units.duration(p95_s)}"
    )
    notices += _incomplete(telemetry)
    if not states["full"]:
        notices.append(f"No step of {units.duration(step_s)} was full of requests: there are no means per second.")
    steps = f"{units.numbered(len(seconds), 'step')} of {units.duration(step_s)}"
    in_use = f"{steps}: {states['full']} full of requests, {states['cut']} cut, {states['idle']} idle."
    shown_means = _shown_means(means)
    tables = [
        *([Table("Means over the full steps", _NAME_AND_VALUE, shown_means)] if shown_means else []),
        Table("Durations", durations, shown[:_MAX_ROWS], note=_left_out(shown), style="statements"),
        Table("Workers", _WORKERS, workers),
    ]
    return Report(
        folder=folder,
        name=folder.resolve().name,
        started_at=datetime.fromtimestamp(began_s, UTC).isoformat(timespec="seconds"),
        status="complete",
        headline=headline,
        document={
            "folder": str(folder),
            "headline": headline,
            "requests": len(requests),
            "began_at_s": began_s,
            "step_s": step_s,
            "steps": states,
            "means": means,
            "durations": rows,
            "statements": dict(telemetry.statements),
            "workers": workers,
            "over_time": _rows(seconds),
            "truncated": telemetry.truncated,
        },
        notices=notices,
        summary=[in_use],
        overview=tables,
        remarks=[note] if (note := _left_out(shown)) else [],
        sections=[
            *([Section("Over time", charts, id="over-time")] if (charts := _charts(seconds)) else []),
            Section("Durations", tables),
        ],
        notes=[_STEPS_NOTE, _SHARE_NOTE],
        can_rebuild=False,
        is_of_run=False,
    )


def _incomplete(telemetry: "Telemetry") -> Iterator[str]:
    """Yield what a reader must know of the folder: that it holds several parts, or that something is missing."""
    if parts := sorted(set(telemetry.durations["part"].astype("str")) - {""}):
        yield f"The folder holds {', '.join(parts)}, shown together: name one of these folders to see it alone."
    if telemetry.truncated:
        yield f"{units.numbered(telemetry.truncated, 'truncated or corrupt line')} left out."
    durations, runtime = telemetry.durations, telemetry.runtime
    recorded = runtime[runtime["name"] == "recorded_requests"].groupby("worker", observed=True)["value"].max().sum()
    queries = durations.loc[durations["series"].isin(["statement", "transaction"]), "request"]
    served = durations[durations["series"] == "server"]
    if recorded and queries.empty:
        yield f"The profiler saw no statement: {_UNSEEN}"
    elif recorded and recorded >= len(served):  # if only some requests are recorded, the others lack statements anyway
        routes = served.assign(seen=served["request"].isin(queries)).groupby(["verb", "path"], observed=True)["seen"]
        found = routes.agg(["sum", "count"])
        mixed = found[(found["sum"] > 0) & (found["sum"] < found["count"])]
        if len(mixed):
            verb, path = (mixed["count"] - mixed["sum"]).idxmax()
            seen, every = (int(each) for each in mixed.loc[(verb, path)])
            yield (
                f"The profiler saw no statement in {units.count(every - seen)} of {units.count(every)} requests of "
                f"{verb} {path}. Unless these need no database: {_UNSEEN}"
            )


_UNSEEN = (
    "it does not see connections that were opened before SqlProfiler() was made, except those of SQLAlchemy. Make it "
    "before the application connects."
)
_STEPS_NOTE = (
    "A step is full if requests came during all of it, cut if the use began or ended in it, idle if there was no "
    "request. A pause is longer than a second and than ten times the usual gap between two requests. Lines are broken "
    "at steps that are not full."
)
_SHARE_NOTE = (
    "The database's share is the time inside the driver over that of the handler (of the server if it is not timed), "
    "in the requests that the profiler recorded. It needs `profiler.listen(telemeter)`."
)


def _on_one_clock(telemetry: "Telemetry") -> "tuple[Telemetry, list[str]]":
    """Return the telemetry with all times on the client's clock if other machines wrote too, and what was done."""
    if len({file.head.get("boot") or file.head.get("host") for file in telemetry.files}) < 2:
        return telemetry, []
    try:
        return telemetry.aligned(), [telemetry.offset().describe()]
    except PlacebenchError as error:
        return telemetry, [f"Several machines wrote, and their clocks cannot be compared: {error}."]


def full_points(frame: "pd.DataFrame", name: str) -> list[tuple[float, float | None]]:
    """Return a point for each step of `Telemetry.over_time`; None for steps that were cut or idle, or not measured.

    Sizes are in MiB, so that an axis has round numbers.
    """
    unit = units.MIB if name.endswith("_bytes") else 1
    return [
        (float(str(at)), None if state != "full" or (number := _number(value)) is None else number / unit)
        for at, state, value in zip(frame.index, frame["state"], frame[name], strict=True)
    ]


def _charts(seconds: "pd.DataFrame") -> list[Chart]:
    charts = []
    for title, shown, show, caption in _CHARTS:
        series = [Line(label, full_points(seconds, name), role) for name, label, role in shown]
        if any(each.drawn for each in series):
            drawn = lines(series, title=title, description=caption, show=show, show_where=units.duration)
            charts.append(Chart(drawn, f"{title}. {caption}"))
    return charts


_Shown = tuple[tuple[str, str, Role], ...]
_CHARTS: tuple[tuple[str, _Shown, Any, str], ...] = (
    ("Requests per second", (("requests_per_s", "rate", "variant"),), units.rate, "Requests that began in a step."),
    (
        "Client and server time",
        (("client_s", "client", "baseline"), ("server_s", "server", "variant")),
        units.duration,
        "Means of the requests that began in a step; the difference is the network and the queue before a worker.",
    ),
    (
        "Percentiles",
        (("p50_s", "50 %", "between"), ("p95_s", "95 %", "variant"), ("p99_s", "99 %", "baseline")),
        units.duration,
        "Durations within which this share of the requests of a step ended, at the client if it wrote.",
    ),
    (
        "Share of the database",
        (("database_share", "SQL", "baseline"),),
        units.percent,
        "Time inside the database's driver over that of the handlers, in requests that the profiler recorded.",
    ),
    (
        "Memory",
        (("rss_bytes", "RSS", "variant"),),
        units.mebibytes,
        "RSS of all workers, shared pages counted in each.",
    ),
)


def _rows(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return rows and index as plain values; a summary in the order of the series, the largest sums first."""
    rows = [
        {name: _plain(value) for name, value in row.items()} for row in frame.reset_index().to_dict(orient="records")
    ]
    if "series" in frame.index.names:
        rows.sort(
            key=lambda row: (
                _ORDER.index(row["series"]) if row["series"] in _ORDER else len(_ORDER),
                -row["mean"] * row["count"],
            )
        )
    return rows


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return _number(value) if isinstance(value, float) else value


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _left_out(rows: Sequence[Any]) -> str:
    more = len(rows) - _MAX_ROWS
    return f"{units.numbered(more, 'more row')}: --json has all." if more > 0 else ""


def _shown_means(means: dict[str, float | None]) -> list[tuple[str, str]]:
    shows: dict[str, Any] = {"requests_per_s": units.rate, "rss_bytes": units.size, "database_share": units.percent}
    return [
        (_MEAN_LABELS[name], shows.get(name, units.duration)(value))
        for name, value in means.items()
        if value is not None
    ]


_MEAN_LABELS = {
    "requests_per_s": "requests per second",
    "client_s": "mean time at the client",
    "server_s": "mean time at the server",
    "database_share": "share of the database",
    "rss_bytes": "RSS of all workers",
}
_NAME_AND_VALUE = (Column("mean over the full steps", lambda row: row[0]), Column("value", lambda row: row[1]))


def _durations_columns(statements: Mapping[str, str]) -> list[Column]:
    def name(row: Mapping[str, Any]) -> str:
        label = shortened(statements.get(row["label"], row["label"]), _STATEMENT_WIDTH)
        request = " ".join(filter(None, (row["verb"], row["path"], row["status"])))
        return f"{row['series']} {label} · {request}" if label else f"{row['series']} {request}"

    quantiles = (("50 %", "50%"), ("95 %", "95%"), ("99 %", "99%"), ("max", "max"))
    return [
        Column("series and request", name),
        Column("count", lambda row: units.count(row["count"])),
        Column("mean", lambda row: units.duration(row["mean"])),
        *(Column(label, lambda row, key=key: units.duration(row[key])) for label, key in quantiles),  # type: ignore[misc]
    ]


_WORKERS = (
    Column("worker", lambda row: code(row["worker"])),
    Column("requests", lambda row: units.count(row["requests"])),
    Column("share", lambda row: units.percent(row["share"])),
    Column("busy", lambda row: units.duration(row["busy_s"])),
)
