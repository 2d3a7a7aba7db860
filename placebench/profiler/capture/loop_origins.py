"""Which earlier rows hold the values that a loop binds, and which ORM runs the loop: `LoopOrigins`.

The first rows of the latest results are kept while their recording runs, without cells that are long or may be. When
one line runs a statement for the second to the fifth time, its values are looked up there. What stays is which
statements had all of them in one column; neither rows nor values are in the recording.
"""

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

from placebench.profiler.capture.orm_frames import orm_load
from placebench.profiler.capture.signal_errors import is_from_signal
from placebench.profiler.model.statement import Caller, OrmLoad

_MAX_SAMPLED_ROWS = 20
_MAX_RESULTS = 16
_MAX_PLACES = 1_000
_MAX_VALUES = 4
_MAX_CELL_LENGTH = 1_000
_EXECUTIONS = 5
_MAX_WALK_VALUES = 20
_KEY_TYPES = frozenset({int, str, bytes, UUID})
_SIZED = frozenset({str, bytes})
_SHORT = frozenset({bool, date, datetime, Decimal, float, int, time, timedelta, type(None), UUID})

awaiting_load: ContextVar[OrmLoad | None] = ContextVar("placebench_awaiting_load", default=None)
"""What the ORM loads that waits for a driver's thread, in the context of that thread, whose stack does not have it."""
awaiting_chunk: ContextVar[bool | None] = ContextVar("placebench_awaiting_chunk", default=None)
"""Whether it writes the first chunk of a bulk method, as `is_first_chunk` returns."""

_Match = tuple[int, int, int]
"""The position of a value, the place whose rows hold it, and their column."""


class _Statement(Protocol):
    """The part of a pending statement that is read and filled here."""

    fingerprint: str
    caller: Caller | None
    outer_caller: Caller | None
    place: int
    last_row: Any
    keeps_last_row: bool
    load: OrmLoad | None
    origins: tuple[tuple[Any, int], ...]
    sample: list[Any] | None


class _Loop:
    """The executions of one statement at one place so far, until it is known where its values come from."""

    def __init__(self, first: _Statement) -> None:
        self.first = first
        self.executions = 1
        self.values: list[Any] = []
        self.varying: set[int] = set()
        self.matches: dict[_Match, _Statement] | None = None


class LoopOrigins:
    """The latest rows of one recording, and the statements that one line has run a few times."""

    def __init__(self) -> None:
        self._results: deque[tuple[_Statement, list[tuple[Any, ...]]]] = deque()
        self._loops: dict[int, _Statement | _Loop | None] = {}
        # The latest statement of each place that may walk through a table, with its values.
        self._walks: dict[int, tuple[Sequence[Any], _Statement]] = {}

    def fetched(self, pending: _Statement, sample: list[Any], rows: Sequence[Any]) -> None:
        """Keep the first of these rows in the *sample* of their statement, and no more rows of the oldest result."""
        if not sample:
            self._results.append((pending, sample))
            if len(self._results) > _MAX_RESULTS:
                self._results.popleft()[0].sample = None
        try:
            sample.extend(map(_short_cells, rows[: _MAX_SAMPLED_ROWS - len(sample)]))
            if len(sample) < _MAX_SAMPLED_ROWS:
                return
        except Exception as error:
            if is_from_signal(error):
                raise
        pending.sample = None

    def executed(self, pending: _Statement, values: Any) -> None:
        """Note that a place runs its statement once more; the second to the fifth time look for its *values*."""
        caller, outer = pending.caller, pending.outer_caller
        lines = 0 if caller is None else caller[1], 0 if outer is None else outer[1]  # quicker than with their files
        pending.place = place = hash((pending.fingerprint, lines))
        loop = self._loops.get(place, pending)
        if loop is None:  # all is known
            return
        if loop is pending:
            if len(self._loops) < _MAX_PLACES:
                self._loops[place] = pending
            return
        if not isinstance(loop, _Loop):
            loop = self._loops[place] = _Loop(loop)
        loop.executions += 1
        self._compare(loop, values)
        if loop.executions == _EXECUTIONS:
            self._loops[place] = None
            first, matches = loop.first, loop.matches or {}
            if first.load is None:
                first.load = orm_load(sys._getframe(1)) or awaiting_load.get()
            columns = {match[1:]: origin for match, origin in matches.items() if match[0] in loop.varying}
            first.origins = tuple((origin, column) for (_, column), origin in columns.items())

    def goes_on(self, pending: _Statement, given: Sequence[Any], walks: frozenset[str]) -> bool:
        """Return whether the values *given* go on where those of this place had stopped: at the next range, or page.

        walks: as in `StatementFacts`. A range begins at the end of the one before, and a page behind its last row.
        """
        if len(given) > _MAX_WALK_VALUES:
            return False
        lines = tuple(each and each[1] for each in (pending.caller, pending.outer_caller))
        place = hash((pending.fingerprint, lines))
        last = self._walks.get(place)
        if last is not None or len(self._walks) < _MAX_PLACES:
            self._walks[place] = given, pending
            pending.keeps_last_row = True
        if last is None or len(last[0]) != len(given):
            return False
        before, earlier = last
        row, earlier.last_row, earlier.keeps_last_row = earlier.last_row, None, False
        try:
            changed = [(old, new) for old, new in zip(before, given, strict=True) if old != new]
            if "range" in walks and len(changed) == 2:
                (old, new), (other_old, other_new) = changed
                return _adjoin(new, other_old) or _adjoin(other_new, old)
            if row is None or not changed:
                return False
            if "offset" in walks and len(changed) == 1 and changed[0][1] > changed[0][0]:
                return True
            keys = cells_of(row)
            return "keys" in walks and all(new in keys for _, new in changed)
        except Exception as error:
            if is_from_signal(error):
                raise
            return False

    def _compare(self, loop: _Loop, values: Any) -> None:
        """Keep the columns of earlier results that have had the values of every execution so far."""
        if isinstance(values, Mapping):
            given = list(values.values())
        else:  # an iterator is the application's: it would be used up
            given = list(values[: _MAX_VALUES + 1]) if isinstance(values, tuple | list) else []
        if len(given) > _MAX_VALUES or (loop.matches is not None and not loop.matches):
            loop.matches = {}
            return
        if loop.values:
            loop.varying |= {at for at, (old, new) in enumerate(zip(loop.values, given, strict=False)) if old != new}
        loop.values = given
        found: dict[_Match, _Statement] = {}
        keys = [(at, value) for at, value in enumerate(given) if type(value) in _KEY_TYPES]
        for origin, rows in tuple(self._results):
            if origin.place == loop.first.place:
                continue
            for cells in tuple(rows):
                try:
                    for at, value in keys:
                        if value in cells:
                            for column, cell in enumerate(cells):
                                if type(cell) is type(value) and cell == value:
                                    found.setdefault((at, origin.place, column), origin)
                except Exception as error:
                    if is_from_signal(error):
                        raise
        before = loop.matches
        loop.matches = found if before is None else {each: before[each] for each in before if each in found}


def _adjoin(start: Any, end: Any) -> bool:
    """Return whether a range that starts here follows one with this end, or with whole numbers the next one."""
    if start == end:
        return True
    step = timedelta(days=1) if type(start) is date else 1 if type(start) is int else None
    return step is not None and type(start) is type(end) and start - end in (step, -step)


def cells_of(row: Any) -> tuple[Any, ...]:
    """Return the values of a row as the driver made it; none of a row of the application's own class."""
    if isinstance(row, tuple):
        return row
    if isinstance(row, Mapping) or type(row).__name__ == "Record":  # of asyncpg
        return tuple(row.values())
    return tuple(row) if type(row).__name__ == "Row" else ()  # of sqlite3


def _short_cells(row: Any) -> tuple[Any, ...]:
    """Return the cells of a row, with None for those that are long, and for those of other classes, which may be."""
    cells = row if type(row) is tuple else cells_of(row)
    for cell in cells:
        kind = type(cell)
        if kind not in _SHORT and (kind not in _SIZED or len(cell) > _MAX_CELL_LENGTH):
            return tuple(
                each if type(each) in _SHORT or (type(each) in _SIZED and len(each) <= _MAX_CELL_LENGTH) else None
                for each in cells
            )
    return cells
