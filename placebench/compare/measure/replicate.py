"""One replicate: its blocks against fresh servers, and where its wall time goes.

The main function is `make_replicate`, which follows a plan (`placebench.compare.measure.replicate_plan`). Variants
whose databases are copies of one another take turns in using them.
"""

import math
import os
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from placebench.compare.keep.records import Block, WirePass
from placebench.compare.keep.run_folder import error_text
from placebench.compare.load.client_process import Client, Driven, responses_folder
from placebench.compare.load.clients import HttpClient, http_client
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.replicate_plan import ReplicatePlan, StartPlan, invalidated
from placebench.compare.what.validity import MachineSample, block_problem, machine_problem
from placebench.errors import DatabaseError, LoadError, NoResponseError, ServerError
from placebench.loadgen.options import arrivals
from placebench.loadgen.samples import MISSED_AFTER_S
from placebench.meters.meters import Backends, read_backends
from placebench.meters.processes import (
    cpu_between,
    has_ready_thread,
    read_cpu_by_pid,
    read_cpu_wait_s,
    read_ended_cpu_s,
    read_family_cpu_s,
    read_pss_bytes,
    read_tree_cpu_s,
)
from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import RunningServer

_WARM_UP_REQUESTS, _LAST_WARM_UPS = 3, 2
_WARM_UPS_PER_THREAD, _REQUESTS_PER_USER = 2, 10
"""Under load: the warm-up requests for each thread of a service, and the least requests of each user in a block."""
_AGED_ROUNDS, _MIN_AGED_ROUNDS, _MAX_AGED_REQUESTS = 3, 6, 1000
"""The rounds after a process was made older, the least of a start for that, and the most requests that make it so."""
_AGED_TO = 520
"""The requests that an old process should have served before its last rounds, if that does not take too long."""
_ARRIVALS_A_BLOCK, _MOST_UNDER_WAY = 25, 200
"""At a rate: the least requests of a block, so that six rounds have enough for p95, and the most under way at once."""
_IDLE_STEP_S, _IDLE_CPU_SHARE = 0.1, 0.05
"""The services count as idle once they use less than 5 % of a CPU for 0.1 s and no thread of theirs is ready to run."""
_MAX_WAIT_FOR_IDLE_S, _MAX_STARVED_WAIT_FOR_IDLE_S = 1.0, 10.0
"""The longest wait for that without the time for which the services waited for a CPU, and with it."""
_MAX_REQUESTS_PER_BLOCK = 50
"""Maximum number of requests in a block, unless one cycle has more."""
REPLICATE_FAILURES = (ServerError, LoadError, DatabaseError, SQLAlchemyError, OSError)
"""Errors that end only the replicate: a server, a client or a database is gone."""


def make_replicate(prepared: PreparedVariants, plan: ReplicatePlan) -> list[Block]:
    """Measure one replicate and return its blocks; if it is discarded, the last block has the reason.

    Raises NoResponseError for a variant that takes a request and does not respond: each block would wait as long again.
    """
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
    except NoResponseError:
        raise
    except REPLICATE_FAILURES as error:
        return invalidated(made, plan, error_text(error))
    under_way = max(map(_under_way, made), default=1.0)
    reason = machine_problem(before, MachineSample.now(), cores=os.cpu_count() or 1, under_way=under_way)
    return made if reason is None else invalidated(made, plan, reason)


def _under_way(block: Block) -> float:
    """Return how many of the block's requests were under way at once, in the mean."""
    elapsed_s = block.counters.get("elapsed_s") or block.counters.get("at_rate_s")
    return sum(block.wall_s) / elapsed_s if elapsed_s else 1.0


def _run_blocks(
    prepared: PreparedVariants,
    plan: StartPlan,
    client: HttpClient,
    made: list[Block],
    *,
    replicate: int,
    first_round: int,
    ages: bool,
) -> None:
    """Start the servers of all variants, measure the blocks of the plan's rounds, and append the blocks to *made*.

    ages: whether the processes get older before the last three rounds, if there are enough.
    """
    first = len(made)
    with ExitStack() as stack:

        def start(name: str) -> _RunningVariant:
            database_url = prepared.databases[prepared.owner(name, replicate)]
            served = stack.enter_context(_RunningVariant.started(prepared, name, database_url, plan.hash_seed))
            if _needs_no_session(prepared):
                served.warm_up_early(Client(responses_folder(prepared.folder)))
            return served

        # Two starts per core at a time: three one after the other on two cores would leave one of them idle.
        with prepared.timer.measure("start"), ThreadPoolExecutor(2 * len(os.sched_getaffinity(0))) as pool:
            started = dict(zip(plan.start_order, pool.map(start, plan.start_order), strict=True))
        for name in plan.warmup_order:
            with prepared.timer.measure("start"):
                started[name].warm_up(client)
        # All blocks have the same number of requests, because their ends differ from the rest: the first request finds
        # cold caches (34 ms of CPU in blocks of one request were 30 ms in blocks of three), and of several users some
        # have nothing to send while the last ones wait. The data stays the same too, if requests write.
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
        with prepared.timer.measure("stop"), ThreadPoolExecutor(len(started)) as pool:
            list(pool.map(lambda served: served.server.stop(), started.values()))


def _age(prepared: PreparedVariants, client: HttpClient, served: Sequence["_RunningVariant"]) -> dict[str, int]:
    """Send the same number of untimed requests to each variant; return their numbers by variant.

    A control gets them too: an application that becomes slower or faster with its age is compared with one as old. All
    get them at the same time, since nothing is timed, unless the client's session is needed for them.
    """
    cycles = min((each.cycles_to_age(prepared.ages_s, prepared.max_ages_s) for each in served), default=0)
    if not cycles:
        return {}
    with prepared.timer.measure("age"):
        if not _needs_no_session(prepared):
            return {each.name: each.age(client, cycles) for each in served}
        folder = responses_folder(prepared.folder)
        with ThreadPoolExecutor(len(served)) as pool:
            return dict(pool.map(lambda each: (each.name, each.age(Client(folder), cycles)), served))


def _needs_no_session(prepared: PreparedVariants) -> bool:
    """Return whether other clients than the one whose requests are timed can send untimed requests."""
    return not (prepared.workload.login or prepared.workload.script or prepared.machine)


def _wait_until_idle(served: Collection["_RunningVariant"]) -> None:
    """Wait until the services are idle, so that work after their last responses is measured too.

    On a busy machine a service that has work to do may get no CPU for longer than a step.
    """
    pids = [pid for each in served for pid in each.server.pids()]
    began_s, starved_s = time.monotonic(), read_cpu_wait_s(pids)
    before_s = -math.inf
    while (waited_s := time.monotonic() - began_s) < _MAX_STARVED_WAIT_FOR_IDLE_S:
        spent_s = sum(each.spent_since_block() for each in served)
        if spent_s - before_s < _IDLE_CPU_SHARE * _IDLE_STEP_S and not has_ready_thread(pids):
            return
        if waited_s - (read_cpu_wait_s(pids) - starved_s) > _MAX_WAIT_FOR_IDLE_S:
            return
        before_s = spent_s
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
        pids = server.pids()
        self._start_cpu_s = self._cpu(pids).processes_s
        self._start_pss_bytes = read_pss_bytes(pids)
        a_cycle = max(1, len(self._workload.cycle))
        few = max(1, min(_WARM_UP_REQUESTS, _MAX_REQUESTS_PER_BLOCK // a_cycle))
        self._warm_up_cycles = max(few, -(-prepared.warmup // a_cycle))
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

    def warm_up_early(self, client: Client) -> None:
        """Send all but the last two request cycles of the warm-up, at the same time as to the other variants.

        The first request takes longest, and `warm_up` needs only the last ones.
        """
        if (early := self._warm_up_cycles - _LAST_WARM_UPS) > 0:
            self._warm_ups.append(self._drive(client, times=early))

    def warm_up(self, client: HttpClient) -> None:
        """Log in, let the service compile and connect, and set the number of request cycles that fill a block.

        Cycles that `warm_up_early` has sent are not sent again. Failed requests are counted in the next block, and
        discard its replicate like its own.
        """
        times = _LAST_WARM_UPS if self._warm_ups else self._warm_up_cycles
        try:
            driven = self._drive(client, times=times, login=True)
        except NoResponseError:
            raise
        except LoadError as error:
            raise LoadError(f"{self._name}: {error}") from error
        self._warm_ups.append(driven)
        walls, each = driven.wall_s, driven.cycle
        if self._users > 1:
            threads = self._variant.workers[0] * self._variant.workers[1]
            users = threads if self._rate else self._users
            times = -(-max(users, threads) // each)
            for _ in range(_WARM_UPS_PER_THREAD):  # connections open in the first; the last tells the size of a block
                driven = self._drive(client, times=times, users=users)
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
        driven = self._drive(client, times=cycles)
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
        seen = self._drive(client, times=self.cycles_a_block, users=self._users, due_s=due_s)
        pids = self.server.pids()
        self._ended = after = self._cpu(pids)
        self.in_s.append(_used(before, after))
        missing = max(0, requests - len(seen.wall_s))
        elapsed_s = seen.elapsed_s if self._users > 1 else sum(seen.wall_s)
        problem = block_problem(seen.failures, client_cpu_s=seen.client_cpu_s, wall_s=elapsed_s, missing=missing)
        self._served += len(seen.wall_s)
        if self._cycle_s and seen.cycle:  # the least of many is the time without what else the machine does
            cycles = range(0, len(seen.wall_s) - seen.cycle + 1, seen.cycle)
            self._cycle_s = min([self._cycle_s, *(sum(seen.wall_s[at : at + seen.cycle]) for at in cycles)])
        counters = self._counters(seen, due_s, pids)
        if lost := len(seen.failures) - seen.error_responses:
            counters["lost_connections"] = lost
        if self._warm_ups:
            counters["warm_up_requests"] = sum(len(each.wall_s) for each in self._warm_ups)
        if failures := [failure for each in self._warm_ups for failure in each.failures]:
            problem = f"in the warm-up {block_problem(failures, client_cpu_s=0.0, wall_s=0.0)}"
            counters["warm_up_errors"] = sum(each.error_responses for each in self._warm_ups)
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
        now = self._cpu(self.server.pids())
        if self._ended is not None:
            self.after_s.append(_used(self._ended, now))
            self._ended = None
        return now

    def spent_since_block(self) -> float:
        """Return the CPU seconds used since the last block ended."""
        used = None if self._ended is None else _used(self._ended, self._cpu(self.server.pids()))
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

    def _drive(self, client: Client | HttpClient, **how: Any) -> Driven:
        """Send requests as `HttpClient.drive` does; raise NoResponseError if one of them got no response."""
        driven = client.drive(self.server.url, self._workload, **how)
        if driven.is_hanging:
            raise NoResponseError(f"{self._name}: {driven.failures[-1]}", self._name)
        return driven

    def _counters(self, seen: Driven, due_s: Sequence[float], pids: Sequence[int]) -> dict[str, float]:
        memory = read_pss_bytes(pids)
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

    def _cpu(self, pids: Sequence[int]) -> "_CpuReading":
        processes_s = read_tree_cpu_s(pids) + read_ended_cpu_s(self.server.guard_pid)
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
