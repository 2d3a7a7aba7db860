"""One recording as pure data: its statements, transactions and spans, and its sums.

The main class is `RecordingData`. Raw times are kept; sums are computed when they are read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from placebench import units
from placebench.errors import ProfilerError
from placebench.profiler.model.loop_block import KINDS_ALONE, LoopBlock
from placebench.profiler.model.statement import (
    Checkout,
    RecordedRequest,
    Span,
    Statement,
    Transaction,
    UnkeptStatements,
)

if TYPE_CHECKING:
    from placebench.profiler.model.session import FlameSession
else:
    # The reader of recordings looks up every annotation; pyinstrument is loaded for flame graphs only.
    FlameSession = Any

_FORMAT_VERSION = 2
_ITEMS = ("statements", "transactions", "spans", "checkouts", "unkept_places", "loop_blocks")
_LISTS = (*_ITEMS, "timeline", "session")
_UNIT_OF_WORK = ("kind", "route", "status", "started_at", "identifier", "cause")
_BREACH = "the account does not hold: "
_MAX_DEPTH = 500
"""Levels to which the JSON of a recording may be nested: two for each node of a plan below another."""

_Number = TypeVar("_Number", int, float)
_Numbered = TypeVar("_Numbered", Statement, Transaction, Checkout, UnkeptStatements, Span, LoopBlock)


@dataclass
class Unkept:
    """The sums of the statements and transaction steps of a recording beyond its limit.

    A sum is None if none of them measured it. uncounted: statements with rows that nobody counted.
    unknown_round_trips: statements with round trips that nobody counted.
    """

    statements: int = 0
    uncounted: int = 0
    unknown_round_trips: int = 0
    row_count: int | None = None
    round_trips: int | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    compile_s: float | None = None
    pool_wait_s: float | None = None
    execute_s: float | None = None
    fetch_s: float | None = None
    connect_s: float | None = None
    transactions_s: float | None = None

    def add(self, other: "Unkept") -> None:
        """Add the sums of *other*; called for every statement beyond the limit."""
        own = vars(self)
        for name, value in vars(other).items():
            if value is not None:
                known = own[name]
                own[name] = value if known is None else known + value


@dataclass
class RecordingData:
    """One recording, filled when its record ends and empty until then.

    elapsed_s: wall time of the record. For merged recordings this and every other sum is the total of all of them.
    cpu_s: CPU of the recording thread; None under asyncio, whose tasks share a thread.
    sql_s: seconds in pool waits, connects, compilation, execute, fetch, COMMIT and ROLLBACK. If statements ran at the
        same time this is the sum over them, and may be more than elapsed_s. None if the profiler was off.
    overlapping: whether statements ran at the same time, so that sql_s is not part of elapsed_s.
    plan_setup_s: seconds to make connections start and stop sending plans; overhead_s includes them.
    gc_s: pauses of the garbage collector in the recording thread; they lie inside the other times.
    dropped: statements, transaction steps and spans beyond the limit, which are not kept.
    unkept: the sums of those statements and steps, which are in every sum of the recording.
    unkept_places: those statements by text and place, 1000 at most.
    missed: statements that ran meanwhile but that no recording saw, because their thread had no copy of the context;
        those of new connections are included. They are in no other figure.
    failed_hooks: parts of the profiler that failed, each with its error's class; what they measure is missing.
    breaches: laws that the recording breaks, one line each: two counts of one thing differ. What they are about is
        missing, as if it had not been measured.
    requests: the number of recordings that were merged into this one; 1 if none were.
    error: the class of the exception that ended the record.
    overhead_s: profiler overhead within elapsed_s, by its own clock, between its hook and the driver's call;
        SQLAlchemy's time to call the hooks, and the sampling for a flame graph, are not in it.
    notes: one line for each thing that could not be measured, with the reason.
    timeline: the name, start and duration of each request.
    loop_blocks: stretches of 50 ms or more in which the recording held its event loop.
    open_transactions: transactions that were still open when their record ended, each by its request and its number.
    kind: the unit of work: "request", "task" (of a queue), "job" (of a scheduler), "websocket" (one message),
        "lifespan" (startup or shutdown), "background" (what a request left behind) or "program".
    route: the route of a request with the names of its parameters, such as "/orders/{number}", the name of a task, or
        the function of other work; None if it is not known. Merged recordings have it if it is that of all, like kind,
        status and cause.
    status: the HTTP status of the response; None if there is none.
    started_at: the start in seconds since 1970; None for merged recordings.
    identifier: random hexadecimal digits, for units of work that a server, a framework or a queue starts; else empty.
    cause: the identifier of the recording that caused this one, such as the request of a background task; else empty.
    session: the flame graph of a record that has one, with the statements as leaves; for merged requests the
        session of the mean request. It is saved in a separate file.
    """

    name: str
    mode: str
    statements: Sequence[Statement] = ()
    transactions: Sequence[Transaction] = ()
    spans: Sequence[Span] = ()
    checkouts: tuple[Checkout, ...] = ()
    loop_blocks: tuple[LoopBlock, ...] = ()
    timeline: tuple[RecordedRequest, ...] = ()
    elapsed_s: float = 0.0
    cpu_s: float | None = None
    sql_s: float | None = None
    overlapping: bool = False
    plan_setup_s: float = 0.0
    gc_s: float | None = None
    gc_collections: int | None = None
    dropped: int = 0
    unkept: Unkept = field(default_factory=Unkept)
    unkept_places: tuple[UnkeptStatements, ...] = ()
    missed: int = 0
    failed_hooks: tuple[str, ...] = ()
    breaches: tuple[str, ...] = ()
    requests: int = 1
    error: str | None = None
    overhead_s: float | None = None
    notes: tuple[str, ...] = ()
    open_transactions: tuple[tuple[int, int], ...] = ()
    kind: str = "request"
    route: str | None = None
    status: int | None = None
    started_at: float | None = None
    identifier: str = ""
    cause: str = ""
    session: "FlameSession | None" = field(default=None, repr=False, compare=False)

    @property
    def python_s(self) -> float | None:
        """The seconds outside of sql_s, for the application and for making objects; None if statements overlapped."""
        seconds = None if self.sql_s is None else self.elapsed_s - self.sql_s - self.plan_setup_s
        return None if seconds is None or seconds < 0 or self.overlapping else seconds

    @property
    def gaps(self) -> tuple[str, ...]:
        """Reasons why figures of the recording are too low, one line each; empty if nothing is known to be missing."""
        found = [f"a hook failed, what it measures is missing: {hook}" for hook in self.failed_hooks]
        found += [f"{_BREACH}{breach}" for breach in self.breaches]
        if self.missed:
            found.append(
                f"{units.numbered(self.missed, 'statement')} ran meanwhile unseen by any recording, in no figure: "
                "give threads a copy of the context (contextvars.copy_context().run)"
            )
        return tuple(found)

    @property
    def statement_count(self) -> int:
        """The number of statements, including those beyond the limit."""
        return len(self.statements) + self.unkept.statements

    @property
    def row_count(self) -> int | None:
        """The rows of all statements; None if the rows of one are unknown, or if no statement has rows."""
        uncounted = self.unkept.uncounted or any(each.is_uncounted for each in self.statements)
        return None if uncounted else cast("int | None", self.sum("row_count"))

    @property
    def round_trips(self) -> int | None:
        """The round trips of all statements and transaction steps; None if those of one are unknown.

        Statements on SQLite, which has no round trips, are left out; None if there are no others.
        """
        every: list[Statement | Transaction] = [*self.statements, *self.transactions]
        if self.unkept.unknown_round_trips or any(each.has_unknown_round_trips for each in every):
            return None
        steps = (transaction.round_trips for transaction in self.transactions)
        return sum_of_measured((cast("int | None", self.sum("round_trips")), *steps))

    @property
    def bytes_sent(self) -> int | None:
        """The bytes that the statements sent; None if none was measured."""
        return cast("int | None", self.sum("bytes_sent"))

    @property
    def bytes_received(self) -> int | None:
        """The bytes of the responses to the statements; None if none was measured."""
        return cast("int | None", self.sum("bytes_received"))

    def sum(self, name: str) -> Any:
        """Return the sum of a field over all statements, those beyond the limit included; None if none has it."""
        kept = (getattr(statement, name) for statement in self.statements)
        return sum_of_measured((getattr(self.unkept, name), *kept))

    def add_breach(self, breach: str) -> None:
        """Add the breach of a law, and note it."""
        self.breaches = (*self.breaches, breach)
        self.notes = (f"{_BREACH}{breach}", *self.notes)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for json.dump; what `kind`, `route` and the like have by default is left out."""
        plain = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in _LISTS}
        lists = {name: [asdict(each) for each in getattr(self, name)] for name in _ITEMS}
        if not self.loop_blocks:
            del lists["loop_blocks"]
        if not self.breaches:
            del plain["breaches"]
        for name in _UNIT_OF_WORK:
            if plain[name] == getattr(type(self), name):
                del plain[name]
        for span in lists["spans"]:
            if span["request"] == 1:
                del span["request"]
        for statement in (*lists["statements"], *(place["first"] for place in lists["unkept_places"])):
            for name in ("load", "origins", "sequel"):
                if not statement[name]:
                    del statement[name]
        plain["unkept"] = asdict(self.unkept)
        return {"format_version": _FORMAT_VERSION, **plain, **lists, "timeline": [list(each) for each in self.timeline]}

    @classmethod
    def from_json(cls, document: dict[str, Any], *, source: str = "the document") -> Self:
        """Return the recording that `to_json` wrote.

        Raises ProfilerError, which names the key and the expected value, for other documents and format versions.
        """
        # Loaded here: a program that only records needs no reader.
        from placebench.decoding import check

        version = document.get("format_version")
        if version != _FORMAT_VERSION:
            raise ProfilerError(
                f"{source} has format_version {version!r}, expected {_FORMAT_VERSION}: "
                "it is not a recording, or one of another version of placebench; record it again"
            )
        if missing := [name for name in ("statements", "transactions", "spans") if name not in document]:
            raise ProfilerError(f"{source}: {missing[0]} is missing: it is not a recording; record it again")
        # An earlier version kept only the number of the statements beyond the limit.
        unkept = document.get("unkept", {"statements": document.get("dropped", 0)})
        plain = {**document, "unkept": unkept, "session": None}
        recording: Self = check(plain, cls, source, error=ProfilerError, max_depth=_MAX_DEPTH)
        if recording.requests < 1:
            raise ProfilerError(f"{source}: requests: expected a whole number >= 1, saw {recording.requests}")
        for name in _ITEMS:
            for index, each in enumerate(getattr(recording, name)):
                if not 1 <= each.request <= recording.requests:
                    expected = f"expected a whole number from 1 to {recording.requests}, saw {each.request}"
                    raise ProfilerError(f"{source}: {name}[{index}].request: {expected}")
        return recording

    @classmethod
    def merge(cls, recordings: Iterable[Self], *, name: str | None = None) -> Self:
        """Return one recording of all: sums are totals, and started_s stays relative to each original recording.

        A sum is None if one of the recordings has none. The session of a flame graph is left out, and so are stretches
        in which a start or a script held its event loop while nobody waited. Raises ProfilerError if there is nothing
        to merge.
        """
        parts = list(recordings)
        if not parts:
            raise ProfilerError("no recordings to merge: expected at least one; were any requests profiled?")
        modes = {each.mode for each in parts}
        merged = cls(
            name=name or parts[0].name,
            mode=modes.pop() if len(modes) == 1 else "mixed",
            statements=_renumbered((each.statements, each.requests) for each in parts),
            transactions=_renumbered((each.transactions, each.requests) for each in parts),
            unkept_places=tuple(_renumbered((each.unkept_places, each.requests) for each in parts)),
            spans=_renumbered((each.spans, each.requests) for each in parts),
            checkouts=tuple(_renumbered((each.checkouts, each.requests) for each in parts)),
            loop_blocks=tuple(
                _renumbered(
                    # The kind of the part is not known below: a start that held the loop while nobody waited goes here.
                    ([block for block in each.loop_blocks if block.late or each.kind not in KINDS_ALONE], each.requests)
                    for each in parts
                )
            ),
            timeline=tuple(request for each in parts for request in each.timeline),
            elapsed_s=sum(each.elapsed_s for each in parts),
            dropped=sum(each.dropped for each in parts),
            missed=sum(each.missed for each in parts),
            overlapping=any(each.overlapping for each in parts),
            plan_setup_s=sum(each.plan_setup_s for each in parts),
            failed_hooks=tuple(sorted({hook for each in parts for hook in each.failed_hooks})),
            breaches=tuple(dict.fromkeys(breach for each in parts for breach in each.breaches)),
            requests=sum(each.requests for each in parts),
            error=next((each.error for each in parts if each.error), None),
            open_transactions=_renumbered_pairs(parts),
        )
        for shared in ("kind", "route", "status", "cause"):
            common = {getattr(each, shared) for each in parts}
            if len(common) == 1:
                setattr(merged, shared, common.pop())
        for total in ("cpu_s", "sql_s", "gc_s", "gc_collections", "overhead_s"):
            values = [getattr(each, total) for each in parts]
            setattr(merged, total, None if None in values else sum(values))
        for each in parts:
            merged.unkept.add(each.unkept)
        gaps = {gap for each in parts for gap in each.gaps}
        merged.notes = (*merged.gaps, *(note for note in notes_of(parts) if note not in gaps))
        return merged


def sum_of_measured(values: Iterable[_Number | None]) -> _Number | None:
    """Return the sum of the values that were measured; None if none was."""
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def notes_of(recordings: Iterable[RecordingData]) -> tuple[str, ...]:
    """Return the notes of the recordings on what they could not measure or had to estimate, each once."""
    return tuple(dict.fromkeys(note for recording in recordings for note in recording.notes))


def _renumbered_pairs(parts: Iterable[RecordingData]) -> tuple[tuple[int, int], ...]:
    """Return the open transactions of all parts with continuous request numbers, like `_renumbered`."""
    found: list[tuple[int, int]] = []
    before = 0
    for each in parts:
        found.extend((request + before, number) for request, number in each.open_transactions)
        before += each.requests
    return tuple(found)


def _renumbered(parts: Iterable[tuple[Sequence[_Numbered], int]]) -> list[_Numbered]:
    """Return the items of all parts with continuous request numbers. parts: items and their number of requests."""
    merged: list[_Numbered] = []
    before = 0
    for items, requests in parts:
        merged.extend(replace(item, request=item.request + before) if before else item for item in items)
        before += requests
    return merged
