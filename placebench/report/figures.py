"""The numbers of a report, computed once from a run's records: `figures_of`, or `comparisons_of` for comparisons only.

If the variants' responses differ or were not requested, there are no figures, so no speed can reach a page.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from placebench.compare.keep.documents import SameResponsesDocument
from placebench.compare.keep.records import CountedPass, LoadPass, LoadResult, WirePass
from placebench.compare.load.load_steps import PERCENTILES
from placebench.page.svg import Role
from placebench.profiler.analysis.difference import Frame, self_times
from placebench.results import Run
from placebench.stats import (
    COUNTED,
    METRICS,
    PRIMARY,
    PROFILED,
    Comparison,
    PartChange,
    attribute,
    compare_blocks,
    compare_counts,
    compare_profiled,
    cumulative_distribution,
    percentile,
    primary_metric,
    significance_shares,
)
from placebench.stats.error_shares import NO_ERRORS, ErrorComparison, compare_errors
from placebench.stats.multiple_testing import lifetime_shares
from placebench.stats.replicates import valid_replicates
from placebench.stats.verdict import FASTER

TIMES = ("cpu_s", "wall_s")
_TIMES_UNDER_LOAD = ("elapsed_s", "cpu_s", "wall_s", "p95_s", "p99_s")
_TIMES_AT_A_RATE = ("p95_s", "cpu_s", "p50_s", "p99_s")
"""Metrics that are listed even if they were not measured; the primary one first."""
_PAIR_LABELS = {"alone": "{}, alone", "leave_one_out": "{}, leave-one-out"}


@dataclass(frozen=True)
class Responses:
    """The result of comparing the variants' responses, and the size of the response."""

    checked: tuple[str, ...] = ()
    equal: bool | None = None
    """Whether the responses are the same; None if the run ended before any were compared."""
    allocation_requests: int | None = None
    provider_summaries: int | None = None
    digest: str | None = None
    difference: str | None = None
    off: str = ""
    """The reason why the comparison of responses was switched off; empty if it was not."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Routes that were left out, each with what is wrong with its responses."""
    varying: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Places that were not compared, by route, because responses of the first variant differ there."""
    changing_tables: tuple[str, ...] = ()
    """Tables that requests which only read change in all variants alike."""


@dataclass(frozen=True)
class Latency:
    """The latencies of one load pass, or of the blocks of one variant."""

    percentiles: dict[str, float | None]
    """Seconds by the name of the percentile; None if fewer than ten samples lie above the percentile."""
    curve: list[tuple[float, float]]


@dataclass(frozen=True)
class LoadFigures:
    """The results of one load pass."""

    requests: int
    throughput_per_s: float
    rate_per_s: float | None
    latency: Latency
    service: Latency
    """Latencies of the same requests, timed from the moment at which each was actually sent."""
    failures: int
    failure_messages: tuple[str, ...]
    in_flight: int
    missed: int
    repeats: int
    cpu_s: float | None
    """CPU seconds per request of the service and PostgreSQL."""
    worker_cpu_s: float | None
    """CPU seconds per request of the service's processes."""
    backend_cpu_s: float | None
    """CPU seconds per request of PostgreSQL's backends."""
    peak_pss_bytes: int | None


@dataclass(frozen=True)
class RequestCounts:
    """The work of one request: means over the counted pass."""

    statements: float
    rows: float
    body_bytes: float
    sql_share: float | None
    gc_share: float | None


@dataclass(frozen=True)
class VariantFigures:
    """One variant, its description and its measurements."""

    variant: str
    label: str
    """A short label: what the variant adds to the previous step, or the name of the variant."""
    role: Role
    adds: str
    why: str
    source: str
    shows_on: str
    """The request on which the addition should show; empty if nothing is added."""
    shows_in: str
    """The metric in which the addition should show; empty if nothing is added."""
    closed: LoadFigures | None
    open: LoadFigures | None
    counted: RequestCounts | None
    profile: str | None
    """File name of the profile in the run's folder."""
    speedscope: str | None


@dataclass(frozen=True)
class BlockLatency:
    """The wall times of one variant's requests in the blocks of valid replicates."""

    variant: str
    role: Role
    wall_s: list[float]
    """Wall time per request in seconds, in ascending order."""
    latency: Latency


@dataclass(frozen=True)
class ComparedPair:
    """Two variants that are compared: one change, or one variant with the baseline of the run."""

    baseline: str
    variant: str
    name: str
    kind: str
    """The kind of trial: step, alone, leave_one_out or own; empty if variants were named on the command line."""

    @property
    def pair(self) -> tuple[str, str]:
        """The names of baseline and variant."""
        return self.baseline, self.variant

    @property
    def label(self) -> str:
        """A name that is unique among the pairs, such as 'slots, alone'."""
        return _PAIR_LABELS.get(self.kind, "{}").format(self.name)


@dataclass(frozen=True)
class Figures:
    """All numbers that a report of a run shows."""

    run: Run
    responses: Responses
    variants: tuple[VariantFigures, ...]
    comparisons: tuple[Comparison, ...]
    blocks: tuple[BlockLatency, ...]
    """One per variant that has requests in valid replicates, in the order the variants were named."""
    pairs: tuple[ComparedPair, ...]
    parts: Mapping[tuple[str, str], list[PartChange[Frame]]]
    """The changes of self time by frame, in seconds per request, by (baseline, variant)."""
    errors: tuple[ErrorComparison, ...]
    """The failed requests of each measured pair, also of a run that has no speeds because of them."""
    all_changes: Comparison | None
    """The effect of all changes on the primary metric: the last step of a cumulative series against its first."""

    @property
    def names(self) -> dict[tuple[str, str], str]:
        """The short name of each pair, by (baseline, variant)."""
        return {each.pair: each.label for each in self.pairs}

    def short_name(self, variant: str) -> str:
        """Return a short name of *variant* that is unique among the variants of the run."""
        return shorten_variant(variant, self.run.head.variants)

    @property
    def errors_seen(self) -> list[ErrorComparison]:
        """The pairs of `errors` in which requests to a variant failed."""
        return [each for each in self.errors if each.verdict != NO_ERRORS]

    @property
    def is_experiment(self) -> bool:
        """Whether the pairs are trials of an experiment, each with its own baseline."""
        return any(each.kind for each in self.pairs)

    @property
    def primaries(self) -> tuple[Comparison, ...]:
        """The comparison of each pair by the primary metric."""
        metric = self.primary.metric if self.primary else ""
        return tuple(each for each in self.comparisons if each.metric == metric)

    @property
    def is_loaded(self) -> bool:
        """Whether any variant was load-tested by itself, as `placebench lab perfload` does."""
        return any(each.closed or each.open for each in self.variants)

    @property
    def times(self) -> tuple[str, ...]:
        """The metrics that are times, the primary one first: under load it is that of the throughput."""
        if compared_rate(self.run):
            return _TIMES_AT_A_RATE
        return TIMES if compared_users(self.run) == 1 else _TIMES_UNDER_LOAD

    @property
    def primary(self) -> Comparison | None:
        """The first comparison by the first of `times` that any pair has."""
        measured = [each for each in self.comparisons if each.measured]
        return next((each for metric in self.times for each in measured if each.metric == metric), None)

    @property
    def metric(self) -> str:
        """The name of the primary metric."""
        return self.primary.metric if self.primary else PRIMARY

    def slower_time(self, faster: Comparison) -> Comparison | None:
        """Return the comparison by the other time metric if it shows that a faster variant is slower by that metric.

        This happens because waiting takes no CPU.
        """
        times = [each for each in self.comparisons if each.metric in self.times and each.pair == faster.pair]
        for each in times if faster.verdict == FASTER else ():
            if each.ratio and each.low and each.low > 1 and math.log(each.ratio) >= each.margin:
                return each
        return None

    @property
    def replicates(self) -> int:
        """The number of valid replicates."""
        return len(valid_replicates(self.run.blocks))

    @property
    def invalidated(self) -> int:
        """The number of replicates that were discarded by a rule set before the run."""
        return len({block.replicate for block in self.run.blocks}) - self.replicates


def figures_of(run: Run) -> Figures:
    """Compute the figures of *run*; the main cost is sorting the samples of each load pass."""
    responses = _responses(run.head.same_responses, run.head.variants)
    variants = run.head.variants if run.head.is_comparable else []
    pairs = _compared_pairs(run) if variants else []
    ends = _series_ends(run) if variants else None
    all_changes = None
    if ends:
        share = significance_shares(PRIMARY)[PRIMARY]
        all_changes = compare_blocks(run.blocks, *ends, PRIMARY, share=share, sequential=_is_sequential(run))
    return Figures(
        run=run,
        responses=responses,
        variants=tuple(_variant_figures(run, variant) for variant in variants),
        comparisons=tuple(comparisons_of(run)) if variants else (),
        blocks=tuple(_block_latencies(run)) if variants else (),
        pairs=tuple(pairs),
        parts={each.pair: _part_changes(run, *each.pair) for each in pairs},
        errors=tuple(compare_errors(run.blocks, *each.pair) for each in _compared_pairs(run) if run.blocks),
        all_changes=all_changes if all_changes and all_changes.measured else None,
    )


def _part_changes(run: Run, baseline: str, variant: str) -> list[PartChange[Frame]]:
    """Compare the frames of the profiled replicates; without any, those of the flame graphs, without intervals."""
    profiled: dict[int, dict[str, dict[Frame, float]]] = defaultdict(dict)
    for each in run.profiled_replicates:
        profiled[each.replicate][each.variant] = {(name, place): self_s for name, place, self_s in each.frames}
    pairs = [(each[baseline], each[variant]) for each in profiled.values() if {baseline, variant} <= each.keys()]
    if not pairs and (before := run.session(baseline)) and (after := run.session(variant)):
        pairs = [(self_times(before), self_times(after))]
    return attribute([before for before, _ in pairs], [after for _, after in pairs])


def comparisons_of(run: Run) -> list[Comparison]:
    """Return the comparison of each pair by each metric that was measured, in the order the variants were named.

    The list is empty if the responses differ, or if no response was requested.
    """
    if not run.head.is_comparable:
        return []
    return [made for each in _compared_pairs(run) for made in _pair_comparisons(run, *each.pair)]


def compared_users(run: Run) -> int:
    """Return the number of users that sent the requests of each block at the same time."""
    is_loaded = any("elapsed_s" in block.counters for block in run.blocks)
    return int(run.head.settings["users"]) if is_loaded else 1


def compared_rate(run: Run) -> float | None:
    """Return the number of requests per second that arrived on a schedule; None if users sent them."""
    return run.head.settings.get("rate")


def _compared_pairs(run: Run) -> list[ComparedPair]:
    """Return the trials of an experiment, else each variant with the first; each measured pair once."""
    seen = {block.variant for block in run.blocks} | set(run.wire)
    if trials := run.head.settings.get("trials"):
        made = [ComparedPair(each["baseline"], each["variant"], each["name"], each["kind"]) for each in trials]
    else:
        baseline, *others = [variant for variant in run.head.variants if variant in seen] or [""]
        made = [ComparedPair(baseline, other, other, "") for other in others]
    first: dict[tuple[str, str], ComparedPair] = {}
    for each in made:
        if seen.issuperset(each.pair):
            first.setdefault(each.pair, each)
    return list(first.values())


def shorten_variant(variant: str, among: Iterable[str] = ()) -> str:
    """Return a name shortened to its first and last part: 'naive+rows+slots+sets' → 'naive+…+sets'.

    A name with fewer parts stays as it is. If another name of *among* would get the same short name, as many last parts
    are kept as make it unique.
    """
    others = [other for other in among if other != variant]
    for parts in range(1, variant.count("+") + 1):
        name = _ends(variant, parts)
        if all(_ends(other, parts) != name for other in others):
            return name
    return variant


def _ends(variant: str, parts: int) -> str:
    head, *rest = variant.split("+")
    return variant if len(rest) <= parts else "+".join([head, "…", *rest[-parts:]])


def _pair_comparisons(run: Run, baseline: str, variant: str) -> Iterator[Comparison]:
    shares = significance_shares(primary_metric(users=compared_users(run), rate=compared_rate(run)))
    shares = {**lifetime_shares(), **shares}
    bound_s = run.head.settings.get("bound_s")
    for metric in METRICS:
        share, sequential = shares.get(metric, 1.0), _is_sequential(run)
        made = compare_blocks(
            run.blocks, baseline, variant, metric, share=share, sequential=sequential, bound_s=bound_s
        )
        if made.measured or (metric in TIMES and not compared_rate(run)):
            yield made
    watched = [counted.gc_s_each if (counted := run.counted.get(each)) else [] for each in (baseline, variant)]
    if run.wire and any(watched):
        for metric in PROFILED:
            yield compare_profiled(watched[0], watched[1], baseline, variant, metric)
    before, after = run.wire.get(baseline), run.wire.get(variant)
    if before is None or after is None:
        return
    for metric in COUNTED:
        then, now = _counted_samples(before, metric), _counted_samples(after, metric)
        if then is not None and now is not None:
            yield compare_counts(then, now, baseline, variant, metric)


def _is_sequential(run: Run) -> bool:
    """Return whether the run may have stopped after any replicate."""
    return bool(run.head.settings.get("sequential"))


def _counted_samples(counted: WirePass, metric: str) -> Sequence[float] | None:
    samples: Sequence[float] | None = getattr(counted, metric)
    return samples


def _series_ends(run: Run) -> tuple[str, str] | None:
    """Return the variant with none of an experiment's changes and the one with all; None if they were not measured."""
    trials = run.head.settings.get("trials", ())
    first = {each["kind"]: each["baseline"] for each in reversed(trials)}
    last = {each["kind"]: each["variant"] for each in trials}
    begin, end = ("step", "step") if "step" in first else ("alone", "leave_one_out")
    return (first[begin], last[end]) if begin in first and end in last else None


def _responses(checked: SameResponsesDocument, variants: Sequence[str]) -> Responses:
    made = msgspec.convert(checked, Responses)
    return replace(made, checked=tuple(name for name in made.checked if name in variants))  # and not the control


def _variant_figures(run: Run, variant: str) -> VariantFigures:
    described = run.head.settings.get("steps", {}).get(variant, {})
    about = {name: str(described.get(name) or "") for name in ("adds", "why", "source", "shows_on", "shows_in")}
    return VariantFigures(
        variant=variant,
        label=f"+ {about['adds']}" if about["adds"] and "+" in variant else variant,
        role=_role(run, variant),
        closed=_load_figures(run.closed.get(variant)),
        open=_load_figures(run.open.get(variant)),
        counted=_request_counts(run.counted.get(variant)),
        profile=path.name if (path := run.profile(variant)) else None,
        speedscope=path.name if (path := run.speedscope(variant)) else None,
        **about,
    )


def _block_latencies(run: Run) -> Iterator[BlockLatency]:
    invalid = {block.replicate for block in run.blocks if block.invalid}
    seen: dict[str, list[float]] = {}
    for block in run.blocks:
        if block.replicate not in invalid:
            seen.setdefault(block.variant, []).extend(block.wall_s)
    for variant in run.head.variants:
        if wall_s := sorted(seen.get(variant, ())):
            yield BlockLatency(variant, _role(run, variant), wall_s, _latency(wall_s))


def _role(run: Run, variant: str) -> Role:
    """Return the role of a variant: 'variant' for the last step of an experiment, else for the last variant named."""
    if variant == run.head.variants[0]:
        return "baseline"
    ends = _series_ends(run)
    return "variant" if variant == (ends[1] if ends else run.head.variants[-1]) else "between"


def _load_figures(made: LoadPass | None) -> LoadFigures | None:
    if made is None:
        return None
    result, meters = made.result, made.meters
    return LoadFigures(
        requests=result.requests,
        throughput_per_s=result.throughput_per_s,
        rate_per_s=result.rate_per_s,
        latency=_latency(result.latency_s),
        service=_latency(result.service_s),
        failures=result.failures,
        failure_messages=tuple(result.failure_messages),
        in_flight=result.in_flight,
        missed=result.missed,
        repeats=result.repeats,
        cpu_s=made.cpu_s_per_request,
        worker_cpu_s=_per_request(meters.worker_cpu_s, result),
        backend_cpu_s=_per_request(meters.backend_cpu_s, result),
        peak_pss_bytes=meters.peak_pss_bytes,
    )


def _per_request(total: float | None, result: LoadResult) -> float | None:
    return total / result.requests if total is not None and result.requests else None


def _latency(samples_s: Sequence[float]) -> Latency:
    ordered = sorted(samples_s)
    percentiles = {name: percentile(ordered, share) for name, share in PERCENTILES.items()}
    return Latency(percentiles, curve=cumulative_distribution(ordered))


def _request_counts(made: CountedPass | None) -> RequestCounts | None:
    if made is None or not made.requests:
        return None
    return RequestCounts(
        statements=made.statements / made.requests,
        rows=made.rows / made.requests,
        body_bytes=made.body_bytes / made.requests,
        sql_share=made.sql_s / made.elapsed_s if made.elapsed_s else None,
        gc_share=made.gc_s / made.elapsed_s if made.elapsed_s else None,
    )
