"""The folder of a run under way: `RunFolder` keeps its run.json current, `measure_each` measures what is missing.

`new_folder` and `claim_folder` make run folders, `check_resumable` checks whether a run can be resumed, and `lock`
keeps a second process out of a folder.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any, Self, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from placebench import __version__
from placebench.compare.keep.phase_timer import PhaseTimer
from placebench.compare.keep.records import FailedPart, RunHead
from placebench.errors import GateFailedError, NoResponseError, PlacebenchError, RunFolderError
from placebench.masking import mask_document
from placebench.meters.cost import CostMeter
from placebench.paths import make_folder, make_ignored_folder, name_full_folder
from placebench.runtime.postgres import Server

_T = TypeVar("_T")
Say = Callable[[str], None]
FAILURES = (PlacebenchError, SQLAlchemyError, OSError)
"""Exceptions that a part of a run may raise. GateFailedError is among them, but always ends the run."""
_ATTEMPTS = 3
_FIXED = ("command", "request", "topology", "trees", "seed", "variants", "settings")
"""Fields of the head that must be equal when a run is resumed."""
_ENVIRONMENT = ("placebench", "code", "python", "packages", "postgresql", "mariadb", "machine", "servers")
"""Parts of the manifest that all sessions of a run have in common, apart from `_CHANGING`."""
_CHANGING = ("load_average_1min", "kernel", "memory_bytes", "settings", "host")
_MAX_SHOWN = 160


class _OtherEnvironmentError(RunFolderError):
    """A run is to be resumed in an environment other than the one it was begun in."""


def discard_message(_: str) -> None:
    """Discard the message of a step or a note."""


class RunFolder:
    """A run in its folder; each change of `head` is written to run.json at once."""

    def __init__(self, path: Path, head: RunHead) -> None:
        self.path = path
        self.head = head
        self.say: Say = discard_message
        """Is called with each step as it begins."""
        self.note: Say = discard_message
        """Is called when something fails and is retried or left out."""
        self.timer = PhaseTimer(head.spent_s)
        """Wall time by phase; its seconds are stored as `spent_s` of the head."""
        self._cost: CostMeter | None = None
        """Cost meter of the current session; None outside of `recorded`."""

    @classmethod
    def resume(cls, path: Path, head: RunHead) -> Self:
        """Return the run that was begun in *path*, or a new one with *head*; raises as `check_resumable` does."""
        return cls(path, check_resumable(path, head))

    def begin_step(self, phase: str, step: str) -> None:
        """Announce *step*; the time until the next step counts for *phase*."""
        self.timer.switch(phase)
        self.say(step)

    def save(self, **changes: Any) -> None:
        """Change these fields of the head, and write it with the current cost and times."""
        cost = self._cost.read() if self._cost else self.head.cost
        self.head = replace(self.head, **changes, cost=cost, spent_s=dict(self.timer.seconds))
        self.head.save(self.path / "run.json")

    def record_environment(self, *, receipt: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Save the data's receipt and the manifest; raises RunFolderError if those of an earlier session differ.

        A verdict that mixes two versions, two data sets or two machines would be true of neither.
        """
        before, now = (
            mask_document(_environment(self.head.receipt, self.head.manifest)),
            mask_document(_environment(receipt, manifest)),
        )
        known = [name for name in before if name in now]
        if changes := [change for name in known for change in _changes(name, before[name], now[name])]:
            raise _OtherEnvironmentError(
                f"{self.path} was begun on something else: {'; '.join(changes)}; begin a new run, or go back to that"
            )
        self.save(receipt=receipt, manifest={**self.head.manifest, **manifest})

    def claim_server(self, server: Server) -> None:
        """Drop the databases that earlier sessions of this run left on *server*, and save this session's mark."""
        self.watch_server(server)
        left = [mark for mark in self.head.scratch_marks if not server.drop_left(mark)]
        self.save(scratch_marks=[*left, server.run])

    def watch_server(self, server: Server) -> None:
        """Add the CPU of *server* to the cost of the run."""
        if self._cost:
            self._cost.watch_server(server.url)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Save how the run ended, also if the `with` block raises; the times of a run's sessions are added up.

        A session that may not continue the run, because its environment differs, leaves the run's status as it was.
        """
        started, before_s, before = time.perf_counter(), self.head.elapsed_s, (self.head.status, self.head.note)
        self._cost = CostMeter(self.head.cost)
        self.save(status="running", note="")
        status, note = "failed", ""
        try:
            yield
            status = "complete"
        except KeyboardInterrupt:
            status, note = "interrupted", "interrupted by the user; what was measured until then is here"
            raise
        except _OtherEnvironmentError:
            status, note = before
            raise
        except BaseException as error:
            if isinstance(error, OSError):
                name_full_folder(error, self.path)
            note = error_text(error)
            raise
        finally:
            self.timer.switch(None)
            self.save(status=status, note=note, elapsed_s=before_s + time.perf_counter() - started)
            self._cost = None

    def try_twice(self, what: str, make: Callable[[], _T], *, keep: Say = discard_message) -> _T:
        """Return the result of *make*, which is called a second time if the first call fails.

        keep: called with the reason of the first failure. Raises what the second call raises. GateFailedError is
        raised at once, because a retry cannot make different responses equal, and so is NoResponseError.
        """
        try:
            return make()
        except (GateFailedError, NoResponseError):
            raise
        except FAILURES as error:
            reason = error_text(error)
            keep(reason)
            self.note(f"{what} failed, it is tried once more: {reason}")
            return make()

    def run_optional_part(self, part: str, variant: str, make: Callable[[], object]) -> None:
        """Make a part that may fail without ending the run: it is retried once, then listed with its reason.

        A counted, profiled or open-loop pass is such a part. A closed-loop pass is not, because later measurements are
        compared with it. The reason of the first failure is saved at once, so that a run that is interrupted during the
        second attempt names the reason for that attempt.
        """
        try:
            self.try_twice(f"{variant} {part}", make, keep=partial(self._keep_failure, part, variant))
        except GateFailedError:
            raise
        except FAILURES as error:
            self.fail_part(part, variant, error_text(error))
        else:
            failed = self.head.failed_parts
            made = [replace(each, made_again=True) if each.is_of(part, variant) else each for each in failed]
            self.save(failed_parts=made)

    def fail_part(self, part: str, variant: str, reason: str) -> None:
        """Save that this part is missing, with the reason."""
        self._keep_failure(part, variant, reason)
        self.note(f"{variant} {part}".strip() + f" failed, the run goes on without it: {reason}")

    def _keep_failure(self, part: str, variant: str, reason: str) -> None:
        others = [each for each in self.head.failed_parts if not each.is_of(part, variant)]
        self.save(failed_parts=[*others, FailedPart(part, variant, reason)])


def error_text(error: BaseException) -> str:
    """Return the error's message on one line, preceded by the type unless it is a PlacebenchError."""
    ours = str(error) if isinstance(error, PlacebenchError) else ""
    return " ".join((ours or f"{type(error).__name__}: {error}").split())


def measure_each(
    missing: Iterable[_T], attempt: Callable[[_T], str | None], give_up: Callable[[_T, str], None]
) -> None:
    """Measure what is missing, one item after the other, each until it is valid: the loop of every resumable run.

    Args:
        missing: yields the next item when the one before has ended.
        attempt: measures an item once and saves the result; returns why it is invalid, or None.
        give_up: is called with an item and its last reason after three invalid attempts in a row; an error that it
            raises ends the run.
    """
    for each in missing:
        for _ in range(_ATTEMPTS):
            reason = attempt(each)
            if reason is None:
                break
        else:
            give_up(each, str(reason))


def new_folder(name: str, parent: Path) -> Path:
    """Make a new run folder `<UTC time>-<name>` in *parent*, with the first unused time from this second on.

    A missing *parent* is made, with a .gitignore that keeps its runs out of commits.
    """
    make_ignored_folder(parent, error=RunFolderError)
    at = datetime.now(UTC)
    while True:
        folder = parent / f"{at:%Y%m%dT%H%M%SZ}-{name}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:  # also where another process has just made it
            at += timedelta(seconds=1)
        except OSError as error:
            raise RunFolderError(f"no folder can be made at {folder}: {error.strerror}") from error
        else:
            return claim_folder(folder)


def claim_folder(folder: Path, *, can_resume: bool = False) -> Path:
    """Make *folder* for a new run; raises RunFolderError if it already holds something, or is a file.

    can_resume: whether the command has --resume, which the error names if the folder holds a run.
    """
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file, and a run needs its own folder: name another with --out")
    if folder.exists() and any(folder.iterdir()):
        resume = ", or continue this run with --resume" if can_resume and (folder / "run.json").is_file() else ""
        raise RunFolderError(f"{folder} is not empty, and a run needs its own folder: name another with --out{resume}")
    make_folder(folder, error=RunFolderError)
    try:
        (folder / "log").mkdir(mode=0o700)
    except FileExistsError as error:
        raise RunFolderError(f"another placebench has just begun a run in {folder}: name another with --out") from error
    except OSError as error:
        raise RunFolderError(f"no folder can be made at {folder / 'log'}: {error.strerror}") from error
    return folder


def check_resumable(folder: Path, head: RunHead) -> RunHead:
    """Return the head of the run in *folder*, or *head* if there is none yet.

    Raises RunFolderError if another version of placebench began that run, if it differs in a field that decides the
    measurement, or if its responses differed. The cause of different responses may be gone by now, but the measurements
    until then compare variants that do not do the same.
    """
    path = folder / "run.json"
    if not path.is_file():
        return head
    begun = RunHead.load(path)
    if begun.same_responses.get("equal") is False:
        different = begun.same_responses.get("difference")
        raise RunFolderError(f"{folder} holds a run that ended because {different}: begin a new one")
    if (version := begun.manifest.get("placebench", __version__)) != __version__:
        raise RunFolderError(
            f"{folder} holds a run that placebench {version} began, and this is {__version__}: begin a new run, or "
            "resume it with that version"
        )
    for name in _FIXED:
        if (before := _fixed_value(begun, name)) != (now := _fixed_value(head, name)):
            raise RunFolderError(
                f"{folder} holds a run that differs in its {name}: {'; '.join(_changes(name, before, now))}"
            )
    return begun


def _environment(receipt: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a run's environment that must be equal in all its sessions."""
    data = {"data": receipt["digest"]} if "digest" in receipt else {}
    return {**data, **{name: _lasting(manifest[name]) for name in _ENVIRONMENT if name in manifest}}


def _lasting(part: Any) -> Any:
    return {key: part[key] for key in part if key not in _CHANGING} if isinstance(part, dict) else part


def _changes(name: str, before: Any, now: Any) -> Iterator[str]:
    """Yield a text such as 'repeats was 5, is now 3' for each value that differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            if before.get(key) != now.get(key):
                yield from _changes(key, before.get(key), now.get(key))
    elif before != now:
        was, wanted = (shorten(str(value), _MAX_SHOWN, placeholder=" …") for value in (before, now))
        yield f"{name} was {was}, is now {wanted}"


def _fixed_value(head: RunHead, name: str) -> Any:
    """Return a field of the head without secrets and without the names and texts of its trials."""
    value = mask_document(getattr(head, name))
    if name != "settings" or "trials" not in value:
        return value
    return {**value, "trials": [(trial["baseline"], trial["variant"]) for trial in value["trials"]]}


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keep other processes out of *folder* for the `with` block; raises RunFolderError if one works in it."""
    import fcntl  # which Windows does not have

    (folder / "log").mkdir(exist_ok=True)
    with (folder / "log" / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunFolderError(f"another placebench works in {folder}: wait for it, or stop it") from error
        yield
