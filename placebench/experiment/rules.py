"""When a replicate does not count: rules about the machine, fixed before anything is measured.

The key piece is `why_invalid`, on two `Moment`s. The whole replicate goes, never a single request or one arm, and it is
counted and reported; what it measured stays in blocks.jsonl.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

_STEAL = 7
"""Position in the first line of /proc/stat, after the word cpu."""
_GUEST = 8
"""From here on, times that are in the first two already."""


@dataclass(frozen=True)
class Rules:
    """The limits; part of the run's settings."""

    steal_at_most: float = 0.10
    """Share of the machine's CPU time that its host gave to others."""
    load_rise_at_most_per_core: float = 2.0
    """How far the load average of a minute may rise from the beginning of a replicate to its end."""
    clock_step_at_most_s: float = 0.5
    """How far the wall clock may move against the monotonic one."""
    client_cpu_at_most: float = 0.7
    """Share of a core that the client may use while it waits for answers."""

    def to_json(self) -> dict[str, float]:
        """For the run's head."""
        return asdict(self)


RULES = Rules()


@dataclass(frozen=True)
class Moment:
    """The machine's clocks and counters, read at once."""

    wall_s: float
    monotonic_s: float
    stolen: int
    """Ticks of CPU time, as `total`."""
    total: int
    load: float

    @classmethod
    def now(cls, stat: Path = Path("/proc/stat")) -> Self:
        """Read them; costs some 50 µs. CPU time is 0 where there is no /proc/stat."""
        stolen, total = _cpu_ticks(stat)
        return cls(time.time(), time.monotonic(), stolen, total, os.getloadavg()[0])


def why_invalid(before: Moment, after: Moment, *, cores: int, rules: Rules = RULES) -> str | None:
    """Why a replicate between these moments does not count, with what was seen and what is allowed; None if it does."""
    step_s = (after.wall_s - before.wall_s) - (after.monotonic_s - before.monotonic_s)
    if abs(step_s) > rules.clock_step_at_most_s:
        return f"the clock stepped by {step_s:+.1f} s, at most {rules.clock_step_at_most_s:g} s allowed"
    ticks = after.total - before.total
    steal = (after.stolen - before.stolen) / ticks if ticks > 0 else 0.0
    if steal > rules.steal_at_most:
        return f"the host took {steal:.0%} of the CPU time, at most {rules.steal_at_most:.0%} allowed"
    rise, allowed = after.load - before.load, rules.load_rise_at_most_per_core * cores
    if rise > allowed:
        return f"the load average rose by {rise:.1f}, at most {allowed:.1f} allowed on {cores} cores"
    return None


def why_invalid_block(failures: list[str], *, client_cpu_s: float, wall_s: float, rules: Rules = RULES) -> str | None:
    """The same for one block of requests: failures, or a client that had no time to wait."""
    if failures:
        return f"{len(failures)} requests failed, first: {failures[0]}"
    share = client_cpu_s / wall_s if wall_s else 0.0
    if share > rules.client_cpu_at_most:
        return f"the client used {share:.0%} of a core, at most {rules.client_cpu_at_most:.0%} allowed"
    return None


def describe(rules: Mapping[str, float]) -> str:
    """The rules in a sentence, from a run's head."""
    given = Rules(**rules)
    return (
        f"A replicate does not count when a request failed, the client used more than {given.client_cpu_at_most:.0%} "
        f"of a core, the host took more than {given.steal_at_most:.0%} of the CPU time, the load average rose by more "
        f"than {given.load_rise_at_most_per_core:g} a core, or the clock stepped by more than "
        f"{given.clock_step_at_most_s:g} s."
    )


def _cpu_ticks(stat: Path) -> tuple[int, int]:
    try:
        with stat.open() as lines:
            ticks = [int(each) for each in lines.readline().split()[1:]]
    except OSError:
        return 0, 0
    return (ticks[_STEAL] if len(ticks) > _STEAL else 0), sum(ticks[:_GUEST])
