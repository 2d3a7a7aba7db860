"""The whole story of `perfload`: seed, serve, load, count, compare, profile, each step left on disk as it is finished.

The key piece is `Perfload.run`. However it ends, the run's folder holds what was measured until then and `run.json`
says how it ended, and which parts failed on the way.
"""

import shutil
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from placebench.errors import DatabaseError, LoadError, ServerError, UndecidedError
from placebench.experiment.environment import manifest
from placebench.experiment.parts import Parts, Say, nobody
from placebench.experiment.passes import Bench, closed_pass, counted_pass, open_pass, profiled_pass
from placebench.experiment.records import LoadPass, RunHead
from placebench.experiment.replicate import DEATHS, PreparedVariants, reason_of
from placebench.experiment.replicate_loop import Replicates
from placebench.experiment.run_folder import KeptHead
from placebench.experiment.same_responses import AnswerGate
from placebench.experiment.validity import LOAD_RULES, LoadRules
from placebench.experiment.variants import PLACEMENT, read_variants
from placebench.reference.variants import ALGORITHMS, OPTIMIZATIONS, WHY, cumulative
from placebench.runtime.postgres import Server
from placebench.seeding import data_digest, seed
from placebench.topology import Topology

BASELINE, BEST = "naive", "tuned"


@dataclass(frozen=True)
class Settings:
    """How much is measured, and how."""

    variants: tuple[str, ...]
    """The rungs, baseline first, then the real Placement where it is there, and the other algorithms."""
    processes: int = 2
    threads: int = 2
    users: int = 4
    closed_s: float = 10.0
    open_s: float = 15.0
    counted_requests: int = 3
    profiled_requests: int = 12
    replicates: int = 6
    rounds: int = 2
    block_s: float = 0.5
    telemetry: bool = False
    """Whether workers, client and backends write telemetry."""
    placement_python: str | None = None
    """Of the environment that the real Placement is in; None: it takes no part."""
    load_rules: LoadRules = LOAD_RULES
    """When an open load does not count."""

    @classmethod
    def default(cls) -> "Settings":
        """Every rung of the ladder, and the algorithms: about six minutes on two cores with 1000 nested trees."""
        return cls(variants=(*cumulative(), *ALGORITHMS))

    @classmethod
    def quick(cls) -> "Settings":
        """naive, tuned and the algorithms: about a minute with 50 trees."""
        variants = (BASELINE, BEST, *ALGORITHMS)
        return cls(variants, closed_s=4.0, open_s=4.0, profiled_requests=40, rounds=1, block_s=0.2)

    def with_placement(self, python: str) -> "Settings":
        """The same with the real Placement between the ladder and the algorithms; it is not counted, nor profiled."""
        rungs = [name for name in self.variants if name not in ALGORITHMS]
        others = [name for name in self.variants if name in ALGORITHMS]
        return replace(self, variants=(*rungs, PLACEMENT, *others), placement_python=python)

    @property
    def ours(self) -> tuple[str, ...]:
        """The variants of the reference service."""
        return tuple(name for name in self.variants if name != PLACEMENT)

    @property
    def compared(self) -> tuple[str, ...]:
        """Those that are compared and loaded openly: the ends of the ladder, Placement and the algorithms."""
        return tuple(name for name in self.variants if name in (BASELINE, BEST, *ALGORITHMS, PLACEMENT))

    @property
    def profiled(self) -> tuple[str, ...]:
        """Those of ours among them."""
        return tuple(name for name in self.compared if name in self.ours)

    @property
    def steps(self) -> int:
        """How many steps are announced."""
        passes = (self.variants, self.ours, self.profiled, self.compared)  # loaded, counted, profiled, loaded openly
        return 1 + self.replicates + sum(map(len, passes))


class Perfload:
    """One run of `perfload` in one folder, on one PostgreSQL server."""

    def __init__(
        self, topology: Topology, settings: Settings, folder: Path, server: Server, *, say: Say, note: Say = nobody
    ) -> None:
        """say: is told of each step as it begins; note: of what fails and is tried once more, or left out."""
        self._topology = topology
        self._settings = settings
        self._folder = folder
        self._server = server
        self._say = say
        self._note = note
        self._database = f"placebench_{folder.name.lower().replace('-', '_')}"
        self._loaded: dict[str, LoadPass] = {}
        without_variants = {key: value for key, value in asdict(settings).items() if key != "variants"}
        head = RunHead(
            name=folder.name,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            status="running",
            request=topology.request,
            topology=topology.title,
            trees=topology.trees,
            seed=topology.seed,
            variants=list(settings.variants),
            receipt={},
            manifest={},
            settings={**without_variants, "steps": _steps(settings.variants)},
            same_responses={},
        )
        self._kept = KeptHead(folder, head)
        self._gate = AnswerGate(topology.request, save=self._kept.save)
        self._parts = Parts(self._kept, note)

    def run(self) -> None:
        """Everything, in order; a count, profile, open load or comparison that fails is named, and the run goes on.

        Raises GateFailedError when two variants answer differently, UndecidedError when the data changed meanwhile or
        the run ended early with something to show; before that ServerError, LoadError and DatabaseError, and
        KeyboardInterrupt at any time. The folder is readable after each.
        """
        with self._kept.until_the_end():
            try:
                self._everything()
            except (ServerError, LoadError, DatabaseError) as error:
                if not self._loaded:
                    raise
                raise UndecidedError(f"ended early, the report has what was measured until then: {error}") from error

    def _everything(self) -> None:
        settings, bench = self._settings, self._seeded()
        for variant in settings.variants:
            self._rung(bench, variant)
        self._comparison(bench)
        for variant in settings.profiled:
            self._say(f"{variant}: profile of {settings.profiled_requests} requests")
            profile = partial(profiled_pass, bench, variant, requests=settings.profiled_requests)
            self._parts.make("profile", variant, profile)
        self._data_unchanged(bench.database_url)
        for variant in settings.compared:
            self._say(f"{variant}: open load, {settings.open_s:g} s")
            self._opened(bench, variant)
        self._data_unchanged(bench.database_url)

    def _seeded(self) -> Bench:
        topology, settings = self._topology, self._settings
        self._say(f"seed {topology.title}, {topology.trees} trees")
        url = self._server.create_database(self._database)
        receipt = seed(topology, url)
        self._kept.save(receipt=receipt.to_json(), manifest=manifest(url))
        return Bench(
            database_url=url,
            request=topology.request,
            folder=self._folder,
            processes=settings.processes,
            threads=settings.threads,
            users=settings.users,
            seed=topology.seed,
            telemetry=settings.telemetry,
            placement_python=settings.placement_python,
        )

    def _rung(self, bench: Bench, variant: str) -> None:
        self._say(f"{variant}: closed load, {self._settings.closed_s:g} s")
        self._loaded[variant] = closed_pass(bench, variant, time_s=self._settings.closed_s, meet=self._gate.meet)
        if variant not in self._settings.ours:
            return
        self._say(f"{variant}: count of {self._settings.counted_requests} requests")
        count = partial(counted_pass, bench, variant, requests=self._settings.counted_requests)
        self._parts.make("count", variant, count)

    def _opened(self, bench: Bench, variant: str) -> None:
        settings = self._settings
        load = partial(
            open_pass, time_s=settings.open_s, rate_per_s=self._slowest_per_s() / 2, rules=settings.load_rules
        )
        self._parts.make("open load", variant, partial(load, bench, variant))

    def _slowest_per_s(self) -> float:
        """Requests per second of the rung that managed least: an open load at half of it overloads none."""
        return min(loaded.result.throughput_per_s for loaded in self._loaded.values())

    def _comparison(self, bench: Bench) -> None:
        """The comparison, a part of the run that fails where too few replicates count."""
        try:
            self._compared(bench)
        except (UndecidedError, *DEATHS) as error:
            self._parts.name("comparison", "", reason_of(error))
        shutil.rmtree(self._folder / "answers", ignore_errors=True)

    def _compared(self, bench: Bench) -> None:
        """naive, tuned, Placement and the algorithms, interleaved, each on a copy of the database."""
        names, settings = self._settings.compared, self._settings
        databases = {
            name: self._server.create_database(f"{self._database}_{name}", template=self._database) for name in names
        }
        python = settings.placement_python
        read = read_variants(names, placement_python=Path(python) if python else None)
        variants = PreparedVariants(read, databases, bench.request, bench.folder, block_s=settings.block_s)
        replicates = Replicates(self._kept, self._gate, self._folder, variants=len(names), rounds=settings.rounds)
        replicates.make(variants, settings.replicates, say=self._say, note=self._note)

    def _data_unchanged(self, url: str) -> None:
        digest = data_digest(url)
        if digest != self._kept.head.receipt["digest"]:
            raise UndecidedError(
                f"the data changed during the run: digest {digest}, seeded {self._kept.head.receipt['digest']}; "
                "something else wrote to the database: run it again"
            )


def _steps(variants: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """What each rung adds to the one before it, why, and where the idea comes from; for the report."""
    added = dict(zip(cumulative()[1:], OPTIMIZATIONS, strict=True))
    rungs = {
        name: {
            "adds": each.name,
            "why": each.why,
            "source": each.source,
            "shows_on": each.request,
            "shows_in": each.metric,
        }
        for name, each in added.items()
    }
    rungs[BASELINE] = {"adds": "", "why": "Every step in its plain way, as the original had it.", "source": ""}
    beyond = {**WHY, PLACEMENT: "The real Placement, openstack-placement, as its environment has it."}
    rungs.update({name: {"adds": "", "why": why, "source": ""} for name, why in beyond.items()})
    if not set(cumulative()) <= set(variants):
        every = ", ".join(each.name for each in OPTIMIZATIONS)
        rungs[BEST] = {"adds": every, "why": "Every step in its better way.", "source": ""}
    return {name: rungs[name] for name in variants}
