"""Revisions and package versions of a user's application, put in place while they are compared.

    rev=main             a work tree of that revision in the run's folder; the user's checkout is not changed
    with=package==1.2    that version in a separate folder, before everything in the environment

The main functions are `read_origin`, which finds the commit, and `checked_out`, which makes and removes the folders.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placebench.errors import PlacebenchError, VariantError

_SET_IN_HOOKS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE")
"""Variables, set in git hooks, that make git work in another folder than the one it is given."""
_PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[A-Za-z0-9._-]+\])?==[A-Za-z0-9.!+*_-]+")


@dataclass(frozen=True)
class Origin:
    """The git revision and the package versions at which an application is compared."""

    repository: str | None = None
    """The top folder of the application's checkout; None without a revision."""
    commit: str | None = None
    within: str = "."
    """The folder in the checkout from which Python imports, relative to its top."""
    packages: tuple[str, ...] = ()

    def moved(self, folder: Path, place: Path) -> Path:
        """Return the counterpart of a checkout's folder in the work tree below *place*; if missing, the tree's top."""
        if self.repository is None or self.commit is None:
            return folder
        tree = place / "tree"
        moved = Path(self.in_tree(str(folder), tree))
        return moved if moved.is_dir() else tree

    def in_tree(self, folder: str, tree: Path) -> str:
        """Return the counterpart of a folder of the checkout in the work tree *tree*; other folders stay."""
        top, resolved = Path(str(self.repository)).resolve(), Path(folder).resolve()
        return str(tree.resolve() / resolved.relative_to(top)) if resolved.is_relative_to(top) else folder

    def to_json(self) -> dict[str, Any]:
        """Return the origin for a run's head: a resumed run must have the same commits."""
        return {**vars(self), "packages": list(self.packages)}


def read_origin(*, folder: Path, revision: str | None, packages: Sequence[str]) -> Origin | None:
    """Find the commit that *revision* names in the repository around *folder*; None without revision and packages.

    Raises PlacebenchError if there is no such repository, revision or version.
    """
    for each in packages:
        if not _PINNED.fullmatch(each):
            raise PlacebenchError(f"with={each}: expected one version, as in with=sqlalchemy==2.0.44")
    if revision is None:
        return Origin(packages=tuple(packages)) if packages else None
    top = Path(
        _git(folder, "rev-parse", "--show-toplevel", message=f"rev={revision}: {folder} is in no git repository")
    )
    unknown = f"no revision {revision!r} in {top}: expected a branch, a tag or a commit of it"
    if revision.startswith("-"):
        raise PlacebenchError(unknown)
    commit = _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", message=unknown)
    return Origin(str(top), commit, str(folder.resolve().relative_to(top.resolve())), tuple(packages))


@contextmanager
def checked_out(
    origin: Origin, place: Path, *, module: str, python: str | None, python_path: Sequence[str] = ()
) -> Iterator[list[str]]:
    """Make the work tree and install the packages below *place* for the `with` block, then remove *place*.

    Yields the folders of the Python path: packages, the revision, then those of *python_path*, of which folders of the
    checkout become those of the revision. Raises PlacebenchError if they cannot be made,
    VariantError if *module* would not be imported from the revision.
    """
    interpreter, tree = python or sys.executable, place / "tree"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        folders = [str(_installed(origin.packages, place, interpreter))] if origin.packages else []
        if origin.repository and origin.commit:
            _check_out(origin, tree)
            folders.append(str((tree / origin.within).resolve()))
            python_path = [origin.in_tree(each, tree) for each in python_path if each]
        folders = list(dict.fromkeys([*folders, *filter(None, python_path)]))
        if origin.commit and module:
            _check_module(tree, module, folders, interpreter)
        yield folders
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _check_out(origin: Origin, tree: Path) -> None:
    """Make a work tree of the repository at *tree*, with its configuration and filters, but without its hooks.

    `git worktree add` would register the tree in the repository, where it stays if this process is killed. Here git's
    files about the work tree are beside it: its HEAD, and the paths of the repository and the tree
    (gitrepository-layout, "commondir" and "gitdir").
    """
    tree = tree.absolute()
    top, own = Path(str(origin.repository)), tree.with_name("git")
    message = f"no work tree of {origin.commit} at {tree}"
    common = top / _git(top, "rev-parse", "--git-common-dir", message=message)
    for folder in (own, tree):
        folder.mkdir()
    (own / "HEAD").write_text(f"{origin.commit}\n")
    (own / "commondir").write_text(f"{common.resolve()}\n")
    (own / "gitdir").write_text(f"{tree}/.git\n")
    (tree / ".git").write_text(f"gitdir: {own}\n")
    _git(tree, "-c", "core.hooksPath=/dev/null", "reset", "--quiet", "--hard", message=message)


def _check_module(tree: Path, module: str, folders: Sequence[str], interpreter: str) -> None:
    top = module.partition(":")[0].partition(".")[0]
    code = (
        "import importlib.util, sys; found = importlib.util.find_spec(sys.argv[1]); "
        "print(found and (found.origin or list(found.submodule_search_locations)[0]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    ended = subprocess.run(
        [interpreter, "-c", code, top], env=environment, cwd=tree.parent, capture_output=True, text=True, check=False
    )
    found = ended.stdout.strip()
    if not Path(found).is_relative_to(tree.resolve()):
        where = "nowhere" if found in ("", "None") else f"at {found}"
        raise VariantError(
            f"the module {top!r} is found {where}, not in the revision: name the folder that holds it with path="
        )


def _installed(packages: Sequence[str], place: Path, interpreter: str) -> Path:
    target = place / "packages"
    options = ["install", "--quiet", "--no-input", "--disable-pip-version-check", "--target", str(target), *packages]
    ended = _run([*pip_command(interpreter, place), *options])
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        # Versions for another Python are ignored, which the last line does not say.
        said = [*(each for each in lines[:-1] if "different python version" in each.lower()), lines[-1]]
        raise PlacebenchError(f"pip cannot install {' '.join(packages)} for {interpreter}: {'; '.join(said)}")
    return target


def pip_command(interpreter: str, place: Path) -> list[str]:
    """Return the command of a Python's pip, or of one in a fresh environment below *place* if that Python has none."""
    if _run([interpreter, "-m", "pip", "--version"]).returncode == 0:
        return [interpreter, "-m", "pip"]
    ended = _run([interpreter, "-m", "venv", str(place / "pip")])
    if ended.returncode:
        raise PlacebenchError(f"{interpreter} has neither pip nor ensurepip: install pip there for with=")
    return [str(place / "pip" / "bin" / "python"), "-m", "pip"]


def _git(folder: Path, *arguments: str, message: str) -> str:
    try:
        ended = _run(["git", "-C", str(folder), *arguments], without=_SET_IN_HOOKS)
    except FileNotFoundError as error:
        raise PlacebenchError("rev= needs git, and there is none on PATH") from error
    if ended.returncode:
        said = " ".join(ended.stderr.split())
        raise PlacebenchError(f"{message} ({said})" if said else message)
    return ended.stdout.strip()


def _run(command: list[str], *, without: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name not in without}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
