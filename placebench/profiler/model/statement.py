"""The parts of a recording: statements, transactions, checkouts and the user's own spans, with their times.

The main class is `Statement`. A field that nothing could measure is None ("not measured"), never 0.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import NamedTuple

from placebench.profiler.model.plan import PlanNode
from placebench.profiler.model.shortened_sql import query_summary
from placebench.profiler.model.sql_tokens import redacted
from placebench.profiler.model.statement_facts import StatementFacts, statement_facts

_HAS_ROWS = re.compile(r"^\s*copy\b|;\s*(?:copy|delete|insert|merge|select|update|values|with)\b", re.IGNORECASE)
_IN_LIST = re.compile(r"\bin\s*\(([^()]*)", re.IGNORECASE)
_CELL = re.compile(r"<(cell \d+)>")


class Caller(NamedTuple):
    """A line of the application, and the function that it is in.

    file: the file of the line, or "<cell 3>" for the third cell that a notebook or IPython ran.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        if (cell := _CELL.fullmatch(self.file)) is not None:
            inside = "" if self.function == "<module>" else f" {self.function}"
            return f"{cell[1]}, line {self.line}{inside}"
        return f"{_shown_file(self.file)}:{self.line} {self.function}"


class DatabaseAddress(NamedTuple):
    """The address of a database, without user and password; None for parts that the driver does not report.

    system: "postgresql", "mysql", "mariadb" or "sqlite". address: a host, or the folder of a Unix socket.
    """

    system: str
    address: str | None = None
    port: int | None = None
    name: str | None = None

    def __str__(self) -> str:
        port = f":{self.port}" if self.port else ""
        name = f"/{self.name}" if self.name else ""
        return f"{self.address}{port}{name}" if self.address else f"{self.system}{name}"


class OrmLoad(NamedTuple):
    """What an ORM loads by a statement.

    orm: "django", "sqlalchemy", "sqlmodel", "tortoise", "piccolo" or "peewee". version: its first two numbers.
    relation: the class and the attribute, such as "Order.items"; empty if it is not known.
    kind: "one" for one object, "many" for a collection, "generic" for an object of any class, "column" for deferred
        columns, "inherited" for those of a subclass, "expired" for an object that expired, "chunk" for the rows of one
        chunk of an iterator, "query" for a query of the application's own.
    """

    orm: str
    version: str = ""
    relation: str = ""
    kind: str = "query"


class RecordedRequest(NamedTuple):
    """The name of a recording, the Unix time of its start, and its duration."""

    name: str
    started_unix_s: float
    elapsed_s: float


def _shown_file(file: str) -> str:
    """Return the path of a file below site-packages or below the current folder, else the whole path."""
    *_, installed = re.split(r"/(?:site|dist)-packages/", file)
    if installed != file:
        return installed
    with suppress(ValueError, OSError):  # the file is elsewhere, or the current folder is gone
        return Path(file).relative_to(Path.cwd()).as_posix()
    return file


@dataclass(frozen=True, slots=True)
class Statement:
    """One execution of one statement at the driver: a batch of an insertmanyvalues is a statement of its own.

    sql: the text that was sent, literals redacted unless the recording keeps parameters, cut after 4000 characters.
    fingerprint: equal for statements that differ only in values, comments or the length of an IN list.
    parameters: as text; None unless the recording keeps them.
    started_s: the time at which it was handed to the driver, from the start of its recording.
    compile_s: SQLAlchemy's compilation or cache look-up, binding and context; 0 if there is nothing to compile.
    pool_wait_s: the wait for the connection, charged to the first statement after a checkout, and 0 for the next ones.
    execute_s, fetch_s: seconds inside the driver; making objects of the rows is Python's time.
    row_count: rows returned, or touched by a write.
    bytes_sent, bytes_received: bytes of the TCP socket; None in modes "light" and "external", over TLS and on Unix
        sockets.
    round_trips: messages that waited for a response, the hidden BEGIN included; None in a pipeline of psycopg 3, where
        nobody knows whose response is waited for.
    cache_hit: whether SQLAlchemy had the compiled form; None for text handed to the driver, for further batches, and if
        the dialect does not support the cache.
    error: the class of the driver's exception; its message too if the recording keeps parameters.
    plan: the plan that PostgreSQL ran, in mode "plans" only.
    transaction: the number of the transaction in its recording, 1 for the first; None in autocommit, and in a
        transaction that began before the recording.
    request: the number of the recording that it comes from, if several were merged; 1 for the first.
    redundant_rows: distinct primary keys among its rows that another statement of the same record had fetched already;
        None in mode "light", and if no primary key is among the columns.
    repeated: whether the same text had run with the same values on the same database in the same record, and nothing
        was written since to a table that it names; False for a write, None in mode "light" and for values that cannot
        be compared.
    sequel: "again" if the same text had run with the same values, and what it reads may have changed since; "next" if
        it goes on where its line had stopped, at the next range of keys or the next page; None for others.
    relationship: the relationship of the ORM that it loads, such as "Order.items"; None if it loads none.
    outer_caller: the next line of the application above the caller, which called the helper that ran the statement.
    batch: the number of the batch of an insertmanyvalues, or of bulk_create or bulk_update of Django, peewee and
        Tortoise, 1 for the first; None for other statements.
    connection: the number of the connection in its recording, 1 for the first; None if it had none.
    database: the database of the connection; None if the driver is not known.
    value_count: the number of values of a read, those in a list one by one, or of sets of values of an executemany;
        None in mode "light" and if nobody counted them.
    entity_count: distinct pairs of a primary key of its first table with that of another one, among rows of three
        tables or more: each item of each order. None for fewer tables, in mode "light" and beyond 50 000 pairs.
    database_number: equal for statements of its recording that see the same rows, by database, user and settings of
        the connection, 1 for the first; None if that is not known.
    engine: for a cache miss, the number of its SQLAlchemy engine in its recording, 1 for the first; else None.
    load: what the ORM loads by it; None if that was not looked for, which it is for relationships of SQLAlchemy, and
        at the first of five statements from one line.
    origins: for the first of five statements from one line, the statements of its record that had the values of the
        second to the fifth in one column of their rows: the started_s and the column of each, 0 for the first.
    """

    sql: str
    fingerprint: str
    started_s: float
    parameters: str | None = None
    caller: Caller | None = None
    compile_s: float | None = None
    pool_wait_s: float | None = None
    execute_s: float | None = None
    fetch_s: float | None = None
    row_count: int | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    round_trips: int | None = None
    cache_hit: bool | None = None
    error: str | None = None
    plan: PlanNode | None = None
    transaction: int | None = None
    request: int = 1
    redundant_rows: int | None = None
    repeated: bool | None = None
    relationship: str | None = None
    batch: int | None = None
    outer_caller: Caller | None = None
    connection: int | None = None
    database: DatabaseAddress | None = None
    engine: int | None = None
    value_count: int | None = None
    entity_count: int | None = None
    database_number: int | None = None
    load: OrmLoad | None = None
    origins: tuple[tuple[float, int], ...] = ()
    sequel: str | None = None

    @property
    def elapsed_s(self) -> float:
        """The sum of the measured parts of the statement, in seconds."""
        parts = (self.compile_s, self.pool_wait_s, self.execute_s, self.fetch_s)
        return sum(part for part in parts if part is not None)

    @property
    def kind(self) -> str:
        """The effect of the statement: "read", "insert", "update", "delete", "merge", "setting" or "other"."""
        return self.facts.kind

    @property
    def facts(self) -> StatementFacts:
        """The facts that all executions of the same text share."""
        return statement_facts(self.sql, None if self.database is None else self.database.system)

    @property
    def summary(self) -> str:
        """The operations of the statement and the tables of each, as in "INSERT shipping SELECT orders"."""
        return query_summary(self.sql, None if self.database is None else self.database.system)

    @property
    def redacted_sql(self) -> str:
        """The text with its literals as `?`, whatever the recording keeps."""
        return redacted(self.sql, None if self.database is None else self.database.system)

    @property
    def is_meant_again(self) -> bool:
        """Whether the statement is not a new one of a loop over rows.

        That is a duplicate, a read of what may have changed since, a call for a new result (nextval, a lock), the next
        part of a table (one row after the other is a loop), or the next job of a queue.
        """
        if self.facts.takes_rows or self.sequel == "again" or (self.sequel == "next" and self.row_count != 1):
            return True
        if self.repeated is None:  # in mode light the values are not known, but a duplicate is not reported either
            return self.caller is not None and self.facts.volatile is not None
        return self.repeated

    @property
    def item_count(self) -> int:
        """The number of rows that the statement is for, as far as known: a chunk of a load or of a write has many.

        For a read these are the values that it searches for: a read that is given one value and returns a hundred rows
        may well be run for one parent after the other.
        """
        if self.kind == "read":
            lists: list[str] = _IN_LIST.findall(self.sql)
            return max([self.value_count or 0, *(each.count(",") + 1 for each in lists)])
        return max(self.value_count or 0, self.row_count or 0, self.sql.count(";"))

    @property
    def is_uncounted(self) -> bool:
        """Whether the statement, or one of several in its text, returned or changed rows that nobody counted."""
        if self.row_count is not None or self.error is not None:
            return False
        return self.kind in ("read", "insert", "update", "delete", "merge") or _HAS_ROWS.search(self.sql) is not None

    @property
    def has_unknown_round_trips(self) -> bool:
        """Whether the statement ran over a network, as far as is known, and nobody counted its round trips."""
        is_local = self.database is not None and self.database.system == "sqlite"
        return self.round_trips is None and self.execute_s is not None and self.error is None and not is_local


UnfrozenStatement: type[Statement] = make_dataclass(
    "UnfrozenStatement", [(each.name, each.type, field(default=each.default)) for each in fields(Statement)], slots=True
)
"""Makes a statement in a fifth of the time, once its class is set: a frozen dataclass calls a method for each field."""


@dataclass(slots=True)
class UnkeptStatements:
    """Counts of the statements beyond the limit that ran one text from one place, for the findings.

    first: the first of them, with its own figures. repeated, repeated_s: number and seconds of the repeated ones.
    different, different_s: number and seconds of the others, except further batches of an insertmanyvalues, statements
        that failed, and those that are repeated on purpose. item_count: the sum of their item counts.
    unknown: the number of those whose values could not be compared.
    first_row_count, last_row_count: rows of the first and the last of the different ones.
    has_full_pages: whether all but the last of them have as many rows as the first.
    others: the number of those in no other count. request: as for `Statement`.
    """

    first: Statement
    repeated: int = 0
    repeated_s: float = 0.0
    different: int = 0
    different_s: float = 0.0
    unknown: int = 0
    item_count: int = 0
    first_row_count: int | None = None
    last_row_count: int | None = None
    has_full_pages: bool = True
    others: int = 0
    request: int = 1

    @property
    def count(self) -> int:
        """The number of these statements."""
        return self.repeated + self.different + self.others

    def add(self, statement: Statement) -> None:
        """Count one more statement of this text and place."""
        self.unknown += statement.repeated is None and statement.error is None and not statement.is_meant_again
        if statement.repeated:
            self.repeated += 1
            self.repeated_s += statement.elapsed_s
        elif statement.is_meant_again or statement.error is not None or statement.batch not in (None, 1):
            self.others += 1
        else:
            if self.different:
                self.has_full_pages &= self.last_row_count == self.first_row_count
            else:
                self.first_row_count = statement.row_count
            self.last_row_count = statement.row_count
            self.different += 1
            self.different_s += statement.elapsed_s
            self.item_count += statement.item_count

    def add_all(self, later: "UnkeptStatements") -> None:
        """Count the statements that ran later at the same place in a recording inside of this one."""
        if later.different and self.different:
            has_full_pages = self.last_row_count == later.first_row_count == self.first_row_count
            self.has_full_pages &= has_full_pages and later.has_full_pages
        elif later.different:
            self.first_row_count, self.has_full_pages = later.first_row_count, later.has_full_pages
        if later.different:
            self.last_row_count = later.last_row_count
        for name in ("repeated", "repeated_s", "different", "different_s", "unknown", "item_count", "others"):
            setattr(self, name, getattr(self, name) + getattr(later, name))


@dataclass(frozen=True, slots=True)
class Transaction:
    """One event of a connection other than a statement, such as a COMMIT or a connect.

    kind: BEGIN, COMMIT, ROLLBACK, SAVEPOINT, RELEASE, ROLLBACK TO, PREPARE; and around the transactions CONNECT,
        PING (the pool's test of a connection), RESET (sent by asyncpg's pool when a connection comes back), POOL
        TIMEOUT, AUTOCOMMIT (MySQL's, if the driver sends it), PREPARE STATEMENT for a statement that asyncpg prepared
        and did not execute, and COMMIT PREPARED or ROLLBACK PREPARED for a prepared transaction of any session.
    elapsed_s: None for a BEGIN that the driver sends with the first statement: it is inside that statement's execute_s.
    number: the transaction in its recording, 1 for the first; None outside of one.
    request: the number of the recording that it comes from, if several were merged; 1 for the first.
    connection, database: as for `Statement`.
    """

    kind: str
    started_s: float
    elapsed_s: float | None = None
    round_trips: int | None = None
    number: int | None = None
    error: str | None = None
    request: int = 1
    connection: int | None = None
    database: DatabaseAddress | None = None

    @property
    def has_unknown_round_trips(self) -> bool:
        """Whether the step took time over a network, as far as is known, and nobody counted its round trips.

        A connect, successful or not, counts none.
        """
        is_local = self.database is not None and self.database.system == "sqlite"
        is_apart = self.kind in ("CONNECT", "POOL TIMEOUT") or self.elapsed_s is None
        return self.round_trips is None and self.error is None and not is_local and not is_apart


@dataclass(frozen=True, slots=True)
class Checkout:
    """One connection that a pool of SQLAlchemy gave out, or failed to give out in time.

    pool: its `pool_logging_name`, or address:port/database.
    started_s: the time of the request, from the start of its recording.
    wait_s: seconds until the connection came, including the making of a new one; None if the wait was not seen.
    create_s: seconds to make a connection, if one was made for it.
    use_s: seconds until the connection was given back; None if the recording ended before, or no connection came.
    pending: requests that waited for a connection of this pool when this one was made, itself included if it had to.
    used, idle: connections of the pool when it came. size, limit: connections that the pool keeps, and may have open at
        most. All are None for a pool without a queue, limit for a pool without one.
    timed_out: whether no connection came.
    request: the number of the recording that it comes from, if several were merged; 1 for the first.
    """

    pool: str
    started_s: float
    wait_s: float | None = None
    create_s: float | None = None
    use_s: float | None = None
    pending: int = 0
    used: int | None = None
    idle: int | None = None
    size: int | None = None
    limit: int | None = None
    timed_out: bool = False
    request: int = 1


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the user's own code, named by `profiler.timed("label")`.

    request: the number of the recording that it comes from, if several were merged; 1 for the first.
    """

    label: str
    started_s: float
    elapsed_s: float
    request: int = 1
