"""The log of a load run that writes: each write before it is sent, and its status when the response comes.

A locustfile keeps a `WriteLog`, `read_write_log` reads it. A line is a JSON object; what was sent and got no response
has one line only, also when the generator was killed. Consumers are named by seed, run and number, so
that neither another writer nor an earlier run is taken for this one.
"""

import json
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

Allocations = dict[str, dict[str, int]]  # amounts by resource class by provider

_MOST_WRITES = 1 << 40


@dataclass(frozen=True)
class LoggedWrite:
    """One write that was sent."""

    consumer: str
    claimed: Allocations | None
    """What the consumer is to have; None: its allocations were deleted."""
    status: str | None
    """The HTTP status of the response; None: in doubt, for none came."""


class WriteLog:
    """Grows line by line while the load runs."""

    def __init__(self, path: Path, *, seed: int, run: str, part: int = 0) -> None:
        """Open the file; *run* distinguishes this run from others with the same seed.

        part: of which of several processes; their logs one after the other are one log.
        """
        self._file = path.open("w", buffering=1)
        self._name = f"placebench claims, seed {seed}, run {run}, part {part}"
        self._consumers, self._writes = count(1), count(1 + part * _MOST_WRITES)

    def new_consumer(self) -> str:
        """The UUID of the next consumer."""
        return str(uuid5(NAMESPACE_URL, f"{self._name}, consumer {next(self._consumers)}"))

    def sent(self, consumer: str, claimed: Allocations | None) -> int:
        """A write is about to leave; returns its number, for `responded`."""
        number = next(self._writes)
        self._line({"write": number, "consumer": consumer, "claimed": claimed})
        return number

    def responded(self, number: int, status: str) -> None:
        """The response to a write has come."""
        self._line({"write": number, "status": status})

    def close(self) -> None:
        """Nothing more is written; each line is in the file already."""
        self._file.close()

    def _line(self, content: dict[str, Any]) -> None:
        self._file.write(json.dumps(content) + "\n")


def write_log_path(samples_file: Path) -> Path:
    """The path of the log of a run whose samples go there."""
    return samples_file.with_suffix(".writes.jsonl")


def read_write_log(path: Path) -> list[LoggedWrite]:
    """The writes in the order in which they were sent; a last line that was cut off is left out."""
    sent: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        sent.setdefault(content["write"], {}).update(content)
    return [LoggedWrite(each["consumer"], each["claimed"], each.get("status")) for each in sent.values()]
