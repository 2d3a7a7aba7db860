"""The folder of all runs: a page that lists them, newest first, and a link to the newest one: `write_index`."""

from contextlib import suppress
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
    """One entry of the list: a run or a capacity search."""

    name: str
    started_at: str
    status: str
    headline: str
    about: str
    page: str | None
    """The path of the report's page relative to the list; None if it was not written yet."""


def write_index(profiles_folder: Path) -> Path:
    """Write `index.html` in *profiles_folder* and let `latest` point to its newest run; return the page's path.

    An `index.html` or a `latest` that placebench did not make is left unchanged. An unreadable run is listed with
    the reason.
    """
    runs = listed_runs(profiles_folder)
    readable = [run for run in runs if run.started_at and (profiles_folder / run.name / "run.json").is_file()]
    latest = profiles_folder / _LATEST
    if readable and (latest.is_symlink() or not latest.exists()):
        fresh = latest.with_name(f".{_LATEST}.partial")
        with suppress(OSError):  # Windows lets few users make links
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(readable[0].name, target_is_directory=True)
            fresh.replace(latest)
    path = profiles_folder / "index.html"
    if path.exists() and description_of(path) is None:
        return path
    return write_page(path, render_page("runs.html", "Runs · placebench", runs=runs))


def listed_runs(folder: Path) -> list[ListedRun]:
    """Return the runs and searches in *folder*, newest first."""
    paths = (path for name in ("run.json", "saturation.json") for path in folder.glob(f"*/{name}"))
    runs = [_listed_run(path) for path in paths if not path.parent.is_symlink()]
    return sorted(runs, key=lambda run: (run.started_at, run.name), reverse=True)


def _listed_run(path: Path) -> ListedRun:
    folder = path.parent
    headline = description_of(folder / "index.html")
    page = None if headline is None else f"{folder.name}/index.html"
    try:
        if path.name == "run.json":
            head = RunHead.load(path)
            started_at, status, names = head.started_at, head.status, head.variants
            shown = ", ".join(names) if len(names) < 4 else f"{len(names)} variants, {names[0]} to {names[-1]}"
            about = f"{data_text(head)}: {shown}"
        else:
            from placebench.compare.load.load_steps import Saturation  # searches are rare

            search = Saturation.load(path)
            started_at, status = search.started_at, search.status
            about = f"{search.url}, {units.count(len(search.steps))} steps"
    except RunFolderError as error:
        return ListedRun(folder.name, "", "unreadable", headline or "", about=str(error), page=page)
    return ListedRun(folder.name, started_at, status, headline or "", about, page)
