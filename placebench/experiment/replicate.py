"""One replicate: mirrored rounds of blocks against fresh servers, and where its wall time was spent."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from placebench.errors import DatabaseError, LoadError, PlacebenchError, ServerError
from placebench.experiment.client_process import Driver, client_spec
from placebench.experiment.plan import ReplicatePlan, StartPlan, block_size
from placebench.experiment.records import Block, WirePass, read_blocks
from placebench.experiment.validity import Moment, why_invalid, why_invalid_block
from placebench.experiment.variants import Variant
from placebench.measure.meters import Backends, read_backends
from placebench.measure.processes import cpu_between, read_cpu_by_pid, read_pss_bytes
from placebench.runtime import supervisor
from placebench.runtime.wsgi_servers import RunningServer, serve

_NOT_THE_HARNESS = ("start", "requests", "stop")


class Spent:
    """Seconds by name."""

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """What the `with` block takes, whatever ends it."""
        began = self._clock()
        try:
            yield
        finally:
            self.add(what, self._clock() - began)

    def add(self, what: str, seconds: float) -> None:
        """Seconds that somebody else has measured."""
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds


def together(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The sums of two, such as those of two sittings."""
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in dict.fromkeys((*one, *other))}


def harness_share(spent_s: Mapping[str, float]) -> float | None:
    """What is neither start, request nor stop, as a share of the replicates' time; None before the first replicate."""
    whole = spent_s.get("replicates", 0.0)
    return 1 - sum(spent_s.get(name, 0.0) for name in _NOT_THE_HARNESS) / whole if whole else None


_WARM_UP_REQUESTS = 3
DEATHS = (ServerError, LoadError, DatabaseError, SQLAlchemyError, OSError)
"""What ends a replicate and nothing else: a server, a client or a database that is gone."""


@dataclass(frozen=True)
class PreparedVariants:
    """What is compared: the variants, each with a database of its own, and the request that they answer."""

    variants: tuple[Variant, ...]
    databases: Mapping[str, str]
    """URL by the variant's name."""
    request: str
    folder: Path
    block_s: float
    """How long a block should take."""
    spent: Spent = field(default_factory=Spent)
    """Where the time of its replicates goes."""

    @cached_property
    def named(self) -> dict[str, Variant]:
        """The variants by name."""
        return {variant.name: variant for variant in self.variants}


def make_replicate(variants: PreparedVariants, plan: ReplicatePlan) -> list[Block]:
    """The blocks of one replicate, at least one; where it does not count, its last block says why."""
    made: list[Block] = []
    before = Moment.now()
    try:
        _drive(variants, plan, made)
    except DEATHS as error:
        return invalidated(made, plan, reason_of(error))
    reason = why_invalid(before, Moment.now(), cores=os.cpu_count() or 1)
    return made if reason is None else invalidated(made, plan, reason)


def reason_of(error: Exception) -> str:
    """What went wrong on one line; the kind of error goes before a message that is not ours."""
    ours = str(error) if isinstance(error, PlacebenchError) else ""
    return " ".join((ours or f"{type(error).__name__}: {error}").split())


def invalidated(made: list[Block], plan: ReplicatePlan, reason: str) -> list[Block]:
    """The blocks of a replicate that does not count, *reason* on the last one; a bare one where none was made."""
    if not made:
        variant = plan.starts[0].start_order[0]
        nothing = Block(plan.number, round=0, position=0, variant=variant, requests=0, wall_s=[], cpu_s=None)
        return [replace(nothing, invalid=reason)]
    return [*made[:-1], replace(made[-1], invalid=made[-1].invalid or reason)]


def _drive(variants: PreparedVariants, plan: ReplicatePlan, made: list[Block]) -> None:
    """Fill *made* with the blocks as they come."""
    round_ = 0
    with _client(variants) as client:
        for start in plan.starts:
            _drive_start(variants, start, client, made, replicate=plan.number, first_round=round_)
            round_ += len(start.rounds)


def _drive_start(
    variants: PreparedVariants, plan: StartPlan, client: Driver, made: list[Block], *, replicate: int, first_round: int
) -> None:
    first = len(made)
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(_Served.started(variants, name, plan.hash_seed)) for name in plan.start_order
        }
        for name in plan.warmup_order:
            with variants.spent.on("start"):
                started[name].warm_up(client)
        for round_, order in enumerate(plan.rounds, first_round):
            for position, name in enumerate(order):
                made.append(started[name].block(client, replicate=replicate, round_=round_, position=position))
                variants.spent.add("requests", sum(made[-1].wall_s))
        for served in started.values():
            served.server.check()
        strangers = {name for name, served in started.items() if not served.kept_its_backends()}
        made[first:] = [replace(each, cpu_s=None) if each.variant in strangers else each for each in made[first:]]


class _Served:
    """One variant's server from one start to its stop."""

    def __init__(self, variants: PreparedVariants, name: str, server: RunningServer) -> None:
        self.server = server
        self._name = name
        self._database_url = variants.databases[name]
        self._variant = variants.named[name]
        self._request = self._variant.request or variants.request
        self._block_s = variants.block_s
        self._asks_its_database = _has_round_trips(variants.folder / f"wire-{name}.json")
        self._requests_a_block = 1
        self._backends: Backends | None = None

    @classmethod
    @contextmanager
    def started(cls, variants: PreparedVariants, name: str, hash_seed: int) -> Iterator["_Served"]:
        """The variant, its hash seed shared with the other variants."""
        log = variants.folder / "log" / f"uwsgi-{name}.log"
        with variants.spent.on("start"):
            server = serve(variants.named[name].spec(variants.databases[name], hash_seed=hash_seed, log=log))
        try:
            yield cls(variants, name, server)
        finally:
            with variants.spent.on("stop"):
                server.stop()

    def warm_up(self, client: Driver) -> None:
        """Compile, connect, and see how many requests fill a block."""
        walls = client.drive(url=self.server.url, request=self._request, requests=_WARM_UP_REQUESTS)["wall_s"]
        self._requests_a_block = block_size(min(walls), block_s=self._block_s)
        self._backends = read_backends(self._database_url)

    def block(self, client: Driver, *, replicate: int, round_: int, position: int) -> Block:
        """Drive one block and read the CPU it took."""
        before = self._cpu()
        seen = client.drive(url=self.server.url, request=self._request, requests=self._requests_a_block)
        after = self._cpu()
        return Block(
            replicate=replicate,
            round=round_,
            position=position,
            variant=self._name,
            requests=self._requests_a_block,
            wall_s=seen["wall_s"],
            cpu_s=None if self._backends is None else cpu_between(before, after),
            counters=self._counters(seen),
            invalid=why_invalid_block(seen["failures"], client_cpu_s=seen["client_cpu_s"], wall_s=sum(seen["wall_s"])),
            responses=seen["answers"],
        )

    def kept_its_backends(self) -> bool:
        """Whether the database was served by the same backends all the while; CPU of one that came or left is not seen.

        A variant that connects anew for each request has none when it rests (and PostgreSQL 14 does not tell of them).
        """
        now = None if self._backends is None else read_backends(self._database_url)
        if self._backends is None or now is None or not now.unchanged_since(self._backends):
            return False
        return bool(self._backends.cpu_s) or not self._asks_its_database

    def _counters(self, seen: dict[str, Any]) -> dict[str, float]:
        memory = read_pss_bytes(self.server.worker_pids())
        counters = {"body_bytes": seen["body_bytes"], "client_cpu_s": seen["client_cpu_s"]}
        return counters if memory is None else {**counters, "pss_bytes": memory}

    def _cpu(self) -> dict[int, float]:
        return read_cpu_by_pid([*self.server.worker_pids(), *(self._backends.cpu_s if self._backends else ())])


def _has_round_trips(wire: Path) -> bool:
    """Whether the counted pass saw round trips to the database; where none was made, its backends are what we see."""
    return wire.is_file() and any(WirePass.load(wire).round_trips)


@contextmanager
def _client(variants: PreparedVariants) -> Iterator[Driver]:
    with variants.spent.on("start"):
        child = supervisor.start(client_spec(variants.folder))
    try:
        yield Driver(child)
    finally:
        with variants.spent.on("stop"):
            child.stop()


def append_blocks(path: Path, blocks: Sequence[Block]) -> None:
    """One line a block, on the disk when this returns: a kill loses at most the replicate under way."""
    with path.open("a") as file:
        for block in blocks:
            file.write(json.dumps(asdict(block)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def keep_whole_replicates(path: Path, *, blocks_each: int) -> list[Block]:
    """Take out of blocks.jsonl what a kill left of a replicate under way; returns the blocks that stay.

    Whole is a replicate of *blocks_each* blocks, or one that says why it does not count.
    """
    blocks = read_blocks(path)
    made: dict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        made[block.replicate].append(block)
    whole = {number for number, each in made.items() if len(each) == blocks_each or any(b.invalid for b in each)}
    kept = [block for block in blocks if block.replicate in whole]
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    append_blocks(partial, kept)
    partial.replace(path)
    return kept
