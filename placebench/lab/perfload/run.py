"""The run of `placebench lab perfload`: seed, serve, load, count, compare and profile; each step is saved at its end.

The main class is `PerfloadRun`; `ordinary_workload` has the requests of its comparison. Whether or not the run
succeeds, its folder has what was measured until then, and `run.json` says how the run ended and which parts failed.
"""

import json
import re
import shutil
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from placebench import units
from placebench.compare.keep.environment import manifest
from placebench.compare.keep.records import LoadPass, RunHead
from placebench.compare.keep.run_folder import RunFolder, Say, discard_message, error_text
from placebench.compare.measure.counted_pass import count_requests
from placebench.compare.measure.passes import PassSetup, load_closed, load_open
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.profiled_pass import profile_under_load
from placebench.compare.measure.replicate import REPLICATE_FAILURES
from placebench.compare.measure.replicate_series import ReplicateSeries
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.http_request import HEADERS
from placebench.compare.what.validity import LOAD_RULES, LoadRules
from placebench.compare.what.variants import read_variants
from placebench.compare.what.workload import SentRequest, Workload
from placebench.errors import DatabaseError, LoadError, PlacebenchError, ServerError, UndecidedError
from placebench.lab.inventory.data_sets import SeededData, TopologyData
from placebench.lab.inventory.seeding import data_digest
from placebench.lab.inventory.topology import Topology
from placebench.lab.inventory.topology.topology import OWNER
from placebench.lab.inventory.topology.tree import Take
from placebench.lab.placement_api import RULES
from placebench.lab.reference.variants import ALGORITHMS, OPTIMIZATIONS, WHY, cumulative
from placebench.lab.variants import APPLICATION, PLACEMENT
from placebench.runtime.postgres import Server
from placebench.stats import samples_needed

BASELINE, BEST = "naive", "tuned"
_CANDIDATES: Final = 6
_AMOUNT: Final = re.compile(r"\b([A-Z][A-Z0-9_]*):(\d+)")
_HIGH_LIMIT: Final = 1_000_000
_ARRIVALS: Final = samples_needed(0.95) * 1.2
_MAX_TIMES_LONGER: Final = 3
_LIMITED: Final = (2, 4)
"""Which of the six requests for candidates have a limit, if the data set's own request has none."""
# Without a consumer's generation, which microversion 1.28 demands: the same claim can be sent again and again.
_WRITE_HEADERS: Final = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": "placement 1.27",
    "Content-Type": "application/json",
}
_ORDINARY_RULES: Final = msgspec.structs.replace(
    RULES, ignore=("$..generation", "$..resource_provider_generation", "$..consumer_generation")
)
"""The rules of `RULES`, and generations may differ, which count the writes before."""


@dataclass(frozen=True)
class PerfloadSettings:
    """The variants of a run, the duration of each load, and the numbers of measurements."""

    variants: tuple[str, ...]
    """The cumulative series, baseline first; then the real Placement if it is measured; then the other algorithms."""
    processes: int = 2
    threads: int = 2
    users: int = 4
    closed_s: float = 2.5
    open_s: float = 3.0
    """At least; three times as long for a variant that serves few requests."""
    counted_requests: int = 2
    profiled_requests: int = 6
    replicates: int = 8
    """Eight, so that wall time and memory can have a verdict beside CPU time."""
    rounds: int = 1
    block_s: float = 0.5
    telemetry: bool = False
    """Whether workers, client and backends write telemetry."""
    placement_python: str | None = None
    """The Python of the environment with the real Placement; None if Placement is not measured."""
    load_rules: LoadRules = LOAD_RULES
    """Rules by which an open-loop load is discarded."""

    @classmethod
    def default(cls) -> "PerfloadSettings":
        """Return settings for the cumulative series and the algorithms: five minutes on two cores with 1000 trees."""
        return cls(variants=(*cumulative(), *ALGORITHMS))

    @classmethod
    def quick(cls) -> "PerfloadSettings":
        """Return settings for naive, tuned and the algorithms: about two minutes with 50 trees."""
        variants = (BASELINE, BEST, *ALGORITHMS)
        return cls(variants, closed_s=1.5, open_s=1.0, block_s=0.15)

    def with_placement(self, python: str) -> "PerfloadSettings":
        """Return these settings with the real Placement before the algorithms; it is neither counted nor profiled."""
        series = [name for name in self.variants if name not in ALGORITHMS]
        others = [name for name in self.variants if name in ALGORITHMS]
        return replace(self, variants=(*series, PLACEMENT, *others), placement_python=python)

    @property
    def ours(self) -> tuple[str, ...]:
        """The variants that are served by the reference service."""
        return tuple(name for name in self.variants if name != PLACEMENT)

    @property
    def compared(self) -> tuple[str, ...]:
        """The variants to compare under open-loop load: first and last step, Placement, the algorithms."""
        return tuple(name for name in self.variants if name in (BASELINE, BEST, *ALGORITHMS, PLACEMENT))

    @property
    def steps(self) -> int:
        """Number of steps that the run announces."""
        passes = (self.variants, self.ours, self.ours, self.compared)  # loaded, counted, profiled, loaded openly
        return 1 + self.replicates + sum(map(len, passes))


class PerfloadRun:
    """One `perfload` run in one folder, on one PostgreSQL server."""

    def __init__(self, topology: Topology, settings: PerfloadSettings, folder: Path, server: Server) -> None:
        self._topology = topology
        self._settings = settings
        self._data = SeededData(server, topology, folder)
        self._loaded: dict[str, LoadPass] = {}
        self._workload = ordinary_workload(topology)
        kept = {name: value for name, value in asdict(settings).items() if name != "variants"}
        head = RunHead.begin(
            folder,
            topology,
            command="perfload",
            request=topology.request,
            variants=settings.variants,
            settings={**kept, "steps": _steps(settings.variants), "workload": self._workload.to_json()},
        )
        self._run = RunFolder(folder, head)
        self._same = SameResponses(self._run.save, _ORDINARY_RULES)

    def run(self, say: Say, note: Say = discard_message) -> None:
        """Measure everything in order; a count, profile, open-loop load or comparison that fails is left out.

        say, note: as in `RunFolder`. Raises GateFailedError if two variants respond differently, and UndecidedError if
        the data changed meanwhile or the run ended early with something to report. Before there is anything to report,
        raises ServerError, LoadError or DatabaseError; KeyboardInterrupt is possible at any time. The folder is
        readable in each case.
        """
        self._run.say, self._run.note = say, note
        with self._run.recorded():
            try:
                self._measure()
            except (ServerError, LoadError, DatabaseError) as error:
                if not self._loaded:
                    raise
                raise UndecidedError(f"ended early, the report has what was measured until then: {error}") from error

    def _measure(self) -> None:
        settings, setup = self._settings, self._prepare()
        for variant in settings.variants:
            self._load_closed(setup, variant)
        self._compare()
        for variant in settings.ours:
            self._run.begin_step("profile", f"{variant}: profile of {settings.profiled_requests} requests")
            profile = partial(
                profile_under_load, setup, variant, requests=settings.profiled_requests, application=APPLICATION
            )
            self._run.run_optional_part("profile", variant, profile)
        self._check_data(setup.database_url)
        for variant in settings.compared:
            rate_per_s = self._loaded[variant].result.throughput_per_s / 2
            time_s = open_load_s(rate_per_s, settings.open_s)
            within = f"{settings.open_s:g} to {_MAX_TIMES_LONGER * settings.open_s:g} s"
            self._run.begin_step("open_load", f"{variant}: open-loop load, {within}")
            load = partial(load_open, setup, variant, time_s=time_s, rate_per_s=rate_per_s, rules=settings.load_rules)
            self._run.run_optional_part("open-loop load", variant, load)
        self._check_data(setup.database_url)

    def _prepare(self) -> PassSetup:
        topology, settings = self._topology, self._settings
        self._run.begin_step("data", f"seed {topology.title}, {units.numbered(topology.trees, 'tree')}")
        self._run.watch_server(self._data.server)
        url = self._data.url
        self._run.save(receipt=self._data.receipt, manifest=manifest(url))
        return PassSetup(
            database_url=url,
            request=topology.request,
            folder=self._run.path,
            processes=settings.processes,
            threads=settings.threads,
            users=settings.users,
            seed=topology.seed,
            telemetry=settings.telemetry,
            python=settings.placement_python,
        )

    def _load_closed(self, setup: PassSetup, variant: str) -> None:
        self._run.begin_step("closed_load", f"{variant}: closed-loop load, {self._settings.closed_s:g} s")
        self._loaded[variant] = load_closed(setup, variant, time_s=self._settings.closed_s, same=self._same)
        if variant not in self._settings.ours:
            return
        self._run.begin_step("count", f"{variant}: count of {self._settings.counted_requests} requests")
        count = partial(count_requests, setup, variant, requests=self._settings.counted_requests)
        self._run.run_optional_part("count", variant, count)

    def _compare(self) -> None:
        """Make the comparison, an optional part of the run that fails if too few replicates are valid."""
        names, settings = self._settings.compared, self._settings
        try:
            python = settings.placement_python
            prepared = PreparedVariants(
                variants=read_variants(names, python=Path(python) if python else None),
                databases={name: self._data.copy(name) for name in names},
                workload=self._workload,
                folder=self._run.path,
                block_s=settings.block_s,
                timer=self._run.timer,
                contents=TopologyData(self._topology).contents,
            )
            series = ReplicateSeries(self._run, self._same, rounds=settings.rounds)
            series.measure(prepared, settings.replicates)
        except (UndecidedError, *REPLICATE_FAILURES) as error:
            self._run.fail_part("comparison", "", error_text(error))
        shutil.rmtree(self._run.path / "responses", ignore_errors=True)

    def _check_data(self, url: str) -> None:
        digest, seeded = data_digest(url), self._run.head.receipt["digest"]
        if digest != seeded:
            raise UndecidedError(
                f"the data changed during the run: digest {digest}, seeded {seeded}; "
                "something else wrote to the database: run it again"
            )


def open_load_s(rate_per_s: float, at_least_s: float) -> float:
    """Return the duration of an open-loop load at this rate: that of 200 arrivals, which p95 needs, within bounds.

    It is *at_least_s* for fast variants, and three times as long for slow ones, so that these have a p50 at least.
    """
    return min(max(at_least_s, _ARRIVALS / rate_per_s), _MAX_TIMES_LONGER * at_least_s)


def ordinary_workload(topology: Topology) -> Workload:
    """Return ten different requests: one write, six requests for candidates, and three other reads.

    The write claims what its consumer already has, or would get on the first tree of an unused data set, so that every
    cycle after the first leaves the data as it was; yet no variant can know that, and what it kept is stale. The write
    comes first, so that the responses to the other nine are the same in every cycle. The requests for candidates want
    different amounts of a resource, and two have a limit.
    """
    consumer, place, takes = _claim(topology)
    uuids = topology.uuids(place)
    allocations: dict[str, dict[str, dict[str, int]]] = {}
    for take in takes:
        allocations.setdefault(uuids[take.place], {"resources": {}})["resources"][take.resource_class] = take.amount
    body = json.dumps({"allocations": allocations, "project_id": OWNER, "user_id": OWNER}).encode()
    path = f"/allocations/{consumer}"
    write = SentRequest("PUT", path, _WRITE_HEADERS, body, expect_status=204, label=f"PUT {path}")
    paths = _different(topology)
    provider = f"/resource_providers/{uuids[takes[0].place]}"
    for at, read in zip((2, 5, 8), (f"{provider}/inventories", f"{provider}/usages", path), strict=True):
        paths.insert(at, read)
    reads = [SentRequest("GET", each, dict(HEADERS), expect_status=200, label=each) for each in dict.fromkeys(paths)]
    calls = (write, *reads)
    return Workload(calls=calls, cycle=tuple(range(len(calls))), rules=_ORDINARY_RULES)


def _different(topology: Topology) -> list[str]:
    """Return six requests for candidates that differ in an amount, if possible of disk.

    They differ in a limit that is never reached if no provider has more than the data set's own request wants.
    """
    request = topology.request
    inventories = [each for tree in topology.tree_types for node in tree.nodes for each in node.inventories]
    for found in sorted(_AMOUNT.finditer(request), key=lambda each: each[1] != "DISK_GB"):
        amounts = [int(found[2]) + 1 + number for number in range(_CANDIDATES)]
        if all(
            any(each.resource_class == found[1] and each.allows(amount) for each in inventories) for amount in amounts
        ):
            paths = [f"{request[: found.start(2)]}{amount}{request[found.end(2) :]}" for amount in amounts]
            has_limit = "limit=" in request
            return [
                f"{path}&limit=10" if number in _LIMITED and not has_limit else path
                for number, path in enumerate(paths)
            ]
    unlimited = re.sub(r"&limit=\d+", "", request)
    return [f"{unlimited}&limit={_HIGH_LIMIT + number}" for number in range(_CANDIDATES)]


def _claim(topology: Topology) -> tuple[str, int, tuple[Take, ...]]:
    """Return the claim of the write: the consumer, the number of its tree, and what it takes.

    A data set without consumers gets a new one, which takes the smallest amount that the first inventory allows. Raises
    PlacebenchError if none does.
    """
    for number in range(topology.trees):
        for consumer in topology.consumers(number)[:1]:
            return consumer.uuid, number, tuple(consumer.takes)
    for number in range(topology.trees):
        for place, node in enumerate(topology.tree_types[topology.type_index(number)].nodes):
            for inventory in node.inventories:
                amount = -(-inventory.min_unit // inventory.step_size) * inventory.step_size
                if inventory.allows(amount):
                    return topology.uuids(number)[0], number, (Take(place, inventory.resource_class, amount),)
    raise PlacebenchError(
        f"{topology.title}: no inventory allows a claim; expected one, for the write of the comparison"
    )


def _steps(variants: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return, for the report, what each step adds to the one before it, why, and where the idea comes from."""
    added = dict(zip(cumulative()[1:], OPTIMIZATIONS, strict=True))
    steps = {
        name: {
            "adds": each.name,
            "why": each.why,
            "source": each.source,
            "shows_on": each.request,
            "shows_in": each.metric,
        }
        for name, each in added.items()
    }
    steps[BASELINE] = {"adds": "", "why": "Every step in its plain way, as the original had it.", "source": ""}
    beyond = {**WHY, PLACEMENT: "The real Placement, openstack-placement, as its environment has it."}
    steps.update({name: {"adds": "", "why": why, "source": ""} for name, why in beyond.items()})
    if not set(cumulative()) <= set(variants):
        every = ", ".join(each.name for each in OPTIMIZATIONS)
        steps[BEST] = {"adds": every, "why": "Every step in its better way.", "source": ""}
    return {name: steps[name] for name in variants}
