"""The check of a recorded history of reads and writes: session guarantees, and what became of each write.

`check_history` is the check, on operations that `HistoryLog` recorded and `read_history` reads back. Each consumer is a
register with one writer, which writes the next value when the last write has ended; any session may read. So the order
of its writes is known, and each read is checked by itself: no search through possible orders is needed.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from placebench.compare.keep.records import WriteCheck
from placebench.compare.load.write_check import Holding, check_writes
from placebench.decoding import read_lines
from placebench.errors import LoadError
from placebench.loadgen.write_log import Allocations, LoggedWrite

_ACKNOWLEDGED: Final = "2"
_REFUSED: Final = "4"


@dataclass(frozen=True)
class Operation:
    """One request; times in seconds of one clock."""

    session: int
    kind: Literal["read", "write"]
    consumer: str
    value: Allocations | None
    """The value that was written, or seen by a read that succeeded; None: nothing, which a release writes."""
    began_s: float
    ended_s: float | None = None
    """Time of its response; None: there was none, and a write may take effect at any time."""
    status: str | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Whether the service said that it was done."""
        return (self.status or "").startswith(_ACKNOWLEDGED)


@dataclass(frozen=True)
class HistoryCheck:
    """The violations of a history, as counts; the writes that were looked up in the end are in `writes`."""

    writes: WriteCheck
    reads: int
    """Number of reads that succeeded."""
    stale: int
    """Read-your-writes violated: older than what the session itself had written."""
    backwards: int
    """Monotonic reads violated: older than what the session itself had read before."""
    unwritten: int
    """A value that nobody had written by then, or part of one."""

    @property
    def passed(self) -> bool | None:
        """True if nothing is wrong; None if the writes could not be looked up."""
        return False if self.stale or self.backwards or self.unwritten else self.writes.passed


class HistoryLog:
    """Grows by a line when a write is sent, and by one when the response to anything came; for several threads."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self._file = path.open("wb", buffering=0)
        self._lock = threading.Lock()
        self._count = 0

    def sent(self, operation: Operation) -> int:
        """A write is about to be sent; return its number, for `ended`."""
        return self._write(operation, None)

    def ended(self, operation: Operation, number: int | None = None) -> None:
        """A response came. number: of the write that was sent; None: it is a read."""
        self._write(operation, number)

    def close(self) -> None:
        """Nothing more is recorded."""
        self._file.close()

    def _write(self, operation: Operation, number: int | None) -> int:
        with self._lock:
            if number is None:
                number = self._count = self._count + 1
            self._file.write(msgspec.json.encode(_Line(number, operation)) + b"\n")
            return number


@dataclass(frozen=True)
class _Line:
    """A line of a history; the last line with a number is what became of that operation."""

    number: int
    operation: Operation


def read_history(path: Path) -> list[Operation]:
    """The operations, of each session in their order; raises LoadError for what `HistoryLog` did not write."""
    lines = read_lines(path, _Line, error=LoadError)
    return list({line.number: line.operation for line in lines}.values())


def check_history(operations: Iterable[Operation], held: Mapping[str, Holding] | str) -> HistoryCheck:
    """Check every read, and the end of every write.

    operations: of each session in the order in which they began. held: by consumer what the tables have in the end,
    nothing left out; or why that is not known. Takes time in proportion to the operations.
    """
    operations = list(operations)
    writes = [each for each in operations if each.kind == "write"]
    reads = [each for each in operations if each.kind == "read" and each.is_acknowledged]
    registers: defaultdict[str, _Register] = defaultdict(_Register)
    for write in writes:
        registers[write.consumer].add(write)
    wrong = [registers[read.consumer].judge(read) for read in reads]
    logged = (LoggedWrite(write.consumer, write.value, write.status) for write in writes)
    return HistoryCheck(
        check_writes(logged, held),
        reads=len(reads),
        stale=sum("stale" in each for each in wrong),
        backwards=sum("backwards" in each for each in wrong),
        unwritten=sum("unwritten" in each for each in wrong),
    )


class _Register:
    """The versions of one consumer: 0 is nothing, the others are its writes in their order."""

    def __init__(self) -> None:
        self._writes: list[Operation] = []
        self._seen: defaultdict[int, int] = defaultdict(int)  # by session, the oldest version that it may have read

    def add(self, write: Operation) -> None:
        """The next version."""
        self._writes.append(write)

    def judge(self, read: Operation) -> set[str]:
        """Return what this read violates; reads come in the order of their session.

        Where two versions have the same value, the read is taken for the one that violates nothing.
        """
        versions = self._versions_of(read)
        if not versions:
            return {"unwritten"}
        written, seen = self._written_before(read), self._seen[read.session]
        newest = max(versions)
        self._seen[read.session] = min((each for each in versions if each >= seen), default=seen)
        return {name for name, floor in (("stale", written), ("backwards", seen)) if newest < floor}

    def _versions_of(self, read: Operation) -> list[int]:
        """Return the versions that the read may have seen by its value and its time; a refused write is none."""
        ended_s = read.ended_s or read.began_s
        found = [0] if read.value is None else []
        for version, write in enumerate(self._writes, 1):
            is_refused = (write.status or "").startswith(_REFUSED)
            if write.value == read.value and write.began_s <= ended_s and not is_refused:
                found.append(version)
        return found

    def _written_before(self, read: Operation) -> int:
        """The newest version that was acknowledged to this session before it read; 0: none."""
        return max(
            (
                version
                for version, write in enumerate(self._writes, 1)
                if write.session == read.session
                and write.is_acknowledged
                and write.ended_s is not None
                and write.ended_s <= read.began_s
            ),
            default=0,
        )
