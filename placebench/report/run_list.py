"""The folder where runs are kept: a page that lists them, newest first, and the link to the newest: `write_index`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from placebench import units
from placebench.compare.keep.records import RunHead
from placebench.errors import RunFolderError
from placebench.page import description_of
from placebench.report.environment import data_text
from placebench.report.renderers import render_page, write_page

_LATEST = "latest"


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

    An `index.html` or a `latest` that placebench did not make stays as it is. A run that cannot be read is listed with
    the reason.
    """
    runs = listed_runs(profiles_folder)
    readable = [run for run in runs if run.started_at and (profiles_folder / run.name / "run.json").is_file()]
    if readable:
        _point(profiles_folder / _LATEST, readable[0].name)
    path = profiles_folder / "index.html"
    if path.exists() and description_of(path) is None:
        return path
    return write_page(path, render_page("runs.html", "Runs · placebench", runs=runs))


def listed_runs(folder: Path) -> list[ListedRun]:
    """Return the runs in *folder*, newest first."""
    return sorted(_runs(folder), key=lambda run: (run.started_at, run.name), reverse=True)


def _runs(folder: Path) -> Iterator[ListedRun]:
    for name in ("run.json", "saturation.json"):
        for path in sorted(folder.glob(f"*/{name}")):
            if not path.parent.is_symlink():
                yield _listed(path)


def _listed(path: Path) -> ListedRun:
    """One run, or one search for a service's capacity."""
    folder = path.parent
    headline = description_of(folder / "index.html")
    page = None if headline is None else f"{folder.name}/index.html"
    try:
        started_at, status, about = _head(path) if path.name == "run.json" else _head_of_search(path)
    except RunFolderError as error:
        return ListedRun(folder.name, "", "unreadable", headline or "", about=str(error), page=page)
    return ListedRun(folder.name, started_at, status, headline or "", about, page)


def _head(path: Path) -> tuple[str, str, str]:
    """When a run began, how it ended, and what it is about."""
    made = RunHead.load(path)
    return made.started_at, made.status, f"{data_text(made)}: {_variants(made.variants)}"


def _head_of_search(path: Path) -> tuple[str, str, str]:
    """The same of a search, which is rare: what it takes to read one is loaded then."""
    from placebench.compare.load.load_steps import Saturation

    made = Saturation.load(path)
    return made.started_at, made.status, f"{made.url}, {units.count(len(made.steps))} steps"


def _variants(variants: Sequence[str]) -> str:
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
