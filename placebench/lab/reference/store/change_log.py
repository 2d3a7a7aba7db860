"""What changed since a PostgreSQL snapshot, from the change log: `check_visibility`.

A reader of the log is registered in the database (`ReaderLease`), so that the log keeps what it has not seen.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar, Final

from sqlalchemy import URL, Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError


@dataclass(frozen=True, slots=True)
class PgSnapshot:
    """Which transactions a snapshot of PostgreSQL shows: pg_current_snapshot()."""

    text: str
    oldest: int  # every transaction before this one is over
    end: int  # this one and those after had not begun
    running: frozenset[int]  # of those between, the ones that were not over

    @classmethod
    def parse(cls, text: str) -> "PgSnapshot":
        """Return the snapshot that PostgreSQL writes as `10:20:10,14,15`."""
        oldest, end, running = text.split(":")
        return cls(text, int(oldest), int(end), frozenset(map(int, running.split(","))) if running else frozenset())

    def shows(self, transaction: int) -> bool:
        """Whether what the transaction committed is visible, if it did commit."""
        return transaction < self.oldest or (transaction < self.end and transaction not in self.running)

    def follows(self, other: "PgSnapshot") -> bool:
        """Whether everything that *other* shows is shown here, too; of two snapshots of one server, one does."""
        return other.end <= self.end and not any(map(other.shows, self.running))


# placebench_look stops here: a reader that has fallen so far behind reads everything.
_MAX_CHANGES: Final = 1_000
NO_CHANGE_LOG: Final = (
    "this database has no change log; `placebench lab seed --trees 0 --db URL` makes one (PostgreSQL 13 or later)"
)
_LOOK: Final = "SELECT now, registered, holds, changes FROM placebench_look(%s, %s)"
_REVISION: Final = "SELECT now, registered, holds, revision FROM placebench_revision(%s)"
_NO_SUCH_FUNCTION: Final = "42883"

_Range = tuple[int, int]  # the lowest and the highest of some ids

# The columns that say which providers have the thing of a name.
_HOLDERS: Final = {
    "trait": ("resource_provider_traits", "trait_id"),
    "class": ("inventories", "resource_class_id"),
    "aggregate": ("resource_provider_aggregates", "aggregate_id"),
}


@dataclass(frozen=True, slots=True)
class Changes:
    """Ranges of ids by table (provider, trait, class, aggregate), in which everything is that was changed."""

    ranges: dict[str, list[_Range]]

    @property
    def is_truncated(self) -> bool:
        """Whether more was changed than is listed."""
        return sum(map(len, self.ranges.values())) > _MAX_CHANGES

    def touches(self, *tables: str) -> bool:
        """Whether something in one of the tables was changed."""
        return any(table in self.ranges for table in tables)

    def among(self, provider_ids: Collection[int]) -> Iterator[int]:
        """Yield those of the providers that may have been changed themselves."""
        for first, last in self.ranges.get("provider", ()):
            if last - first < len(provider_ids):
                yield from (each for each in range(first, last + 1) if each in provider_ids)
            else:
                yield from (each for each in provider_ids if first <= each <= last)


@dataclass(frozen=True, slots=True)
class VisibilityCheck:
    """What became visible since the last check, and whether it can be relied on."""

    snapshot: PgSnapshot
    registered: bool  # the reader has its entry still, and the tables and triggers are what they were when it got it
    holds: bool  # all statements of the transaction see this snapshot, and nothing else
    changes: Changes | None  # None: nothing became visible since


def check_visibility(connection: Connection, reader: str, since: PgSnapshot | None) -> VisibilityCheck:
    """Return what became visible since a snapshot, and at which snapshot this is; 1 round trip.

    since: None for a reader that has seen nothing yet; nothing changed then.

    SELECT now, registered, holds, changes FROM placebench_look(:reader, :since)
    """
    known = None if since is None else since.text
    row = connection.exec_driver_sql(_LOOK, (reader, known)).one()
    changed = _parse_changes(row.changes) if row.changes else None
    snapshot = since if since and row.now == known else PgSnapshot.parse(row.now)
    return VisibilityCheck(snapshot, row.registered, row.holds, changed)


@dataclass(frozen=True, slots=True)
class DataRevision:
    """Which state of the data a transaction sees, and whether it can be relied on: see `VisibilityCheck`."""

    snapshot: PgSnapshot
    registered: bool
    holds: bool
    revision: str | None
    """Equal texts mean equal states for all who use the reader's entry; None without an entry."""


def read_revision(connection: Connection, reader: str) -> DataRevision:
    """Return the revision of the data that the connection's transaction sees; 1 round trip.

    SELECT now, registered, holds, revision FROM placebench_revision(:reader)
    """
    row = connection.exec_driver_sql(_REVISION, (reader,)).one()
    return DataRevision(PgSnapshot.parse(row.now), row.registered, row.holds, row.revision)


def _parse_changes(listed: str) -> Changes:
    """The changes in placebench_look's form: `provider 3 3,trait 7 9`."""
    ranges: dict[str, list[_Range]] = defaultdict(list)
    for each in listed.split(","):
        kind, first, last = each.split()
        ranges[kind].append((int(first), int(last)))
    return Changes(dict(ranges))


def find_changed_roots(connection: Connection, changes: Changes) -> set[int]:
    """Return the roots, as they are now, above every provider that was changed or has a name that was; 1 round trip.

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
    return {row[0] for row in connection.execute(text(query)) if row[0] is not None}


def _reason(error: DBAPIError) -> str:
    """Why the log cannot be read, in one line."""
    code = getattr(error.orig, "pgcode", None) or getattr(error.orig, "sqlstate", None)
    return NO_CHANGE_LOG if code == _NO_SUCH_FUNCTION else " ".join(str(error.orig).split())


def _between(column: str, ranges: Iterable[_Range]) -> str:
    single = [first for first, last in ranges if first == last]
    conditions = [f"{column} BETWEEN {first} AND {last}" for first, last in ranges if first != last]
    if single:
        conditions.append(f"{column} = ANY ('{{{','.join(map(str, single))}}}')")
    return " OR ".join(conditions)


log = logging.getLogger(__name__)

RENEWED_EVERY_S: Final = 30.0  # an entry ends after five minutes
_UNWATCHED: Final = (
    "triggers of the change log are missing or disabled (every one wants ENABLE ALWAYS),"
    " or a table has another in its place, a child, a parent or a subscription"
)
# Requests wait meanwhile; a transaction that has removed the old entry and goes on would block for long.
_PATIENCE: Final = "SET lock_timeout = '200ms'"


class ReaderLease:
    """The registration of one reader of the change log; `renew` is all that connects."""

    _without: ClassVar[str] = "the variant cached keeps no index and responds as dedup"
    """What a reader without an entry does, for the log."""

    def __init__(self, url: URL, clock: Callable[[], float] = monotonic) -> None:
        """url: of the database; nothing is connected to yet."""
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._clock = clock
        self._due = -RENEWED_EVERY_S * 2
        self._last_warning = ""
        self.reader: str | None = None
        """The entry's id. None: there is none, as writes may fire no trigger or the account has no access."""

    def renew(self, seen: PgSnapshot | None) -> None:
        """Every half minute, tell the log what was seen, so that it can be pruned, or register.

        An error leaves no entry, and is logged, once in a row.
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
        """Forget an entry that is gone or of no use: the next call of `renew` registers anew."""
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
        """A new entry; None, which is logged, where writes may fire no trigger."""
        reader: str | None = connection.scalar(text("SELECT placebench_register()::text"))
        if reader is None:
            self._drop_entry(_UNWATCHED)
        return reader

    def _drop_entry(self, why: str) -> None:
        self.reader = None
        if why != self._last_warning:
            log.warning("%s: %s", self._without, why)
            self._last_warning = why
