"""Reads from the change log what has changed since a PostgreSQL snapshot: `check_visibility`.

A reader of the log registers in the database (`ReaderLease`), so that the log keeps changes that it has not seen.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar, Final

from sqlalchemy import URL, Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError


@dataclass(frozen=True, slots=True)
class PgSnapshot:
    """A snapshot of PostgreSQL, pg_current_snapshot(), which says which transactions are visible."""

    text: str
    oldest: int  # xmin: all transactions with lower ids have ended
    end: int  # xmax: this transaction and those with higher ids had not begun
    running: frozenset[int]  # the transactions between xmin and xmax that had not ended

    @classmethod
    def parse(cls, text: str) -> "PgSnapshot":
        """Parse a snapshot in PostgreSQL's text form, such as `10:20:10,14,15`."""
        oldest, end, running = text.split(":")
        return cls(text, int(oldest), int(end), frozenset(map(int, running.split(","))) if running else frozenset())

    def shows(self, transaction: int) -> bool:
        """Return whether the snapshot shows the changes of the transaction, provided that it committed."""
        return transaction < self.oldest or (transaction < self.end and transaction not in self.running)

    def follows(self, other: "PgSnapshot") -> bool:
        """Return whether this snapshot shows all that *other* shows; of two of one server at least one does."""
        return other.end <= self.end and not any(map(other.shows, self.running))


# placebench_look stops at this number of changes: a reader that is further behind reads everything.
_MAX_CHANGES: Final = 1_000
MAX_FEW_PROVIDERS: Final = 100
NO_CHANGE_LOG: Final = (
    "this database has no change log; `placebench lab seed --trees 0 --db URL` makes one (PostgreSQL 13 or later)"
)
LOOK_COLUMNS: Final = "now, registered, holds, changes"
"""The columns of placebench_look, which `parse_look` takes."""
_LOOK: Final = f"SELECT {LOOK_COLUMNS} FROM placebench_look(%s, %s)"
_REVISION: Final = "SELECT now, registered, holds, revision FROM placebench_revision(%s)"
_NO_SUCH_FUNCTION: Final = "42883"

_Range = tuple[int, int]  # the lowest and the highest id of a range

# The table and column that say which providers have a trait, a resource class or an aggregate.
_HOLDERS: Final = {
    "trait": ("resource_provider_traits", "trait_id"),
    "class": ("inventories", "resource_class_id"),
    "aggregate": ("resource_provider_aggregates", "aggregate_id"),
}


@dataclass(frozen=True, slots=True)
class Changes:
    """Ranges of ids by table (provider, trait, class, aggregate); together they include all changed rows."""

    ranges: dict[str, list[_Range]]

    @property
    def is_truncated(self) -> bool:
        """Whether there are more changes than are listed."""
        return sum(map(len, self.ranges.values())) > _MAX_CHANGES

    def touches(self, *tables: str) -> bool:
        """Return whether a row of one of the tables was changed."""
        return any(table in self.ranges for table in tables)

    def few_providers(self) -> set[int] | None:
        """Return the ids of the changed providers if only providers were changed, and few of them; else None."""
        ranges = self.ranges.get("provider", [])
        if len(self.ranges) > 1 or sum(last - first + 1 for first, last in ranges) > MAX_FEW_PROVIDERS:
            return None
        return {provider_id for first, last in ranges for provider_id in range(first, last + 1)} or None

    def among(self, provider_ids: Collection[int]) -> Iterator[int]:
        """Yield the ids among *provider_ids* of providers that may have changed."""
        for first, last in self.ranges.get("provider", ()):
            if last - first < len(provider_ids):
                yield from (each for each in range(first, last + 1) if each in provider_ids)
            else:
                yield from (each for each in provider_ids if first <= each <= last)


@dataclass(frozen=True, slots=True)
class VisibilityCheck:
    """The changes that became visible since the last check, and whether the result is reliable."""

    snapshot: PgSnapshot
    registered: bool  # whether the reader still has its entry, and tables and triggers are as when it was registered
    holds: bool  # whether all statements of the transaction see exactly this snapshot
    changes: Changes | None  # None: nothing became visible


def check_visibility(connection: Connection, reader: str, since: PgSnapshot | None) -> VisibilityCheck:
    """Return the changes that became visible since a snapshot, and the present snapshot; 1 round trip.

    since: the last snapshot that the reader has seen; None if it has seen none: the result then has no changes.

    SELECT now, registered, holds, changes FROM placebench_look(:reader, :since)
    """
    known = None if since is None else since.text
    try:
        # Each request sends this statement: SQLAlchemy's own execution would take three times the CPU.
        cursor: Any = connection.connection.cursor()
        cursor.execute(_LOOK, (reader, known))
    except connection.dialect.loaded_dbapi.Error:
        cursor = connection.exec_driver_sql(_LOOK, (reader, known)).cursor  # raises the error as a DBAPIError
    row = cursor.fetchone()
    cursor.close()
    return parse_look(row, since)


def parse_look(row: tuple[str, bool, bool, str | None], since: PgSnapshot | None) -> VisibilityCheck:
    """Return the check in a row of placebench_look; since: as in `check_visibility`."""
    now, registered, holds, changes = row
    snapshot = since if since and now == since.text else PgSnapshot.parse(now)
    return VisibilityCheck(snapshot, registered, holds, _parse_changes(changes) if changes else None)


@dataclass(frozen=True, slots=True)
class DataRevision:
    """The revision of the data that a transaction sees, and whether it is reliable (see `VisibilityCheck`)."""

    snapshot: PgSnapshot
    registered: bool
    holds: bool
    revision: str | None
    """A text that is equal for equal states of the data, for all users of the reader's entry; None without an entry."""


def read_revision(connection: Connection, reader: str) -> DataRevision:
    """Return the revision of the data that the connection's transaction sees; 1 round trip.

    SELECT now, registered, holds, revision FROM placebench_revision(:reader)
    """
    row = connection.exec_driver_sql(_REVISION, (reader,)).one()
    return DataRevision(PgSnapshot.parse(row.now), row.registered, row.holds, row.revision)


def _parse_changes(listed: str) -> Changes:
    """Parse the changes in the form of placebench_look, such as `provider 3 3,trait 7 9`."""
    ranges: dict[str, list[_Range]] = defaultdict(list)
    for each in listed.split(","):
        kind, first, last = each.split()
        ranges[kind].append((int(first), int(last)))
    return Changes(dict(ranges))


def find_changed_roots(connection: Connection, changes: Changes) -> set[int]:
    """Return the present roots of all providers that changed or have a changed trait, class or aggregate; 1 round trip.

    SELECT DISTINCT root_provider_id FROM resource_providers
    WHERE id BETWEEN 3 AND 3 OR id IN (SELECT resource_provider_id FROM resource_provider_traits
                                       WHERE trait_id BETWEEN 7 AND 9)
    """
    conditions = [_between("id", ranges) for kind, ranges in changes.ranges.items() if kind == "provider"]
    for kind, (table, column) in _HOLDERS.items():
        if kind in changes.ranges:
            condition = _between(column, changes.ranges[kind])
            conditions.append(f"id IN (SELECT resource_provider_id FROM {table} WHERE {condition})")
    query = f"SELECT DISTINCT root_provider_id FROM resource_providers WHERE {' OR '.join(conditions)}"
    rows = connection.exec_driver_sql(query).cursor.fetchall()  # text() would be compiled anew each time
    return {root_id for (root_id,) in rows if root_id is not None}


def _reason(error: DBAPIError) -> str:
    """Return one line that says why the log cannot be read."""
    code = getattr(error.orig, "pgcode", None) or getattr(error.orig, "sqlstate", None)
    return NO_CHANGE_LOG if code == _NO_SUCH_FUNCTION else " ".join(str(error.orig).split())


def _between(column: str, ranges: Iterable[_Range]) -> str:
    single = [first for first, last in ranges if first == last]
    conditions = [f"{column} BETWEEN {first} AND {last}" for first, last in ranges if first != last]
    if single:
        conditions.append(f"{column} = ANY ('{{{','.join(map(str, single))}}}')")
    return " OR ".join(conditions)


log = logging.getLogger(__name__)

RENEWED_EVERY_S: Final = 30.0  # an entry expires five minutes after its last renewal
_UNWATCHED: Final = (
    "triggers of the change log are missing or disabled (every one wants ENABLE ALWAYS),"
    " or a table has another in its place, a child, a parent or a subscription"
)
# Requests wait for the renewal; an open transaction that has deleted the old entry could block it for long.
_PATIENCE: Final = "SET lock_timeout = '200ms'"


class ReaderLease:
    """The registration of one reader of the change log; only `renew` connects to the database."""

    _without: ClassVar[str] = "the variant cached keeps no index and responds as dedup"
    """The effect of having no entry, for log messages."""

    def __init__(self, url: URL, clock: Callable[[], float] = monotonic) -> None:
        """url: the URL of the database; no connection is opened yet."""
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._clock = clock
        self._due = -RENEWED_EVERY_S * 2
        self._last_warning = ""
        self.reader: str | None = None
        """The id of the reader's entry, or None without one: triggers may not fire, or the log cannot be accessed."""

    def renew(self, seen: PgSnapshot | None) -> None:
        """Every 30 s, report the snapshot that was seen, so that the log can be pruned, or register a new entry.

        After an error the lease has no entry. The error is logged unless the last one was equal.
        """
        now = self._clock()
        if now < self._due:
            return
        self._due = now + RENEWED_EVERY_S
        try:
            with self._engine.connect() as connection:
                connection.execute(text(_PATIENCE))
                self.reader = self._renew_entry(connection, seen)
        except DBAPIError as error:
            self._drop_entry(_reason(error))

    def forget(self) -> None:
        """Drop an entry that no longer exists or is not usable, so that the next `renew` registers a new one."""
        self.reader = None
        self._due = self._clock()

    def _renew_entry(self, connection: Connection, seen: PgSnapshot | None) -> str | None:
        if self.reader is None:
            return self._register(connection)
        if seen is not None:
            statement = text("SELECT placebench_renew(CAST(:reader AS uuid), CAST(:seen AS pg_snapshot))")
            connection.execute(statement, {"reader": self.reader, "seen": seen.text})
        return self.reader

    def _register(self, connection: Connection) -> str | None:
        """Register and return the new entry's id; log a warning and return None if writes might not fire triggers."""
        reader: str | None = connection.scalar(text("SELECT placebench_register()::text"))
        if reader is None:
            self._drop_entry(_UNWATCHED)
        return reader

    def _drop_entry(self, why: str) -> None:
        self.reader = None
        if why != self._last_warning:
            log.warning("%s: %s", self._without, why)
            self._last_warning = why
