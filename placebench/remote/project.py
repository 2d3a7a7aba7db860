"""The files that a run on another machine needs: `Project` sends them, `unpack_repository` restores a repository."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from placebench.errors import UsageError
from placebench.remote.stream import Header, Stream
from placebench.runtime.private_files import create_private

MAX_BYTES: Final = 512 * 2**20
_RUNS: Final = "profiles/*Z-*/"


@dataclass(frozen=True)
class Project:
    """The sources of the variants: the files around a plan, without those that git ignores, and the repository."""

    top: Path | None = None
    """The top folder; None if nothing needs to be sent, because every placebench has these variants."""
    here: Path = Path()
    """The working folder of the run: the current one, or the plan's if the plan is in another repository."""
    files: tuple[Path, ...] = ()
    given: tuple[Path, ...] = ()
    """Further files that are sent to the working folder of the run."""
    head: str = ""
    """The hash of the commit HEAD; empty without a repository."""

    @classmethod
    def around(cls, folder: Path, source: str) -> Self:
        """Return the project of the plan *source* in *folder*: its repository, or else the current folder.

        Raises UsageError if the plan is in neither, or if the files are too large.
        """
        folder, here = folder.resolve(), Path.cwd()
        top = _top_of_checkout(here) or here
        if not folder.is_relative_to(top):
            found = _top_of_checkout(folder)
            if found is None:
                raise UsageError(f"the plan {source} lies outside of {top}, which is what --host sends: move it there")
            here, top = folder, found
        if _top_of_checkout(top) is not None:
            listed = _git(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard", f"--exclude={_RUNS}")
            files = tuple(top / os.fsdecode(name) for name in listed.split(b"\0") if name)
        else:
            runs = tuple(top.rglob(_RUNS))
            every = (path for path in sorted(top.rglob("*")) if path.is_symlink() or path.is_file())
            files = tuple(path for path in every if not any(path.is_relative_to(run) for run in runs))
        size = _total_bytes(files)
        if size > MAX_BYTES:
            seen = f"{top} holds {size / 2**20:.0f} MB, and --host sends {MAX_BYTES // 2**20} MB at most"
            raise UsageError(f"{seen}: let git ignore what the application does not need")
        return cls(top, here, files, head=_git(top, "rev-parse", "HEAD").decode().strip())

    @property
    def within(self) -> str:
        """The working folder of the run, relative to the top folder."""
        return os.path.relpath(self.here, self.top) if self.top else "."

    def from_here(self, folder: Path) -> Path:
        """Return a folder of the project relative to the working folder, for the run on the other machine."""
        return Path(os.path.relpath(folder.resolve(), self.here))

    def send(self, stream: Stream) -> None:
        """Send the repository with its history, and the files as they are; raises UsageError if they are too large."""
        if self.top and self.head:
            shallow = Path(_git(self.top, "rev-parse", "--git-path", "shallow").decode().strip())
            cut = (self.top / shallow).read_text().split() if (self.top / shallow).is_file() else []
            with tempfile.TemporaryFile() as bundle:
                _git(self.top, "bundle", "create", "--quiet", "-", "--all", "HEAD", output=bundle)
                self._check_size(bundle.seek(0, os.SEEK_END))
                stream.send({"head": self.head, "shallow": cut}, bundle)
        if self.top:
            stream.send_files(self.top, self.files, below="project")
        for path in self.given:
            stream.send_files(path.parent, [path], below=f"project/{self.within}")

    def _check_size(self, history_bytes: int) -> None:
        file_bytes = _total_bytes(self.files)
        if file_bytes + history_bytes > MAX_BYTES:
            seen = f"{file_bytes / 2**20:.0f} MB of files and {history_bytes / 2**20:.0f} MB of history"
            raise UsageError(
                f"{self.top} holds {seen}, and --host sends {MAX_BYTES // 2**20} MB at most: work in a clone with less "
                f"history, such as git clone --depth 100 file://{self.top}"
            )


def _top_of_checkout(folder: Path) -> Path | None:
    found = _git(folder, "rev-parse", "--show-toplevel").decode().strip()
    return Path(found) if found else None


def _total_bytes(files: Iterable[Path]) -> int:
    return sum(path.lstat().st_size for path in files if path.is_symlink() or path.exists())


def unpack_repository(project: Path, header: Header, bundle: IO[bytes]) -> None:
    """Restore branches, tags and commits without their files; without git, nothing is restored and revisions fail."""
    packed, head = project.with_name("bundle"), header["head"]
    with bundle, create_private(packed) as file:
        shutil.copyfileobj(bundle, file)
    _git(project, "init", "--quiet")
    if cut := header.get("shallow"):
        (project / ".git" / "shallow").write_text("".join(f"{commit}\n" for commit in cut))
    _git(project, "fetch", "--quiet", "--update-head-ok", str(packed), "+refs/*:refs/*", head)
    _git(project, "update-ref", "--no-deref", "HEAD", head)
    _git(project, "reset", "--quiet")
    packed.unlink()


def _git(folder: Path, *arguments: str, output: IO[bytes] | None = None) -> bytes:
    """Return git's output, unless it goes to *output*; empty if git fails or is missing."""
    command, written = ["git", "-C", str(folder), *arguments], subprocess.PIPE if output is None else output
    try:
        done = subprocess.run(command, stdout=written, stderr=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.CalledProcessError):
        return b""
    return done.stdout or b""
