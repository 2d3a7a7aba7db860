"""Scale-out: throughput, latency and CPU per request by the number of hosts and replicas."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from placebench import units
from placebench.compare.keep.records import Measurement
from placebench.lab.studies.reports.scalability import scalability_curve, scalability_row, scalability_tables
from placebench.lab.studies.scaleout import PARTS
from placebench.page.axis_charts import Line, lines
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

Found = Sequence[tuple[dict[str, Any], list[Measurement]]]


def results(run: Run) -> StudyResults:
    """Return a row for each size, the laws over hosts and over replicas, and a chart of each."""
    found = list(valid_points(run))
    rows = [_row(point, made, run.head.settings["processes"]) for point, made in found]
    groups = list(_groups(found))
    laws = [{"of": of, "beside": beside, **law} for of, beside, sizes in groups if (law := scalability_row(sizes))]
    return StudyResults(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS,
        charts=[_chart(of, beside, sizes) for of, beside, sizes in groups],
        tables=scalability_tables([measured("beside", "beside")], laws),
        document={"scalability": laws},
        summary=list(_summary(rows)),
        notes=_notes(run.head.settings),
        limits=_LIMITS,
    )


def _row(point: Mapping[str, Any], made: Sequence[Measurement], processes: int) -> dict[str, Any]:
    values = [each.values for each in made]
    rate = median_interval([each["throughput_per_s"] for each in values])
    cpu = {part: median_interval([each["cpu_s"][part] / each["requests"] for each in values]).median for part in PARTS}
    used = [(sum(each["cpu_s"].values()) + each["client_cpu_s"]) / each["elapsed_s"] for each in values]
    limits = {"nginx": 1, "hosts": point["hosts"] * processes, "primary": 1, "replicas": point["replicas"]}
    part = max((name for name in PARTS if limits[name]), key=lambda name: cpu[name] / limits[name])
    return {
        **point,
        "n": rate.n,
        **interval_figures("throughput", "_per_s", rate),
        "confidence": rate.confidence,
        **{name: median_interval([each[name] for each in values]).median for name in ("latency_s", "latency_s_p99")},
        **{f"{name}_cpu_s": seconds for name, seconds in cpu.items()},
        "cpu_s": sum(cpu.values()),
        "cores_used": median_interval(used).median,
        "client_cpu_share": median_interval([each["client_cpu_s"] / each["elapsed_s"] for each in values]).median,
        "separate_per_s": limits[part] / cpu[part] if cpu[part] else None,
        "limited_by": part,
    }


_COLUMNS = (
    measured("hosts", "hosts", units.count),
    measured("replicas", "replicas", units.count),
    measured("n", "n", units.count),
    *interval_columns("throughput", "_per_s", "throughput", units.rate),
    measured("latency_s", "median latency", units.duration),
    measured("latency_s_p99", "99th percentile", units.duration),
    *(measured(f"{part}_cpu_s", f"CPU of {part}", units.duration) for part in PARTS),
    measured("cores_used", "cores used", units.significant),
    measured("separate_per_s", "extrapolated: a core each", units.rate),
    measured("limited_by", "limited by"),
)


def _groups(found: Found) -> Iterator[tuple[str, str, dict[int, list[float]]]]:
    """What N counts, beside what, and throughput by N; those with two numbers or more."""
    for of, other in (("hosts", "replicas"), ("replicas", "hosts")):
        for beside in dict.fromkeys(point[other] for point, _ in found):
            sizes = {
                point[of]: [each.values["throughput_per_s"] for each in made]
                for point, made in found
                if point[other] == beside and point[of]
            }
            if len(sizes) > 1:
                yield of, units.numbered(beside, other[:-1]), sizes


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """From the fewest hosts to the most, beside as many replicas."""
    for replicas in dict.fromkeys(row["replicas"] for row in rows):
        beside = sorted((row for row in rows if row["replicas"] == replicas), key=lambda row: row["hosts"])
        if len(beside) > 1:
            few, many = beside[0], beside[-1]
            return (
                f"{few['hosts']} to {many['hosts']} hosts on this machine, {units.numbered(replicas, 'replica')}: "
                f"{units.rate(few['throughput_per_s'])} to {units.rate(many['throughput_per_s'])}, "
                f"{units.duration(few['cpu_s'])} to {units.duration(many['cpu_s'])} of CPU per request."
            )
    return _one(rows[0]) if rows else "Scale-out: nothing was measured."


def _one(row: Mapping[str, Any]) -> str:
    size = f"{units.numbered(row['hosts'], 'host')}, {units.numbered(row['replicas'], 'replica')}"
    return f"{size}: {units.rate(row['throughput_per_s'])}, {units.duration(row['cpu_s'])} of CPU per request."


def _summary(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    busy = [f"{row['hosts']} x {row['replicas']}" for row in rows if row["client_cpu_share"] > CLIENT_IS_BUSY]
    if busy:
        share = units.round_percent(CLIENT_IS_BUSY)
        yield f"The load generator took more than {share} of a core, so it may have been the limit: {', '.join(busy)}."


def _chart(of: str, beside: str, sizes: Mapping[int, Sequence[float]]) -> tuple[str, Chart]:
    title = f"Throughput by {of}, {beside}"
    seen = [(float(size), median_interval(sizes[size]).median) for size in sorted(sizes)]
    svg = lines(
        [Line("measured", seen, "variant"), Line("fitted law", scalability_curve(sizes), "baseline")],
        title=title,
        description=f"Median throughput for each number of {of}, and the Universal Scalability Law fitted to it.",
        show=units.rate,
        show_where=lambda where: f"{where:g}",
    )
    return title, Chart(svg, "The law is fitted without the largest number, where four or more were measured.")


def _notes(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"Each measurement has hosts of its own, {units.count(settings['processes'])} processes each, and nginx.",
        f"It is {units.count(settings['requests'])} requests of {units.count(settings['users'])} closed-loop users.",
        "Every response is compared with the first one.",
        _cpus_text(settings["cpus_per_host"]),
        f"Read-only requests, by the variant {settings['variant']}: without replicas the primary is read from.",
        "CPU is per request, of all processes of the part together; cores used counts the load generator too.",
        "A core each: nginx, each process of a host, the primary and each replica has one core of its own.",
        "That column is the throughput at which the first of them is used up, at the CPU per request measured here.",
    )


def _cpus_text(per_host: int) -> str:
    """What is isolated; nothing else is."""
    own = f"Each host has CPUs of its own: {units.count(per_host)}" if per_host else "All parts share all CPUs"
    return f"{own}; one machine, one network."


_LIMITS = (
    "More machines: throughput stops where the cores of this one are used up.",
    "A network: all connections are loopback.",
    "The figures for a core each are extrapolated: they know no waiting, and no cache that several cores share.",
    "Writes: all go to the primary, whatever the number of replicas.",
)
