"""Reads all rows of a few trees with one statement: `read_few`, and `read_changed` for what a snapshot does not show.

Each table's SELECT becomes one column of a single row, a JSON array. Where few rows come back, statements cost more
than rows: planning, and a round trip each. For many rows, JSON would cost more than it saves.
"""

from collections.abc import Collection
from typing import Any, Final

import orjson
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from placebench.lab.reference.candidates.dedup import statements
from placebench.lab.reference.candidates.dedup.statements import Row, TreeRows, Trees, rows_of
from placebench.lab.reference.store.change_log import LOOK_COLUMNS, PgSnapshot, VisibilityCheck, parse_look
from placebench.lab.reference.store.database import GENERIC_PLAN, PREPARED

_BINARY: Final = frozenset({"ids", "parents", "holders", "amounts", "numbers"})
"""The columns of bytea, which JSON has as text such as `\\x0000004d`."""
NO_ROWS: Final = TreeRows((b"", b"", ""), [], [], [], [])


def read_few(connection: Connection, trees: Trees, *, aggregates: bool = True, summed: bool = False) -> TreeRows:
    """Return the rows of the trees; 1 round trip. The arguments are those of `fetch.fetch`."""
    columns = _columns(aggregates=aggregates, summed=summed)
    (row,) = rows_of(connection, f"{_with_trees(trees.condition)} SELECT {', '.join(columns)}")
    return _decode(row, has_aggregates=aggregates)


def read_changed(
    connection: Connection, reader: str, since: PgSnapshot, provider_ids: Collection[int]
) -> tuple[VisibilityCheck, TreeRows] | None:
    """Return what `check_visibility` does, and the trees that these providers are in now, from the same snapshot.

    1 round trip. Planning the statement takes most of its time, so it is prepared at its first use in a connection,
    which must be in autocommit, with psycopg2. Returns None if a pooler such as PgBouncer has switched to another
    session, which lacks the statement or has it already.
    """
    prepared: set[str] = connection.info.setdefault(PREPARED, set())
    message = _EXECUTE if _NAME in prepared else f"{_PREPARE}; {_EXECUTE}"
    try:
        row = connection.exec_driver_sql(message, (list(provider_ids), reader, since.text)).one()
    except DBAPIError as error:
        code = getattr(error.orig, "pgcode", None)
        if code not in (_NO_SUCH_STATEMENT, _IS_THERE_ALREADY):
            raise
        prepared.symmetric_difference_update({_NAME})
        return None
    prepared.add(_NAME)
    return parse_look((row[0], row[1], row[2], row[3]), since), _decode(row[4:], has_aggregates=True)


def _with_trees(condition: str) -> str:
    return f"""
        WITH tree AS MATERIALIZED (
            SELECT id, parent_provider_id, root_provider_id, uuid FROM resource_providers WHERE {condition}
        ), own AS MATERIALIZED (SELECT array_agg(id) AS ids FROM tree)
        """


def _columns(*, aggregates: bool = True, summed: bool = False) -> list[str]:
    """Return a column per table of `TreeRows`, for a statement that begins with `_with_trees`."""
    having = "WHERE resource_provider_id = ANY ((SELECT ids FROM own)::integer[])"
    selects = [
        statements.select_providers("tree"),
        statements.select_inventories(having),
        statements.select_traits(having),
        *([statements.select_aggregates(having)] if aggregates else []),
        statements.select_usages(having, summed=summed),
    ]
    return [f"(SELECT json_agg(part) FROM ({select}) AS part)::text" for select in selects]


def _decode(columns: Row, *, has_aggregates: bool) -> TreeRows:
    tables = [[_values(each) for each in orjson.loads(text or b"[]")] for text in columns]
    (providers,), inventories, traits = tables[:3]
    if providers[0] is None:
        return NO_ROWS
    return TreeRows(providers, inventories, traits, tables[3] if has_aggregates else None, tables[-1])


def _values(row: dict[str, Any]) -> Row:
    """Return a row of a SELECT as the driver returns it."""
    return tuple(
        [
            bytes.fromhex(value[2:]) if name in _BINARY and value else float(value) if name == _FLOAT else value
            for name, value in row.items()
        ]
    )


_FLOAT: Final = "allocation_ratio"
_NO_SUCH_STATEMENT: Final = "26000"
_IS_THERE_ALREADY: Final = "42P05"
_NAME: Final = "placebench_trees"
_ROOTS: Final = "ARRAY(SELECT root_provider_id FROM resource_providers WHERE id = ANY ($1))"
_PREPARE: Final = f"""
    PREPARE {_NAME} (integer[], uuid, text) AS {_with_trees(f"root_provider_id = ANY ({_ROOTS})")}
    SELECT {LOOK_COLUMNS}, {", ".join(_columns())} FROM placebench_look($2, $3)
    """
_EXECUTE: Final = f"{GENERIC_PLAN} EXECUTE {_NAME} (%s, %s, %s)"
