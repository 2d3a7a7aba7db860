"""The log of a load run that writes: each write before it is sent, and its status when the response arrives.

A locustfile writes a `WriteLog`; `read_write_log` reads it. A line is a JSON object; a write without response has only
one line, even if the generator was killed. Consumers are named by seed, run and number, so that no other writer and
no earlier run is mistaken for this one.
"""

import json
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

Allocations = dict[str, dict[str, int]]  # amounts by resource class by provider

_MAX_WRITES = 1 << 40


@dataclass(frozen=True)
class LoggedWrite:
    """One write that was sent."""

    consumer: str
    claimed: Allocations | None
    """The allocations that the consumer should get; None if they are deleted."""
    status: str | None
    """The HTTP status of the response; None if there was none, so that the write is in doubt."""


class WriteLog:
    """The log of a running load, written line by line."""

    def __init__(self, path: Path, *, seed: int, run: str, part: int = 0) -> None:
        """Open the file; *run* distinguishes this run from others with the same seed.

        part: the number of this process if there are several; their logs can be concatenated.
        """
        self._file = path.open("w", buffering=1)
        self._name = f"placebench claims, seed {seed}, run {run}, part {part}"
        self._consumers, self._writes = count(1), count(1 + part * _MAX_WRITES)

    def new_consumer(self) -> str:
        """Return the UUID of the next consumer."""
        return str(uuid5(NAMESPACE_URL, f"{self._name}, consumer {next(self._consumers)}"))

    def sent(self, consumer: str, claimed: Allocations | None) -> int:
        """Log a write that is about to be sent; returns its number, for `responded`."""
        number = next(self._writes)
        self._line({"write": number, "consumer": consumer, "claimed": claimed})
        return number

    def responded(self, number: int, status: str) -> None:
        """Log the status of the response to the write *number*."""
        self._line({"write": number, "status": status})

    def close(self) -> None:
        """Close the file; every line is already written."""
        self._file.close()

    def _line(self, content: dict[str, Any]) -> None:
        self._file.write(json.dumps(content) + "\n")


def write_log_path(samples_file: Path) -> Path:
    """Return the path of the write log beside a run's samples."""
    return samples_file.with_suffix(".writes.jsonl")


def read_write_log(path: Path) -> list[LoggedWrite]:
    """Return the writes in the order in which they were sent, without lines that were cut off."""
    sent: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        sent.setdefault(content["write"], {}).update(content)
    return [LoggedWrite(each["consumer"], each["claimed"], each.get("status")) for each in sent.values()]
