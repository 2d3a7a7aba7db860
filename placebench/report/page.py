"""The page of a run: figures, sentences and charts laid out as one self-contained HTML file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from placebench import results, units
from placebench.experiment.records import WatchedPass
from placebench.experiment.replicate import harness_share
from placebench.experiment.validity import describe
from placebench.page import shell
from placebench.report import sentences
from placebench.report.calibration import calibrated
from placebench.report.charts import drawings_of, frames_drawing, replicated
from placebench.report.comparisons import variant_shortened
from placebench.report.environment import manifest
from placebench.report.figures import QUANTILES, Figures, Loaded, Rung, figures_of
from placebench.report.headline import below_it, headline
from placebench.report.optimizations import claims_of, in_words, interactions_of, ledger_of
from placebench.report.studies import is_survey
from placebench.report.studies.page import render as render_survey
from placebench.report.templating import templates, write_page
from placebench.report.variant_pairs import flames_of, pairs_of
from placebench.results import Run
from placebench.stats import samples_needed


def write_report(run_folder: Path | str | Run) -> Path:
    """Write `index.html` of the run, given or in a folder, and return its path; what was not measured is said.

    A run of a million samples takes 1.5 s of CPU and 200 MiB (`tox -e bench -- report`). Raises RunFolderError where
    there is no run, or one of a newer format.
    """
    run = run_folder if isinstance(run_folder, Run) else results.load(run_folder)
    document = render_survey(run) if is_survey(run) else render(figures_of(run))
    return write_page(run.folder / "index.html", document)


def render(figures: Figures) -> str:
    """The whole document."""
    head, sentence = figures.run.head, headline(figures)
    ledger = ledger_of(figures.run, figures.comparisons)
    body = (
        templates()
        .get_template("run.html")
        .render(
            figures=figures,
            head=head,
            headline=sentence,
            below=below_it(figures),
            ledger=ledger,
            interactions=in_words(figures.run, interactions_of(figures.run)),
            claims=list(claims_of(figures.run, ledger)),
            sentences=sentences,
            charts=drawings_of(figures),
            compared=compared(figures),
            contrasted=contrasted(figures),
            contrasts=contrasts(figures),
            method=method(figures),
            troubles=troubles(figures),
            pairs=[(pair, frames_drawing(pair)) for pair in pairs_of(figures.run, figures.comparisons)],
            flames=flames_of(figures.run) if figures.rungs else (),
            discarded=discarded(figures),
            calibrated=calibrated(head),
            manifest=manifest(head),
            explained=[rung for rung in figures.rungs if rung.why],
            opened=[rung for rung in figures.rungs if rung.open],
            replicated=replicated(figures),
            quantiles=list(QUANTILES),
            quantile_note=_quantile_note(),
        )
    )
    return shell(f"{head.name} · placebench", Markup(body), description=sentence)


def _quantile_note() -> str:
    needed = ", ".join(f"{name} takes {units.count(samples_needed(share))}" for name, share in QUANTILES.items())
    return f"A quantile is shown only where ten requests were slower: {needed} requests."


@dataclass(frozen=True)
class Contrast:
    """One figure of two variants, side by side."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Trouble:
    """A load pass in which requests failed, or were started late by the load generator itself."""

    rung: Rung
    kind: str
    load: Loaded


def contrasted(figures: Figures) -> tuple[str, str] | None:
    """The two variants that the first lines speak of: the ends of an experiment, or the only pair; None of several."""
    if figures.ends:
        return figures.ends.baseline, figures.ends.variant
    return (figures.tried[0].baseline, figures.tried[0].variant) if len(figures.tried) == 1 else None


def compared(figures: Figures) -> str:
    """What is held against what, as the heading of its section."""
    pairs, variants = figures.tried, figures.run.head.variants
    if len(pairs) > 1 and figures.changes:
        return "The changes, each with and without"
    ends = (pairs[0].baseline, pairs[0].variant) if pairs else (variants[0], variants[-1])
    baseline, variant = (variant_shortened(name, variants) for name in ends)
    several = f"{units.count(len(pairs))} variants against {baseline}"
    return several if len(pairs) > 1 else f"{baseline} against {variant}"


def contrasts(figures: Figures) -> list[Contrast]:
    """What changed between the two variants of `contrasted`, figure by figure; only what was measured of both."""
    pair = contrasted(figures)
    if pair is None:
        return []
    rungs = {rung.variant: rung for rung in figures.rungs}
    first, last = (rungs[variant] for variant in pair)
    made: list[Contrast] = []
    if first.closed and last.closed:
        made += _load_contrasts(first.closed, last.closed)
    if first.counted and last.counted:
        before, after = first.counted.statements, last.counted.statements
        made.append(Contrast("statements per request", units.average(before), units.average(after)))
    return made


def _load_contrasts(first: Loaded, last: Loaded) -> Iterator[Contrast]:
    if first.cpu_s is not None and last.cpu_s is not None:
        yield Contrast("server CPU per request", units.duration(first.cpu_s), units.duration(last.cpu_s))
    yield Contrast("throughput", units.rate(first.throughput_per_s), units.rate(last.throughput_per_s))
    before, after = first.latency.quantiles["p50"], last.latency.quantiles["p50"]
    if before is not None and after is not None:
        yield Contrast("median latency", units.duration(before), units.duration(after))


def method(figures: Figures) -> list[str]:
    """The settings of the passes as sentences; those that the run does not name are left out."""
    settings = figures.run.head.settings
    sentences = (
        (("processes", "threads"), "The service ran as {processes} processes with {threads} threads each."),
        (("users", "closed_s"), "Closed load: {users} users for {closed_s:g} s a variant."),
        (("open_s",), "Open load: {open_s:g} s a variant, seeded arrivals at half the slowest variant's throughput."),
        (("counted_requests",), "Counted pass: {counted_requests} requests a variant."),
        (("profiled_requests",), "Profiled pass: {profiled_requests} requests, merged into one flame."),
        (
            ("replicates", "rounds", "block_s"),
            "Comparison: {replicates} replicates of {rounds} rounds, in blocks of about {block_s:g} s.",
        ),
    )
    told = [said.format_map(settings) for needed, said in sentences if all(name in settings for name in needed)]
    rules = [describe(settings["rules"])] if "rules" in settings else []
    return [*told, *rules, *_estimated(figures.run.watched), *_spent(figures.run.head.spent_s)]


def _estimated(watched: Mapping[str, WatchedPass]) -> list[str]:
    """What the profiled passes had to estimate, with the variants that it is true of."""
    variants: dict[str, list[str]] = {}
    for variant, each in watched.items():
        for note in each.notes:
            variants.setdefault(note, []).append(variant)
    return [f"Profile of {', '.join(names)}: {note}." for note, names in variants.items()]


def _spent(spent_s: Mapping[str, float]) -> list[str]:
    """Where the time of the replicates went."""
    share = harness_share(spent_s)
    if share is None:
        return []
    parts = ", ".join(
        f"{units.percent(spent_s.get(name, 0.0) / spent_s['replicates'], digits=2)} {what}"
        for name, what in (("requests", "in requests"), ("start", "in starts and warm-up"), ("stop", "in stops"))
    )
    return [
        f"Of {units.duration(spent_s['replicates'])} of replicates: {parts}, {units.percent(share, digits=2)} ours."
    ]


def troubles(figures: Figures) -> list[Trouble]:
    """The load passes whose figures a reader has to doubt; empty for a clean run."""
    passes = [
        Trouble(rung, kind, load)
        for rung in figures.rungs
        for kind, load in (("closed", rung.closed), ("open", rung.open))
        if load
    ]
    return [each for each in passes if each.load.failures or each.load.missed]


def discarded(figures: Figures) -> list[tuple[int, str]]:
    """Number, from 1, and first reason of each replicate that does not count."""
    reasons: dict[int, str] = {}
    for block in figures.run.blocks if figures.rungs else ():
        if block.invalid:
            reasons.setdefault(block.replicate + 1, f"{block.variant}: {block.invalid}")
    return sorted(reasons.items())
