"""One replicate: its plan, its mirrored rounds of blocks against fresh servers, and where its wall time goes.

The main functions are `plan_replicate` and `make_replicate`. A round is a random order of all variants followed by the
same order backwards (ABBA or BAAB for two, CABBAC and the like for three), which cancels a linear drift of the machine.
The servers are restarted after every few rounds of a replicate. Start order, warm-up order and the hash seed are
drawn for each start and shared by its variants. Replicates come in pairs, 0 and 1, 2 and 3: the second has the orders
of the first backwards, so that an effect of the order is not taken for an effect of a variant. Variants whose databases
are copies of one another take turns in using them.
Source: research on the same code measured A then B, which differed by 44 % (docs, "Why interleaved").
"""

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from placebench.compare.keep.phase_timer import PhaseTimer
from placebench.compare.keep.records import Block, WirePass, read_blocks, rewrite_lines
from placebench.compare.keep.run_folder import error_text
from placebench.compare.load.client_machine import ClientMachine
from placebench.compare.load.client_process import Client, Driven, HttpClient, http_client, responses_folder
from placebench.compare.what.validity import MachineSample, block_problem, machine_problem
from placebench.compare.what.variants import Variant
from placebench.compare.what.workload import Workload
from placebench.errors import DatabaseError, LoadError, ServerError
from placebench.loadgen.options import arrivals
from placebench.loadgen.samples import MISSED_AFTER_S
from placebench.meters.meters import Backends, read_backends
from placebench.meters.processes import (
    cpu_between,
    read_cpu_by_pid,
    read_ended_cpu_s,
    read_family_cpu_s,
    read_pss_bytes,
    read_tree_cpu_s,
)
from placebench.meters.table_contents import TableContents, read_tables
from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import RunningServer

_MAX_ROUNDS_PER_START = 8
"""Maximum number of rounds per start of the servers, which gives the most information in a given time.

Two processes of the same code differ by some 1.5 % as long as they live, two rounds by 7 %, and a start takes as long
as two or three rounds.
"""

_PARTIAL_STARTS = 3
"""A variant of which less is measured leaves out one of three starts: starts cost more than rounds, and tell less."""


@dataclass(frozen=True)
class _StartPlan:
    """The orders of one set of fresh server processes, one for each variant."""

    start_order: tuple[str, ...]
    warmup_order: tuple[str, ...]
    hash_seed: int
    """The PYTHONHASHSEED of every variant's process."""
    rounds: tuple[tuple[str, ...], ...]

    def without(self, absent: Collection[str]) -> "_StartPlan":
        """Return the plan without some variants."""

        def present(order: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name for name in order if name not in absent)

        return replace(
            self,
            start_order=present(self.start_order),
            warmup_order=present(self.warmup_order),
            rounds=tuple(map(present, self.rounds)),
        )


@dataclass(frozen=True)
class ReplicatePlan:
    """The plan of one replicate: several sets of fresh server processes, one set after the other."""

    number: int
    starts: tuple[_StartPlan, ...]

    @property
    def rounds(self) -> tuple[tuple[str, ...], ...]:
        """The rounds of all starts, in order."""
        return tuple(chain.from_iterable(start.rounds for start in self.starts))


def plan_replicate(
    variants: Sequence[str], number: int, *, rounds: int, seed: int, partial: Collection[str] = ()
) -> ReplicatePlan:
    """Return the plan of the replicate *number*, from 0; its *rounds* are spread evenly over its starts.

    partial: variants that leave out each third start of a replicate with three starts or more.

    The plan depends on the arguments only, not on the number of replicates: a longer run begins like a shorter one. A
    replicate with an odd number has the orders of the previous replicate, backwards.
    """
    pair, is_second = divmod(number, 2)
    chance = random.Random(f"{seed} {pair}")
    starts = -(-rounds // _MAX_ROUNDS_PER_START)
    shares = [rounds * (place + 1) // starts - rounds * place // starts for place in range(starts)]
    planned = []
    for place, share in enumerate(shares):
        absent = partial if starts >= _PARTIAL_STARTS and (place - pair) % _PARTIAL_STARTS == 0 else ()
        start = _plan_start(variants, chance, rounds=share, backwards=bool(is_second))
        planned.append(start.without(absent) if absent else start)
    return ReplicatePlan(number, tuple(planned))


def _plan_start(variants: Sequence[str], chance: random.Random, *, rounds: int, backwards: bool) -> _StartPlan:
    def order() -> tuple[str, ...]:
        drawn = tuple(chance.sample(list(variants), len(variants)))
        return drawn[::-1] if backwards else drawn

    hash_seeds = [chance.randrange(1, 2**32) for _ in range(2)]
    return _StartPlan(
        start_order=order(),
        warmup_order=order(),
        hash_seed=hash_seeds[backwards],
        rounds=tuple(drawn + drawn[::-1] for drawn in (order() for _ in range(rounds))),
    )


_WARM_UP_REQUESTS = 3
_WARM_UPS_PER_THREAD, _REQUESTS_PER_USER = 2, 10
"""Under load: the warm-up requests for each thread of a service, and the least requests of each user in a block."""
_AGED_ROUNDS, _MIN_AGED_ROUNDS, _MAX_AGED_REQUESTS = 3, 6, 1000
"""The rounds after a process was made older, the least of a start for that, and the most requests that make it so."""
_AGED_TO = 520
"""The requests that an old process should have served before its last rounds, if that does not take too long."""
_ARRIVALS_A_BLOCK, _MOST_UNDER_WAY = 25, 200
"""At a rate: the least requests of a block, so that six rounds have enough for p95, and the most under way at once."""
_IDLE_STEP_S, _IDLE_CPU_SHARE, _MAX_WAIT_FOR_IDLE_S = 0.1, 0.05, 1.0
"""The services count as idle once they use less than 5 % of a CPU for 0.1 s; wait at most 1 s for that."""
_MAX_REQUESTS_PER_BLOCK = 50
"""Maximum number of requests in a block, unless one cycle has more."""
REPLICATE_FAILURES = (ServerError, LoadError, DatabaseError, SQLAlchemyError, OSError)
"""Errors that end only the replicate: a server, a client or a database is gone."""


@dataclass
class TimedStatements:
    """Counts the statements on tables that each variant sends between a start's warm-up and its end."""

    read: dict[str, Callable[[], float]] = field(default_factory=dict)
    """Functions that return the number of calls of statements on tables, by variant; empty if nothing is counted."""
    sent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    requests: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def calls(self, owners: Mapping[str, str]) -> dict[str, float]:
        """Return the number of calls so far for each variant, read from the database that it uses: its owner's."""
        return {name: self.read[owner]() for name, owner in owners.items() if owner in self.read}

    def add(
        self, before: Mapping[str, float], after: Mapping[str, float], blocks: Sequence[Block], more: Mapping[str, int]
    ) -> None:
        """Add the statements that the variants sent during these blocks, and the requests of the blocks and *more*."""
        for name, calls in after.items():
            self.sent[name] += calls - before[name]
            self.requests[name] += more.get(name, 0)
            self.requests[name] += sum(block.requests for block in blocks if block.variant == name)

    def per_request(self, name: str) -> float | None:
        """Return the mean number per request; None for a variant without requests or if the server's counts shrank."""
        requests, sent = self.requests.get(name, 0), self.sent.get(name, 0.0)
        return sent / requests if requests and sent >= 0 else None


@dataclass(frozen=True)
class PreparedVariants:
    """Variants ready to be measured: each with its own database, and the requests to send to them."""

    variants: tuple[Variant, ...]
    databases: Mapping[str, str]
    """The URL of each variant's database, by the variant's name."""
    workload: Workload
    """The requests to each variant that has no request of its own."""
    folder: Path
    block_s: float
    """The time in seconds that a block should take."""
    users: int = 1
    """The number of users that send the requests of a block at the same time."""
    rate: float | None = None
    """The number of requests per second that arrive on a schedule, whatever the responses; None for users."""
    machine: ClientMachine | None = None
    """The machine that sends the timed requests; None for this machine."""
    timer: PhaseTimer = field(default_factory=PhaseTimer)
    """Measures where the time of the replicates goes."""
    statements: TimedStatements = field(default_factory=TimedStatements)
    """Counts the statements that the variants send while they are timed."""
    contents: Callable[[str], TableContents] = read_tables
    """Digests the data in the database at a URL."""
    before: Mapping[str, TableContents] = field(default_factory=dict)
    """The contents of each variant's database before any request; empty: to be read before the first replicate."""
    warmup: int = 0
    """The least number of requests before anything is timed."""
    ages_s: float = 0.0
    """For how long each replicate makes a process of each variant older, without timing; 0: not at all."""
    max_ages_s: float = 0.0
    """The longest that it may take instead until the process has served some 500 requests."""
    counted_as: Mapping[str, str] = field(default_factory=dict)
    """Variants that have no counted pass of their own, by name: that of this variant is theirs."""

    @cached_property
    def named(self) -> dict[str, Variant]:
        """The variants by name."""
        return {variant.name: variant for variant in self.variants}

    @contextmanager
    def client(self) -> Iterator[Client | HttpClient]:
        """Yield a client for requests that are not timed: in this process, or for a script in a process of its own."""
        if not self.workload.script:
            yield Client(responses_folder(self.folder))
            return
        with http_client(self.folder) as client:
            yield client

    def alike(self, name: str) -> list[str]:
        """Return the variants, *name* among them, whose databases are unchanged copies of the same database."""

        def kind(each: Variant) -> tuple[object, ...]:
            own = each.name if each.migrate or self.workload.writes else ""
            return own, each.request, each.revisions, sorted(each.postgres.items())

        mine = kind(self.named[name])
        return [each.name for each in self.variants if kind(each) == mine]

    def owner(self, name: str, replicate: int) -> str:
        """Return the variant whose database *name* uses in a replicate: `alike` variants use one another's in turn."""
        alike = self.alike(name)
        return alike[(alike.index(name) + replicate) % len(alike)]

    def workload_of(self, name: str) -> Workload:
        """Return the requests to the variant *name*."""
        variant = self.named[name]
        return self.workload if variant.request is None else variant.api.workload(variant.request)


def make_replicate(prepared: PreparedVariants, plan: ReplicatePlan) -> list[Block]:
    """Measure one replicate and return its blocks; if it is discarded, the last block has the reason."""
    made: list[Block] = []
    before = MachineSample.now()
    round_ = 0
    try:
        with ExitStack() as stack:
            with prepared.timer.measure("start"):
                client = stack.enter_context(http_client(prepared.folder, prepared.machine))
            try:
                for start in plan.starts:
                    ages = prepared.ages_s > 0 and start is plan.starts[-1]
                    _run_blocks(prepared, start, client, made, replicate=plan.number, first_round=round_, ages=ages)
                    round_ += len(start.rounds)
            finally:
                with prepared.timer.measure("stop"):
                    stack.close()
    except REPLICATE_FAILURES as error:
        return invalidated(made, plan, error_text(error))
    reason = machine_problem(before, MachineSample.now(), cores=os.cpu_count() or 1)
    return made if reason is None else invalidated(made, plan, reason)


def invalidated(made: list[Block], plan: ReplicatePlan, reason: str) -> list[Block]:
    """Return the blocks of a discarded replicate with *reason* on the last one; an empty block if there are none."""
    if not made:
        variant = plan.starts[0].start_order[0]
        nothing = Block(plan.number, round=0, position=0, variant=variant, requests=0, wall_s=[], cpu_s=None)
        return [replace(nothing, invalid=reason)]
    return [*made[:-1], replace(made[-1], invalid=made[-1].invalid or reason)]


def _run_blocks(
    prepared: PreparedVariants,
    plan: _StartPlan,
    client: HttpClient,
    made: list[Block],
    *,
    replicate: int,
    first_round: int,
    ages: bool = False,
) -> None:
    """Start the servers of all variants, measure the blocks of the plan's rounds, and append the blocks to *made*.

    ages: whether the processes get older before the last three rounds, if there are enough.
    """
    first = len(made)
    with ExitStack() as stack:

        def start(name: str) -> _RunningVariant:
            database_url = prepared.databases[prepared.owner(name, replicate)]
            return stack.enter_context(_RunningVariant.started(prepared, name, database_url, plan.hash_seed))

        # One start per core at a time, because nothing is measured yet.
        with prepared.timer.measure("start"), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            started = dict(zip(plan.start_order, pool.map(start, plan.start_order), strict=True))
        for name in plan.warmup_order:
            with prepared.timer.measure("start"):
                started[name].warm_up(client)
        if prepared.workload.writes:  # so that the data of all variants is the same
            min_cycles = min(served.cycles_a_block for served in started.values())
            for served in started.values():
                served.cycles_a_block = min_cycles
        owners = {name: prepared.owner(name, replicate) for name in started}
        calls = prepared.statements.calls(owners)
        ages_at = first_round + len(plan.rounds) - _AGED_ROUNDS if len(plan.rounds) >= _MIN_AGED_ROUNDS else -1
        aged = {}
        for round_, order in enumerate(plan.rounds, first_round):
            if ages and round_ == ages_at:
                aged = _age(prepared, client, [started[name] for name in plan.warmup_order])
            for position, name in enumerate(order):
                made.append(started[name].block(client, replicate=replicate, round_=round_, position=position))
                known = (made[-1].counters.get(each) for each in ("elapsed_s", "at_rate_s"))
                prepared.timer.add("requests", next(filter(None, known), sum(made[-1].wall_s)))
        _wait_until_idle(started.values())
        prepared.statements.add(calls, prepared.statements.calls(owners), made[first:], aged)
        for served in started.values():
            served.server.check()
            served.end_block()
        reconnecting = {name for name, served in started.items() if not served.kept_its_backends()}
        used = {name: zip(served.in_s, served.after_s, strict=True) for name, served in started.items()}
        for place, block in enumerate(made[first:], first):
            made[place] = _with_cpu(block, *next(used[block.variant]), reconnecting)


def _age(prepared: PreparedVariants, client: HttpClient, served: Sequence["_RunningVariant"]) -> dict[str, int]:
    """Send the same number of untimed requests to each variant but a control; return their numbers by variant.

    All get them at the same time, since nothing is timed, unless the client's session is needed for them.
    """
    aged = [each for each in served if each.name not in prepared.counted_as]
    cycles = min((each.cycles_to_age(prepared.ages_s, prepared.max_ages_s) for each in aged), default=0)
    if not cycles:
        return {}
    with prepared.timer.measure("age"):
        if prepared.workload.login or prepared.workload.script or prepared.machine:
            return {each.name: each.age(client, cycles) for each in aged}
        folder = responses_folder(prepared.folder)
        with ThreadPoolExecutor(len(aged)) as pool:
            return dict(pool.map(lambda each: (each.name, each.age(Client(folder), cycles)), aged))


def _wait_until_idle(served: Collection["_RunningVariant"]) -> None:
    """Wait until the services are idle, so that work after their last responses is measured too."""
    give_up_at, before = time.monotonic() + _MAX_WAIT_FOR_IDLE_S, None
    while time.monotonic() < give_up_at:
        now = [each.spent_since_block() for each in served]
        if before is not None and sum(now) - sum(before) < _IDLE_CPU_SHARE * _IDLE_STEP_S:
            return
        before = now
        time.sleep(_IDLE_STEP_S)


class _RunningVariant:
    """One variant's server, from its start to its stop."""

    def __init__(self, prepared: PreparedVariants, name: str, database_url: str, server: RunningServer) -> None:
        self.server = server
        self.name = self._name = name
        self._database_url = database_url
        self._variant = prepared.named[name]
        self._workload = prepared.workload_of(name)
        self._block_s = prepared.block_s
        self._rate = prepared.rate
        self._users = prepared.users if prepared.rate is None else _MOST_UNDER_WAY
        self._has_round_trips = _has_round_trips(prepared.folder / f"wire-{prepared.counted_as.get(name, name)}.json")
        self.cycles_a_block = 1
        self._warm_ups: list[Driven] = []
        """What the warm-up's requests returned, until the next block counts their failures."""
        self.in_s: list[_Used] = []
        """CPU used in each block."""
        self.after_s: list[_Used] = []
        """CPU used after each block, until the next one began."""
        self._backends: Backends | None = None
        self._ended: _CpuReading | None = None
        """CPU readings at the end of the last block; None after `end_block`."""
        self._start_cpu_s = self._cpu().processes_s
        self._start_pss_bytes = read_pss_bytes(server.pids())
        self._warmup = prepared.warmup
        self._cycle_s = 0.0
        self._served = 0
        """The number of requests that the process has served."""
        self._aged: dict[str, list[str]] = {}
        """Digests of the responses to untimed requests, until the next block has them."""

    @classmethod
    @contextmanager
    def started(
        cls, prepared: PreparedVariants, name: str, database_url: str, hash_seed: int
    ) -> Iterator["_RunningVariant"]:
        """Serve the variant for the `with` block, with the hash seed that all variants share."""
        log = prepared.folder / "log" / f"server-{name}.log"
        spec = prepared.named[name].spec(database_url, hash_seed=hash_seed, log=log)
        server = serve(replace(spec, host=prepared.machine.address) if prepared.machine else spec)
        try:
            yield cls(prepared, name, database_url, server)
        finally:
            with prepared.timer.measure("stop"):
                server.stop()

    def warm_up(self, client: HttpClient) -> None:
        """Log in, let the service compile and connect, and set the number of request cycles that fill a block.

        Failed requests are counted in the next block, and discard its replicate like its own.
        """
        cycles = max(1, min(_WARM_UP_REQUESTS, _MAX_REQUESTS_PER_BLOCK // max(1, len(self._workload.cycle))))
        cycles = max(cycles, -(-self._warmup // max(1, len(self._workload.cycle))))
        try:
            driven = client.drive(self.server.url, self._workload, times=cycles, login=True)
        except LoadError as error:
            raise LoadError(f"{self._name}: {error}") from error
        self._warm_ups = [driven]
        walls, each = driven.wall_s, driven.cycle
        if self._users > 1:
            threads = self._variant.workers[0] * self._variant.workers[1]
            users = threads if self._rate else self._users
            times = -(-_WARM_UPS_PER_THREAD * max(users, threads) // each)
            driven = client.drive(self.server.url, self._workload, times=times, users=users)
            self._warm_ups.append(driven)
            at_least = -(-(_ARRIVALS_A_BLOCK if self._rate else _REQUESTS_PER_USER * self._users) // each)
            cycle_s = each / self._rate if self._rate else driven.elapsed_s / times
            fills = at_least if driven.failures else round(self._block_s / cycle_s)
            self.cycles_a_block = max(at_least, fills)
        else:
            cycle_s = self._cycle_s = min(sum(walls[at : at + each]) for at in range(0, len(walls), each))
            self.cycles_a_block = block_size(
                cycle_s, block_s=self._block_s, at_most=max(1, _MAX_REQUESTS_PER_BLOCK // each)
            )
        self._served = sum(len(each.wall_s) for each in self._warm_ups)
        self._backends = read_backends(self._database_url)

    def cycles_to_age(self, seconds: float, max_s: float) -> int:
        """Return how many cycles of requests fill *seconds*, or make the process old if that takes *max_s* at most."""
        if not self._cycle_s:
            return 0
        a_cycle = max(1, len(self._workload.cycle))
        cycles, until_old = int(seconds / self._cycle_s), -(-(_AGED_TO - self._served) // a_cycle)
        return min(_MAX_AGED_REQUESTS // a_cycle, max(cycles, until_old if until_old * self._cycle_s <= max_s else 0))

    def age(self, client: Client | HttpClient, cycles: int) -> int:
        """Send untimed requests, whose failures and responses count in the next block; return their number."""
        self.end_block()
        driven = client.drive(self.server.url, self._workload, times=cycles)
        self._warm_ups.append(driven)
        self._aged = driven.responses
        self._served += len(driven.wall_s)
        return len(driven.wall_s)

    def block(self, client: HttpClient, *, replicate: int, round_: int, position: int) -> Block:
        """Send the requests of one block, and read the CPU that it used."""
        before = self.end_block()
        requests = self.cycles_a_block * len(self._workload.cycle)
        seed = replicate * 1_000_000 + round_  # the same arrivals for all variants of a round
        due_s = list(islice(arrivals(self._rate, seed), requests)) if self._rate else []
        seen = client.drive(self.server.url, self._workload, times=self.cycles_a_block, users=self._users, due_s=due_s)
        self._ended = after = self._cpu()
        self.in_s.append(_used(before, after))
        missing = max(0, requests - len(seen.wall_s))
        elapsed_s = seen.elapsed_s if self._users > 1 else sum(seen.wall_s)
        problem = block_problem(seen.failures, client_cpu_s=seen.client_cpu_s, wall_s=elapsed_s, missing=missing)
        self._served += len(seen.wall_s)
        if self._cycle_s and seen.cycle:  # the least of many is the time without what else the machine does
            cycles = range(0, len(seen.wall_s) - seen.cycle + 1, seen.cycle)
            self._cycle_s = min([self._cycle_s, *(sum(seen.wall_s[at : at + seen.cycle]) for at in cycles)])
        counters = self._counters(seen, due_s)
        if failures := [failure for each in self._warm_ups for failure in each.failures]:
            problem = f"in the warm-up {block_problem(failures, client_cpu_s=0.0, wall_s=0.0)}"
            counters["warm_up_errors"] = sum(each.error_responses for each in self._warm_ups)
            counters["warm_up_requests"] = sum(len(each.wall_s) for each in self._warm_ups)
        self._warm_ups = []
        aged, self._aged = self._aged, {}
        labels = {*seen.responses, *aged}
        responses = {each: sorted({*seen.responses.get(each, ()), *aged.get(each, ())}) for each in labels}
        return Block(
            replicate=replicate,
            round=round_,
            position=position,
            variant=self._name,
            requests=len(seen.wall_s),
            cycle=1 if self._users > 1 else seen.cycle,  # several users end their requests in any order
            wall_s=seen.wall_s,
            cpu_s=None if self._backends is None else self.in_s[-1].with_backends_s,
            counters=counters,
            invalid=problem and f"{self._name}: {problem}",
            responses=responses,
            error_responses=seen.error_responses,
        )

    def end_block(self) -> "_CpuReading":
        """Record the CPU that the service used since its last block ended; return its total CPU so far."""
        now = self._cpu()
        if self._ended is not None:
            self.after_s.append(_used(self._ended, now))
            self._ended = None
        return now

    def spent_since_block(self) -> float:
        """Return the CPU seconds used since the last block ended."""
        used = None if self._ended is None else _used(self._ended, self._cpu())
        return 0.0 if used is None else max(used.with_backends_s, used.with_server_s or 0.0)

    def kept_its_backends(self) -> bool:
        """Return whether the same backends served the database throughout, so that their own CPU is all of it.

        A variant that reconnects for each request has no backend while it is idle, and PostgreSQL before 15 has no
        count of its sessions.
        """
        now = None if self._backends is None else read_backends(self._database_url)
        if self._backends is None or now is None or not now.unchanged_since(self._backends):
            return False
        return bool(self._backends.cpu_s) or not self._has_round_trips

    def _counters(self, seen: Driven, due_s: Sequence[float]) -> dict[str, float]:
        memory = read_pss_bytes(self.server.pids())
        counters = {
            "body_bytes": seen.body_bytes,
            "client_cpu_s": seen.client_cpu_s,
            "start_cpu_s": self._start_cpu_s,
            "start_s": self.server.ready_after_s,
            "served": self._served,
        }
        if self._start_pss_bytes:
            counters["start_pss_bytes"] = self._start_pss_bytes
        if due_s:
            counters["scheduled_s"] = due_s[-1]
            counters["at_rate_s"] = max(seen.elapsed_s, due_s[-1])
            counters["late_arrivals"] = sum(each > MISSED_AFTER_S for each in seen.late_s)
        elif self._users > 1:
            counters["elapsed_s"] = seen.elapsed_s
        return counters if memory is None else {**counters, "pss_bytes": memory}

    def _cpu(self) -> "_CpuReading":
        processes_s = read_tree_cpu_s(self.server.pids()) + read_ended_cpu_s(self.server.guard_pid)
        if self._backends is None:
            return _CpuReading(processes_s, {}, None)
        server_pid = self._backends.server_pid
        server_s = None if server_pid is None else read_family_cpu_s(server_pid)
        return _CpuReading(processes_s, read_cpu_by_pid(self._backends.cpu_s), server_s)


class _CpuReading(NamedTuple):
    """CPU seconds so far: of the service's processes, of each of its backends, and of the whole PostgreSQL server."""

    processes_s: float
    backends_s: dict[int, float]
    server_s: float | None


class _Used(NamedTuple):
    """CPU seconds between two readings: of the service with its backends, and of the service with the whole server."""

    with_backends_s: float
    with_server_s: float | None


def _used(before: _CpuReading, after: _CpuReading) -> _Used:
    processes_s = max(0.0, after.processes_s - before.processes_s)
    with_server_s = None
    if before.server_s is not None and after.server_s is not None:
        # A backend that ends is missing until the server has noticed: the next reading has its time.
        with_server_s = processes_s + max(0.0, after.server_s - before.server_s)
    return _Used(processes_s + max(0.0, cpu_between(before.backends_s, after.backends_s)), with_server_s)


def _with_cpu(block: Block, inside: _Used, after: _Used, reconnecting: Collection[str]) -> Block:
    """Return the block with its CPU: that in it, and that of its service until the variant's next block.

    Where connections of a variant came and went (*reconnecting*), the CPU of ended backends is known of the whole
    server alone, so all variants are charged the server's CPU in their blocks, in which no other variant works; after
    a block others do, so there it is that of the service and of the backends that stayed. It is unknown for the variant
    that reconnects if the server's cannot be read.
    """
    cpu_s, after_s = inside.with_backends_s, after.with_backends_s
    is_known = not reconnecting or inside.with_server_s is not None or block.variant not in reconnecting
    if reconnecting and inside.with_server_s is not None:
        cpu_s = inside.with_server_s
    counters = {**block.counters, "after_cpu_s": after_s}
    if block.variant in reconnecting:
        counters["reconnected"] = 1.0
    return replace(block, cpu_s=cpu_s + after_s if is_known and block.cpu_s is not None else None, counters=counters)


def _has_round_trips(wire: Path) -> bool:
    """Return whether the counted pass saw round trips to the database; without any, the variant needs no backends."""
    return wire.is_file() and any(WirePass.load(wire).round_trips)


def block_size(request_s: float, *, block_s: float, at_most: int = _MAX_REQUESTS_PER_BLOCK) -> int:
    """Return the number of requests or cycles, of *request_s* seconds each, that fill *block_s*; at least one."""
    return max(1, min(at_most, round(block_s / request_s)))


def keep_whole_replicates(path: Path, *, rounds: int, partial: Collection[str] = ()) -> list[Block]:
    """Remove the blocks of incomplete replicates, as a kill leaves them, from blocks.jsonl; return the other blocks.

    A replicate is complete if every variant has both blocks of each round of its plan, or if one block says why it is
    discarded. partial: as in `plan_replicate`.
    """
    blocks = read_blocks(path)
    made: dict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        made[block.replicate].append(block)
    whole = set()
    for number, own in made.items():
        names = sorted({block.variant for block in own})
        expected = sum(map(len, plan_replicate(names, number, rounds=rounds, seed=0, partial=partial).rounds))
        if len(own) == expected or any(block.invalid for block in own):
            whole.add(number)
    kept = [block for block in blocks if block.replicate in whole]
    rewrite_lines(path, kept)
    return kept
