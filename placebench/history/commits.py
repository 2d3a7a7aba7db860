"""Reads git for a history: the commit that a revision names, and the order of commits."""

import hashlib
import subprocess
from collections.abc import Iterable
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


def contained_in(folder: Path, commits: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return those of *commits* that are in the history of HEAD, each with those that are among its own ancestors."""
    names = list(dict.fromkeys(commits))
    bits = {name: 1 << place for place, name in enumerate(names)}
    seen: dict[str, int] = {}
    for each in _log(folder, "--topo-order", "--reverse", "--format=%H %P", "HEAD"):
        seen[each.hash] = 0
        for parent in each.subject.split():
            seen[each.hash] |= seen.get(parent, 0) | bits.get(parent, 0)
    inside = [name for name in names if name in seen]
    return {name: frozenset(other for other in inside if seen[name] & bits[other]) for name in inside}


def contents_of(folder: Path, commits: Iterable[str], *, without: Path) -> dict[str, str]:
    """Return a digest of the files of each commit but *without*, the history itself, by hash.

    It is equal for commits that a rebase, an amended message or a squash have given another hash, but no other files.
    Commits that the repository around *folder* does not have are left out.
    """
    top = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False
    ).stdout.strip()
    inside = bool(top) and without.resolve().is_relative_to(top)
    parts = without.resolve().relative_to(top).parts if inside else ("",)
    command = ["git", "-C", str(folder), "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as git:
        asked, told = git.stdin, git.stdout
        assert asked
        assert told

        def digest(tree: str, parts: tuple[str, ...]) -> str | None:
            asked.write(f"{tree}\n".encode())
            asked.flush()
            head = told.readline().split()
            if len(head) != 3:  # it is missing
                return None
            rest, made = told.read(int(head[2]) + 1)[:-1], hashlib.sha256()
            while rest:
                name, _, rest = rest.partition(b"\0")
                size = len(head[0]) // 2
                content, rest = rest[:size].hex(), rest[size:]
                if name.partition(b" ")[2] == parts[0].encode():
                    if len(parts) == 1:
                        continue
                    content = digest(content, parts[1:]) or content
                made.update(name + b"\0" + content.encode() + b"\0")
            return made.hexdigest()[:40]

        found = {commit: digest(f"{commit}^{{tree}}", parts) for commit in commits}
        asked.close()
    return {commit: content for commit, content in found.items() if content is not None}


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
