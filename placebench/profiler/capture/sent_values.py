"""Converts values of statements into a form that is equal for equal values: `comparable`.

The `repr` of a value is no such form. The default one holds an address, which the next object may get again; that of
psycopg's Jsonb is cut after 35 characters. Values of unknown classes are compared by what the driver has sent
(`TimedCursor.sent`), or not at all.
"""

import marshal
from collections.abc import Mapping
from enum import Enum
from typing import Any

from placebench.profiler.capture.signal_errors import is_from_signal

UNKNOWN = object()
"""Values that cannot be compared, such as those of an executemany, which are sent one after the other."""

# The repr of these modules' classes is complete.
_SHOWN = frozenset(
    {"datetime", "decimal", "fractions", "ipaddress", "uuid", "asyncpg.pgproto.pgproto", "asyncpg.pgproto.types"}
)
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_MAPPINGS = (dict, Mapping)  # the question for a Mapping takes ten times as long as that for a dict
_LISTS = (list, tuple, set, frozenset)
_RANGE = ("lower", "upper", "lower_inc", "upper_inc", "isempty")


def comparable(values: Any) -> bytes | None:
    """Return bytes that are equal for equal values of one statement; None if a value is of an unknown class.

    values: by position or by name.
    """
    try:
        given = values
        if isinstance(values, list):
            given = tuple(values)
        elif type(values) is not tuple and isinstance(values, _MAPPINGS):
            names = sorted(values)
            given = (*names, *map(values.__getitem__, names))
        try:
            # From version 3 on, marshal marks objects that occur twice: equal values would give other bytes.
            return marshal.dumps(given, 2)
        except ValueError:
            return marshal.dumps(_plain(given), 2)
    except Exception as error:
        if not isinstance(error, ValueError) and is_from_signal(error):
            raise
        return None


def count_values(values: Any) -> int:
    """Count the values of a statement; each element of a list counts."""
    given = values if isinstance(values, (tuple, list)) else values.values() if isinstance(values, _MAPPINGS) else ()
    if _PLAIN.issuperset(map(type, given)):
        return len(given)
    return sum(len(each) if isinstance(each, _LISTS) else 1 for each in given)


def _plain(value: Any) -> Any:
    """Return *value* as tuples of plain values and class names. Raises ValueError for an unknown class."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    parts: Any
    if isinstance(value, Enum):
        parts = (value.name,)
    elif isinstance(value, Mapping):
        parts = (_plain(each) for item in value.items() for each in item)
    elif isinstance(value, tuple | list):
        parts = map(_plain, value)
    elif isinstance(value, bytes | bytearray | memoryview):
        parts = (bytes(memoryview(value)),)
    elif isinstance(value, str):
        parts = (str.__str__(value),)
    elif isinstance(value, int):
        parts = (int.__int__(value),)
    elif kind.__module__ in _SHOWN:
        # The repr of a time zone may be incomplete: its offset at this time counts.
        parts = (repr(value), repr(value.utcoffset()) if hasattr(value, "utcoffset") else "")
    elif kind.__module__ == "asyncpg.types":
        parts = (_plain(getattr(value, name)) for name in _RANGE)
    else:
        raise ValueError(f"a {kind.__qualname__} cannot be compared")
    return (f"{kind.__module__}.{kind.__qualname__}", *parts)
