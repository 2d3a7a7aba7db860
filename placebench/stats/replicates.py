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
from itertools import chain
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
    pair_levels: Callable[[Sequence[MeasuredBlock], Sequence[MeasuredBlock]], tuple[float, float] | None] | None = None
    """Computes the logarithms of both variants together, where that of one depends on the other; None: each by itself.
    """


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
    if metric.pair_levels:
        return metric.pair_levels(baseline, variant)
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


def _log_start(name: str, blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the logarithm of the mean over a replicate's starts of a counter that each block of a start repeats."""
    values = {value for block in blocks if (value := block.counters.get(name))}
    return math.log(fmean(values)) if values else None


def _by_start(blocks: Sequence[MeasuredBlock]) -> list[list[MeasuredBlock]]:
    """Return the blocks of each start of the service in order; empty if the served requests are not known.

    Only starts that served nearly as many requests as the longest are kept, because the others are too short.
    """
    starts: list[list[MeasuredBlock]] = []
    for block in sorted(blocks, key=lambda each: (each.round, each.counters.get("served", 0.0))):
        served = block.counters.get("served")
        if served is None:
            return []
        if not starts or served <= starts[-1][-1].counters["served"]:
            starts.append([])
        starts[-1].append(block)
    longest = max(each[-1].counters["served"] for each in starts)
    return [each for each in starts if each[-1].counters["served"] >= _LONG_START * longest]


def _log_growth(blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the logarithm of the memory after 1000 further requests over that before, by least squares.

    The first third of the blocks of a start are left out, since memory grows until all code has run. None if the rest
    has too few requests: a single step of the memory would then be taken for a leak.
    """
    products = squares = 0.0
    begins = []
    for start in _by_start(blocks):
        kept = start[len(start) // 3 :]
        points = [(each.counters["served"], each.counters.get("pss_bytes", 0.0)) for each in kept]
        if len(points) < _MIN_POINTS or min(size for _, size in points) <= 0:
            return None
        if points[-1][0] - points[0][0] < _MIN_GROWN_REQUESTS:
            return None
        served, sizes = (fmean(values) for values in zip(*points, strict=True))
        products += sum((x - served) * (y - sizes) for x, y in points)
        squares += sum((x - served) ** 2 for x, _ in points)
        begins.append(points[0][1])
    if not squares:
        return None
    return math.log(max(_MIN_GROWTH, 1 + 1000 * products / squares / fmean(begins)))


def _slowdown_levels(baseline: Sequence[MeasuredBlock], variant: Sequence[MeasuredBlock]) -> tuple[float, float] | None:
    """Return the logarithms by which a request takes longer in old processes than in young ones, for both variants.

    A round counts as old if both processes had served more than half of the most requests of any round. Both variants
    send their requests of a round within a second, so the variant is compared with the baseline in each round, and the
    rounds with each other: its slow-down is the baseline's plus the median difference between an old round and a young
    one (Hodges and Lehmann). A busy machine slows both. The wall time, by its lower quartile, or the CPU time is
    taken: that which varies less between young rounds.
    """
    of_round: dict[int, tuple[list[MeasuredBlock], list[MeasuredBlock]]] = defaultdict(lambda: ([], []))
    for side, blocks in enumerate((baseline, variant)):
        for block in blocks:
            if "served" not in block.counters:
                return None
            of_round[block.round][side].append(block)
    rounds = [sides for sides in of_round.values() if all(sides)]
    ages = [min(block.counters["served"] for block in chain(*sides)) for sides in rounds]
    old = [2 * age > max(ages, default=0.0) for age in ages]
    if min(old.count(False), old.count(True)) < _MIN_AGED_ROUNDS:
        return None
    measures = []
    for level in (_log_quartile, _log_cpu):
        found = [tuple(map(level, sides)) for sides in rounds]
        known = [(before, after) for before, after in found if before is not None and after is not None]
        if len(known) == len(rounds):
            changes = [after - before for before, after in known]
            young = [each for each, is_old in zip(changes, old, strict=True) if not is_old]
            spread = median(abs(each - median(young)) for each in young)
            measures.append((spread, [before for before, _ in known], changes))
    if not measures:
        return None
    _, levels, changes = min(measures, key=lambda each: each[0])
    own, more = (
        median(
            late - early
            for late, is_old in zip(values, old, strict=True)
            if is_old
            for early, was_old in zip(values, old, strict=True)
            if not was_old
        )
        for values in (levels, changes)
    )
    return own, own + more


def _log_quartile(blocks: Sequence[MeasuredBlock]) -> float | None:
    """Return the logarithm of the lower quartile of wall times, which a busy machine lengthens least."""
    seconds = sorted(chain.from_iterable(map(_cycle_means, blocks)))
    return math.log(seconds[len(seconds) // 4]) if seconds else None


def _slow_levels(
    bound_s: float | None, baseline: Sequence[MeasuredBlock], variant: Sequence[MeasuredBlock]
) -> tuple[float, float] | None:
    """Return the logarithms of the shares of slow requests, with half a request added to both, as none has no ratio.

    bound_s: what is slow; None: twice the baseline's p98, which is that of the requests at the same place of the cycle
    if there are enough.
    """
    before, after = _by_place(baseline), _by_place(variant)
    if bound_s is None and min(map(len, before.values()), default=0) < _FOR_BOUND:
        before, after = ({0: [each for of_place in made.values() for each in of_place]} for made in (before, after))
    if min(len(each) for made in (before, after) for each in [list(chain.from_iterable(made.values()))]) < _FOR_BOUND:
        return None
    shares = []
    for made in (before, after):
        slow = sent = 0
        for place, seconds in made.items():
            usual = sorted(before.get(place, seconds))
            limit = bound_s if bound_s is not None else _TIMES_SLOWER * usual[int(_BOUND_SHARE * (len(usual) - 1))]
            slow += sum(each > limit for each in seconds)
            sent += len(seconds)
        shares.append((slow + 0.5) / (sent + 1))
    return math.log(shares[0]), math.log(shares[1])


def _by_place(blocks: Sequence[MeasuredBlock]) -> dict[int, list[float]]:
    """Return the wall times by the request's place in the cycle."""
    made: dict[int, list[float]] = defaultdict(list)
    for block in blocks:
        for place, seconds in enumerate(block.wall_s):
            made[place % block.cycle].append(seconds)
    return made


def slow_share_rule(bound_s: float | None) -> MetricRule:
    """Return the rule for the share of requests above *bound_s*; None: above twice the baseline's p98."""
    return MetricRule(
        "slow_share", 0.4, lambda _: None, fmean, pools_rounds=True, pair_levels=partial(_slow_levels, bound_s)
    )


_LONG_START, _MIN_POINTS, _MIN_GROWTH, _MIN_AGED_ROUNDS = 0.8, 4, 0.1, 2
_MIN_GROWN_REQUESTS = 100
_FOR_BOUND, _BOUND_SHARE, _TIMES_SLOWER = 50, 0.98, 2.0
_CPU = MetricRule("cpu_s", margin=0.01, variant_level=_log_cpu, of_rounds=fmean)
_WALL = MetricRule("wall_s", margin=0.03, variant_level=_log_wall, of_rounds=median)
_PSS = MetricRule("pss_bytes", margin=0.02, variant_level=_log_pss, of_rounds=median)
_ELAPSED = MetricRule("elapsed_s", margin=0.03, variant_level=_log_elapsed, of_rounds=fmean)
_P50 = MetricRule("p50_s", 0.03, _log_median_at_rate, of_rounds=fmean, pools_rounds=True)
PERCENTILES = {"p50_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}
"""For each metric that is a percentile of the latency: the share of the requests that are faster."""
_P95, _P99 = (
    MetricRule(name, margin, partial(_log_percentile, PERCENTILES[name]), of_rounds=fmean, pools_rounds=True)
    for name, margin in (("p95_s", 0.05), ("p99_s", 0.10))
)
_START = MetricRule("start_s", 0.10, partial(_log_start, "start_s"), fmean, pools_rounds=True)
_START_CPU = MetricRule("start_cpu_s", 0.05, partial(_log_start, "start_cpu_s"), fmean, pools_rounds=True)
_START_PSS = MetricRule("start_pss_bytes", 0.02, partial(_log_start, "start_pss_bytes"), fmean, pools_rounds=True)
_GROWTH = MetricRule("memory_growth", 0.02, _log_growth, fmean, pools_rounds=True)
_SLOWDOWN = MetricRule("late_slowdown", 0.05, lambda _: None, fmean, pools_rounds=True, pair_levels=_slowdown_levels)
_LIFETIME = (_START, _START_CPU, _START_PSS, slow_share_rule(None), _GROWTH, _SLOWDOWN)
LIFETIME = tuple(metric.name for metric in _LIFETIME)
"""The metrics of a process's start, of its rare slow requests, and of what changes as it gets older."""
METRICS = {metric.name: metric for metric in (_CPU, _WALL, _PSS, _ELAPSED, _P50, _P95, _P99, *_LIFETIME)}
"""The rules of the metrics that are measured in blocks, by name; four of them under load only.

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
