"""What one record asked for twice: statements with the same values, and rows that came already.

The key piece is `Repetition`. It keeps hashes and primary keys while the record runs, and none of them afterwards; its
memory is bounded, and what does not fit is taken for new.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

_MOST = 50_000


class KeyColumn(NamedTuple):
    """Which column of a result holds the whole primary key of a table."""

    table: str
    position: int


class Repetition:
    """The statements and rows that one record has seen."""

    def __init__(self) -> None:
        self._statements: set[int] = set()
        # By table: each primary key with the statement that fetched it first.
        self._rows: dict[str, dict[Any, int]] = {}
        self._kept = 0

    def ran(self, sql: str, parameters: Any) -> bool | None:
        """Whether this text ran with these values before; None for values that cannot be compared."""
        values = tuple(parameters.values()) if isinstance(parameters, dict) else parameters
        try:
            key = hash((sql, tuple(values) if isinstance(values, list) else values))
        except TypeError:
            return None
        before = key in self._statements
        if not before and len(self._statements) < _MOST:
            self._statements.add(key)
        return before

    def seen(self, column: KeyColumn, rows: Sequence[Any], statement: int) -> int:
        """How many distinct keys of these rows another statement had fetched before; 50 to 100 ns a row.

        statement: a number of the one that fetched them now.
        """
        firsts = self._rows.setdefault(column.table, {})
        try:
            keys = {row[column.position] for row in rows}
        except (TypeError, KeyError, IndexError):  # rows of a user's own class
            return 0
        known = keys & firsts.keys()
        if self._kept < _MOST:
            new = keys - known
            self._kept += len(new)
            firsts.update(dict.fromkeys(new, statement))
        return sum(firsts[key] != statement for key in known)
