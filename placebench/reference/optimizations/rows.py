"""How the rows of a result reach the loop that reads them: as dicts, namedtuples, as they come, or past SQLAlchemy."""

from collections import namedtuple
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from sqlalchemy import CursorResult

from placebench.reference.optimizations.optimization import Implementation, Optimization


def rows_as_dicts(result: CursorResult[Any]) -> Iterable[Any]:
    """Each row becomes a dict first, and the reader takes its fields out by name."""
    keys = tuple(result.keys())
    records = [dict(zip(keys, row, strict=True)) for row in result]
    return map(itemgetter(*keys), records) if len(keys) > 1 else [tuple(record.values()) for record in records]


def rows_as_namedtuples(result: CursorResult[Any]) -> Iterable[Any]:
    """Each row becomes an instance of a namedtuple made for this result."""
    record = namedtuple("record", tuple(result.keys()))  # type: ignore[misc]
    return [record._make(row) for row in result]


def rows_as_they_come(result: CursorResult[Any]) -> Iterable[Any]:
    """SQLAlchemy's own rows, which are made in C and unpack like tuples."""
    return result.all()


def rows_of_the_driver(result: CursorResult[Any]) -> Iterable[Any]:
    """The driver's tuples, with no row of SQLAlchemy's around them; none of its types is converted either."""
    rows: Iterable[Any] = result.cursor.fetchall() if result.cursor is not None else []
    result.close()
    return rows


OPTIMIZATION = Optimization(
    name="rows",
    step="rows",
    baseline=Implementation("dicts", rows_as_dicts),
    alternative=Implementation("as_they_come", rows_as_they_come),
    further=(Implementation("namedtuples", rows_as_namedtuples), Implementation("raw", rows_of_the_driver)),
    why="A row that is read once needs no second container: a dict per row costs more than fetching the row.",
    source="Placement copied rows into dicts until 2019 and reads them directly since.",
    metric="cpu_s",
)
