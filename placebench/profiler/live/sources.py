"""Sources of recordings for a journal: a folder that a server writes into, and a running process."""

import os
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from placebench.errors import ProfilerError
from placebench.profiler.live.journal import Journal
from placebench.profiler.recording import Recording
from placebench.profiler.requests.attachment import Attachment, channels_of, find_channels, process_tree

_SUFFIX = ".recording.json"
_MAX_FILES = 200
_MAX_S = 10 * 365 * 86_400.0


class FolderSource:
    """The recordings in a folder, such as that of `SqlProfiler.wsgi`, each once; the newest ones if there are too many.

    on_unreadable: called with a line for each file that is not a recording. Raises ProfilerError if there is no folder.
    """

    def __init__(self, folder: Path, journal: Journal, on_unreadable: Callable[[str], None]) -> None:
        if not folder.is_dir():
            raise ProfilerError(f"{folder} is not a folder: expected the one that the server saves recordings in")
        self._folder = folder
        self._journal = journal
        self._on_unreadable = on_unreadable
        self._known: set[str] = set()
        self._pending: deque[Path] = deque()
        self._changed_at = 0.0

    def read(self) -> None:
        """Add recordings that have come, the oldest first: at most 200, so that the caller can do other things."""
        with suppress(FileNotFoundError):
            changed_at = self._folder.stat().st_mtime
            # A file that came just after the last look may have left the folder's time as it was.
            if changed_at != self._changed_at or time.time() - changed_at < 2.0:
                self._changed_at = changed_at
                self._find()
        for _ in range(min(len(self._pending), _MAX_FILES)):
            path = self._pending.popleft()
            try:
                recording = Recording.load(path)
            except ProfilerError as error:
                if path.exists():  # its process deletes the oldest ones
                    self._on_unreadable(str(error))
                continue
            pid = re.match(r"\d{1,9}(?=-)", path.name)
            self._journal.add(int(pid[0]) if pid else 0, recording)

    def _find(self) -> None:
        """Note the recordings that have come since the last look."""
        found: list[tuple[float, str]] = []
        names: set[str] = set()
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIX) or entry.name == "recording.json":
                    names.add(entry.name)
                    if entry.name not in self._known:
                        with suppress(FileNotFoundError):
                            found.append((entry.stat().st_mtime, entry.name))
        self._known = names
        self._pending.extend(self._folder / name for _, name in sorted(found)[-self._journal.count :])


class ProcessSource:
    """The requests that a process and its descendants begin from now on.

    Raises ProfilerError if there is no such process, if access to it is denied, or if it has no middleware.
    """

    def __init__(self, pid: int, mode: str, journal: Journal) -> None:
        self._pid = pid
        self._mode = mode
        self._journal = journal
        self._attachments: dict[tuple[int, int], Attachment] = {}
        self._reads = 0
        self.dropped: int = 0
        self._attach(channels_of(pid))

    def read(self) -> bool:
        """Add the recordings that have come since the last call; return False if the process has ended."""
        is_alive = True
        self._reads += 1
        if self._reads % 10 == 0:  # a reloader starts another process
            processes = process_tree(self._pid)
            is_alive = bool(processes)
            with suppress(PermissionError):
                self._attach(find_channels(processes))
        for attachment in self._attachments.values():
            for pid, recording in attachment.read():
                self._journal.add(pid, recording)
        self.dropped = sum(each.dropped for each in self._attachments.values())
        return is_alive

    def close(self) -> None:
        """Record no more requests."""
        for attachment in self._attachments.values():
            attachment.close()
        self._attachments.clear()

    def _attach(self, channels: dict[tuple[int, int], Path]) -> None:
        for key, path in channels.items():
            if key not in self._attachments:
                self._attachments[key] = Attachment(path)
                self._attachments[key].start(self._mode, _MAX_S)
