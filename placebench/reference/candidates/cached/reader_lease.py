"""The worker's entry among the readers of the change log: the key piece is `Registry`.

It works on a connection of its own, made for each time, so that it never waits for the pool whose connection the
request may be holding.
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from sqlalchemy import URL, Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from placebench.reference.candidates.cached.change_log import Moment, reason

log = logging.getLogger(__name__)

RENEWED_EVERY_S: Final = 30.0  # an entry ends after five minutes
UNWATCHED: Final = (
    "triggers of the change log are missing or disabled (every one wants ENABLE ALWAYS),"
    " or a table has another in its place, a child, a parent or a subscription"
)
# Requests wait meanwhile. Whoever has removed our old entry in a transaction that goes on may keep us from it.
_PATIENCE: Final = "SET lock_timeout = '200ms'"


class Registry:
    """Keeps one entry; connects only when asked."""

    def __init__(self, url: URL, clock: Callable[[], float] = monotonic) -> None:
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._clock = clock
        self._due = -RENEWED_EVERY_S * 2
        self._told = ""
        self.reader: str | None = None
        """The entry's id. None: nobody keeps the log for us, as writes may fire no trigger or nobody was let in."""

    def renew(self, seen: Moment | None) -> None:
        """Every half minute: say what was seen, so that the log can be pruned, or register; else nothing.

        Trouble leaves no entry, and is logged, each kind once.
        """
        now = self._clock()
        if now < self._due:
            return
        self._due = now + RENEWED_EVERY_S
        try:
            with self._engine.connect() as connection:
                connection.execute(text(_PATIENCE))
                self.reader = self._renewed(connection, seen)
        except DBAPIError as error:
            self._without_entry(reason(error))

    def forget(self) -> None:
        """The entry is of no use any more: the next call of `renew` registers anew."""
        self.reader = None
        self._due = self._clock()

    def _renewed(self, connection: Connection, seen: Moment | None) -> str | None:
        if self.reader is None:
            reader: str | None = connection.scalar(text("SELECT placebench_register()::text"))
            if reader is None:
                self._without_entry(UNWATCHED)
            return reader
        if seen is not None:
            statement = text("SELECT placebench_renew(CAST(:reader AS uuid), CAST(:seen AS pg_snapshot))")
            connection.execute(statement, {"reader": self.reader, "seen": seen.text})
        return self.reader

    def _without_entry(self, why: str) -> None:
        self.reader = None
        if why != self._told:
            log.warning("the variant cached keeps no picture and answers as dedup: %s", why)
            self._told = why
