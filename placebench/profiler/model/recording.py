"""What one record saw: its statements, transactions and spans, its sums, and its JSON file.

The key piece is `Recording`. Raw times are kept; sums are computed when asked for.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from placebench.errors import ProfilerError
from placebench.profiler.analysis.summary import Summary, summarise, total, total_of_all
from placebench.profiler.model.checking import checked
from placebench.profiler.model.statement import Span, Statement, Transaction

if TYPE_CHECKING:
    from pyinstrument.session import Session

    from placebench.profiler.analysis.difference import RecordingDifference
    from placebench.profiler.analysis.findings import Finding

FORMAT_VERSION = 1

Numbered = TypeVar("Numbered", Statement, Transaction)


@dataclass
class Recording:
    """Filled when its record ends; empty until then.

    elapsed_s: wall time of the record. Of merged recordings this and every other sum is the total of all of them.
    cpu_s: CPU of the recording thread; None under asyncio, whose tasks share a thread.
    sql_s: seconds in pool waits, connects, compilation, execute, fetch, COMMIT and ROLLBACK. Where statements ran at
        the same time this is the sum over them, and may be more than elapsed_s. None if the profiler was off.
    gc_s: pauses of the garbage collector in the recording thread; they lie inside the other times.
    dropped: statements and transaction steps beyond the limit: counted, and their time is in sql_s, but not kept.
    requests: how many recordings were merged into this one; 1 for one that was recorded.
    error: the class of the exception that ended the record.
    own_s: what the profiler itself took of elapsed_s, by its own stamps between its hook and the driver's call; what
        SQLAlchemy takes to call the hooks, and a flame's sampling, are not in it.
    notes: what could not be measured and why, one line each.
    session: pyinstrument's session of a record in mode "flame", with the statements as leaves; of merged requests the
        mean one. It is saved in a file of its own.
    """

    name: str
    mode: str
    statements: Sequence[Statement] = ()
    transactions: Sequence[Transaction] = ()
    spans: Sequence[Span] = ()
    elapsed_s: float = 0.0
    cpu_s: float | None = None
    sql_s: float | None = None
    gc_s: float | None = None
    gc_collections: int | None = None
    dropped: int = 0
    requests: int = 1
    error: str | None = None
    own_s: float | None = None
    notes: Sequence[str] = ()
    session: "Session | None" = field(default=None, repr=False, compare=False)

    @property
    def python_s(self) -> float | None:
        """Elapsed seconds outside of sql_s: rows into objects, and the application; None if statements overlapped."""
        seconds = None if self.sql_s is None else self.elapsed_s - self.sql_s
        return None if seconds is None or seconds < 0 else seconds

    @property
    def statement_count(self) -> int:
        """Statements that were kept."""
        return len(self.statements)

    @property
    def row_count(self) -> int | None:
        """Rows of all statements that tell; None if none does."""
        return total(statement.row_count for statement in self.statements)

    @property
    def round_trips(self) -> int | None:
        """Round trips of all statements and transaction steps that tell; None if none does."""
        trips = [statement.round_trips for statement in self.statements]
        return total(trips + [transaction.round_trips for transaction in self.transactions])

    @property
    def bytes_sent(self) -> int | None:
        """Bytes that the statements sent; None if none was measured."""
        return total(statement.bytes_sent for statement in self.statements)

    @property
    def bytes_received(self) -> int | None:
        """Bytes that the statements' answers had; None if none was measured."""
        return total(statement.bytes_received for statement in self.statements)

    def summary(self) -> Summary:
        """The sums, and one line for each fingerprint, dearest first; `str()` of it is a table for a terminal."""
        return summarise(self)

    def findings(self) -> "tuple[Finding, ...]":
        """What is worth changing, with the place in the code and what to do, dearest first."""
        from placebench.profiler.analysis.findings import find

        return find(self)

    def diff(self, after: "Recording") -> "RecordingDifference":
        """From this recording to the one *after* a change: by statement, by frame and by plan, each of one request."""
        from placebench.profiler.analysis.difference import diff_recordings

        return diff_recordings(self, after)

    def write_page(self, path: Path | str, *, flame_page: str | None = None) -> None:
        """Write it as one HTML file that opens without a network, runs no script and escapes everything.

        flame_page: where its flame lies as a page of its own (`write_flame_page`), if it does.
        """
        from placebench.profiler.output.recording_page import write_recording_page

        write_recording_page(self, Path(path), flame_page=flame_page)

    def to_json(self) -> dict[str, Any]:
        """Plain data for json.dump."""
        plain = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in _LISTS}
        plain["statements"] = [statement.to_json() for statement in self.statements]
        plain["transactions"] = [asdict(transaction) for transaction in self.transactions]
        plain["spans"] = [asdict(span) for span in self.spans]
        return {"format_version": FORMAT_VERSION, **plain}

    def save(self, path: Path | str) -> None:
        """Write the recording as JSON, whole or not at all: under another name first, then renamed.

        A flame is written beside it, as a session of pyinstrument's (`flame_beside`); an older one there goes away.
        """
        flame = flame_beside(Path(path))
        if self.session is None:
            flame.unlink(missing_ok=True)
        else:
            write_whole(flame, json.dumps(self.session.to_json()))
        write_whole(Path(path), json.dumps(self.to_json()))

    @classmethod
    def from_json(cls, document: dict[str, Any], *, source: str = "the document") -> Self:
        """The recording that `to_json` wrote. Raises ProfilerError if it is none, or of a newer format."""
        version = document.get("format_version")
        if version != FORMAT_VERSION:
            raise ProfilerError(
                f"{source} has format_version {version!r}, expected {FORMAT_VERSION}: "
                "it is no recording, or one of another placebench"
            )
        plain = {key: value for key, value in document.items() if key not in (*_LISTS, "format_version")}
        try:
            made = cls(
                **{**plain, "notes": tuple(map(str, plain.get("notes", ())))},
                statements=[Statement.from_json(statement) for statement in document["statements"]],
                transactions=[checked(Transaction(**transaction)) for transaction in document["transactions"]],
                spans=[checked(Span(**span)) for span in document["spans"]],
            )
            if made.requests < 1:
                raise TypeError(f"requests is {made.requests}")
            return checked(made)
        except (KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ProfilerError(f"{source} is no recording: {error}; record it again") from error

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The recording in a file, with the flame beside it if there is one.

        Raises ProfilerError if one of them cannot be read, or holds something else.
        """
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ProfilerError(f"{path} cannot be read as a recording: {error}") from error
        recording = cls.from_json(document if isinstance(document, dict) else {}, source=str(path))
        if (flame := flame_beside(Path(path))).is_file():
            from placebench.profiler.analysis.merging import load_session

            recording.session = load_session(flame)
        return recording

    @classmethod
    def merge(cls, recordings: Iterable["Recording"], *, name: str | None = None) -> Self:
        """One recording with everything of all: sums are totals, started_s stays relative to each own recording.

        A sum is None if one of the recordings has none. Raises ProfilerError if there is nothing to merge.
        """
        parts = list(recordings)
        if not parts:
            raise ProfilerError("no recordings to merge: expected at least one; were any requests profiled?")
        modes = {part.mode for part in parts}
        return cls(
            name=name or parts[0].name,
            mode=modes.pop() if len(modes) == 1 else "mixed",
            statements=_renumbered((part.statements, part.requests) for part in parts),
            transactions=_renumbered((part.transactions, part.requests) for part in parts),
            spans=[span for part in parts for span in part.spans],
            elapsed_s=sum(part.elapsed_s for part in parts),
            cpu_s=total_of_all(part.cpu_s for part in parts),
            sql_s=total_of_all(part.sql_s for part in parts),
            gc_s=total_of_all(part.gc_s for part in parts),
            gc_collections=total_of_all(part.gc_collections for part in parts),
            dropped=sum(part.dropped for part in parts),
            requests=sum(part.requests for part in parts),
            error=next((part.error for part in parts if part.error), None),
            own_s=total_of_all(part.own_s for part in parts),
            notes=notes_of(parts),
            session=_mean_flame(parts),
        )


def notes_of(recordings: Iterable[Recording]) -> tuple[str, ...]:
    """What the recordings could not measure or had to estimate, each note once."""
    return tuple(dict.fromkeys(note for recording in recordings for note in recording.notes))


def _mean_flame(parts: Sequence[Recording]) -> "Session | None":
    """The flame of the mean request, if every part is one request with a flame of its own."""
    sessions = [part.session for part in parts if part.session is not None and part.requests == 1]
    if len(sessions) < len(parts):
        return None
    from placebench.profiler.analysis.merging import mean_session

    return mean_session(sessions)


def _renumbered(parts: Iterable[tuple[Sequence[Numbered], int]]) -> list[Numbered]:
    """What is in all parts, numbered by request: each part brings so many requests."""
    merged: list[Numbered] = []
    before = 0
    for items, requests in parts:
        merged.extend(replace(item, request=item.request + before) if before else item for item in items)
        before += requests
    return merged


def flame_beside(path: Path) -> Path:
    """Where the flame of the recording at *path* is: 7-1.recording.json has 7-1.pyisession beside it."""
    return path.with_name(f"{path.name.removesuffix('.json').removesuffix('.recording')}.pyisession")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader, or a kill in between, never sees a part of it."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


_LISTS = ("statements", "transactions", "spans", "session")
