"""Reduce the blocks of an interleaved run to one log ratio per replicate, the unit of analysis.

    block      consecutive requests to one variant: median wall time, or CPU seconds divided by requests
    round      baseline, variant, variant, baseline or the reverse: a linear drift affects both variants alike
    replicate  a fresh pair of server processes: median (wall) or mean (CPU) of its rounds, or for a percentile of the
               latency under load all its requests

`reduce_blocks` computes the log ratios, `valid_replicates` selects the valid replicates. Requests are never pooled:
requests of one process are correlated, and a test on pooled requests has 32 to 44 % false positives.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Protocol

from placebench.stats.percentiles import percentile

_BLOCKS_PER_VARIANT = 2
"""Blocks per variant in a complete round; with fewer, the round was cut short and drift does not cancel."""


class MeasuredBlock(Protocol):
    """A block of consecutive requests to one variant, as measured."""

    @property
    def replicate(self) -> int:
        """Number of the block's replicate."""

    @property
    def round(self) -> int:
        """Number of the block's round within the replicate."""

    @property
    def variant(self) -> str:
        """Name of the variant that served the block."""

    @property
    def requests(self) -> int:
        """The number of requests in the block."""

    @property
    def wall_s(self) -> Sequence[float]:
        """Wall time of each request in seconds."""

    @property
    def cycle(self) -> int:
        """The number of requests after which the sequence repeats; 1 if all requests are the same."""

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds of the service and its database; None if not all could be read."""

    @property
    def counters(self) -> Mapping[str, float]:
        """Further values by name, such as `pss_bytes`."""

    @property
    def invalid(self) -> str | None:
        """The reason why the block is discarded; None if it is valid."""


@dataclass(frozen=True)
class MetricRule:
    """How blocks are reduced to a metric, and the margin below which a change of the metric does not matter."""

    name: str
    margin: float
    """The margin as a log ratio, fixed before any run."""
    variant_level: Callable[[Sequence[MeasuredBlock]], float | None]
    """Computes the logarithm of the metric from one variant's blocks in a round; None if it was not measured."""
    of_rounds: Callable[[Sequence[float]], float]
    pools_rounds: bool = False
    """Whether the rounds of a replicate are taken together, since one has too few requests for the metric."""


@dataclass(frozen=True)
class ReducedReplicates:
    """The replicates of one comparison, each reduced to a log ratio."""

    log_ratios: tuple[float, ...]
    """The log ratio of variant to baseline for each replicate, in the order the replicates were made."""
    levels: tuple[tuple[float, float], ...]
    """The metric per request of baseline and variant, for each replicate of `log_ratios`."""
    invalidated: int
    """The number of replicates that were discarded by a rule set before the run."""
    numbers: tuple[int, ...] = ()
    """The number of each replicate, by which two comparisons of one run can be aligned."""


def valid_replicates(blocks: Iterable[MeasuredBlock]) -> dict[int, list[MeasuredBlock]]:
    """Return the blocks of the replicates that have no discarded block, by the replicate's number."""
    of_replicate: dict[int, list[MeasuredBlock]] = defaultdict(list)
    for block in blocks:
        of_replicate[block.replicate].append(block)
    return {number: each for number, each in sorted(of_replicate.items()) if not any(block.invalid for block in each)}


def reduce_blocks(
    blocks: Iterable[MeasuredBlock], baseline: str, variant: str, metric: MetricRule
) -> ReducedReplicates:
    """Return one log ratio for each valid replicate with at least one complete round of both variants."""
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
    """Return the logarithms of baseline and variant for each complete round."""
    of_round: dict[int, dict[str, list[MeasuredBlock]]] = defaultdict(lambda: defaultdict(list))
    for block in blocks:
        of_round[0 if metric.pools_rounds else block.round][block.variant].append(block)
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
    """Return the mean logarithm of the blocks' medians, half as noisy as means (3.2 against 6.2 % for 10 requests).

    If requests differ, the median is taken over the means of their cycles, as a median request would hide the others.
    """
    if not all(block.wall_s and "at_rate_s" not in block.counters for block in blocks):
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


def _log_elapsed(blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the logarithm of the seconds per request that blocks of several users took: 1 / throughput."""
    elapsed_s = [block.counters.get("elapsed_s", 0.0) for block in blocks]
    requests = sum(block.requests for block in blocks)
    return math.log(sum(elapsed_s) / requests) if requests and min(elapsed_s) > 0 else None


def _log_percentile(share: float, blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the logarithm of a percentile of the latency under load; None if ten requests are not slower."""
    if any(block.counters.keys().isdisjoint(("elapsed_s", "at_rate_s")) for block in blocks):
        return None
    seconds = percentile(sorted(each for block in blocks for each in block.wall_s), share)
    return math.log(seconds) if seconds else None


def _log_median_at_rate(blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the logarithm of the median latency of requests that arrived at a rate."""
    return _log_percentile(0.5, blocks) if all("at_rate_s" in block.counters for block in blocks) else None


def _log_pss(blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the logarithm of the memory after the variant's blocks of the round."""
    sizes = [block.counters.get("pss_bytes", 0.0) for block in blocks]
    return math.log(max(sizes)) if min(sizes) > 0 else None


_CPU = MetricRule("cpu_s", margin=0.01, variant_level=_log_cpu, of_rounds=fmean)
_WALL = MetricRule("wall_s", margin=0.03, variant_level=_log_wall, of_rounds=median)
_PSS = MetricRule("pss_bytes", margin=0.02, variant_level=_log_pss, of_rounds=median)
_ELAPSED = MetricRule("elapsed_s", margin=0.03, variant_level=_log_elapsed, of_rounds=fmean)
_P50 = MetricRule("p50_s", 0.03, _log_median_at_rate, of_rounds=fmean, pools_rounds=True)
_P95 = MetricRule("p95_s", 0.05, partial(_log_percentile, 0.95), of_rounds=fmean, pools_rounds=True)
_P99 = MetricRule("p99_s", 0.10, partial(_log_percentile, 0.99), of_rounds=fmean, pools_rounds=True)
METRICS = {metric.name: metric for metric in (_CPU, _WALL, _PSS, _ELAPSED, _P50, _P95, _P99)}
"""The rules of the metrics that are measured in blocks, by name; the last four under load only.

Time per request is that of several users, whose rate is the service's; the median is that of arrivals at a rate.
"""
COUNTED = {"statements": 0.001, "rows": 0.001, "round_trips": 0.001, "bytes_sent": 0.005, "bytes_received": 0.005}
"""Margins of the metrics that are counted in a separate pass, per request; counts have no noise, bytes a little."""
PROFILED = {"gc_s": 0.01}
"""Margins of the metrics from a few profiled requests of one process: they have a value and a ratio, no interval."""
PRIMARY = _CPU.name


def primary_metric(*, users: int, rate: float | None) -> str:
    """Return the metric that decides: CPU of one user, throughput of several, or the tail of arrivals at a rate."""
    if rate:
        return _P95.name
    return _ELAPSED.name if users > 1 else PRIMARY
