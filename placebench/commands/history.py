"""`placebench history`: the ratio of each commit to a pinned reference, recorded over time."""

import csv
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.output import emit, say, terminal_width
from placebench.errors import (
    GateFailedError,
    HistoryError,
    LoadError,
    PlacebenchError,
    ServerError,
    UndecidedError,
    UsageError,
    VariantError,
)
from placebench.stats import COUNTED, METRICS

if TYPE_CHECKING:
    from placebench.compare.what.trials import Experiment
    from placebench.history import Failure, History, HistoryEntry, Series
    from placebench.history.commits import Commit
    from placebench.results import Run
    from placebench.stats import Comparison

_FILE = Path("placebench-history.jsonl")
_METRICS = ("cpu_s", "statements")
_COMMIT_ERRORS = (ServerError, LoadError, GateFailedError, VariantError)
"""Errors that prevent the measurement of one commit but not of the others."""


@dataclass(frozen=True)
class MeasurementOptions:
    """The options with which `placebench history add` and `backfill` measure commits."""

    comparison: options.ComparisonOptions
    requests: options.RequestOptions
    plan: Path | None
    reference: str | None
    file: Path


@dataclass(frozen=True)
class AddOptions:
    """The options of `placebench history add`."""

    measurement: MeasurementOptions
    revision: str


@dataclass(frozen=True)
class BackfillOptions:
    """The options of `placebench history backfill`."""

    measurement: MeasurementOptions
    revisions: str
    every: int
    retry: bool


@dataclass(frozen=True)
class SeriesOptions:
    """The options for the history file and the metrics that a command reads."""

    file: Path
    metric: tuple[str, ...] | None


@dataclass(frozen=True)
class HistoryShowOptions:
    """The options of `placebench history show`."""

    output: options.OutputOptions
    series: SeriesOptions
    csv: Path | None
    out: Path | None


@dataclass(frozen=True)
class CheckOptions:
    """The options of `placebench history check`."""

    output: options.OutputOptions
    series: SeriesOptions


@dataclass(frozen=True)
class BlessOptions:
    """The options of `placebench history bless`."""

    output: options.OutputOptions
    series: SeriesOptions
    revision: str
    reason: str


def _configure_add(parser: ArgumentParser) -> None:
    parser.add_argument("revision", nargs="?", default="HEAD", metavar="REVISION", help="git revision (default: HEAD)")
    parser.add_argument(
        "--reference",
        type=options.text,
        metavar="REVISION",
        help="git revision that commits are compared with, such as a tag (default: that of the newest entry); where it "
        "is another one, that is measured too, which links the two",
    )
    _add_measurement(parser)


def _configure_backfill(parser: ArgumentParser) -> None:
    parser.add_argument("revisions", metavar="RANGE", help="git range, such as v1.0..HEAD; merged branches count once")
    parser.add_argument(
        "--reference",
        type=options.text,
        metavar="REVISION",
        help="git revision that commits are compared with (default: that of the newest entry)",
    )
    parser.add_argument(
        "--every",
        type=options.whole(1, 1_000_000),
        default=1,
        metavar="N",
        help="measure every Nth commit of the range, the newest among them (default: 1)",
    )
    parser.add_argument(
        "--retry", action="store_true", help="measure those commits again too that could not be measured before"
    )
    _add_measurement(parser)


def _configure_show(parser: ArgumentParser) -> None:
    _add_metrics(parser)
    parser.add_argument(
        "--csv", type=options.path, metavar="FILE", help="write the series as CSV too, as Apache Otava reads it"
    )
    options.add_out(parser, "page to write (default: the history's name with .html)", metavar="FILE")
    _add_file(parser)
    options.add_output(parser, markdown=True, page=True)


def _configure_check(parser: ArgumentParser) -> None:
    _add_metrics(parser)
    _add_file(parser)
    options.add_output(parser, markdown=True)


def _configure_bless(parser: ArgumentParser) -> None:
    parser.add_argument("revision", metavar="REVISION", help="a commit that the step may have come with")
    parser.add_argument("--reason", type=options.text, required=True, metavar="TEXT", help="why the step is accepted")
    _add_metrics(parser)
    _add_file(parser)
    options.add_output(parser)


def _add_measurement(parser: ArgumentParser) -> None:
    options.add_plan(parser)
    options.add_replicates(parser, "the plan's, or 12; with --sequential the most: 100")
    options.add_sequential(parser)
    options.add_requests(parser, default="the plan's")
    options.add_login(parser)
    options.add_data(parser, plan="plan", requests=False)
    options.add_rounds(parser, "the plan's, or 24")
    options.add_server(parser)
    options.add_host(parser)
    _add_file(parser)
    options.add_output(parser)


def _add_metrics(parser: ArgumentParser) -> None:
    names = (*METRICS, *COUNTED)
    parser.add_argument(
        "--metric",
        action="append",
        choices=names,
        metavar="METRIC",
        help=f"one of {', '.join(names)}; may be repeated (default: {' and '.join(_METRICS)})",
    )


def _add_file(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--file", type=options.path, default=_FILE, metavar="FILE", help=f"the history, kept in git (default: {_FILE})"
    )


def _add(given: AddOptions) -> int:
    """Measure one commit against the reference, and append the result to the history."""
    from placebench.history import History, append_lines
    from placebench.history.commits import find_commit

    measurement = given.measurement
    plan, history = _plan(measurement), History.read(measurement.file)
    commit = find_commit(plan.tables.folder, given.revision)
    name, reference = _reference(measurement, history, plan)
    earlier = history.reference.reference if history.reference else reference.hash
    linked = [find_commit(plan.tables.folder, earlier)] if earlier != reference.hash else []
    entries = _measure(measurement, plan, name, [reference, *linked, commit])
    append_lines(measurement.file, entries)
    _emit_entries(measurement.comparison.output, entries)
    return 0


def _backfill(given: BackfillOptions) -> int:
    """Measure the commits of a range that the history lacks; a commit that cannot be measured is recorded too."""
    from placebench.history import Failure, History, append_lines
    from placebench.history.commits import commits_between, contents_of

    measurement = given.measurement
    plan, history = _plan(measurement), History.read(measurement.file)
    name, reference = _reference(measurement, history, plan)
    wanted = commits_between(plan.tables.folder, given.revisions)[:: -given.every][::-1]
    hashes = [each.hash for each in wanted]
    measured = history.moved(contents_of(plan.tables.folder, hashes, without=measurement.file)).entries
    known = {reference.hash, *(each.commit for each in measured)}
    unknown = [each for each in wanted if each.hash not in known]
    failed = {} if given.retry else {each.commit: each for each in history.failures}
    skipped = [failed[each.hash] for each in unknown if each.hash in failed]
    missing = [each for each in unknown if each.hash not in failed]
    made: list[HistoryEntry | Failure] = []
    for number, commit in enumerate(missing, start=1):
        say(f"commit {number} of {len(missing)}: {commit.short} {commit.subject}")
        try:
            lines: Sequence[HistoryEntry | Failure] = _measure(measurement, plan, name, [reference, commit])
        except _COMMIT_ERRORS as error:
            say(f"{commit.short} cannot be measured: {error}")
            lines = [
                Failure(
                    commit=commit.hash,
                    subject=commit.subject,
                    reference=reference.hash,
                    measured_at=_now(),
                    reason=" ".join(str(error).split()),
                )
            ]
        append_lines(measurement.file, lines)
        made.extend(lines)
    _emit_entries(measurement.comparison.output, made, skipped)
    return 0


def _show(given: HistoryShowOptions) -> int:
    """Show the series with their steps, and write the page of the history."""
    from placebench.history.commits import is_shallow
    from placebench.page import description_of
    from placebench.report.history import history_report
    from placebench.report.renderers import render_html, render_markdown, render_text, write_page

    history, _, series = _series(given.series)
    path = given.series.file.resolve()
    report = history_report(path, history, series, shallow=is_shallow(path.parent))
    page = given.out or given.series.file.with_suffix(".html")
    if not given.out and page.exists() and description_of(page) is None:
        raise PlacebenchError(f"{page} is there and was not written by placebench: name another page with --out")
    write_page(page, render_html(report))
    if given.csv:
        _write_csv(given.csv, history, series)
    emit(
        given.output,
        text=lambda: render_text(report, width=terminal_width()),
        document=lambda: report.document,
        markdown=lambda: render_markdown(report),
        page=page,
    )
    return 0


def _check(given: CheckOptions) -> int:
    """Report regressions that nobody has accepted; exit code 1 if there are any.

    Measurements of commits that are not in the history of HEAD are named and left out. Raises UndecidedError if a
    metric has no measurement left, and HistoryError if measurements are left out because the clone is shallow.
    """
    from placebench import units
    from placebench.history.commits import is_shallow
    from placebench.report.history import (
        MIN_POINTS,
        history_report,
        left_out_sentences,
        step_sentence,
        unmerged_sentence,
    )
    from placebench.report.renderers import render_markdown

    history, _, series = _series(given.series)
    left_out = {entry.commit for each in series for entry in each.left_out}
    if left_out and is_shallow(given.series.file.resolve().parent):
        raise HistoryError(
            f"HEAD does not have {units.numbered(len(left_out), 'commit')} that {given.series.file} has measured, "
            "for this clone is shallow: `git fetch --unshallow` (actions/checkout: fetch-depth: 0)"
        )
    report = history_report(given.series.file.resolve(), history, series)
    found = [step_sentence(each, step) for each in series for step in each.regressions]
    emit(
        given.output,
        text=lambda: "\n".join([report.headline, *found, *left_out_sentences(series)]),
        document=lambda: report.document,
        markdown=lambda: render_markdown(report),
    )
    if found:
        return GateFailedError.exit_code
    if missing := next((sentence for each in series if (sentence := unmerged_sentence(each))), None):
        raise UndecidedError(f"inconclusive: {missing}")
    if unknown := next((each for each in series if len(each.points) < MIN_POINTS), None):
        where, missing = "", "a count" if unknown.metric in COUNTED else "an interval"
        remedy = "is there a database?" if unknown.metric in COUNTED else "measure with -n 8 or more"
        if unknown.left_out:
            where, remedy = " in the history of HEAD", "measure its commits with `placebench history backfill`"
        if unknown.points:
            remedy = "a step needs two, or the reference in the history of HEAD"
        count = "only one" if unknown.points else "no"
        raise UndecidedError(f"inconclusive: {count} commit{where} has {missing} of {unknown.metric}: {remedy}")
    return 0


def _bless(given: BlessOptions) -> int:
    """Accept the steps that may have been caused by a commit."""
    from placebench.history import Blessing, append_lines
    from placebench.history.commits import find_commit
    from placebench.report.history import step_sentence

    _, order, series = _series(given.series)
    repository = Path() if order is None else given.series.file.resolve().parent
    commit = find_commit(repository, given.revision).hash
    accepted = [(each, step) for each in series for step in each.steps if commit in step.commits]
    if not accepted:
        steps = "; ".join(step_sentence(each, step) for each in series for step in each.steps) or "none"
        raise UsageError(f"{commit[:12]} brings no step; the steps are: {steps}")
    now = _now()
    lines = [Blessing(commit=commit, metric=each.metric, reason=given.reason, blessed_at=now) for each, _ in accepted]
    append_lines(given.series.file, lines)
    emit(
        given.output,
        text=lambda: "\n".join(f"accepted: {step_sentence(*each)}" for each in accepted),
        document=lambda: {"accepted": [{"metric": each.metric, "until": step.until} for each, step in accepted]},
    )
    return 0


def _plan(given: MeasurementOptions) -> "Experiment":
    from placebench.compare.what.trials import read_plan

    plan = read_plan(given.plan)
    if plan.tables.app is None:
        where = given.plan or "[tool.placebench] of ./pyproject.toml"
        raise UsageError(f"a history needs the application: no table app in {where}, see docs/howto/history.md")
    return plan


def _reference(given: MeasurementOptions, history: "History", plan: "Experiment") -> "tuple[str, Commit]":
    from placebench.history.commits import Commit, find_commit

    if given.reference:
        return given.reference, find_commit(plan.tables.folder, given.reference)
    if history.reference is None:
        raise UsageError(f"{given.file} has no reference yet: pin one with --reference, such as a tag")
    return history.reference.reference_name, Commit(history.reference.reference, "")


def _measure(
    given: MeasurementOptions, plan: "Experiment", name: str, commits: "Sequence[Commit]"
) -> "list[HistoryEntry]":
    """Compare the first of *commits*, the reference, with each of the other commits in one run."""
    from placebench import results
    from placebench.commands.runs import compare_plan
    from placebench.history.commits import contents_of
    from placebench.report import comparisons_of

    reference, *others = dict.fromkeys(commits)
    if not others:
        raise UsageError(f"{reference.short} is the reference itself: name another revision")
    measured = replace(plan, name="history", variants=tuple(each.short for each in (reference, *others)), trials=())
    folder = compare_plan(
        given.comparison,
        measured,
        requests=given.requests.requests(),
        login=given.requests.logins(),
        emit=lambda _: None,
    )
    run = results.load(folder)
    comparisons = comparisons_of(run)
    hashes = [each.hash for each in others]
    contents = contents_of(plan.tables.folder, hashes, without=given.file)
    return [
        _entry(
            commit,
            reference,
            name,
            run,
            [each for each in comparisons if each.variant == commit.short],
            contents.get(commit.hash),
        )
        for commit in others
    ]


def _entry(
    commit: "Commit",
    reference: "Commit",
    name: str,
    run: "Run",
    comparisons: "Sequence[Comparison]",
    content: str | None,
) -> "HistoryEntry":
    from placebench.history import HistoryEntry, Measured
    from placebench.history.series import MARGINS

    manifest = run.head.manifest
    machine, database = manifest["machine"], manifest.get("postgresql") or {}
    return HistoryEntry(
        commit=commit.hash,
        subject=commit.subject,
        reference=reference.hash,
        reference_name=name,
        measured_at=_now(),
        request=run.head.request,
        metrics={
            each.metric: Measured(
                ratio=each.ratio,
                low=each.low,
                high=each.high,
                confidence=each.level,
                replicates=each.replicates,
                baseline_value=each.baseline_value,
                variant_value=each.variant_value,
            )
            for each in comparisons
            if each.metric in MARGINS
        },
        machine={key: machine[key] for key in ("processor", "architecture", "cores")},
        versions={
            "placebench": manifest["placebench"],
            "python": manifest["python"]["version"],
            **({"postgresql": database["version"]} if "version" in database else {}),
            **manifest["packages"],
        },
        content=content,
    )


def _series(given: SeriesOptions) -> "tuple[History, list[str] | None, list[Series]]":
    """Return the history, the ancestors of HEAD (None outside a repository), and the series of each metric.

    Lines of commits that HEAD does not have are those of its commits with the same files, if there are any.
    """
    from placebench.history import History, series_of
    from placebench.history.commits import ancestors, contained_in, contents_of

    if not given.file.is_file():
        raise HistoryError(f"no history {given.file}: `placebench history add --reference TAG` begins one")
    history = History.read(given.file)
    folder = given.file.resolve().parent
    order = ancestors(folder)
    known = set(order or ())
    if order and any(each.commit not in known and each.content for each in history.entries):
        history = history.moved(contents_of(folder, order, without=given.file))
    measured = chain.from_iterable((each.reference, each.commit) for each in history.entries)
    contained = contained_in(folder, measured) if order else None
    metrics = given.metric or _METRICS
    return history, order, [series_of(history, metric, order=order, contained=contained) for metric in metrics]


def _write_csv(path: Path, history: "History", series: "Sequence[Series]") -> None:
    """Write one row per commit: the time of its measurement, its hash, and the ratio of each metric."""
    from placebench.history import all_points

    dates = {each.commit: each.measured_at for each in history.entries}
    ratios = [{point.commit: point.interval[0] for point in each.points} for each in series]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "commit", *(each.metric for each in series)])
        for point in all_points(series):
            writer.writerow([dates[point.commit], point.commit, *(each.get(point.commit, "") for each in ratios)])


def _emit_entries(
    output: options.OutputOptions, made: "Sequence[HistoryEntry | Failure]", skipped: "Sequence[Failure]" = ()
) -> None:
    from msgspec import to_builtins

    from placebench import units
    from placebench.history import HistoryEntry
    from placebench.report.effects import METRIC_LABELS, written_effect

    def line(each: "HistoryEntry | Failure") -> str:
        if not isinstance(each, HistoryEntry):
            return f"{each.commit[:12]}  not measured: {each.reason}"
        cpu = each.metrics.get("cpu_s")
        statements = each.metrics.get("statements")
        if statements is None:
            effect = "neither CPU nor statements measured"
        elif statements.baseline_value == statements.variant_value:
            effect = "no change in statements"
        elif statements.ratio:
            effect = f"{units.signed_percent(statements.ratio)} statements"
        else:
            effect = (
                f"{units.average(statements.baseline_value)} → {units.average(statements.variant_value)} statements"
            )
        if cpu and cpu.ratio:
            effect = written_effect(
                cpu.ratio,
                cpu.low,
                cpu.high,
                of=METRIC_LABELS["cpu_s"],
                confidence=cpu.confidence,
                n=cpu.replicates,
                is_time=True,
            )
        return f"{each.commit[:12]}  {effect} against {each.reference_name}  {each.subject}"

    emit(
        output,
        text=lambda: (
            "\n".join([*(f"{line(each)} (--retry measures it again)" for each in skipped), *map(line, made)])
            or "nothing is missing"
        ),
        document=lambda: {"entries": [to_builtins(each) for each in made]},
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


COMMANDS: dict[str, Command[Any]] = {
    "history add": Command(_configure_add, _add, options=AddOptions, needs_linux=STARTS_SERVERS),
    "history show": Command(_configure_show, _show, options=HistoryShowOptions),
    "history check": Command(_configure_check, _check, options=CheckOptions),
    "history bless": Command(_configure_bless, _bless, options=BlessOptions),
    "history backfill": Command(_configure_backfill, _backfill, options=BackfillOptions, needs_linux=STARTS_SERVERS),
}
