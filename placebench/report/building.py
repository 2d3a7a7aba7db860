"""The report of a run folder and its files: `build_report`, `write_report` and `export_figures`."""

from collections.abc import Sequence
from pathlib import Path

from placebench import results
from placebench.compare.keep.documents import RUNS
from placebench.errors import RunFolderError
from placebench.gates import Gate
from placebench.report.capacity import capacity_report
from placebench.report.documents import published_document, published_study, published_text
from placebench.report.gates import parse_gates
from placebench.report.model import Report
from placebench.report.renderers import render_html, render_junit, render_markdown, write_page
from placebench.report.run_report import run_report
from placebench.report.study_report import study_report
from placebench.results import Run


def build_report(source: Run | Path | str, gates: Sequence[Gate] = ()) -> Report:
    """Build the report of a run, a study or a capacity search, whether it is complete or not.

    source: a run, or the folder of a run or a capacity search.
    gates: evaluated for each variant of a comparison; by default those that the run was made with.

    Raises:
        RunFolderError: if there is no run, or its format or command is unknown.
    """
    if not isinstance(source, Run):
        if (Path(source) / "saturation.json").is_file():
            return capacity_report(Path(source).resolve())
        source = results.load(source)
    command = source.head.command
    kind = RUNS.get(command)
    if kind is None:
        expected = f"expected one of {', '.join(RUNS.all)}, saw {command!r:.60}"
        raise RunFolderError(f"{source.folder / 'run.json'}: command: {expected}")
    return study_report(source) if kind.results else run_report(source, gates or parse_gates(source.head.gates))


def export_figures(folder: Path) -> str:
    """Return the results of the run or search in *folder* as a JSON document without local paths, for publication."""
    if (folder / "saturation.json").is_file():
        return published_text(build_report(folder).document)
    run = results.load(folder)
    report = build_report(run)
    kind = RUNS.get(run.head.command)
    is_study = kind is not None and kind.results
    return published_text(published_study(run, report.document) if is_study else published_document(run))


def write_report(source: Report | Run | Path | str) -> Path:
    """Write `index.html`, `summary.md` and (with checks) `junit.xml` into the run's folder; return the page's path."""
    report = source if isinstance(source, Report) else build_report(source)
    (report.folder / "summary.md").write_text(render_markdown(report), encoding="utf-8")
    if report.checks:
        (report.folder / "junit.xml").write_bytes(render_junit(report))
    return write_page(report.page, render_html(report))
