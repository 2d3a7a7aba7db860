"""How a long list of values enters WHERE column IN (...): one parameter a value, one that expands, or one array."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ARRAY, BindParameter, ColumnElement, Connection, CursorResult, Select, any_, bindparam

from placebench.reference.optimizations.optimization import Implementation, Optimization


def one_parameter_a_value(
    connection: Connection, statement: Select[Any], column: ColumnElement[Any], values: Sequence[Any]
) -> CursorResult[Any]:
    """A new statement each time, `WHERE column IN (:value_1, :value_2, ...)`, compiled each time; 1 round trip.

    SQLAlchemy before 1.4 did this for every list. Since then it expands by itself, so the old way is spelled out:
    a bind parameter a value, and no cache of compiled statements.
    """
    parameters: list[BindParameter[Any]] = [bindparam("value", value, unique=True) for value in values]
    return connection.execute(statement.where(column.in_(parameters)), execution_options={"compiled_cache": None})


def one_expanding_parameter(
    connection: Connection, statement: Select[Any], column: ColumnElement[Any], values: Sequence[Any]
) -> CursorResult[Any]:
    """One cached statement, `WHERE column IN (__[POSTCOMPILE_values])`, expanded when executed; 1 round trip."""
    listed = column.in_(bindparam("values", expanding=True))
    return connection.execute(statement.where(listed), {"values": values})


def one_array_parameter(
    connection: Connection, statement: Select[Any], column: ColumnElement[Any], values: Sequence[Any]
) -> CursorResult[Any]:
    """One cached statement that never changes, `WHERE column = ANY (:values)`; 1 round trip.

    psycopg 3 sends the list as one value, and PostgreSQL sees the same text each time; psycopg2 writes it into the
    text as ARRAY[...].
    """
    array = bindparam("values", type_=ARRAY(column.type))
    return connection.execute(statement.where(column == any_(array)), {"values": values})


OPTIMIZATION = Optimization(
    name="expanding",
    step="binding",
    baseline=Implementation("one_a_value", one_parameter_a_value),
    alternative=Implementation("expanding", one_expanding_parameter),
    further=(Implementation("any_array", one_array_parameter, postgresql_only=True),),
    why="A statement with one parameter per value is compiled again for each request.",
    source="Placement d4d9457a, 5883c794, f69f5845, 3c102181 (August 2019): one function took half the time.",
    metric="cpu_s",
)
