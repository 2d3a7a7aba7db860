"""Reads git for a history: the commit that a revision names, and the order of commits."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from placebench.errors import HistoryError

_TO_A_COMMIT = "^{commit}"


@dataclass(frozen=True)
class Commit:
    """A commit, by its full hash, and the first line of its message."""

    hash: str
    subject: str

    @property
    def short(self) -> str:
        """The first 12 digits of the hash."""
        return self.hash[:12]


def find_commit(folder: Path, revision: str) -> Commit:
    """Return the commit that *revision* names in the repository around *folder*; raises HistoryError without one."""
    (found,) = _log(folder, "--no-walk", f"{revision}{_TO_A_COMMIT}")
    return found


def commits_between(folder: Path, revisions: str) -> list[Commit]:
    """Return the commits of a range such as v1.0..HEAD, oldest first, without the commits of merged branches."""
    return _log(folder, "--first-parent", "--reverse", revisions)


def ancestors(folder: Path) -> list[str] | None:
    """Return the hashes of HEAD and its ancestors, oldest first; None outside a repository, or without a commit."""
    try:
        return [each.hash for each in _log(folder, "--topo-order", "--reverse", "HEAD")]
    except HistoryError:
        return None


def is_shallow(folder: Path) -> bool:
    """Return whether the repository around *folder* is a shallow clone, which lacks older commits."""
    command = ["git", "-C", str(folder), "rev-parse", "--is-shallow-repository"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "true"


def _log(folder: Path, *arguments: str) -> list[Commit]:
    options, revision = arguments[:-1], arguments[-1]
    command = ["git", "-C", str(folder), "log", "--format=%H %s", *options, "--end-of-options", revision, "--"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError as error:
        raise HistoryError("a history needs git, and there is none on PATH") from error
    if ended.returncode:
        reason = " ".join(ended.stderr.split()).removeprefix("fatal: ")
        if reason.startswith("bad revision"):
            reason = "expected a branch, a tag or a commit of it"
        raise HistoryError(f"no revision {revision.removesuffix(_TO_A_COMMIT)!r} in {folder.resolve()}: {reason}")
    pairs = (line.partition(" ") for line in ended.stdout.splitlines())
    return [Commit(name, subject) for name, _, subject in pairs]
