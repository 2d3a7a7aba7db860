"""Which requests are profiled and which recordings are kept: sampling, a header with a token, the slowest ones.

The main classes are `RequestSampler`, which decides before a request and counts, and `RecordingFolder` and
`RecentRecordings`, which keep the recordings. They have no threads of their own and may be forked: names and counters
are per process.
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
# Also what a killed process left half written.
_OUR_FILE = re.compile(r"(\d+-\d+)\.(?:recording\.json|pyisession)(?:\.unfinished)?")


@dataclass(frozen=True, slots=True)
class Keep:
    """How many requests of a process are kept, and which.

    "first": the first ones; later requests run unprofiled. "slowest": all are profiled, and the slowest stay.
    "latest": all are profiled, and the last ones stay.
    folder_count, folder_bytes: recordings in the folder, also of processes that have ended. If there are more, the
        oldest are deleted. Each process checks after every hundredth of these numbers.
    """

    count: int = 200
    which: Literal["first", "slowest", "latest"] = "first"
    folder_count: int = 10_000
    folder_bytes: int = 2**30


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which requests are profiled at all.

    rate: the share of requests, evenly spread: at 0.1 every tenth.
    token: a request whose header says it is always profiled; None: no header is read. After the token it may
        name a mode: `X-Placebench-Profile: TOKEN plans`. Nothing is ever sent back to the client.
    attach: whether `placebench profile attach PID`, by the same user or root, may record all requests for a while.
    """

    rate: float = 1.0
    token: str | None = None
    header: str = "X-Placebench-Profile"
    attach: bool = True


@dataclass(slots=True)
class Counts:
    """Requests of one process: how many came, were profiled, and were dropped for others or could not be saved."""

    seen: int = 0
    profiled: int = 0
    dropped: int = 0


class Store(Protocol):
    """Where recordings go."""

    def save(self, recording: Recording) -> int:
        """Keep it; returns how many recordings were dropped for it."""


class RequestSampler:
    """Decides for each request whether it is profiled, and how; threads may share it.

    counts: of this process.
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
    def attachable(self) -> bool:
        """Whether a command may have all requests recorded."""
        return self._sampling.attach

    def options_for(self, header: str | None) -> Options | None:
        """How the next request is profiled, or None: not at all; counts it. *header*: its value of `header`."""
        requested = self._requested(header)
        with self._lock:
            if os.getpid() != self._pid:  # a forked worker counts from nothing
                self._pid, self.counts = os.getpid(), Counts()
            self.counts.seen += 1
            if requested is None and not self._is_its_turn():
                return None
            self.counts.profiled += 1
        return requested or self._options

    def count_dropped(self, count: int) -> None:
        """Count recordings that were thrown away for others."""
        with self._lock:
            self.counts.dropped += count

    def _is_its_turn(self) -> bool:
        """Whether it is this request's turn, and fewer than the maximum are kept."""
        seen, rate = self.counts.seen, self._sampling.rate
        # Every 1/rate-th, without a random number: the first one at rate 1, the tenth at 0.1. The addition is for
        # rates like 0.1, ten times of which is less than one in binary.
        turn = int(seen * rate + 1e-9) > int((seen - 1) * rate + 1e-9)
        return turn and (self._keep.which != "first" or self.counts.profiled < self._keep.count)

    def _requested(self, header: str | None) -> Options | None:
        """The options of a request with the right token."""
        if header is None or self._sampling.token is None:
            return None
        token, _, mode = header.strip().partition(" ")
        if not hmac.compare_digest(token.encode(), self._sampling.token.encode()):
            return None
        return replace(self._options, mode=mode.strip()) if mode.strip() in MODES else self._options


class RecordingFolder:
    """The files of one process's requests: `<pid>-<counter>.recording.json` and, of a flame graph, `.pyisession`.

    What cannot be saved, such as on a full disk, is dropped; the first one is logged, and again after one was saved.
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
        """Write the recording and its flame graph, whole or not at all; drop others if there are too many."""
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
                surplus = self._surplus()
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

    def _surplus(self) -> list[Path]:
        """What this process has too many of, and forgets."""
        surplus = []
        while len(self._files) > self._keep.count:
            fastest = min(self._files, key=lambda file: file[0])
            index = 0 if self._keep.which == "latest" else self._files.index(fastest)
            surplus.append(self._files.pop(index)[1])
        return surplus

    def _is_due(self, size: int) -> bool:
        """Whether the folder is to be looked through after a file of this size: at first, and then now and then."""
        self._unchecked_count -= 1
        self._unchecked_bytes -= size
        is_due = self._unchecked_count <= 0 or self._unchecked_bytes <= 0
        if is_due:
            self._unchecked_count = self._keep.folder_count // 100
            self._unchecked_bytes = self._keep.folder_bytes // 100
        return is_due

    def _start_anew(self) -> None:
        """Begin anew, as a forked worker has to: its parent's files are not its own."""
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
    """The recordings of one process in memory: the last ones, or the slowest ones in the order in which they came."""

    def __init__(self, recordings: "deque[Recording]", keep: Keep) -> None:
        self._recordings = recordings
        self._keep = keep
        self._lock = threading.Lock()

    def save(self, recording: Recording) -> int:
        """Keep it, and drop the fastest or the oldest one if there are too many."""
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
