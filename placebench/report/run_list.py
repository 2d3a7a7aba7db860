"""The folder where runs land: a page that lists them, newest first, and the link to the newest.

The key piece is `write_index`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from placebench import units
from placebench.errors import RunFolderError
from placebench.experiment.capacity import Saturation
from placebench.experiment.records import RunHead
from placebench.page import description_of, shell
from placebench.report import sentences
from placebench.report.templating import templates, write_page

LATEST = "latest"


@dataclass(frozen=True)
class ListedRun:
    """One run in the list."""

    name: str
    started_at: str
    status: str
    headline: str
    about: str
    page: str | None
    """Where its page is, from the list; None before it was written."""


def write_index(profiles_folder: Path) -> Path:
    """Write `index.html` in *profiles_folder* and point `latest` to its newest run; returns the page's path.

    An `index.html` or a `latest` that is not ours stays as it is. A run that cannot be read is listed with the reason.
    """
    runs = listed_runs(profiles_folder)
    readable = [run for run in runs if run.started_at and (profiles_folder / run.name / "run.json").is_file()]
    if readable:
        _point(profiles_folder / LATEST, readable[0].name)
    path = profiles_folder / "index.html"
    if path.exists() and description_of(path) is None:
        return path
    body = templates().get_template("index.html").render(runs=runs, sentences=sentences)
    return write_page(path, shell("Runs · placebench", Markup(body)))


def listed_runs(folder: Path) -> list[ListedRun]:
    """The runs in *folder*, newest first."""
    return sorted(_runs(folder), key=lambda run: (run.started_at, run.name), reverse=True)


def _runs(folder: Path) -> Iterator[ListedRun]:
    for path in sorted(folder.glob("*/run.json")):
        if not path.parent.is_symlink():
            yield _listed(path.parent)
    for path in sorted(folder.glob("*/saturation.json")):
        if not path.parent.is_symlink():
            yield _searched(path.parent)


def _searched(folder: Path) -> ListedRun:
    """A search for what a service takes."""
    headline = description_of(folder / "index.html")
    page = None if headline is None else f"{folder.name}/index.html"
    try:
        made = Saturation.load(folder / "saturation.json")
    except RunFolderError as error:
        return ListedRun(folder.name, "", "unreadable", headline or "", about=str(error), page=page)
    about = f"{made.url}, {units.count(len(made.steps))} steps"
    return ListedRun(folder.name, made.started_at, made.status, headline or "", about, page)


def _listed(folder: Path) -> ListedRun:
    headline = description_of(folder / "index.html")
    page = None if headline is None else f"{folder.name}/index.html"
    try:
        head = RunHead.load(folder / "run.json")
    except RunFolderError as error:
        return ListedRun(folder.name, "", "unreadable", headline or "", about=str(error), page=page)
    about = f"{head.topology}, {units.count(head.trees)} trees: {_ladder(head.variants)}"
    return ListedRun(folder.name, head.started_at, head.status, headline or "", about, page)


def _ladder(variants: Sequence[str]) -> str:
    """The variants by name while they are few, else how many lie between the ends."""
    return ", ".join(variants) if len(variants) < 4 else f"{len(variants)} variants, {variants[0]} to {variants[-1]}"


def _point(link: Path, name: str) -> None:
    """Make *link* lead to the folder *name* beside it, in one step."""
    if link.exists() and not link.is_symlink():
        return
    fresh = link.with_name(f".{link.name}.partial")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(name, target_is_directory=True)
    fresh.replace(link)
