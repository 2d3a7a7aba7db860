"""From the blocks of an interleaved run to one log ratio per replicate, the unit of analysis.

    block      the requests of one variant in one stretch: median wall time, or CPU seconds by requests
    round      baseline, variant, variant, baseline or the reverse: a linear drift weighs on both variants alike
    replicate  a fresh pair of server processes: median (wall) or mean (CPU) of its rounds

`reduce_blocks` reduces them, `valid_replicates` selects the replicates that count. Requests are never pooled: requests
of one process have more in common than processes of the same code, and a test on them has 32 to 44 % false positives.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Protocol

_BLOCKS_PER_VARIANT = 2
"""Blocks per variant of a round; with fewer, the round was cut short and its drift does not cancel."""


class MeasuredBlock(Protocol):
    """A stretch of requests to one variant, as it was measured."""

    @property
    def replicate(self) -> int:
        """Number of its replicate."""

    @property
    def round(self) -> int:
        """Number of its round in the replicate."""

    @property
    def variant(self) -> str:
        """Name of its variant."""

    @property
    def requests(self) -> int:
        """The number of its requests."""

    @property
    def wall_s(self) -> Sequence[float]:
        """Seconds of each request."""

    @property
    def cycle(self) -> int:
        """The number of requests after which they repeat; 1 if all are the same."""

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds of the service and its database; None if not all could be read."""

    @property
    def counters(self) -> Mapping[str, float]:
        """Further figures, such as `pss_bytes`."""

    @property
    def invalid(self) -> str | None:
        """The reason why it is discarded; None if it is valid."""


@dataclass(frozen=True)
class MetricRule:
    """The reduction of blocks to a metric, and the margin below which a change does not matter."""

    name: str
    margin: float
    """The margin in log ratio, fixed before any run."""
    variant_level: Callable[[Sequence[MeasuredBlock]], float | None]
    """Returns the logarithm of the metric over one variant's blocks of a round; None if it was not measured."""
    of_rounds: Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class ReducedReplicates:
    """The replicates of one comparison, reduced."""

    log_ratios: tuple[float, ...]
    """The ratios of variant to baseline, one per replicate, in the order they were made."""
    levels: tuple[tuple[float, float], ...]
    """The metric of baseline and of variant per request, for the same replicates."""
    invalidated: int
    """The number of replicates that a rule set before the run discarded."""
    numbers: tuple[int, ...] = ()
    """The numbers of the replicates, by which two comparisons of one run can be lined up."""


def valid_replicates(blocks: Iterable[MeasuredBlock]) -> dict[int, list[MeasuredBlock]]:
    """Return the blocks of each replicate that no rule discarded, by its number."""
    of_replicate: dict[int, list[MeasuredBlock]] = defaultdict(list)
    for block in blocks:
        of_replicate[block.replicate].append(block)
    return {number: each for number, each in sorted(of_replicate.items()) if not any(block.invalid for block in each)}


def reduce_blocks(
    blocks: Iterable[MeasuredBlock], baseline: str, variant: str, metric: MetricRule
) -> ReducedReplicates:
    """Return one log ratio per replicate that counts and has a whole round of both variants."""
    kept = list(blocks)
    valid = valid_replicates(kept)
    made = {n: rounds for n, each in valid.items() if (rounds := _round_levels(each, baseline, variant, metric))}
    return ReducedReplicates(
        log_ratios=tuple(metric.of_rounds([after - before for before, after in rounds]) for rounds in made.values()),
        levels=tuple((_level(rounds, 0), _level(rounds, 1)) for rounds in made.values()),
        invalidated=len({block.replicate for block in kept}) - len(valid),
        numbers=tuple(made),
    )


def _level(rounds: Sequence[tuple[float, float]], variant: int) -> float:
    return math.exp(fmean(levels[variant] for levels in rounds))


def _round_levels(
    blocks: Sequence[MeasuredBlock], baseline: str, variant: str, metric: MetricRule
) -> list[tuple[float, float]]:
    """Return the logarithms of baseline and variant in each whole round."""
    of_round: dict[int, dict[str, list[MeasuredBlock]]] = defaultdict(lambda: defaultdict(list))
    for block in blocks:
        of_round[block.round][block.variant].append(block)
    levels = (_log_levels(variants[baseline], variants[variant], metric) for _, variants in sorted(of_round.items()))
    return [each for each in levels if each is not None]


def _log_levels(
    baseline: Sequence[MeasuredBlock], variant: Sequence[MeasuredBlock], metric: MetricRule
) -> tuple[float, float] | None:
    if min(len(baseline), len(variant)) < _BLOCKS_PER_VARIANT:
        return None
    before, after = metric.variant_level(baseline), metric.variant_level(variant)
    return None if before is None or after is None else (before, after)


def _log_wall(blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the mean logarithm of the blocks' medians: half as noisy as means (3.2 against 6.2 % for 10 requests).

    If requests differ, the median is of the means of their cycles: a median request would hide the others.
    """
    if not all(block.wall_s for block in blocks):
        return None
    return fmean(math.log(median(_cycle_means(block))) for block in blocks)


def _cycle_means(block: MeasuredBlock) -> Sequence[float]:
    if block.cycle == 1:
        return block.wall_s
    return [fmean(block.wall_s[at : at + block.cycle]) for at in range(0, len(block.wall_s), block.cycle)]


def _log_cpu(blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the logarithm of the CPU seconds per request over all the variant's blocks of the round."""
    taken = [block.cpu_s for block in blocks if block.cpu_s is not None]
    requests = sum(block.requests for block in blocks)
    if len(taken) < len(blocks) or not requests or sum(taken) <= 0:
        return None
    return math.log(sum(taken) / requests)


def _log_pss(blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the logarithm of the memory after the variant's blocks of the round."""
    sizes = [block.counters.get("pss_bytes", 0.0) for block in blocks]
    return math.log(max(sizes)) if min(sizes) > 0 else None


_CPU = MetricRule("cpu_s", margin=0.01, variant_level=_log_cpu, of_rounds=fmean)
_WALL = MetricRule("wall_s", margin=0.03, variant_level=_log_wall, of_rounds=median)
_PSS = MetricRule("pss_bytes", margin=0.02, variant_level=_log_pss, of_rounds=median)
METRICS = {metric.name: metric for metric in (_CPU, _WALL, _PSS)}
"""The rules of the metrics that are measured in blocks."""
COUNTED = {"statements": 0.001, "rows": 0.001, "round_trips": 0.001, "bytes_sent": 0.005, "bytes_received": 0.005}
"""Margins of the metrics that are counted apart, request by request; counts have no noise, bytes have a little."""
PROFILED = {"gc_s": 0.01}
"""Margins of the metrics from a few profiled requests of one process: a value and a ratio, no interval."""
PRIMARY = _CPU.name
