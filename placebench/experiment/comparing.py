"""One run of `compare`: seed, copy, count, then replicates until there are enough, each on disk before the next.

The key piece is `Comparing.run`. A sitting makes the replicates that are missing, so that a run that was killed is
resumed, and one that lost replicates to a rule gets others in their place; the rules do not look at what was measured.
"""

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from placebench.compare import PRIMARY, compare_blocks
from placebench.errors import PlacebenchError, UndecidedError
from placebench.experiment.arms import Arm, in_place
from placebench.experiment.counting import statistics, wire_pass
from placebench.experiment.environment import manifest
from placebench.experiment.gate import AnswerGate
from placebench.experiment.interleaved import (
    DEATHS,
    Arms,
    append_blocks,
    invalidated,
    keep_whole_replicates,
    make_replicate,
)
from placebench.experiment.kept import KeptHead, same_question
from placebench.experiment.passes import Bench, counted_pass
from placebench.experiment.plan import ReplicatePlan, plan_replicate
from placebench.experiment.records import Block, RunHead
from placebench.experiment.rules import RULES
from placebench.experiment.servers import Servers
from placebench.experiment.spent import together
from placebench.experiment.trials import Trial
from placebench.experiment.watching import watched_pass
from placebench.postgres import Server
from placebench.seeding import data_digest, migrate_options, seed
from placebench.topology import Topology

Say = Callable[[str], None]

SCREEN, PUBLISH = 12, 30
ROUNDS = 24
LOOKS = (12, 24, 36)
"""The only numbers of replicates at which a sequential run may stop; 36 is its end."""
CONFIDENCE_OF_A_LOOK = 1 - 0.0221
"""So that three looks together call identical programs different at most 5 times in 100 (Pocock 1977)."""
_INVALID_IN_A_ROW = 3
_COLLECTED_REQUESTS = 6


@dataclass(frozen=True)
class Settings:
    """What is compared, and how much of it is measured."""

    arms: tuple[Arm, ...]
    """The baseline first."""
    request: str
    replicates: int = SCREEN
    looks: bool = False
    """Sequentially, at LOOKS alone, instead of a fixed number of replicates."""
    rounds: int = ROUNDS
    block_s: float = 0.1
    """Short, so that the arms of a round meet the same machine."""
    counted_requests: int = 12
    """Enough that a count which differs stays significant among the other metrics and arms."""

    trials: tuple[Trial, ...] = ()
    """What is compared with what; none: each arm with the first."""

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
        return CONFIDENCE_OF_A_LOOK if self.looks else 0.95

    @property
    def most(self) -> int:
        """How many replicates are made at the most, those that do not count left aside."""
        return LOOKS[-1] if self.looks else self.replicates

    @property
    def blocks_each(self) -> int:
        """How many blocks a whole replicate has."""
        return 2 * len(self.arms) * self.rounds

    def to_json(self) -> dict[str, Any]:
        """For the head of the run; the same for the same question."""
        kept = {name: value for name, value in asdict(self).items() if name not in ("arms", "request", "trials")}
        arms = [arm.to_json() for arm in self.arms]
        trials = [asdict(each) for each in self.trials]
        return {**kept, "arms": arms, "trials": trials, "confidence": self.confidence, "rules": RULES.to_json()}


class Comparing:
    """One sitting of a comparison in one folder, on one PostgreSQL server."""

    def __init__(self, topology: Topology, settings: Settings, folder: Path, server: Server) -> None:
        """Raises RunFolderError when *folder* holds a run of another question."""
        self._topology = topology
        self._settings = settings
        self._folder = folder
        self._server = server
        self._say: Say = lambda _: None
        self._database = f"placebench_{folder.name.lower().replace('-', '_')}"
        self._kept = KeptHead(folder, same_question(folder, self._new_head()))
        self._spent_before = self._kept.head.spent_s
        self._gate = AnswerGate(settings.request, save=self._kept.save)
        self._made = keep_whole_replicates(folder / "blocks.jsonl", blocks_each=settings.blocks_each)

    @property
    def steps(self) -> int:
        """How many steps are announced, if every replicate counts and no look ends the run."""
        each = 2 if self._settings.most else 1
        return 1 + each * len(self._settings.arms) + max(0, self._settings.most - len(self.valid()))

    def valid(self) -> list[int]:
        """The numbers of the replicates that count, from 0."""
        return sorted({block.replicate for block in self._made} - set(self.invalid()))

    def invalid(self) -> list[int]:
        """The numbers of those that do not."""
        return sorted({block.replicate for block in self._made if block.invalid is not None})

    def run(self, say: Say) -> None:
        """Everything, in order, each step told to *say* as it begins; the folder is readable whatever is raised.

        Raises GateFailedError when answers or data differ, UndecidedError when replicate after replicate does not
        count; a program that does not start is a ServerError.
        """
        self._say = say
        sources = self._folder / "sources"
        with (
            self._kept.until_the_end(),
            Servers(self._server) as servers,
            in_place(self._settings.arms, sources) as served,
        ):
            arms = self._prepared(servers, served)
            self._counted(arms, servers)
            self._watched(arms)
            self._measured(arms)
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
            variants=[arm.name for arm in self._settings.arms],
            receipt={},
            manifest={},
            settings=self._settings.to_json(),
            same_answers={},
            command="compare",
        )

    def _prepared(self, servers: Servers, arms: tuple[Arm, ...]) -> Arms:
        """A seeded database on each server, and a copy of it for each arm, at the revisions that the arm wants."""
        self._say(f"seed {self._topology.title}, {self._topology.trees} trees")
        self._kept.begin_on(self._server)
        names = {arm.name: f"{self._database}_{number}" for number, arm in enumerate(arms)}
        for server in dict.fromkeys(map(servers.of, arms)):
            url = server.create_database(self._database)
            receipt = seed(self._topology, url)
            if server is servers.of(arms[0]):
                self._kept.stand_on(receipt=receipt.to_json(), manifest=manifest(url))
        databases = {arm.name: servers.of(arm).create_database(names[arm.name], self._database) for arm in arms}
        for arm in arms:
            migrate_options(databases[arm.name], arm.revisions)
        return Arms(
            arms=arms,
            databases=databases,
            request=self._settings.request,
            folder=self._folder,
            block_s=self._settings.block_s,
        )

    @property
    def _statistics(self) -> str:
        return f"{self._database}_statistics"

    def _counted(self, arms: Arms, servers: Servers) -> None:
        """Each arm asked, held to the baseline's answer, and counted; the collections of ours too."""
        number = self._settings.counted_requests
        with ExitStack() as stack:
            read = {
                server: stack.enter_context(statistics(server, self._statistics))
                for server in dict.fromkeys(map(servers.of, arms.arms))
            }
            for arm in arms.arms:
                self._say(f"{arm.name}: count of {number} requests")
                meet = self._gate.meet if arm.request is None else _nobody
                wire_pass(arms, arm.name, requests=number, read=read[servers.of(arm)], meet=meet)
        self._gate.all_met()
        for arm in arms.arms:
            if arm.ours and arm.request is None:
                bench = Bench(arms.databases[arm.name], arms.request, self._folder, 1, 1, 1, self._topology.seed)
                counted_pass(bench, arm.name, requests=_COLLECTED_REQUESTS, variant=arm.variables["PLACEBENCH_VARIANT"])

    def _watched(self, arms: Arms) -> None:
        """Each arm under the profiler, for its flame; not again in a later sitting, nor where nothing is timed."""
        for arm in arms.arms if self._settings.most else ():
            if not (self._folder / f"watched-{arm.name}.json").is_file():
                self._say(f"{arm.name}: profile")
                watched_pass(arms, arm.name)

    def _measured(self, arms: Arms) -> None:
        """Replicates until there are enough that count, or the rule of the looks says that it is decided."""
        self._check_data(arms)
        invalid_in_a_row = 0
        plans = self._plans()
        while len(valid := self.valid()) < self._settings.most and not self._decided(valid):
            plan = next(plans)
            self._say(f"replicate {len(valid) + 1} of {self._settings.most}: {', '.join(arms.named)}")
            blocks = self._replicate(arms, plan)
            reason = next((block.invalid for block in blocks if block.invalid), None)
            invalid_in_a_row = invalid_in_a_row + 1 if reason else 0
            if invalid_in_a_row == _INVALID_IN_A_ROW:
                raise UndecidedError(f"{_INVALID_IN_A_ROW} replicates in a row do not count, the last because {reason}")

    def _replicate(self, arms: Arms, plan: ReplicatePlan) -> list[Block]:
        """Make one, hold its answers and the data to what they should be, and keep it, whatever they are.

        In this order: a replicate that is on the disk was held to them, or its run is known to have failed.
        """
        with arms.spent.on("replicates"):
            blocks = make_replicate(arms, plan)
            try:
                digests = self._data(arms)
            except DEATHS as error:
                digests = {}
                blocks = invalidated(blocks, plan, f"the database cannot be read: {error}")
        held = [block for block in blocks if arms.named[block.arm].request is None]
        try:
            self._gate.check(held, self._folder / "answers")
            self._hold_data(digests)
        finally:
            append_blocks(self._folder / "blocks.jsonl", blocks)
            self._kept.save(spent_s=together(self._spent_before, arms.spent.seconds))
            self._made += blocks
        return blocks

    def _plans(self) -> Iterator[ReplicatePlan]:
        """Those of the replicates to come; a number that was used is not used again."""
        first = max((block.replicate for block in self._made), default=-1) + 1
        arms = [arm.name for arm in self._settings.arms]
        for number in itertools.count(first):
            yield plan_replicate(arms, number, rounds=self._settings.rounds, seed=self._topology.seed)

    def _decided(self, valid: Sequence[int]) -> bool:
        """Whether a sequential run is at a look, and every comparison has a verdict there."""
        if not self._settings.looks or len(valid) not in LOOKS:
            return False
        baseline, *others = (arm.name for arm in self._settings.arms)
        verdicts = [
            compare_blocks(self._made, baseline, other, PRIMARY, confidence=self._settings.confidence).verdict
            for other in others
        ]
        return "cannot tell" not in verdicts

    def _data(self, arms: Arms) -> dict[str, str]:
        return {name: data_digest(url) for name, url in arms.databases.items()}

    def _check_data(self, arms: Arms) -> None:
        self._hold_data(self._data(arms))

    def _hold_data(self, digests: dict[str, str]) -> None:
        """Every arm's data is still what was seeded; raises GateFailedError for the first that is not."""
        seeded = self._kept.head.receipt["digest"]
        for name, digest in digests.items():
            if digest != seeded:
                raise self._gate.stop(f"the data of {name} changed: digest {digest}, seeded {seeded}")


def _nobody(name: str, url: str) -> None:
    """An arm with a request of its own answers something else by right."""
