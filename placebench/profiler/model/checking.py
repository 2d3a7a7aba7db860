"""What is read from a file, held to the types of its fields; needs nothing that is not installed with the profiler.

The key piece is `checked`.
"""

from math import isfinite
from types import UnionType
from typing import TypeVar

T = TypeVar("T")


def checked(record: T) -> T:
    """The same *record*; raises TypeError for a field of a plain type that holds something else, or no finite number.

    A whole number is a number, as in JSON. What a field of another type holds (a sequence) is left to the caller.
    """
    for name, kind in type(record).__annotations__.items():
        value = getattr(record, name)
        number = float(value) if isinstance(value, int | float) else value
        if isinstance(number, float) and not isfinite(number):
            raise TypeError(f"{name} is {value}")
        if isinstance(kind, type | UnionType) and not (isinstance(value, kind) or isinstance(number, kind)):
            raise TypeError(f"{name} is {repr(value)[:60]}")
    return record
