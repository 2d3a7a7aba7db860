"""The page of a run: figures, sentences and charts laid out as one self-contained HTML file in the run's folder.

The key piece is `write_report`.
"""

from pathlib import Path

from markupsafe import Markup

from placebench import results, units
from placebench.compare import samples_needed
from placebench.page import shell
from placebench.report import details, words
from placebench.report.calibrated import calibrated
from placebench.report.claims import claims_of
from placebench.report.drawings import drawings_of, frames_drawing
from placebench.report.effects import replicated
from placebench.report.figures import QUANTILES, Figures, figures_of
from placebench.report.headline import below_it, headline
from placebench.report.interactions import in_words, interactions_of
from placebench.report.ledger import ledger_of
from placebench.report.manifest import manifest
from placebench.report.pairs import flames_of, pairs_of
from placebench.report.surveys import is_survey
from placebench.report.surveys.page import render as render_survey
from placebench.report.templating import templates, write_page
from placebench.results import Run


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
            words=words,
            charts=drawings_of(figures),
            compared=details.compared(figures),
            contrasted=details.contrasted(figures),
            contrasts=details.contrasts(figures),
            method=details.method(figures),
            troubles=details.troubles(figures),
            pairs=[(pair, frames_drawing(pair)) for pair in pairs_of(figures.run, figures.comparisons)],
            flames=flames_of(figures.run) if figures.rungs else (),
            discarded=details.discarded(figures),
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
