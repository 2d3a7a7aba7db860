"""What goes through the connection to another machine: `Stream` sends headers with bytes, `write_file` writes one."""

import json
import queue
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from placebench.errors import HostError

Header = dict[str, Any]
Received = tuple[Header, bytes] | None
_STAYS: Final = ("sources", "log/lock")
"""Of a run's folder: its worktrees, and what keeps other processes of the same machine out."""


class Stream:
    """Headers, one JSON line each, with bytes after those that announce some; written by several threads."""

    def __init__(self, reading: IO[bytes], writing: IO[bytes]) -> None:
        self._reading, self._writing, self._lock = reading, writing, threading.Lock()

    def send(self, header: Mapping[str, Any], payload: bytes = b"") -> None:
        """Send a header, and the bytes that it announces."""
        with self._lock:
            self._writing.write(json.dumps({**header, "bytes": len(payload)}).encode() + b"\n" + payload)
            self._writing.flush()

    def send_files(self, folder: Path, files: Iterable[Path], *, below: str) -> None:
        """Send files of *folder*; one that went meanwhile is left out."""
        for path in files:
            header = {"below": below, "file": path.relative_to(folder).as_posix()}
            with suppress(FileNotFoundError):
                if path.is_symlink():
                    self.send({**header, "link": str(path.readlink())})
                elif path.is_file():
                    self.send({**header, "mode": path.stat().st_mode & 0o777}, path.read_bytes())

    def receive(self) -> Received:
        """The next header with its bytes; None at the end, which may be in the middle of them."""
        line = self._reading.readline()
        if not line.endswith(b"\n"):
            return None
        header: Header = json.loads(line)
        payload = self._reading.read(header["bytes"])
        return (header, payload) if len(payload) == header["bytes"] else None

    def receive_all(self) -> "queue.SimpleQueue[Received]":
        """What comes from now on, received by a thread of its own; None is the last."""
        received: queue.SimpleQueue[Received] = queue.SimpleQueue()

        def work() -> None:
            got: Received = ({}, b"")
            while got is not None:
                try:
                    got = self.receive()
                except (OSError, ValueError):
                    got = None
                received.put(got)

        threading.Thread(target=work, daemon=True).start()
        return received


def write_file(folder: Path, header: Header, payload: bytes, *, links: bool) -> None:
    """Write a file that was sent, in place of an older one; raises HostError for one that belongs elsewhere."""
    path = folder / header["file"]
    if not path.resolve().is_relative_to(folder.resolve()) or ("link" in header and not links):
        raise HostError(f"a file {header['file']!r} was sent for {folder}, which is not inside of it")
    path.parent.mkdir(parents=True, exist_ok=True)
    if "link" in header:
        path.symlink_to(header["link"])
        return
    written = path.with_name(f"{path.name}.part")
    written.write_bytes(payload)
    written.chmod(header["mode"])
    written.replace(path)


def files_of_run(folder: Path) -> list[Path]:
    """Those that come back, and that a run is resumed with."""
    every = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in every if not path.relative_to(folder).as_posix().startswith(_STAYS)]
