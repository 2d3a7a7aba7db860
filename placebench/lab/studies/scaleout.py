"""The scale-out study: the same requests served by several hosts and replicas, with the CPU of each kind of part.

The main class is `ScaleOutStudy`, the study of `placebench lab study scaleout`. The database and its replicas are
started once; each measurement starts its own nginx and service hosts, which read from the point's number of replicas.
"""

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import Measurement
from placebench.decoding import Amount, AtLeastOne, Count, Positive
from placebench.errors import PlacebenchError
from placebench.lab.studies.commands import MAX_HOSTS, SCALEOUT_REQUESTS, SIZES, ScaleOutOptions
from placebench.lab.studies.study import StudySetup, StudySpec, run_study
from placebench.page.axis_charts import Line, lines
from placebench.report.model import Chart
from placebench.report.study_report import (
    StudyResults,
    busy_client,
    interval_columns,
    interval_figures,
    measured,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval
from placebench.study.session import Measure, Point, Restartable, study_kind

if TYPE_CHECKING:
    from placebench.compare.load.client_process import Driven
    from placebench.compare.load.clients import HttpClient
    from placebench.compare.measure.same_responses import SameResponses
    from placebench.runtime.postgres.cluster import Cluster


class _ScaleOutPoint(TypedDict):
    hosts: AtLeastOne
    replicas: Count


class _ScaleOutSettings(StudySettings[_ScaleOutPoint]):
    requests: AtLeastOne
    users: AtLeastOne
    variant: str
    processes: AtLeastOne
    cpus_per_host: Count


class _ScaleOutCpu(TypedDict):
    nginx: Amount
    hosts: Amount
    primary: Amount
    replicas: Amount


class _ScaleOutValues(TypedDict):
    elapsed_s: Positive
    requests: AtLeastOne
    throughput_per_s: Positive
    latency_s: Amount
    latency_s_p99: Amount
    client_cpu_s: Amount
    cpu_s: _ScaleOutCpu


# --- the command


def run(given: ScaleOutOptions) -> int:
    """Measure every size."""
    from placebench.lab.reference.variants import variant
    from placebench.lab.scaleout.cluster import nginx_program

    topology, sizes, chosen = given.topology(), _sizes(given), variant(given.variant)
    nginx_program()
    study = ScaleOutStudy(
        sizes=sizes,
        requests=given.requests or given.default(SCALEOUT_REQUESTS),
        users=given.users or 2 * given.processes * max(hosts for hosts, _ in sizes),
        request=given.request or topology.request,
        variant=chosen.name,
        revisions=tuple(chosen.revisions),
        processes=given.processes,
    )
    return run_study(given, topology, study.spec(repeats=given.repeats))


def _sizes(given: ScaleOutOptions) -> tuple[tuple[int, int], ...]:
    text = given.sizes or given.default(SIZES)
    found = [re.fullmatch(r"([0-9]{1,2})x([0-9]{1,2})", part) for part in text.split(",")]
    sizes = tuple(dict.fromkeys((int(each[1]), int(each[2])) for each in found if each))
    if not all(found) or not all(0 < hosts <= MAX_HOSTS and replicas <= MAX_HOSTS for hosts, replicas in sizes):
        raise PlacebenchError(
            f"--sizes {text!r}: expected hosts x replicas with commas between, such as 1x1,2x1,2x2, from 1x0 to "
            f"{MAX_HOSTS}x{MAX_HOSTS}"
        )
    return sizes


# --- the measurement


PARTS: Final = ("nginx", "hosts", "primary", "replicas")
_HASH_SEED: Final = "1"
_WARM_UP: Final = 3
"""Number of warm-up requests per host."""


@dataclass(frozen=True)
class ScaleOutStudy:
    """The numbers of hosts and replicas, and the load that they serve."""

    sizes: tuple[tuple[int, int], ...]
    """Numbers of hosts and of replicas; with 0 replicas the hosts read from the primary."""
    requests: int
    """Number of requests in each measurement."""
    users: int
    """Number of closed-loop users, the same for every size."""
    request: str
    variant: str
    revisions: tuple[str, ...]
    """Revisions of the schema that the variant needs."""
    processes: int
    """Number of processes per host, with one thread each."""

    @property
    def _cpus(self) -> list[frozenset[int]]:
        """The CPUs of each host, assigned for the largest size."""
        from placebench.lab.scaleout.cluster import share_cpus

        return share_cpus(max(hosts for hosts, _ in self.sizes))

    def spec(self, *, repeats: int) -> StudySpec:
        """Return the spec of the study.

        A measurement has `elapsed_s, requests, throughput_per_s, latency_s` (the median), `latency_s_p99`,
        `client_cpu_s`, and `cpu_s` by part: nginx, hosts, primary, and the replicas that are read from.
        """
        points = tuple({"hosts": hosts, "replicas": replicas} for hosts, replicas in self.sizes)
        settings = {
            "requests": self.requests,
            "users": self.users,
            "variant": self.variant,
            "processes": self.processes,
            "cpus_per_host": len(self._cpus[0]),
        }
        return StudySpec(
            "scaleout", points, repeats, self._prepare, self.request, settings=settings, variants=(self.variant,)
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        from placebench.compare.load.clients import http_client
        from placebench.lab.inventory.seeding import migrate_options, seed
        from placebench.runtime.postgres.cluster import Cluster

        with (
            Restartable(lambda: http_client(setup.folder)) as client,
            Cluster(max(replicas for _, replicas in self.sizes)) as cluster,
        ):
            url = cluster.url(cluster.primary)
            seed(setup.data.topology, url)
            migrate_options(url, self.revisions)
            cluster.add_replicas()
            yield _Meter(self, setup, client, cluster, setup.same_responses(), self._cpus).measure


@dataclass
class _Meter:
    """Measures one size after the other, and compares their responses."""

    study: ScaleOutStudy
    setup: StudySetup
    client: "Restartable[HttpClient]"
    cluster: "Cluster"
    same: "SameResponses"
    cpus: list[frozenset[int]]

    def measure(self, point: Point, _: int) -> dict[str, Any]:
        from placebench.lab.placement_api import placement_workload
        from placebench.lab.scaleout.cluster import LoadBalancer, start_hosts
        from placebench.runtime.running_server import ServerSpec

        workload = placement_workload(self.study.request)
        spec = ServerSpec(
            database_url=self.cluster.writer_url,
            variant=self.study.variant,
            processes=self.study.processes,
            environment={
                "PYTHONHASHSEED": _HASH_SEED,
                **({"PLACEBENCH_READER_URL": self.cluster.reader_url(point["replicas"])} if point["replicas"] else {}),
            },
        )
        with self.client.in_use() as client, ExitStack() as stack:
            hosts = start_hosts(spec, self.cpus[: point["hosts"]], stack)
            balancer = stack.enter_context(LoadBalancer([host.url for host in hosts]))
            slots = point["hosts"] * self.study.processes
            self._check(point, client.drive(balancer.url, workload, times=_WARM_UP * slots, users=slots))
            nodes = self.cluster.nodes[: 1 + point["replicas"]]
            primary, *replicas = [node.child.pid for node in nodes if node.child]
            pids = {"nginx": [balancer.pid], "hosts": [each.pid for each in hosts]}
            pids |= {"primary": [primary], "replicas": replicas}
            before = _cpu_s(pids)
            seen = client.drive(balancer.url, workload, times=self.study.requests, users=self.study.users)
            after = _cpu_s(pids)
            balancer.check()
        self._check(point, seen)
        return {
            "elapsed_s": seen.elapsed_s,
            "requests": self.study.requests,
            "throughput_per_s": self.study.requests / seen.elapsed_s,
            "latency_s": statistics.median(seen.wall_s),
            "latency_s_p99": sorted(seen.wall_s)[-1 - len(seen.wall_s) // 100],  # what 99 % do not exceed
            "client_cpu_s": seen.client_cpu_s,
            "cpu_s": {part: after[part] - before[part] for part in PARTS},
        }

    def _check(self, point: Point, seen: "Driven") -> None:
        """Raise LoadError if a request failed, GateFailedError if a response differs from the first one."""
        from placebench.compare.load.client_process import responses_folder

        name = f"{point['hosts']} hosts and {point['replicas']} replicas"
        self.same.check_all(name, seen.check().responses, responses_folder(self.setup.folder))


def _cpu_s(pids: Mapping[str, Iterable[int]]) -> dict[str, float]:
    """Return the CPU seconds used so far by each part, including all descendants of its main processes."""
    import psutil

    from placebench.meters.processes import read_tree_cpu_s

    def tree(pid: int) -> list[int]:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]

    return {part: sum(read_tree_cpu_s(tree(pid)) for pid in mains) for part, mains in pids.items()}


# --- the report


def results(run: Run) -> StudyResults:
    """Return one row per size, and charts over the number of hosts and of replicas."""
    found = list(valid_points(run))
    rows = [_row(point, made, run.head.settings["processes"]) for point, made in found]
    return StudyResults(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS,
        charts=list(_charts(rows)),
        summary=list(busy_client(rows, lambda row: f"{row['hosts']} x {row['replicas']}")),
        notes=_notes(run.head.settings),
        limits=_LIMITS,
    )


def _row(point: Mapping[str, Any], made: Sequence[Measurement], processes: int) -> dict[str, Any]:
    values = [each.values for each in made]
    rate = median_interval([each["throughput_per_s"] for each in values])
    cpu = {part: statistics.median([each["cpu_s"][part] / each["requests"] for each in values]) for part in PARTS}
    used = [(sum(each["cpu_s"].values()) + each["client_cpu_s"]) / each["elapsed_s"] for each in values]
    limits = {"nginx": 1, "hosts": point["hosts"] * processes, "primary": 1, "replicas": point["replicas"]}
    part = max((name for name in PARTS if limits[name]), key=lambda name: cpu[name] / limits[name])
    return {
        **point,
        "n": rate.n,
        **interval_figures("throughput", "_per_s", rate),
        "confidence": rate.confidence,
        **{name: statistics.median([each[name] for each in values]) for name in ("latency_s", "latency_s_p99")},
        **{f"{name}_cpu_s": seconds for name, seconds in cpu.items()},
        "cpu_s": sum(cpu.values()),
        "cores_used": statistics.median(used),
        "client_cpu_share": statistics.median([each["client_cpu_s"] / each["elapsed_s"] for each in values]),
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


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a comparison of the fewest hosts with the most, or, with a single size, its description."""
    for replicas in dict.fromkeys(row["replicas"] for row in rows):
        beside = sorted((row for row in rows if row["replicas"] == replicas), key=lambda row: row["hosts"])
        if len(beside) > 1:
            few, many = beside[0], beside[-1]
            return (
                f"{few['hosts']} to {many['hosts']} hosts on this machine, {units.numbered(replicas, 'replica')}: "
                f"{units.rate(few['throughput_per_s'])} to {units.rate(many['throughput_per_s'])}, "
                f"{units.duration(few['cpu_s'])} to {units.duration(many['cpu_s'])} of CPU per request."
            )
    if not rows:
        return "Scale-out: nothing was measured."
    row = rows[0]
    size = f"{units.numbered(row['hosts'], 'host')}, {units.numbered(row['replicas'], 'replica')}"
    return f"{size}: {units.rate(row['throughput_per_s'])}, {units.duration(row['cpu_s'])} of CPU per request."


def _charts(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Chart]]:
    """Yield charts of throughput by hosts for each number of replicas, and by replicas for each number of hosts."""
    for axis, other in (("hosts", "replicas"), ("replicas", "hosts")):
        for beside in dict.fromkeys(row[other] for row in rows):
            sizes = sorted(
                (float(row[axis]), row["throughput_per_s"]) for row in rows if row[other] == beside and row[axis]
            )
            if len(sizes) > 1:
                title = f"Throughput by {axis}, {units.numbered(beside, other[:-1])}"
                svg = lines(
                    [Line("measured", sizes, "variant")],
                    title=title,
                    description=f"Median throughput for each number of {axis}.",
                    show=units.rate,
                    show_where=lambda where: f"{where:g}",
                )
                yield title, Chart(svg)


def _notes(settings: Mapping[str, Any]) -> tuple[str, ...]:
    per_host = settings["cpus_per_host"]
    cpus = f"Each host has CPUs of its own: {units.count(per_host)}" if per_host else "All parts share all CPUs"
    return (
        f"Each measurement has hosts of its own, {units.count(settings['processes'])} processes each, and nginx.",
        f"It is {units.count(settings['requests'])} requests of {units.count(settings['users'])} closed-loop users.",
        "Every response is compared with the first one.",
        f"{cpus}; one machine, one network.",
        f"Read-only requests, by the variant {settings['variant']}: without replicas the primary is read from.",
        "CPU is per request, of all processes of the part together; cores used counts the load generator too.",
        "A core each: nginx, each process of a host, the primary and each replica has one core of its own.",
        "That column is the throughput at which the first of them is used up, at the CPU per request measured here.",
    )


_LIMITS = (
    "More machines: throughput stops where the cores of this one are used up.",
    "A network: all connections are loopback.",
    "The figures for a core each are extrapolated: they know no waiting, and no cache that several cores share.",
    "Writes: all go to the primary, whatever the number of replicas.",
)


KIND = study_kind(__name__, _ScaleOutSettings, _ScaleOutPoint, _ScaleOutValues)
