"""Recordings of a running process on request: `AttachmentChannel` in the process, `Attachment` in the command.

The channel is a file in memory without a name, which the process and its children hold open. A command of the same
user, or of root, finds it as /proc/PID/fd/N, and writes into it how long to record. The middleware reads that at each
request, and appends the recordings. So there is no address, no file, no signal and no thread, and nothing stays when
either side is killed. The command holds a lock (flock) while it lives. Writers hold another lock (lockf).
"""

import json
import logging
import os
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from placebench import units
from placebench.errors import ProfilerError
from placebench.profiler.capture.options import MODES, Options
from placebench.profiler.recording import Recording
from placebench.profiler.requests.sampling import Store

_LOG = logging.getLogger("placebench.profiler")
_NAME = "placebench-attach"
_MAGIC = b"placebench attach 1\0"
# The magic; the end of the recording time by time.monotonic, 0 if nothing is recorded; the offset where the recordings
# end; how many recordings were left out; the mode.
_HEADER = struct.Struct("<20s4xdQQ16s")
_LENGTH = struct.Struct("<Q")
_MAX_BYTES = 16 * 2**20
_MAX_WAIT_S = 0.1


class AttachmentChannel:
    """The process's side of the channel: reads whether a command records requests, and stores their recordings."""

    def __init__(self) -> None:
        """Open the channel; if the system cannot make such a file, no command can attach."""
        self._unsaved = 0
        self._start_anew()
        self._file = -1
        if sys.platform != "linux":  # only there does /proc show a command the open files of a process
            return
        try:
            if hasattr(os, "memfd_create"):
                self._file = os.memfd_create(_NAME)
            else:  # depends on how Python was built
                self._file, path = tempfile.mkstemp(prefix=_NAME)
                Path(path).unlink()
            os.pwrite(self._file, _HEADER.pack(_MAGIC, 0.0, _HEADER.size, 0, b""), 0)
            self._identity = _identity(self._file)
        except OSError as error:
            _LOG.info("placebench profile attach is not available in this process: %s", error)
            self._file = -1

    def options(self) -> Options | None:
        """Return the options by which a command records the request that begins now; None if no command does."""
        if self._file < 0:
            return None
        try:
            magic, until, _, _, mode = _HEADER.unpack(os.pread(self._file, _HEADER.size, 0))
        except (OSError, struct.error):  # some servers close all files when they become daemons
            return None
        if until <= time.monotonic() or magic != _MAGIC:
            return None
        name = mode.rstrip(b"\0").decode(errors="replace")
        return Options(name) if name in MODES else None

    def save(self, recording: Recording) -> int:
        """Hand a recording to the command; return 1 if it is dropped (no memory, no time, no command), else 0."""
        session = None if recording.session is None else recording.session.to_json()
        document = {"pid": os.getpid(), "recording": recording.to_json(), "session": session}
        text = json.dumps(document).encode()
        if os.getpid() != self._pid:
            self._start_anew()
        if self._lock.acquire(timeout=_MAX_WAIT_S):
            try:
                with _writing(self._file):
                    return self._append(text)
            except (OSError, struct.error, TimeoutError):
                pass
            finally:
                self._lock.release()
        self._unsaved += 1
        return 1

    def beside(self, store: Store) -> Store:
        """Return a store that saves in this channel and in *store*."""
        return _Both(self, store)

    def _append(self, text: bytes) -> int:
        """Append a recording; return 1 if it is dropped, else 0."""
        if _identity(self._file) != self._identity:
            return 1
        _, until, end, dropped, mode = _HEADER.unpack(os.pread(self._file, _HEADER.size, 0))
        if not _is_locked(self._file):
            # The command was killed: give its memory back, and record no more.
            os.ftruncate(self._file, _HEADER.size)
            os.pwrite(self._file, _HEADER.pack(_MAGIC, 0.0, _HEADER.size, 0, b""), 0)
            return 1
        saved = end + _LENGTH.size + len(text) <= _MAX_BYTES
        if saved:
            os.pwrite(self._file, _LENGTH.pack(len(text)) + text, end)
            end += _LENGTH.size + len(text)
        os.pwrite(self._file, _HEADER.pack(_MAGIC, until, end, dropped + self._unsaved + (not saved), mode), 0)
        self._unsaved = 0
        return int(not saved)

    def _start_anew(self) -> None:
        """Make a new lock: another thread of the parent process may have held the inherited one."""
        self._lock = threading.Lock()
        self._pid = os.getpid()


class _Both:
    """A store that saves each recording in two stores."""

    def __init__(self, first: Store, second: Store) -> None:
        self._first = first
        self._second = second

    def save(self, recording: Recording) -> int:
        """Save in both, and return how many recordings the second one dropped."""
        self._first.save(recording)
        return self._second.save(recording)


@cache
def process_channel() -> AttachmentChannel:
    """Return the channel of this process, made on the first call, or the one that it inherited."""
    return AttachmentChannel()


class Attachment:
    """The command's side of one channel. Raises ProfilerError if it cannot be opened, or if another command uses it."""

    def __init__(self, path: Path) -> None:
        import fcntl  # which Windows does not have

        try:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise ProfilerError(f"{path} cannot be opened: {error.strerror}; run as the user of the process") from error
        if os.pread(self._file, len(_MAGIC), 0) != _MAGIC:
            os.close(self._file)
            raise ProfilerError(f"{path} is of another version of placebench: use the one of the process")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise ProfilerError("the process is being recorded already: wait for the other command to end") from error
        self.dropped: int = 0

    def start(self, mode: str, seconds: float) -> None:
        """Have requests recorded in *mode* for *seconds* from now on.

        Raises ProfilerError if a stopped process prevents it.
        """
        try:
            with _writing(self._file):
                self._reset(time.monotonic() + seconds, mode)
        except TimeoutError:
            raise ProfilerError("a process of it is stopped while it hands over a recording: continue it") from None

    def read(self) -> list[tuple[int, Recording]]:
        """Return the recordings since the last call, each with its process, and free their memory.

        Returns nothing while a stopped process holds the lock.
        """
        content = b""
        with suppress(TimeoutError), _writing(self._file):
            _, until, end, dropped, mode = _HEADER.unpack(os.pread(self._file, _HEADER.size, 0))
            content = os.pread(self._file, end - _HEADER.size, _HEADER.size)
            self.dropped += dropped
            self._reset(until, mode.rstrip(b"\0").decode())
        recordings, at = [], 0
        while at < len(content):
            (length,) = _LENGTH.unpack_from(content, at)
            at += _LENGTH.size
            document = json.loads(content[at : at + length])
            at += length
            recording = Recording.from_json(document["recording"], source="what the process sent")
            if document["session"] is not None:
                from placebench.profiler.model.session import FlameSession

                recording.session = FlameSession.from_json(document["session"])
            recordings.append((document["pid"], recording))
        return recordings

    def stop(self) -> list[tuple[int, Recording]]:
        """Stop the recording of requests, and return the last recordings."""
        with suppress(TimeoutError), _writing(self._file):
            header = bytearray(os.pread(self._file, _HEADER.size, 0))
            magic, _, end, dropped, mode = _HEADER.unpack(header)
            os.pwrite(self._file, _HEADER.pack(magic, 0.0, end, dropped, mode), 0)
        return self.read()

    def close(self) -> None:
        """Close the channel, which ends the recording of requests."""
        os.close(self._file)

    def _reset(self, until: float, mode: str) -> None:
        os.ftruncate(self._file, _HEADER.size)
        os.pwrite(self._file, _HEADER.pack(_MAGIC, until, _HEADER.size, 0, mode.encode()), 0)


def channels_of(pid: int) -> dict[tuple[int, int], Path]:
    """Return the channels of a process and its descendants; raise ProfilerError if there is none, or no access."""
    processes = process_tree(pid)
    if not processes:
        raise ProfilerError(f"there is no process {pid}")
    try:
        channels = find_channels(processes)
    except PermissionError as error:
        raise ProfilerError(
            f"access to process {pid} was denied: run as its user, or as root with the capability SYS_PTRACE"
        ) from error
    if not channels:
        descendants = units.numbered(len(processes) - 1, "descendant")
        raise ProfilerError(
            f"process {pid} and its {descendants} have no middleware of placebench: "
            "expected SqlProfiler.wsgi, asgi, calls or an integration, with Sampling(attach=True)"
        )
    return channels


def find_channels(processes: Sequence[int]) -> dict[tuple[int, int], Path]:
    """Return the channels of these processes, each once. Raises PermissionError if access to one is denied."""
    found: dict[tuple[int, int], Path] = {}
    for pid in processes:
        with suppress(FileNotFoundError, ProcessLookupError):
            for path in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    if path.readlink().name.startswith((f"memfd:{_NAME}", _NAME)):
                        status = path.stat()
                        found.setdefault((status.st_dev, status.st_ino), path)
    return found


def process_tree(pid: int) -> list[int]:
    """Return the process and its descendants; empty if there is no such process."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name in parentheses may contain any character.
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(path.parent.name))
    tree = [pid] if Path(f"/proc/{pid}").exists() else []
    for each in tree:
        tree += parents.get(each, ())
    return tree


def _identity(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _is_locked(file: int) -> bool:
    """Return whether a command is alive and holds the channel's lock for commands (flock)."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


@contextmanager
def _writing(file: int) -> Iterator[None]:
    """Hold the lock of writers. Raises TimeoutError if another process, perhaps a stopped one, does not release it."""
    import fcntl

    began = time.monotonic()
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except (BlockingIOError, PermissionError):
            if time.monotonic() - began > _MAX_WAIT_S:
                raise TimeoutError from None
            time.sleep(0.0005)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)
