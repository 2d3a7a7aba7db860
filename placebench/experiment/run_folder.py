"""The head of a run, on disk from its first moment to its last: `KeptHead` saves every change and how it all ended.

Also where run folders come from: `new_folder`, `claim_folder`, `same_question` for one that is resumed, and `held`,
which keeps a second process out of one.
"""

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten
from typing import Any

from placebench.errors import RunFolderError
from placebench.experiment.records import RunHead
from placebench.paths import make_folder
from placebench.runtime.postgres import Server

_FIXED = ("command", "request", "topology", "trees", "seed", "variants", "settings")
"""What a resumed run has to be asked for again as it was begun."""
_ON_ITS_GROUND = ("placebench", "code", "python", "packages", "postgresql", "machine")
"""Parts of the manifest that every sitting of a run has in common; of them, but what is only passing by."""
_PASSING = ("load_average_1min", "kernel", "memory_bytes", "settings", "host")
_TOLD_AT_MOST = 160


class KeptHead:
    """run.json in *folder*, never older than the last change."""

    def __init__(self, folder: Path, head: RunHead) -> None:
        self._folder = folder
        self.head = head

    def save(self, **changes: Any) -> None:
        """Change these fields, and write."""
        self.head = replace(self.head, **changes)
        self.head.save(self._folder / "run.json")

    def stand_on(self, *, receipt: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Keep what the run is measured on; raises RunFolderError where an earlier sitting stood on something else.

        One verdict over two variants, two clouds or two machines would be about neither.
        """
        before, now = _ground(self.head.receipt, self.head.manifest), _ground(receipt, manifest)
        known = [name for name in before if name in now]  # a run by an earlier placebench does not say all of it
        if changed := [told for name in known for told in _changed(name, before[name], now[name])]:
            raise RunFolderError(
                f"{self._folder} was begun on something else: {'; '.join(changed)}; begin a new run, or go back to that"
            )
        self.save(receipt=receipt, manifest=manifest)

    def begin_on(self, server: Server) -> None:
        """Drop what the earlier sittings of this run left on *server*, and keep the mark of this one's databases."""
        left = [mark for mark in self.head.scratch_marks if not server.drop_left(mark)]
        self.save(scratch_marks=[*left, server.run])

    @contextmanager
    def until_the_end(self) -> Iterator[None]:
        """Say how the run ended, however the `with` block does; time adds up over the sittings of a run."""
        started, before_s = time.perf_counter(), self.head.elapsed_s
        self.save(status="running", note="")
        status, note = "failed", ""
        try:
            yield
            status = "complete"
        except KeyboardInterrupt:
            status, note = "interrupted", "interrupted by the user; what was measured until then is here"
            raise
        except BaseException as error:
            note = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.save(status=status, note=note, elapsed_s=before_s + time.perf_counter() - started)


def new_folder(name: str, parent: Path) -> Path:
    """A new run folder in *parent*, `<UTC time>-<name>`."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return claim_folder(parent / f"{stamp}-{name}")


def claim_folder(folder: Path) -> Path:
    """Make *folder* for a new run; raises RunFolderError when it already holds something, or is a file."""
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file, a run wants a folder of its own: name another with --out")
    if folder.exists() and any(folder.iterdir()):
        raise RunFolderError(f"{folder} is not empty, a run wants a folder of its own: name another with --out")
    make_folder(folder / "log", error=RunFolderError)
    return folder


def same_question(folder: Path, asked: RunHead) -> RunHead:
    """The head of the run in *folder*; *asked* where there is none yet.

    Raises RunFolderError when the run there asks something else, or its answers differed: what made them differ may be
    gone since, and what was measured until then is of variants that do not do the same.
    """
    path = folder / "run.json"
    if not path.is_file():
        return asked
    begun = RunHead.load(path)
    if begun.same_responses.get("equal") is False:
        different = begun.same_responses.get("difference")
        raise RunFolderError(f"{folder} holds a run that ended because {different}: begin a new one")
    for name in _FIXED:
        if (before := _question(begun, name)) != (now := _question(asked, name)):
            raise RunFolderError(f"{folder} holds a run with another {name}: {'; '.join(_changed(name, before, now))}")
    return begun


def _ground(receipt: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What stays the same from one sitting to the next."""
    data = {"data": receipt["digest"]} if "digest" in receipt else {}
    return {**data, **{name: _lasting(manifest[name]) for name in _ON_ITS_GROUND if name in manifest}}


def _lasting(part: Any) -> Any:
    return {key: part[key] for key in part if key not in _PASSING} if isinstance(part, dict) else part


def _changed(name: str, before: Any, now: Any) -> Iterator[str]:
    """'repeats was 5, is now 3', for each part that differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            if before.get(key) != now.get(key):
                yield from _changed(key, before.get(key), now.get(key))
    elif before != now:
        was, wanted = (shorten(str(value), _TOLD_AT_MOST, placeholder=" …") for value in (before, now))
        yield f"{name} was {was}, is now {wanted}"


def _question(head: RunHead, name: str) -> Any:
    """What decides the measurement: not the words about its trials."""
    value = getattr(head, name)
    if name != "settings" or "trials" not in value:
        return value
    return {**value, "trials": [(trial["baseline"], trial["variant"]) for trial in value["trials"]]}


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Nobody else works in *folder* meanwhile; raises RunFolderError where somebody does."""
    (folder / "log").mkdir(exist_ok=True)
    with (folder / "log" / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunFolderError(f"another placebench works in {folder}: wait for it, or stop it") from error
        yield
