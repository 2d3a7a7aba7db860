"""Reasons to discard a replicate or a load pass: rules about the machine, fixed before anything is measured.

The main functions are `machine_problem`, on two `MachineSample`s, and `load_problem`, on the result of a load pass. A
replicate or pass is discarded as a whole, never a single request or one variant. Discarded ones are counted and
reported, and their values stay on the disk.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from placebench import units
from placebench.compare.keep.documents import Rules
from placebench.compare.keep.records import LoadResult
from placebench.loadgen.options import MAX_CONCURRENT
from placebench.loadgen.samples import MISSED_AFTER_S

_STEAL = 7
"""Position of the stolen time in the first line of /proc/stat, after the word cpu."""
_GUEST = 8
"""Number of times in that line that do not overlap; later ones are already contained in the first two."""


@dataclass(frozen=True)
class LoadRules:
    """The limits of a load pass with arrivals on a schedule."""

    late_at_most: float = 0.01
    """Share of the arrivals that the load generator itself may start late; one late arrival is always allowed."""
    client_cpu_at_most: float = 0.7
    """Share of a core that the load generator may use; beyond it, latencies contain the generator's own delays."""


LOAD_RULES = LoadRules()


@dataclass(frozen=True)
class MachineSample:
    """The machine's clocks and counters at one moment."""

    wall_s: float
    monotonic_s: float
    stolen: int
    """Ticks of CPU time that the host gave to others; `total` has all ticks."""
    total: int
    load: float

    @classmethod
    def now(cls, stat: Path = Path("/proc/stat")) -> Self:
        """Read the clocks and counters; costs some 50 µs. CPU times are 0 without /proc/stat."""
        ticks: list[int] = []
        with suppress(OSError), stat.open() as lines:
            ticks = [int(each) for each in lines.readline().split()[1:]]
        stolen = ticks[_STEAL] if len(ticks) > _STEAL else 0
        return cls(time.time(), time.monotonic(), stolen, sum(ticks[:_GUEST]), os.getloadavg()[0])


def machine_problem(
    before: MachineSample, after: MachineSample, *, cores: int, under_way: float = 1.0, rules: Rules | None = None
) -> str | None:
    """Return why a replicate between these moments is discarded (the seen and the allowed value), or None.

    under_way: how many requests of the replicate itself were under way at once: each may keep a thread busy.
    """
    rules = rules or Rules()
    step_s = (after.wall_s - before.wall_s) - (after.monotonic_s - before.monotonic_s)
    if abs(step_s) > rules.clock_step_at_most_s:
        return f"the clock stepped by {step_s:+.1f} s, at most {rules.clock_step_at_most_s:g} s allowed"
    ticks = after.total - before.total
    steal = (after.stolen - before.stolen) / ticks if ticks > 0 else 0.0
    if steal > rules.steal_at_most:
        allowed_steal = units.whole_percent(rules.steal_at_most)
        return f"the host took {units.whole_percent(steal)} of the CPU time, at most {allowed_steal} allowed"
    rise, allowed = after.load - before.load, rules.load_rise_at_most_per_core * cores + max(0.0, under_way - 1)
    if rise > allowed:
        return f"the load average rose by {rise:.1f}, at most {allowed:.1f} allowed on {cores} cores"
    return None


def block_problem(failures: list[str], *, client_cpu_s: float, wall_s: float, missing: int = 0) -> str | None:
    """Return why a block of requests is discarded (failures, *missing* requests, a busy client), or None."""
    if failures:
        return f"{units.numbered(len(failures), 'request')} failed, first: {failures[0]}"
    if missing:
        return f"{units.numbered(missing, 'request')} not sent"
    allowed = Rules().client_cpu_at_most
    share = client_cpu_s / wall_s if wall_s else 0.0
    if share > allowed:
        return f"the client used {units.whole_percent(share)} of a core, at most {units.whole_percent(allowed)} allowed"
    return None


def load_problem(result: LoadResult, *, at_once: int = MAX_CONCURRENT, rules: LoadRules = LOAD_RULES) -> str | None:
    """Return why a load pass measured its generator, not the service (the seen and the allowed value), or None."""
    if result.lost_workers:
        return f"{result.lost_workers} of {len(result.workers)} load generators were lost"
    busiest_cpu_s = max((each.client_cpu_s or 0.0 for each in result.workers), default=result.client_cpu_s)
    share = busiest_cpu_s / result.elapsed_s if result.elapsed_s else 0.0
    if share > rules.client_cpu_at_most:
        allowed = units.whole_percent(rules.client_cpu_at_most)
        return f"the load generator used {units.whole_percent(share)} of a core, at most {allowed} allowed"
    late = late_arrivals(result, at_once=at_once)
    if late > max(1, rules.late_at_most * result.requests):
        seen = f"the load generator started {late} of {result.requests} arrivals late"
        return f"{seen}, at most {units.whole_percent(rules.late_at_most)} allowed"
    return None


def late_arrivals(result: LoadResult, *, at_once: int = MAX_CONCURRENT) -> int:
    """Return the number of arrivals that the generator itself started late.

    An arrival that waited because *at_once* requests were under way waited for the service: that is latency.
    """
    due_s = [*result.started_s, *result.failed_started_s]
    latency_s = [*result.latency_s, *result.failed_latency_s]
    service_s = [*result.service_s, *result.failed_service_s]
    sent_s = [due + total - own for due, total, own in zip(due_s, latency_s, service_s, strict=True)]
    ended_s = sorted(due + total for due, total in zip(due_s, latency_s, strict=True))
    order = sorted(range(len(sent_s)), key=sent_s.__getitem__)
    late = ended = 0
    for place, number in enumerate(order, start=1):
        while ended < len(ended_s) and ended_s[ended] < sent_s[number]:
            ended += 1
        under_way = place - ended
        late += sent_s[number] - due_s[number] > MISSED_AFTER_S and under_way < at_once
    return late
