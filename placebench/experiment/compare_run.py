"""One run of `compare`: seed, copy, count, then replicates until there are enough, each on disk before the next.

The key piece is `CompareRun.run`. A sitting makes the replicates that are missing, so that a run that was killed is
resumed, and one that lost replicates to a rule gets others in their place (`placebench.experiment.replicate_loop`); the
rules do not look at what was measured.
"""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from placebench.errors import PlacebenchError
from placebench.experiment.counted_pass import statistics, wire_pass
from placebench.experiment.environment import manifest
from placebench.experiment.parts import Parts, Say, nobody, try_twice
from placebench.experiment.passes import Bench, counted_pass
from placebench.experiment.postgres_servers import Servers
from placebench.experiment.profiled_pass import watched_pass
from placebench.experiment.records import RunHead
from placebench.experiment.replicate import PreparedVariants
from placebench.experiment.replicate_loop import Replicates
from placebench.experiment.run_folder import KeptHead, same_question
from placebench.experiment.same_responses import AnswerGate
from placebench.experiment.trials import Trial
from placebench.experiment.validity import RULES
from placebench.experiment.variants import Variant, in_place
from placebench.runtime.postgres import Server
from placebench.seeding import migrate_options, seed
from placebench.stats import PRIMARY, compare_blocks
from placebench.topology import Topology

SCREEN, PUBLISH = 12, 30
ROUNDS = 24
INTERIM_ANALYSES = (12, 24, 36)
"""The only numbers of replicates at which a sequential run may stop; 36 is its end."""
SEQUENTIAL_CONFIDENCE = 1 - 0.0221
"""So that the three analyses together call identical variants different at most 5 times in 100 (Pocock 1977)."""
_COLLECTED_REQUESTS = 6


@dataclass(frozen=True)
class Settings:
    """What is compared, and how much of it is measured."""

    variants: tuple[Variant, ...]
    """The baseline first."""
    request: str
    replicates: int = SCREEN
    sequential: bool = False
    """Ends at one of INTERIM_ANALYSES alone, instead of after a fixed number of replicates."""
    rounds: int = ROUNDS
    block_s: float = 0.1
    """Short, so that the variants of a round meet the same machine."""
    counted_requests: int = 12
    """Enough that a count which differs stays significant among the other metrics and variants."""

    trials: tuple[Trial, ...] = ()
    """What is compared with what; none: each variant with the first."""

    def __post_init__(self) -> None:
        """Raises PlacebenchError for numbers below those that make sense, and a request that is no path."""
        if self.replicates < 0 or self.rounds < 1:
            asked = f"{self.replicates} replicates of {self.rounds} rounds"
            raise PlacebenchError(f"{asked}: expected 0 or more, of 1 or more")
        if not self.request.startswith("/"):
            raise PlacebenchError(f"the request {self.request!r} is no path: expected /path?query")

    @property
    def confidence(self) -> float:
        """Of the intervals and the verdicts."""
        return SEQUENTIAL_CONFIDENCE if self.sequential else 0.95

    @property
    def most(self) -> int:
        """How many replicates are made at the most, those that do not count left aside."""
        return INTERIM_ANALYSES[-1] if self.sequential else self.replicates

    def to_json(self) -> dict[str, Any]:
        """For the head of the run; the same for the same question."""
        kept = {name: value for name, value in asdict(self).items() if name not in ("variants", "request", "trials")}
        variants = [variant.to_json() for variant in self.variants]
        trials = [asdict(each) for each in self.trials]
        return {**kept, "variants": variants, "trials": trials, "confidence": self.confidence, "rules": RULES.to_json()}


class CompareRun:
    """One sitting of a comparison in one folder, on one PostgreSQL server."""

    def __init__(self, topology: Topology, settings: Settings, folder: Path, server: Server) -> None:
        """Raises RunFolderError when *folder* holds a run of another question."""
        self._topology = topology
        self._settings = settings
        self._folder = folder
        self._server = server
        self._say: Say = nobody
        self._note: Say = nobody
        self._database = f"placebench_{folder.name.lower().replace('-', '_')}"
        self._kept = KeptHead(folder, same_question(folder, self._new_head()))
        self._gate = AnswerGate(settings.request, save=self._kept.save)
        self.replicates = Replicates(
            self._kept, self._gate, folder, variants=len(settings.variants), rounds=settings.rounds
        )

    @property
    def steps(self) -> int:
        """How many steps are announced, if every replicate counts and no interim analysis ends the run."""
        each = 2 if self._settings.most else 1
        return 1 + each * len(self._settings.variants) + max(0, self._settings.most - len(self.replicates.valid()))

    def run(self, say: Say, note: Say = nobody) -> None:
        """Everything, in order; the folder is readable whatever is raised.

        say: is told of each step as it begins; note: of what fails and is made again, or left out. Raises
        GateFailedError when answers or data differ, UndecidedError when replicate after replicate does not count; a
        variant that does not start is a ServerError.
        """
        self._say, self._note = say, note
        sources = self._folder / "sources"
        with (
            self._kept.until_the_end(),
            Servers(self._server) as servers,
            in_place(self._settings.variants, sources) as served,
        ):
            variants = self._prepared(servers, served)
            self._counted(variants, servers)
            self._collected(variants)
            self._watched(variants)
            self.replicates.make(variants, self._settings.most, say=say, note=note, decided=self._decided)
            shutil.rmtree(self._folder / "answers", ignore_errors=True)

    def _new_head(self) -> RunHead:
        return RunHead(
            name=self._folder.name,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            status="running",
            request=self._settings.request,
            topology=self._topology.title,
            trees=self._topology.trees,
            seed=self._topology.seed,
            variants=[variant.name for variant in self._settings.variants],
            receipt={},
            manifest={},
            settings=self._settings.to_json(),
            same_responses={},
            command="compare",
        )

    def _prepared(self, servers: Servers, variants: tuple[Variant, ...]) -> PreparedVariants:
        """A seeded database on each server, and a copy of it for each variant, at the revisions that it wants."""
        self._say(f"seed {self._topology.title}, {self._topology.trees} trees")
        self._kept.begin_on(self._server)
        names = {variant.name: f"{self._database}_{number}" for number, variant in enumerate(variants)}
        for server in dict.fromkeys(map(servers.of, variants)):
            url = server.create_database(self._database)
            receipt = seed(self._topology, url)
            if server is servers.of(variants[0]):
                self._kept.stand_on(receipt=receipt.to_json(), manifest=manifest(url))
        databases = {
            variant.name: servers.of(variant).create_database(names[variant.name], self._database)
            for variant in variants
        }
        for variant in variants:
            migrate_options(databases[variant.name], variant.revisions)
        return PreparedVariants(
            variants=variants,
            databases=databases,
            request=self._settings.request,
            folder=self._folder,
            block_s=self._settings.block_s,
        )

    @property
    def _statistics(self) -> str:
        return f"{self._database}_statistics"

    def _counted(self, variants: PreparedVariants, servers: Servers) -> None:
        """Each variant asked, held to the baseline's answer, and counted.

        Raises ServerError or LoadError for a variant that cannot be counted in two attempts: it does not work.
        """
        number = self._settings.counted_requests
        with ExitStack() as stack:
            read = {
                server: stack.enter_context(statistics(server, self._statistics))
                for server in dict.fromkeys(map(servers.of, variants.variants))
            }
            for variant in variants.variants:
                self._say(f"{variant.name}: count of {number} requests")
                meet = self._gate.meet if variant.request is None else _nobody
                count = partial(
                    wire_pass, variants, variant.name, requests=number, read=read[servers.of(variant)], meet=meet
                )
                try_twice(f"{variant.name} count", count, self._note)
        self._gate.all_met()

    def _collected(self, variants: PreparedVariants) -> None:
        """The garbage collections of each variant of ours, counted."""
        parts = Parts(self._kept, self._note)
        for variant in variants.variants:
            if variant.ours and variant.request is None:
                bench = Bench(
                    variants.databases[variant.name], variants.request, self._folder, 1, 1, 1, self._topology.seed
                )
                served = variant.variables["PLACEBENCH_VARIANT"]
                count = partial(counted_pass, bench, variant.name, requests=_COLLECTED_REQUESTS, variant=served)
                parts.make("count", variant.name, count)

    def _watched(self, variants: PreparedVariants) -> None:
        """Each variant under the profiler, for its flame; not again in a later sitting, nor where nothing is timed."""
        for variant in variants.variants if self._settings.most else ():
            if not (self._folder / f"watched-{variant.name}.json").is_file():
                self._say(f"{variant.name}: profile")
                watched_pass(variants, variant.name, note=self._note)

    def _decided(self, valid: Sequence[int]) -> bool:
        """Whether a sequential run is at an interim analysis, and every comparison has a verdict there."""
        if not self._settings.sequential or len(valid) not in INTERIM_ANALYSES:
            return False
        baseline, *others = (variant.name for variant in self._settings.variants)
        verdicts = [
            compare_blocks(
                self.replicates.blocks, baseline, other, PRIMARY, confidence=self._settings.confidence
            ).verdict
            for other in others
        ]
        return "inconclusive" not in verdicts


def _nobody(name: str, url: str) -> None:
    """A variant with a request of its own answers something else by right."""
