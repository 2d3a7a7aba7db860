"""The file of a history: one JSON document per line, appended and never changed (`History.read`, `append_lines`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from placebench import decoding
from placebench.decoding import Amount, Count, Positive, read_lines
from placebench.errors import HistoryError

_Commit = Annotated[str, Meta(pattern="^[0-9a-f]{40,64}$")]


class Measured(Struct, frozen=True, omit_defaults=True):
    """One metric of an entry, as the ratio of the commit to the reference."""

    ratio: Positive | None
    """Value of the commit divided by that of the reference; None if one of the two is 0."""
    low: Positive | None = None
    """Lower end of the confidence interval of the ratio; None if there were too few replicates."""
    high: Positive | None = None
    confidence: Annotated[float, Meta(ge=0.5, lt=1)] = 0.95
    replicates: Count = 0
    baseline_value: Amount | None = None
    variant_value: Amount | None = None


class HistoryEntry(Struct, frozen=True, kw_only=True, tag="entry", tag_field="kind"):
    """A commit that was measured against the reference."""

    commit: _Commit
    subject: str
    reference: _Commit
    reference_name: str
    """The reference as the user named it, such as a tag."""
    measured_at: str
    """Time of the measurement: UTC, ISO 8601."""
    request: str
    metrics: dict[str, Measured]
    machine: dict[str, str | int | float | None]
    versions: dict[str, str]
    content: str | None = None
    """Digest of the commit's files without the history, which a rebase may keep; None in older lines."""


class Failure(Struct, frozen=True, kw_only=True, tag="failure", tag_field="kind"):
    """A commit that could not be measured."""

    commit: _Commit
    subject: str
    reference: _Commit
    measured_at: str
    reason: str


class Blessing(Struct, frozen=True, kw_only=True, tag="bless", tag_field="kind"):
    """A step that the user has accepted."""

    commit: _Commit
    metric: str | None
    """The metric whose step is accepted; None for every metric."""
    reason: str
    blessed_at: str


Line = HistoryEntry | Failure | Blessing


@dataclass(frozen=True)
class History:
    """All lines of a history's file, in the order in which they were written."""

    lines: Sequence[Line]

    @classmethod
    def read(cls, path: Path) -> "History":
        """Read the file, which may be missing; raises HistoryError with the number of the first invalid line."""
        return cls(read_lines(path, Line, error=HistoryError))  # type: ignore[arg-type]

    @cached_property
    def entries(self) -> list[HistoryEntry]:
        """Entries of the measured commits."""
        return [each for each in self.lines if isinstance(each, HistoryEntry)]

    @cached_property
    def failures(self) -> list[Failure]:
        """The last failure of each commit that was never measured."""
        measured = {each.commit for each in self.entries}
        last = {each.commit: each for each in self.lines if isinstance(each, Failure)}
        return [each for each in last.values() if each.commit not in measured]

    @cached_property
    def blessings(self) -> list[Blessing]:
        """The accepted steps."""
        return [each for each in self.lines if isinstance(each, Blessing)]

    def moved(self, contents: Mapping[str, str]) -> "History":
        """Return the history with the lines of commits that a rebase replaced given to those with the same files.

        contents: the digest of each commit's files by its hash, the oldest first, as of `contents_of`. Of several
        commits with the same files, such as one and the revert of the next, each gets its own measurement if there are
        as many.
        """
        same: dict[str, list[str]] = {}
        for commit, content in contents.items():
            same.setdefault(content, []).append(commit)
        taken = {each.commit for each in self.entries}
        new: dict[str, str] = {}
        for each in self.entries:
            if each.commit not in contents and each.commit not in new and each.content in same:
                found = same[each.content]
                new[each.commit] = next((commit for commit in found if commit not in taken), found[-1])
                taken.add(new[each.commit])

        def line(each: Line) -> Line:
            moved = structs.replace(each, commit=new.get(each.commit, each.commit))
            if isinstance(moved, Blessing):
                return moved
            return structs.replace(moved, reference=new.get(moved.reference, moved.reference))

        return History([line(each) for each in self.lines]) if new else self

    @property
    def reference(self) -> HistoryEntry | None:
        """The newest entry, which names the pinned reference; None if there is no entry."""
        return self.entries[-1] if self.entries else None


def append_lines(path: Path, lines: Iterable[Line]) -> None:
    """Append *lines* to the file and sync it to disk, as `placebench.decoding.append_lines` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    decoding.append_lines(path, map(msgspec.json.encode, lines))
