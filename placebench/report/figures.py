"""What the page, the table and the JSON of a run say, computed from its raw records once.

The key piece is `figures_of`. Where the variants do not answer alike, or were not asked, there are no figures: no speed
of theirs can reach a page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placebench.experiment.documents import SameResponsesDocument
from placebench.experiment.records import CountedPass, LoadPass, LoadResult
from placebench.page.charts import Role
from placebench.report.comparisons import ALWAYS, Tried, comparisons_of, tried
from placebench.results import Run
from placebench.stats import PRIMARY, Comparison, compare_blocks, cumulative_distribution, percentile
from placebench.stats.replicates import valid_replicates

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class Answers:
    """Whether the variants gave the same answer, and what it was."""

    checked: tuple[str, ...]
    equal: bool | None
    """None: nobody was asked before the run ended."""
    allocation_requests: int | None
    provider_summaries: int | None
    digest: str | None
    difference: str | None


@dataclass(frozen=True)
class Latency:
    """The latencies of one load pass."""

    quantiles: dict[str, float | None]
    """By name; None where fewer than ten samples lie above."""
    curve: list[tuple[float, float]]


@dataclass(frozen=True)
class Loaded:
    """What one load pass came to."""

    requests: int
    throughput_per_s: float
    rate_per_s: float | None
    latency: Latency
    service: Latency
    """From the moment that a request was really sent."""
    failures: int
    failure_messages: tuple[str, ...]
    in_flight: int
    missed: int
    cpu_s: float | None
    """Server CPU a request, of the service and of PostgreSQL."""
    worker_cpu_s: float | None
    """The part of the service's processes."""
    backend_cpu_s: float | None
    """The part of PostgreSQL's backends."""
    peak_pss_bytes: int | None


@dataclass(frozen=True)
class Counted:
    """What one request does, from the counted pass."""

    statements: float
    rows: float
    body_bytes: float
    sql_share: float | None
    gc_share: float | None


@dataclass(frozen=True)
class Rung:
    """One variant on the ladder, with what was measured of it."""

    variant: str
    label: str
    """Short: what it adds to the rung before; the ends of the ladder by their names."""
    role: Role
    adds: str
    why: str
    source: str
    shows_on: str
    """The request on which what it adds should show; empty where nothing is added."""
    shows_in: str
    """And the metric."""
    closed: Loaded | None
    open: Loaded | None
    counted: Counted | None
    profile: str | None
    """File name in the run's folder."""
    speedscope: str | None


@dataclass(frozen=True)
class Walls:
    """The requests of one variant in the blocks of the replicates that count."""

    variant: str
    role: Role
    wall_s: list[float]
    """Ascending."""
    latency: Latency


@dataclass(frozen=True)
class Figures:
    """Everything that is said about a run."""

    run: Run
    answers: Answers
    rungs: tuple[Rung, ...]
    comparisons: tuple[Comparison, ...]
    walls: tuple[Walls, ...]
    """In the order that the variants were named."""
    tried: tuple[Tried, ...]
    """What stands for each pair that is compared."""
    ends: Comparison | None
    """All changes together by the primary metric: a ladder's last rung against its first, tuned against naive."""

    @property
    def names(self) -> dict[tuple[str, str], str]:
        """A short name for each pair of baseline and variant."""
        return {(each.baseline, each.variant): each.label for each in self.tried}

    @property
    def changes(self) -> bool:
        """Whether the pairs are the trials of an experiment, each with a baseline of its own."""
        return any(each.kind for each in self.tried)

    @property
    def primaries(self) -> tuple[Comparison, ...]:
        """Of each variant, the comparison by the primary metric."""
        metric = self.primary.metric if self.primary else ""
        return tuple(each for each in self.comparisons if each.metric == metric)

    @property
    def loaded(self) -> bool:
        """Whether any variant was loaded by itself, as on the ladder."""
        return any(rung.closed or rung.open for rung in self.rungs)

    @property
    def primary(self) -> Comparison | None:
        """The comparison that the first sentence speaks of: by server CPU where any pair has it, else by wall time."""
        measured = [each for each in self.comparisons if each.measured]
        return next((each for metric in ALWAYS for each in measured if each.metric == metric), None)

    @property
    def replicates(self) -> int:
        """How many replicates count."""
        return len(valid_replicates(self.run.blocks))

    @property
    def invalidated(self) -> int:
        """How many were thrown away by a rule set before the run."""
        return len({block.replicate for block in self.run.blocks}) - self.replicates


def figures_of(run: Run) -> Figures:
    """Reduce the records of *run*; one sort of the samples a load pass, the rest is cheap."""
    answers = _answers(run.head.same_responses)
    variants = run.head.variants if answers.equal else []
    return Figures(
        run=run,
        answers=answers,
        rungs=tuple(_rung(run, variant) for variant in variants),
        comparisons=tuple(comparisons_of(run)) if variants else (),
        walls=tuple(_walls(run)) if variants else (),
        tried=tuple(tried(run)) if variants else (),
        ends=_ends(run) if variants else None,
    )


def _ends(run: Run) -> Comparison | None:
    """All changes together; None for a run that has no two such ends, or no replicates."""
    names = _end_names(run)
    if names is None:
        return None
    confidence = float(run.head.settings.get("confidence", 0.95))
    made = compare_blocks(run.blocks, *names, PRIMARY, confidence=confidence)
    return made if made.measured else None


def _end_names(run: Run) -> tuple[str, str] | None:
    """The variant without any of the changes of an experiment, and that with all; None where there are no such two."""
    trials = run.head.settings.get("trials", ())
    first = {each["kind"]: each["baseline"] for each in reversed(trials)}
    last = {each["kind"]: each["variant"] for each in trials}
    begin, end = ("step", "step") if "step" in first else ("alone", "leave_one_out")
    return (first[begin], last[end]) if begin in first and end in last else None


def _answers(checked: SameResponsesDocument) -> Answers:
    return Answers(
        checked=tuple(checked.get("checked", ())),
        equal=checked.get("equal"),
        allocation_requests=checked.get("allocation_requests"),
        provider_summaries=checked.get("provider_summaries"),
        digest=checked.get("digest"),
        difference=checked.get("difference"),
    )


def _rung(run: Run, variant: str) -> Rung:
    said = run.head.settings.get("steps", {}).get(variant, {})
    role = _role(run, variant)
    adds = str(said.get("adds") or "")
    return Rung(
        variant=variant,
        label=f"+ {adds}" if adds and "+" in variant else variant,
        role=role,
        adds=adds,
        why=str(said.get("why") or ""),
        source=str(said.get("source") or ""),
        shows_on=str(said.get("shows_on") or ""),
        shows_in=str(said.get("shows_in") or ""),
        closed=_loaded(run.closed.get(variant)),
        open=_loaded(run.open.get(variant)),
        counted=_counted(run.counted.get(variant)),
        profile=path.name if (path := run.profile(variant)) else None,
        speedscope=path.name if (path := run.speedscope(variant)) else None,
    )


def _walls(run: Run) -> Iterator[Walls]:
    invalid = {block.replicate for block in run.blocks if block.invalid}
    seen: dict[str, list[float]] = {}
    for block in run.blocks:
        if block.replicate not in invalid:
            seen.setdefault(block.variant, []).extend(block.wall_s)
    for variant in run.head.variants:
        if wall_s := sorted(seen.get(variant, ())):
            yield Walls(variant, _role(run, variant), wall_s, _latency(wall_s))


def _role(run: Run, variant: str) -> Role:
    """Of an experiment its end is judged, of other runs the last that was named."""
    if variant == run.head.variants[0]:
        return "baseline"
    ends = _end_names(run)
    return "variant" if variant == (ends[1] if ends else run.head.variants[-1]) else "between"


def _loaded(made: LoadPass | None) -> Loaded | None:
    if made is None:
        return None
    result, meters = made.result, made.meters
    return Loaded(
        requests=result.requests,
        throughput_per_s=result.throughput_per_s,
        rate_per_s=result.rate_per_s,
        latency=_latency(result.latency_s),
        service=_latency(result.service_s),
        failures=result.failures,
        failure_messages=tuple(result.failure_messages),
        in_flight=result.in_flight,
        missed=result.missed,
        cpu_s=made.cpu_s_per_request,
        worker_cpu_s=_each(meters.worker_cpu_s, result),
        backend_cpu_s=_each(meters.backend_cpu_s, result),
        peak_pss_bytes=meters.peak_pss_bytes,
    )


def _each(total: float | None, result: LoadResult) -> float | None:
    return total / result.requests if total is not None and result.requests else None


def _latency(samples_s: Sequence[float]) -> Latency:
    ordered = sorted(samples_s)
    return Latency(
        quantiles={name: percentile(ordered, share) for name, share in QUANTILES.items()},
        curve=cumulative_distribution(ordered),
    )


def _counted(made: CountedPass | None) -> Counted | None:
    if made is None or not made.requests:
        return None
    return Counted(
        statements=made.statements / made.requests,
        rows=made.rows / made.requests,
        body_bytes=made.body_bytes / made.requests,
        sql_share=made.sql_s / made.elapsed_s if made.elapsed_s else None,
        gc_share=made.gc_s / made.elapsed_s if made.elapsed_s else None,
    )
