"""Choice of the requests to profile and the recordings to keep: sampling, a header with a token, the slowest ones.

The main classes are `RequestSampler`, which decides before each request, and `RecordingFolder` and `RecentRecordings`,
which keep the recordings. They start no threads and may be forked: names and counters are per process.
"""

import hmac
import logging
import os
import re
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from placebench.errors import ProfilerError
from placebench.profiler.capture.options import MODES, Options
from placebench.profiler.model.files import flame_graph_beside
from placebench.profiler.recording import Recording

_LOG = logging.getLogger("placebench.profiler")
# Includes files that a killed process left unfinished.
_OUR_FILE = re.compile(r"(\d+-\d+)\.(?:recording\.json|pyisession)(?:\.unfinished)?")


@dataclass(frozen=True, slots=True)
class Keep:
    """The number of recordings that a process keeps, and which ones these are.

    "first": the first ones; later requests run unprofiled. "slowest": all are profiled, and the slowest stay.
    "latest": all are profiled, and the last ones stay.
    folder_count, folder_bytes: limits of the folder, including recordings of processes that have ended. Beyond them
        the oldest recordings are deleted. Each process checks the folder after every hundredth of a limit.
    """

    count: int = 200
    which: Literal["first", "slowest", "latest"] = "first"
    folder_count: int = 10_000
    folder_bytes: int = 2**30


KEEP_FOR_COUNTS = Keep(5000, "latest")
"""The choice of `compare`, which counts the statements of many cycles of a mix."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The choice of the requests that are profiled.

    rate: the share of requests, evenly spread: at 0.1 every tenth.
    token: a request with this token in its header is always profiled; None: no header is read. After the token the
        header may name a mode: `X-Placebench-Profile: TOKEN plans`. Neither is ever sent back to the client.
    attach: whether `placebench profile attach PID`, by the same user or root, may record all requests for a while.
    server_timing: whether the responses to profiled requests have the header Server-Timing, with the milliseconds of
        SQL, Python and pool waits, and the number of statements until the response began. Browsers' own tools show it.
    badge: the address of a live page; HTML pages of profiled requests get a link to their recording there. It is for
        development: the address has the token of the live page.
    """

    rate: float = 1.0
    token: str | None = None
    header: str = "X-Placebench-Profile"
    attach: bool = True
    server_timing: bool = False
    badge: str | None = None


@dataclass(slots=True)
class Counts:
    """Requests of one process: how many came, were profiled, and were dropped (replaced by others or not saved).

    Work that a profiled request causes, such as a background task, is profiled as well and has not come.
    """

    seen: int = 0
    profiled: int = 0
    dropped: int = 0


class Store(Protocol):
    """Keeps recordings."""

    def save(self, recording: Recording) -> int:
        """Keep a recording, and return how many recordings were dropped for it."""


class RequestSampler:
    """Decides for each request whether it is profiled, and how; threads may share it.

    counts: the request counts of this process.
    """

    def __init__(self, options: Options, keep: Keep, sampling: Sampling) -> None:
        if not 0.0 <= sampling.rate <= 1.0:
            raise ProfilerError(f"sampling rate is {sampling.rate}: expected a share from 0 to 1")
        self._options = options
        self._keep = keep
        self._sampling = sampling
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.counts: Counts = Counts()

    @property
    def header(self) -> str | None:
        """The header to read; None if there is no token."""
        return None if self._sampling.token is None else self._sampling.header

    @property
    def marks(self) -> Sampling | None:
        """The settings for marks in responses; None if responses stay as they are."""
        return self._sampling if self._sampling.server_timing or self._sampling.badge is not None else None

    @property
    def attachable(self) -> bool:
        """Whether `placebench profile attach` may have all requests recorded."""
        return self._sampling.attach

    def options_for(self, header: str | None) -> Options | None:
        """Count the next request, and return how it is profiled; None if it is not. *header*: its value of `header`."""
        requested = None
        if header is not None and self._sampling.token is not None:
            token, _, mode = header.strip().partition(" ")
            if hmac.compare_digest(token.encode(), self._sampling.token.encode()):
                requested = replace(self._options, mode=mode.strip()) if mode.strip() in MODES else self._options
        with self._lock:
            if os.getpid() != self._pid:  # a forked worker starts from zero
                self._pid, self.counts = os.getpid(), Counts()
            self.counts.seen += 1
            if requested is None:
                seen, rate = self.counts.seen, self._sampling.rate
                # Every 1/rate-th, without a random number: the first one at rate 1, the tenth at 0.1. The addition is
                # for rates like 0.1, ten times of which is less than one in binary.
                is_its_turn = int(seen * rate + 1e-9) > int((seen - 1) * rate + 1e-9)
                if not is_its_turn or (self._keep.which == "first" and self.counts.profiled >= self._keep.count):
                    return None
            self.counts.profiled += 1
        return requested or self._options

    def admits_caused(self) -> bool:
        """Count work that a profiled request caused; return whether it is profiled too."""
        with self._lock:
            if self._keep.which == "first" and self.counts.profiled >= self._keep.count:
                return False
            self.counts.profiled += 1
        return True

    def count_dropped(self, count: int) -> None:
        """Add *count* to the number of dropped recordings."""
        with self._lock:
            self.counts.dropped += count


class RecordingFolder:
    """The files of one process's requests: `<pid>-<counter>.recording.json`, and `.pyisession` for a flame graph.

    A recording that cannot be saved, for example on a full disk, is dropped. The first failure is logged, and the first
    one after each success.
    """

    def __init__(self, folder: Path | str, keep: Keep) -> None:
        try:
            folder = Path(folder)
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProfilerError(f"folder {folder} for recordings cannot be made: {error.strerror}") from error
        self._folder = folder
        self._keep = keep
        self._lock = threading.Lock()
        self._unchecked_count = self._unchecked_bytes = 0
        self._start_anew()

    def save(self, recording: Recording) -> int:
        """Write the recording and its flame graph, each whole or not at all; drop others if there are too many."""
        with self._lock:
            if os.getpid() != self._pid:
                self._start_anew()
            self._saved += 1
            path = self._folder / f"{self._pid}-{self._saved}.recording.json"
        try:
            recording.save(path)
            size = sum(each.stat().st_size for each in _files_of(path) if each.exists())
            with self._lock:
                self._is_failing = False
                self._files.append((recording.elapsed_s, path))
                surplus: list[Path] = []
                while len(self._files) > self._keep.count:
                    fastest = min(self._files, key=lambda file: file[0])
                    index = 0 if self._keep.which == "latest" else self._files.index(fastest)
                    surplus.append(self._files.pop(index)[1])
                is_due = self._is_due(size)
            for each in (each for gone in surplus for each in _files_of(gone)):
                each.unlink(missing_ok=True)
            if is_due:
                _delete_oldest(self._folder, self._keep)
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                _LOG.warning("recordings are not saved in %s: %s", self._folder, error.strerror)
            return 1
        return len(surplus)

    def _is_due(self, size: int) -> bool:
        """Return whether a check of the folder is due after a file of *size* bytes: once per hundredth of a limit."""
        self._unchecked_count -= 1
        self._unchecked_bytes -= size
        is_due = self._unchecked_count <= 0 or self._unchecked_bytes <= 0
        if is_due:
            self._unchecked_count = self._keep.folder_count // 100
            self._unchecked_bytes = self._keep.folder_bytes // 100
        return is_due

    def _start_anew(self) -> None:
        """Start without files, as a forked worker must: its parent's files are not its own."""
        self._pid = os.getpid()
        self._saved = 0
        self._files: list[tuple[float, Path]] = []
        self._is_failing = False


def _files_of(recording: Path) -> tuple[Path, Path]:
    return recording, flame_graph_beside(recording)


def _delete_oldest(folder: Path, keep: Keep) -> None:
    """Delete the oldest recordings of a folder, whoever wrote them, if there are too many or they are too large."""
    found: dict[str, list[tuple[float, int, str]]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            name = _OUR_FILE.fullmatch(entry.name)
            if name is not None:
                with suppress(FileNotFoundError):  # another process deletes too
                    status = entry.stat(follow_symlinks=False)
                    found.setdefault(name[1], []).append((status.st_mtime, status.st_size, entry.path))
    count, total = 0, 0
    for files in sorted(found.values(), reverse=True):
        count, total = count + 1, total + sum(size for _, size, _ in files)
        if count > keep.folder_count or total > keep.folder_bytes:
            for _, _, path in files:
                Path(path).unlink(missing_ok=True)


class RecentRecordings:
    """The recordings of one process in memory: the last ones, or the slowest ones in order of arrival."""

    def __init__(self, recordings: "deque[Recording]", keep: Keep) -> None:
        self._recordings = recordings
        self._keep = keep
        self._lock = threading.Lock()

    def save(self, recording: Recording) -> int:
        """Keep the recording, and drop the fastest or the oldest one if there are too many."""
        most = min(self._keep.count, self._recordings.maxlen or self._keep.count)
        with self._lock:
            full = len(self._recordings) >= most
            if full and self._keep.which == "slowest":
                fastest = min((*self._recordings, recording), key=lambda each: each.elapsed_s)
                if fastest is recording:
                    return 1
                self._recordings.remove(fastest)
            elif full:
                self._recordings.popleft()
            self._recordings.append(recording)
        return int(full)
