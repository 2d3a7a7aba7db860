"""Reader: one connection, with the variant's ways to bind lists, to hand out rows, and to find roots and usages."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, CursorResult, FromClause, Select

RowsWay = Callable[[CursorResult[Any]], Iterable[Any]]
BindingWay = Callable[[Connection, Select[Any], ColumnElement[Any], Sequence[Any]], CursorResult[Any]]
TotalsWay = Callable[[ColumnElement[Any] | None], FromClause]


@dataclass(frozen=True, slots=True)
class Reader:
    """Runs SELECTs on one connection, inside the transaction that the caller has begun."""

    connection: Connection
    rows: RowsWay
    binding: BindingWay
    providers: FromClause  # with id, uuid, parent_provider_id and root_provider_id
    totals: TotalsWay

    def read(self, statement: Select[Any], parameters: Mapping[str, Any] | None = None) -> Iterable[Any]:
        """The rows of the statement, each to be unpacked; 1 round trip."""
        return self.rows(self.connection.execute(statement, parameters))

    def read_for(self, statement: Select[Any], column: ColumnElement[Any], values: Collection[Any]) -> Iterable[Any]:
        """The rows of the statement whose *column* is one of *values*; 1 round trip, none for no values."""
        if not values:
            return ()
        return self.rows(self.binding(self.connection, statement, column, list(values)))
