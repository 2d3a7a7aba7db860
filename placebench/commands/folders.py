"""The folder of a run: found or made by `run_folder`, and given its page by `reported` however the work in it ends."""

import shutil
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from placebench.errors import RunFolderError


@contextmanager
def run_folder(arguments: Namespace, name: str) -> Iterator[Path]:
    """A new folder for a run of this name (--out, or in profiles/), or with --resume that of the run to go on with.

    Nobody else works in it inside the `with` block, and it is gone afterwards where the run did not even begin. Raises
    RunFolderError where there is none to resume, or the named one holds something.
    """
    from placebench.experiment.run_folder import lock

    folder = _claimed(arguments, name)
    try:
        with lock(folder):
            yield folder
    finally:
        if not (folder / "run.json").is_file():
            shutil.rmtree(folder / "log", ignore_errors=True)
            with suppress(OSError):  # it holds something that is not ours
                folder.rmdir()


def _claimed(arguments: Namespace, name: str) -> Path:
    from placebench import paths
    from placebench.experiment.records import RunHead
    from placebench.experiment.run_folder import claim_folder, new_folder

    if not getattr(arguments, "resume", False):
        return claim_folder(arguments.out.resolve()) if arguments.out else new_folder(name, paths.profiles_folder())
    made = sorted(paths.profiles_folder().glob(f"*-{name}")) if arguments.out is None else [arguments.out.resolve()]
    if not made or not (made[-1] / "run.json").is_file():
        where = arguments.out or paths.profiles_folder()
        raise RunFolderError(f"no run to resume in {where}: name its folder with --out, or leave --resume away")
    RunHead.load(made[-1] / "run.json")  # before anything is started for a run that cannot be read
    return made[-1]


@contextmanager
def reported(folder: Path, tell: Callable[[Path], None]) -> Iterator[None]:
    """The page of what was measured, however the `with` block ends, and what else is to be told.

    A run that could not even write its head, as on a full disk, has neither: what stopped it is told.
    """
    from placebench.report import write_report

    try:
        yield
    finally:
        if (folder / "run.json").is_file():
            write_report(folder)
            list_run(folder)
            tell(folder)


def list_run(folder: Path) -> None:
    """Have the run in the list of the folder where runs land; one that --out put elsewhere leaves its neighbours be."""
    from placebench import paths
    from placebench.report import write_index

    if folder.parent == paths.profiles_folder():
        with suppress(OSError):
            write_index(folder.parent)
