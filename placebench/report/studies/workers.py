"""Threads or processes, told from the measurements of `placebench workers`: the key piece is `tell`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placebench import units
from placebench.experiment.records import Measurement
from placebench.page.charts import Line, Role, Spot, lines, plane
from placebench.report.studies.study import Column, Picture, Told, counted
from placebench.results import Run
from placebench.stats import median_interval

_MEDIANS = ("throughput_per_s", "latency_s", "pss_bytes", "uss_bytes", "rss_bytes", "unshared_bytes", "client_cpu_s")
_CLIENT_IS_BUSY = 0.7
_LOST = 4
"""Where the lost bytes stand in a sample of `memory`."""
_POINTS_OF_A_LINE = 25
_MIB = 2**20
"""Axes are in MiB, so that their ticks are round in the unit that stands beside them."""
_NAMES = {
    "compute": "no input or output",
    "query": "the full query",
    "state": "shared state",
    "state-frozen": "shared state, frozen",
}


def tell(run: Run) -> Told:
    """A row for each workload and mix; a picture of throughput against memory each, and what sharing was lost."""
    rows = [_row(point, made) for point, made in counted(run)]
    return Told(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS,
        pictures=[*_planes(rows), *_losses(rows)],
        remarks=list(_remarks(rows)),
        reading=list(_reading(run.head.settings)),
        limits=_LIMITS,
        axes=_axes,
    )


def _axes(point: Mapping[str, Any]) -> dict[str, Any]:
    return {**point, "mix": f"{point['processes']} x {point['threads']}"}


def _row(point: Mapping[str, Any], made: Sequence[Measurement]) -> dict[str, Any]:
    values = [each.values for each in made]
    elapsed = median_interval([each["elapsed_s"] for each in values])
    medians = {name: median_interval([each[name] for each in values]).median for name in _MEDIANS}
    cpu = [_cpu_s(each) for each in values]
    known = [each for each in cpu if each is not None]
    cpu_s = median_interval(known).median if len(known) == len(cpu) else None
    share = medians.pop("client_cpu_s") / elapsed.median
    return {
        **_axes(point),
        "n": elapsed.n,
        "requests": values[0]["requests"],
        "elapsed_s": elapsed.median,
        "elapsed_low_s": elapsed.low,
        "elapsed_high_s": elapsed.high,
        "confidence": elapsed.confidence,
        **medians,
        "cpu_s": cpu_s,
        "cpu_s_per_request": None if cpu_s is None else cpu_s / values[0]["requests"],
        "lost_over_time": _over_time(_typical(made)),
        "client_cpu_share": share,
        "client_was_busy": share > _CLIENT_IS_BUSY,
    }


def _cpu_s(values: Mapping[str, Any]) -> float | None:
    """Of workers and backends; None where the backends are elsewhere."""
    if values["backend_cpu_s"] is None:
        return None
    return float(values["worker_cpu_s"] + values["backend_cpu_s"])


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest number of processes beside as many threads, for the query where it was asked."""
    for workload in sorted({row["workload"] for row in rows}, key=lambda name: (name != "query", name)):
        mine = {(row["processes"], row["threads"]): row for row in rows if row["workload"] == workload}
        for count in sorted((processes for processes, threads in mine if threads == 1 < processes), reverse=True):
            if (1, count) in mine:
                return _against(mine[1, count], mine[count, 1])
    if not rows:
        return "Threads or processes: nothing was measured."
    best = max(rows, key=lambda row: row["throughput_per_s"])
    return (
        f"{best['mix']} (processes x threads) answers {units.rate(best['throughput_per_s'])} of "
        f"{_NAMES[best['workload']]} in {units.size(best['pss_bytes'])}."
    )


def _against(threads: Mapping[str, Any], processes: Mapping[str, Any]) -> str:
    faster = processes["throughput_per_s"] / threads["throughput_per_s"]
    larger = processes["pss_bytes"] / threads["pss_bytes"]
    return (
        f"{_NAMES[threads['workload']].capitalize()}: {processes['processes']} processes answer {_rate_in(processes)}, "
        f"{threads['threads']} threads {_rate_in(threads)}: {units.times(faster)} the throughput for "
        f"{units.times(larger)} the memory."
    )


def _rate_in(row: Mapping[str, Any]) -> str:
    return f"{units.rate(row['throughput_per_s'])} in {units.size(row['pss_bytes'])}"


def _remarks(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    busy = [f"{_NAMES[row['workload']]} by {row['mix']}" for row in rows if row["client_was_busy"]]
    if busy:
        yield (
            f"The users' process took more than {units.level(_CLIENT_IS_BUSY)} of a core, so it may have been the "
            f"limit: {', '.join(busy)}."
        )
    elif rows:
        most = max(row["client_cpu_share"] for row in rows)
        yield f"The users' process took {units.percent(most)} of a core at most, so it was not the limit."


_COLUMNS = (
    Column("workload", "workload", lambda name: _NAMES[name]),
    Column("mix", "processes x threads"),
    Column("n", "n", units.count),
    Column("elapsed_s", "time", units.duration),
    Column("elapsed_low_s", "from", units.duration),
    Column("elapsed_high_s", "to", units.duration),
    Column("throughput_per_s", "throughput", units.rate),
    Column("latency_s", "median wait", units.duration),
    Column("cpu_s_per_request", "CPU a request", units.duration),
    Column("pss_bytes", "PSS", units.size),
    Column("uss_bytes", "USS", units.size),
    Column("rss_bytes", "RSS", units.size),
    Column("unshared_bytes", "memory un-shared", units.size),
    Column("client_cpu_share", "users' CPU", units.percent),
)


def _planes(rows: Sequence[Mapping[str, Any]]) -> Iterator[Picture]:
    for workload in dict.fromkeys(row["workload"] for row in rows):
        spots = [
            Spot(row["mix"], row["pss_bytes"] / _MIB, row["throughput_per_s"], _role(row["processes"], row["threads"]))
            for row in rows
            if row["workload"] == workload
        ]
        yield Picture(
            f"{_NAMES[workload].capitalize()}: throughput against memory",
            plane(
                spots,
                title=f"Throughput against memory, {_NAMES[workload]}",
                description="A point for each mix of processes and threads; up is faster, left is smaller.",
                show_across=_mebibytes,
                show_up=units.rate,
                keys=[
                    ("disc role-baseline", "threads in one process"),
                    ("disc role-variant", "processes of one thread"),
                    ("disc role-between", "both, or one of each"),
                ],
            ),
            "Processes x threads. Up is faster; left is smaller (PSS of the family at its highest).",
        )


def _losses(rows: Sequence[Mapping[str, Any]]) -> Iterator[Picture]:
    """For each workload with a shared state: the sharing lost over time in the repeat nearest to the median."""
    for workload in dict.fromkeys(row["workload"] for row in rows if row["workload"].startswith("state")):
        title = f"Sharing lost over time, {_NAMES[workload]}"
        yield Picture(
            title,
            lines(
                [_loss(row) for row in rows if row["workload"] == workload],
                title=title,
                description="A line for each mix: what its workers no longer share since it was loaded.",
                show=_mebibytes,
                show_where=units.duration,
            ),
            "Pages that the workers shared after the fork and have copied since, because something wrote to them: to "
            "look at a Python object is to write its reference count.",
        )


def _loss(row: Mapping[str, Any]) -> Line:
    over_time = [(at_s, max(0.0, unshared_bytes / _MIB)) for at_s, unshared_bytes in row["lost_over_time"]]
    return Line(row["mix"], over_time, _role(row["processes"], row["threads"]))


def _mebibytes(value: float) -> str:
    return units.size(value * _MIB)


def _typical(made: Sequence[Measurement]) -> Measurement:
    median = median_interval([each.values["elapsed_s"] for each in made]).median
    return min(made, key=lambda each: abs(each.values["elapsed_s"] - median))


def _over_time(made: Measurement) -> list[list[float]]:
    """[seconds since the first request, bytes no longer shared], 25 of them at most and the last."""
    samples = made.values["memory"]
    step = max(1, math.ceil(len(samples) / _POINTS_OF_A_LINE))
    return [[sample[0], sample[_LOST]] for sample in [*samples[:-1:step], samples[-1]]]


def _role(processes: int, threads: int) -> Role:
    if processes == 1 < threads:
        return "baseline"
    return "variant" if threads == 1 < processes else "between"


def _reading(settings: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"Each measurement is a fresh uWSGI, warmed up, and the same requests of {units.count(settings['users'])} users"
        " for every mix. All answers are held to the first one to the same request."
    )
    yield (
        "No input or output is pure Python; the full query is the request below, by the variant "
        f"{settings['variant']}; shared state is loaded before the fork and read in fiftieths; frozen is after "
        "gc.freeze()."
    )
    yield (
        "Memory is of master and workers together at its highest PSS. RSS counts a shared page in each process, PSS in "
        "parts, USS only what one process has alone."
    )
    yield "Sharing lost is what copy-on-write has copied in the workers between the first request and the last."
    yield "CPU a request is of the workers, and of PostgreSQL's backends for the query; users' CPU is of one core."


_LIMITS = (
    "What more cores would bring: processes gain until the cores are used up, and so does the database beside them.",
    "A Python without the global interpreter lock, and a server that is not uWSGI.",
    "Memory that PostgreSQL takes for its backends: one for each thread that asks.",
)
