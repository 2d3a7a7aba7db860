"""Threads, processes or event loops: throughput and memory of each mix, workload by workload."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from placebench import units
from placebench.compare.keep.records import Measurement
from placebench.lab.studies.reports.scalability import scalability_row, scalability_tables
from placebench.page.axis_charts import Line, PointSeries, lines, points
from placebench.page.svg import Role
from placebench.report.model import Chart
from placebench.report.study_report import (
    CLIENT_IS_BUSY,
    StudyResults,
    interval_columns,
    interval_figures,
    measured,
    median_of_all,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval

_MEDIANS = ("throughput_per_s", "latency_s", "pss_bytes", "uss_bytes", "rss_bytes", "unshared_bytes", "client_cpu_s")
_LOST = 4
"""Where the un-shared bytes are in a sample of `memory`."""
_POINTS_OF_A_LINE = 25
_MIB = 2**20
"""Axes are in MiB, so that their ticks are round in the unit beside them."""
_NAMES = {
    "compute": "pure computation",
    "database": "waiting for the database",
    "network": "waiting for the network",
    "query": "the full query",
    "state": "shared state",
    "state-frozen": "shared state, frozen",
    "subprocess": "starting a program",
}


def results(run: Run) -> StudyResults:
    """Return a row for each workload and mix; charts of throughput against memory, and of un-shared memory."""
    found = list(valid_points(run))
    rows, laws = [_row(point, made) for point, made in found], list(_laws(found))
    return StudyResults(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS,
        charts=[*_throughput_charts(rows), *_unshared_charts(rows)],
        tables=scalability_tables([measured("workload", "workload", lambda name: _NAMES[name])], laws),
        document={"scalability": laws},
        summary=list(_summary(rows)),
        notes=list(_notes(run.head.settings)),
        limits=_LIMITS,
        axes=_axes,
    )


def _axes(point: Mapping[str, Any]) -> dict[str, Any]:
    server = point.get("server", "")
    return {"server": "uwsgi", **point, "mix": f"{point['processes']} x {point['threads']} {server}".strip()}


def _row(point: Mapping[str, Any], made: Sequence[Measurement]) -> dict[str, Any]:
    values = [each.values for each in made]
    elapsed = median_interval([each["elapsed_s"] for each in values])
    medians = {name: median_interval([each[name] for each in values]).median for name in _MEDIANS}
    cpu_s = median_of_all([_cpu_s(each) for each in values])
    share = medians.pop("client_cpu_s") / elapsed.median
    return {
        **_axes(point),
        "n": elapsed.n,
        "requests": values[0]["requests"],
        **interval_figures("elapsed", "_s", elapsed),
        "confidence": elapsed.confidence,
        **medians,
        "cpu_s": cpu_s,
        "cpu_s_per_request": None if cpu_s is None else cpu_s / values[0]["requests"],
        "unshared_over_time": _over_time(_median_measurement(made)),
        "client_cpu_share": share,
        "client_was_busy": share > CLIENT_IS_BUSY,
    }


def _cpu_s(values: Mapping[str, Any]) -> float | None:
    """Of workers and backends; None where the backends are elsewhere."""
    if values["backend_cpu_s"] is None:
        return None
    return float(values["worker_cpu_s"] + values["backend_cpu_s"])


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest number of processes beside as many threads, for the query where it was measured."""
    for workload in sorted({row["workload"] for row in rows}, key=lambda name: (name != "query", name)):
        mine = {
            (row["processes"], row["threads"]): row
            for row in rows
            if row["workload"] == workload and row["server"] == "uwsgi"
        }
        for count in sorted((processes for processes, threads in mine if threads == 1 < processes), reverse=True):
            if (1, count) in mine:
                return _against(mine[1, count], mine[count, 1])
    if not rows:
        return "Threads or processes: nothing was measured."
    best = max(rows, key=lambda row: row["throughput_per_s"])
    return (
        f"{best['mix']} (processes x threads) serves {units.rate(best['throughput_per_s'])} of "
        f"{_NAMES[best['workload']]} in {units.size(best['pss_bytes'])}."
    )


def _against(threads: Mapping[str, Any], processes: Mapping[str, Any]) -> str:
    faster = processes["throughput_per_s"] / threads["throughput_per_s"]
    larger = processes["pss_bytes"] / threads["pss_bytes"]
    return (
        f"{_NAMES[threads['workload']].capitalize()}: {processes['processes']} processes serve {_rate_in(processes)}, "
        f"{threads['threads']} threads {_rate_in(threads)}: {units.times(faster)} the throughput for "
        f"{units.times(larger)} the memory."
    )


def _rate_in(row: Mapping[str, Any]) -> str:
    return f"{units.rate(row['throughput_per_s'])} in {units.size(row['pss_bytes'])}"


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    busy = [f"{_NAMES[row['workload']]} by {row['mix']}" for row in rows if row["client_was_busy"]]
    if busy:
        yield (
            f"The load generator took more than {units.round_percent(CLIENT_IS_BUSY)} of a core, so it may have been "
            f"the limit: {', '.join(busy)}."
        )
    elif rows:
        most = max(row["client_cpu_share"] for row in rows)
        yield f"The load generator took at most {units.percent(most)} of a core, so it was not the limit."


_COLUMNS = (
    measured("workload", "workload", lambda name: _NAMES[name]),
    measured("mix", "processes x threads, or tasks"),
    measured("n", "n", units.count),
    *interval_columns("elapsed", "_s", "time", units.duration),
    measured("throughput_per_s", "throughput", units.rate),
    measured("latency_s", "median latency", units.duration),
    measured("cpu_s_per_request", "CPU per request", units.duration),
    measured("pss_bytes", "PSS", units.size),
    measured("uss_bytes", "USS", units.size),
    measured("rss_bytes", "RSS", units.size),
    measured("unshared_bytes", "un-shared", units.size),
    measured("client_cpu_share", "generator CPU", units.percent),
)


def _laws(found: Iterable[tuple[Mapping[str, Any], Sequence[Measurement]]]) -> Iterator[dict[str, Any]]:
    """A row for each workload, for processes of one thread and for threads of one process."""
    by_kind: dict[tuple[str, str], dict[int, list[float]]] = {}
    for point, made in found:
        if point.get("server", "uwsgi") == "uwsgi":
            for of, other in (("processes", "threads"), ("threads", "processes")):
                if point[other] == 1:
                    sizes = by_kind.setdefault((point["workload"], of), {})
                    sizes[point[of]] = [each.values["throughput_per_s"] for each in made]
    for (workload, of), sizes in by_kind.items():
        if (law := scalability_row(sizes)) is not None:
            yield {"workload": workload, "of": of, **law}


def _throughput_charts(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Chart]]:
    for workload in dict.fromkeys(row["workload"] for row in rows):
        spots = [
            PointSeries(
                row["mix"],
                [(row["pss_bytes"] / _MIB, row["throughput_per_s"])],
                _role(row),
            )
            for row in rows
            if row["workload"] == workload
        ]
        svg = points(
            spots,
            title=f"Throughput against memory, {_NAMES[workload]}",
            description="A point for each mix of processes and threads; up is faster, left is smaller.",
            show=units.rate,
            show_where=_mebibytes,
            keys=[
                ("disc role-baseline", "threads in one process"),
                ("disc role-variant", "processes of one thread"),
                ("disc role-between", "both, one of each, or an event loop"),
            ],
        )
        caption = "Processes x threads. Up is faster; left is smaller (peak PSS of the process tree)."
        yield f"{_NAMES[workload].capitalize()}: throughput against memory", Chart(svg, caption)


def _unshared_charts(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Chart]]:
    """For each workload with a shared state: un-shared memory over time in the repeat nearest to the median."""
    for workload in dict.fromkeys(row["workload"] for row in rows if row["workload"].startswith("state")):
        title = f"Memory un-shared by copy-on-write, {_NAMES[workload]}"
        svg = lines(
            [_unshared_line(row) for row in rows if row["workload"] == workload],
            title=title,
            description="A line for each mix: memory that its workers no longer share since the first request.",
            show=_mebibytes,
            show_where=units.duration,
        )
        caption = (
            "Pages that the workers shared after the fork and have copied since, because something wrote to them: even "
            "reading a Python object writes its reference count."
        )
        yield title, Chart(svg, caption)


def _unshared_line(row: Mapping[str, Any]) -> Line:
    over_time = [(at_s, max(0.0, unshared_bytes / _MIB)) for at_s, unshared_bytes in row["unshared_over_time"]]
    return Line(row["mix"], over_time, _role(row))


def _mebibytes(value: float) -> str:
    return units.size(value * _MIB)


def _median_measurement(made: Sequence[Measurement]) -> Measurement:
    median = median_interval([each.values["elapsed_s"] for each in made]).median
    return min(made, key=lambda each: abs(each.values["elapsed_s"] - median))


def _over_time(made: Measurement) -> list[list[float]]:
    """[seconds since the first request, bytes no longer shared], 25 of them at most and the last."""
    samples = made.values["memory"]
    step = max(1, math.ceil(len(samples) / _POINTS_OF_A_LINE))
    return [[sample[0], sample[_LOST]] for sample in [*samples[:-1:step], samples[-1]]]


def _role(row: Mapping[str, Any]) -> Role:
    processes, threads = row["processes"], row["threads"]
    if row["server"] != "uwsgi":
        return "between"
    if processes == 1 < threads:
        return "baseline"
    return "variant" if threads == 1 < processes else "between"


def _notes(settings: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"Each measurement is a fresh server, warmed up, and the same requests of {units.count(settings['users'])} "
        "users for every mix. Every response is compared with the first one to the same request."
    )
    yield (
        "Pure computation is Python without input or output; the full query is the request above, by the variant "
        f"{settings['variant']}; shared state is loaded before the fork and read in fiftieths; frozen is after "
        "gc.freeze(). Waiting is 20 ms per request, for PostgreSQL or for another service."
    )
    yield (
        "Memory is the peak of master and workers together. RSS counts a shared page in each process, PSS in parts, "
        "USS only what one process has alone."
    )
    yield "Un-shared: memory that copy-on-write has copied in the workers between the first request and the last."
    yield "CPU per request is of the workers, and of PostgreSQL's backends for the query; generator CPU is of one core."


_LIMITS = (
    "The effect of more cores: processes gain until the cores are used up, and so does the database beside them.",
    "A Python without the global interpreter lock.",
    "Memory of PostgreSQL's backends: one for each thread.",
)
