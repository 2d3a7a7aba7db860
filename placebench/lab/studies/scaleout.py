"""Scale-out: the same requests served by so many hosts and replicas, with the CPU that each kind of part takes.

The main class is `ScaleOutStudy`, the study of `placebench lab study scaleout`. The database and its replicas are
started once; each measurement has service hosts and an nginx of its own, which read from as many replicas as it says.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psutil

from placebench.compare.load.client_process import Driven, HttpClient, http_client, responses_folder
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.workload import placement_workload
from placebench.lab.inventory.seeding import migrate_options, seed
from placebench.lab.scaleout.cluster import LoadBalancer, share_cpus, start_hosts
from placebench.lab.studies.study import Measure, Point, Restartable, StudySetup, StudySpec
from placebench.meters.processes import read_tree_cpu_s
from placebench.runtime.postgres.cluster import Cluster
from placebench.runtime.running_server import ServerSpec

PARTS: Final = ("nginx", "hosts", "primary", "replicas")
_HASH_SEED: Final = "1"
_WARM_UP: Final = 3
"""Requests to each host before those that count."""


@dataclass(frozen=True)
class ScaleOutStudy:
    """Which numbers of hosts and replicas serve how many requests."""

    sizes: tuple[tuple[int, int], ...]
    """Hosts, and replicas; without a replica the primary is read from."""
    requests: int
    """In each measurement."""
    users: int
    """Closed-loop users, the same number for every size."""
    request: str
    variant: str
    revisions: tuple[str, ...]
    """Of the variant."""
    processes: int
    """Of each host, of one thread."""

    @property
    def _cpus(self) -> list[frozenset[int]]:
        """Of each host, where there are as many as in the largest size."""
        return share_cpus(max(hosts for hosts, _ in self.sizes))

    def spec(self, *, repeats: int) -> StudySpec:
        """Return what is measured.

        A measurement has `elapsed_s, requests, throughput_per_s, latency_s` (the median), `latency_s_p99`,
        `client_cpu_s` and `cpu_s` by part: nginx, hosts, primary, and the replicas that are read from.
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
    """Measures sizes one after the other, and compares their responses."""

    study: ScaleOutStudy
    setup: StudySetup
    client: Restartable[HttpClient]
    cluster: Cluster
    same: SameResponses
    cpus: list[frozenset[int]]

    def measure(self, point: Point, _: int) -> dict[str, Any]:
        """One size, on hosts of its own."""
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
            "latency_s_p99": _percentile_99(seen.wall_s),
            "client_cpu_s": seen.client_cpu_s,
            "cpu_s": {part: after[part] - before[part] for part in PARTS},
        }

    def _check(self, point: Point, seen: Driven) -> None:
        """Raise LoadError for a request that failed, GateFailedError for a response that is not as the first was."""
        name = f"{point['hosts']} hosts and {point['replicas']} replicas"
        self.same.check_all(name, seen.check().responses, responses_folder(self.setup.folder))


def _cpu_s(pids: Mapping[str, Iterable[int]]) -> dict[str, float]:
    """CPU seconds so far of each part, with all processes below those that are named."""
    return {part: sum(read_tree_cpu_s(_tree(pid)) for pid in mains) for part, mains in pids.items()}


def _tree(pid: int) -> list[int]:
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def _percentile_99(seconds: list[float]) -> float:
    """The value that 99 % do not exceed."""
    return sorted(seconds)[-1 - len(seconds) // 100]
