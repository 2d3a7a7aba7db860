"""The protocol of the connection to another machine: `Stream` sends headers with bytes, `write_file` writes a file.

Neither side trusts the other: a header has known keys of known types, large payloads are stored on disk and not in
memory, and a file is written inside the folder that it was sent for, or not at all.
"""

import io
import json
import os
import queue
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any, Final, Required, TypedDict

import msgspec

from placebench.errors import HostError
from placebench.runtime.private_files import create_private

MAX_PAYLOAD_BYTES: Final = 16 * 2**30
_MAX_HEADER_BYTES: Final = 2**20
_IN_MEMORY_BYTES: Final = 2**20
_MAX_WAITING: Final = 64
_NOT_TRANSFERRED: Final = (PurePosixPath("sources"), PurePosixPath("log/lock"))
"""Parts of a run's folder that stay on its machine: work trees, and the lock against other processes."""


class Header(TypedDict, total=False):
    """The head of one message, which states how many bytes follow."""

    bytes: Required[Annotated[int, msgspec.Meta(ge=0, le=MAX_PAYLOAD_BYTES)]]
    place: str
    """Name of the scratch folder, in the first message."""
    run: str
    """Name of the run's folder, in the first message."""
    within: str
    """The working folder of the run, relative to the top of the project."""
    head: str
    """Hash of the commit HEAD of the repository, whose bundle follows."""
    shallow: list[str]
    """Hashes of the repository's commits whose parents it does not have."""
    below: str
    """The folder to which a file belongs."""
    file: str
    link: str
    mode: int
    job: bool
    line: str
    """A line that was printed on the other machine."""
    beat: bool
    stop: bool
    ended: str
    """The kind of error that ended the job; empty for a success."""
    message: str


Received = tuple[Header, IO[bytes]] | None


class Stream:
    """Headers, one JSON line each, followed by as many bytes as they announce; several threads may write."""

    def __init__(self, reading: IO[bytes], writing: IO[bytes]) -> None:
        self._reading, self._writing, self._lock = reading, writing, threading.Lock()

    def send(self, header: Mapping[str, Any], payload: bytes | IO[bytes] = b"") -> None:
        """Send a header and the bytes that it announces: *payload*, or the content of the file *payload*.

        The other side waits for as many bytes as announced. So a file that grows meanwhile is cut, and one that shrinks
        is filled with zeros.
        """
        file = io.BytesIO(payload) if isinstance(payload, bytes) else payload
        left = file.seek(0, os.SEEK_END)
        file.seek(0)
        with self._lock:
            self._writing.write(json.dumps({**header, "bytes": left}).encode() + b"\n")
            while left:
                part = file.read(min(left, _IN_MEMORY_BYTES)) or bytes(min(left, _IN_MEMORY_BYTES))
                self._writing.write(part)
                left -= len(part)
            self._writing.flush()

    def send_files(self, folder: Path, files: Iterable[Path], *, below: str) -> None:
        """Send files of *folder*; a file that has disappeared is left out."""
        for path in files:
            header = {"below": below, "file": path.relative_to(folder).as_posix()}
            with suppress(FileNotFoundError):
                if path.is_symlink():
                    self.send({**header, "link": str(path.readlink())})
                elif path.is_file():
                    with path.open("rb") as file:
                        self.send({**header, "mode": os.fstat(file.fileno()).st_mode & 0o777}, file)

    def receive(self) -> Received:
        """Return the next header with its bytes; None at the end of the stream, even within a message.

        Raises HostError if the other side sends no valid header.
        """
        line = self._reading.readline(_MAX_HEADER_BYTES)
        if not line.endswith(b"\n") and len(line) < _MAX_HEADER_BYTES:
            return None
        try:
            header = msgspec.convert(json.loads(line), Header)
        except (msgspec.ValidationError, RecursionError, ValueError) as error:
            raise HostError(f"the other side sent {line[:40]!r}, which is not a header: {error}") from error
        is_small = header["bytes"] <= _IN_MEMORY_BYTES
        payload: IO[bytes] = io.BytesIO() if is_small else tempfile.TemporaryFile()  # noqa: SIM115
        left = header["bytes"]
        while left:
            part = self._reading.read(min(left, _IN_MEMORY_BYTES))
            if not part:
                payload.close()
                return None
            payload.write(part)
            left -= len(part)
        payload.seek(0)
        return header, payload

    def receive_all(self) -> "queue.Queue[Received | HostError]":
        """Return a queue of all later messages, filled by a thread; its last item is None or an error.

        The thread waits while the queue is full, and the other side waits with it.
        """
        received: queue.Queue[Received | HostError] = queue.Queue(_MAX_WAITING)

        def work() -> None:
            is_open = True
            while is_open:
                got: Received | HostError
                try:
                    got = self.receive()
                except HostError as error:
                    got = error
                except (OSError, ValueError):
                    got = None
                received.put(got)
                is_open = isinstance(got, tuple)

        threading.Thread(target=work, daemon=True).start()
        return received


def write_file(folder: Path, header: Header, payload: IO[bytes], *, links: bool) -> None:
    """Write a received file, replacing an older one, and close *payload*.

    The file gets the sent mode without the right of others to write. Raises HostError for a file outside *folder*, or
    one that cannot be written.
    """
    name = header.get("file", "")
    path, steps = folder / name, PurePosixPath(name).parts
    is_inside = bool(steps) and ".." not in steps and "\0" not in name and not name.startswith("/")
    if not is_inside or not path.resolve().is_relative_to(folder.resolve()) or ("link" in header and not links):
        raise HostError(f"a file {name!r} was sent for {folder}, which is not inside of it")
    # No other file has this name, neither the user's nor one that was sent before.
    written = path.with_name(f".{secrets.token_hex(16)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if "link" in header:
            path.symlink_to(header["link"])
            return
        with payload, create_private(written) as file:
            shutil.copyfileobj(payload, file)
            os.fchmod(file.fileno(), header.get("mode", 0) & 0o755 | 0o600)
        written.replace(path)
    except OSError as error:
        with suppress(OSError):
            written.unlink()
        raise HostError(f"the file {name!r} that was sent for {folder} cannot be written: {error.strerror}") from error


def files_of_run(folder: Path) -> list[Path]:
    """Return the files of a run that are sent back, and with which a run is resumed."""
    every = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [
        path for path in every if not any(path.relative_to(folder).is_relative_to(part) for part in _NOT_TRANSFERRED)
    ]
