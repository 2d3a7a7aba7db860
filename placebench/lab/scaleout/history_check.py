"""Check a recorded history of reads and writes: session guarantees, and the outcome of each write.

The main function is `check_history`; `HistoryLog` records the operations and `read_history` reads them. Each consumer
is a register with one writer, which writes the next value after the last write has ended; any session may read. So the
order of its writes is known, and each read is checked by itself: no search through possible orders is needed.
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
    """One request of a session; times are in seconds of one common clock."""

    session: int
    kind: Literal["read", "write"]
    consumer: str
    value: Allocations | None
    """The value written, or seen by a successful read; None means no value, which a release writes."""
    began_s: float
    ended_s: float | None = None
    """Time of the response; None if there was none: a write may then take effect at any time."""
    status: str | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Whether the service confirmed the operation."""
        return (self.status or "").startswith(_ACKNOWLEDGED)


@dataclass(frozen=True)
class HistoryCheck:
    """The anomalies in a history, as counts; `writes` has the result of looking up the writes at the end."""

    writes: WriteCheck
    reads: int
    """Number of successful reads."""
    stale: int
    """Number of reads that violate read-your-writes: older than a value that the session had written."""
    backwards: int
    """Number of reads that violate monotonic reads: older than a value that the session had read before."""
    unwritten: int
    """Number of reads of a value, or of a part of one, that nobody had written by then."""

    @property
    def passed(self) -> bool | None:
        """Whether there is no anomaly; None if there is none but the writes could not be looked up."""
        return False if self.stale or self.backwards or self.unwritten else self.writes.passed


class HistoryLog:
    """A file with one line per write that was sent and one line per response; can be used by several threads."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._lock = threading.Lock()
        self._count = 0

    def sent(self, operation: Operation) -> int:
        """Record that a write is about to be sent; return its number for `ended`."""
        return self._write(operation, None)

    def ended(self, operation: Operation, number: int | None = None) -> None:
        """Record a response; *number*: as returned by `sent`, or None for a read."""
        self._write(operation, number)

    def close(self) -> None:
        """Close the file; nothing more can be recorded."""
        self._file.close()

    def _write(self, operation: Operation, number: int | None) -> int:
        with self._lock:
            if number is None:
                number = self._count = self._count + 1
            self._file.write(msgspec.json.encode(_Line(number, operation)) + b"\n")
            return number


@dataclass(frozen=True)
class _Line:
    """A line of a history file; the last line with a number has the outcome of that operation."""

    number: int
    operation: Operation


def read_history(path: Path) -> list[Operation]:
    """Return the operations, those of each session in order; raise LoadError if `HistoryLog` did not write the file."""
    lines = read_lines(path, _Line, error=LoadError)
    return list({line.number: line.operation for line in lines}.values())


def check_history(operations: Iterable[Operation], held: Mapping[str, Holding] | str) -> HistoryCheck:
    """Check every read, and the outcome of every write.

    operations: those of each session in the order in which they began. held: the final content of the tables by
    consumer, complete; or the reason why it is unknown. Takes time linear in the number of operations.
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
    """The versions of one consumer: 0 is not a value, the others are its writes in order."""

    def __init__(self) -> None:
        self._writes: list[Operation] = []
        self._seen: defaultdict[int, int] = defaultdict(int)  # by session, the oldest version that it may have read

    def add(self, write: Operation) -> None:
        self._writes.append(write)

    def judge(self, read: Operation) -> set[str]:
        """Return the anomalies of a read; the reads of a session must come in order.

        If several versions have the value that was read, the version without an anomaly is assumed.
        """
        versions = self._versions_of(read)
        if not versions:
            return {"unwritten"}
        written, seen = self._written_before(read), self._seen[read.session]
        newest = max(versions)
        self._seen[read.session] = min((each for each in versions if each >= seen), default=seen)
        return {name for name, floor in (("stale", written), ("backwards", seen)) if newest < floor}

    def _versions_of(self, read: Operation) -> list[int]:
        """Return the versions that the read may have seen, by value and time; refused writes are not versions."""
        ended_s = read.ended_s or read.began_s
        found = [0] if read.value is None else []
        for version, write in enumerate(self._writes, 1):
            is_refused = (write.status or "").startswith(_REFUSED)
            if write.value == read.value and write.began_s <= ended_s and not is_refused:
                found.append(version)
        return found

    def _written_before(self, read: Operation) -> int:
        """Return the newest version that was acknowledged to this session before the read began; 0 if there is none."""
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
