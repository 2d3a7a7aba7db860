"""A part of a TOML file that knows where it stands, so that a mistake is told by file, key, expected and seen.

The key piece is `Section`. Every reader raises TopologyError for a value of the wrong type or out of range.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from placebench.errors import TopologyError

_LARGEST = 3.4e38
"""Placement's own bound of a ratio."""


@dataclass(frozen=True)
class Form:
    """How a text must look, and how to say so."""

    pattern: str
    expected: str


@dataclass(frozen=True)
class Section:
    """One table of the file: `key` is where it stands ("providers[2].inventories"), empty for the whole file."""

    file: Path
    key: str
    values: Mapping[str, Any]

    def only(self, *names: str) -> None:
        """Nothing but these keys may stand here: a misspelt key shall not be silently without effect."""
        for name in self.values:
            if name not in names:
                raise self.error(name, f"unknown key, expected one of {', '.join(names)}")

    def keys(self, form: Form) -> tuple[str, ...]:
        """The keys of this table, where they are names of the user's choice."""
        return tuple(self._text(name, name, form) for name in self.values)

    def text(self, name: str, form: Form) -> str:
        """The text under *name*."""
        return self._text(name, self.values.get(name), form)

    def texts(self, name: str, form: Form) -> tuple[str, ...]:
        """The list of different texts under *name*; an absent list is an empty one."""
        values = self.values.get(name, [])
        if not isinstance(values, list):
            self.fail(name, "a list", values)
        found = tuple(self._text(f"{name}[{place}]", value, form) for place, value in enumerate(values))
        for place, value in enumerate(found):
            if value in found[:place]:
                self.fail(f"{name}[{place}]", "each name once", value)
        return found

    def whole(self, name: str, *, default: int | None = None, at_least: int, at_most: int) -> int:
        """The whole number under *name*."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
            self.fail(name, f"a whole number from {at_least} to {at_most}", value)
        return value

    def wholes(self, name: str, *, default: tuple[int, ...], at_most: int, most: int) -> tuple[int, ...]:
        """The list of one to *most* whole numbers from 0 under *name*."""
        values = self.values.get(name, list(default))
        if not isinstance(values, list) or not 0 < len(values) <= most:
            self.fail(name, f"a list of 1 to {most} numbers", values)
        inside = Section(self.file, self.key, {f"{name}[{place}]": value for place, value in enumerate(values)})
        return tuple(inside.whole(each, at_least=0, at_most=at_most) for each in inside.values)

    def fraction(self, name: str) -> float | None:
        """The number from 0 to 1 under *name*, or None."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            self.fail(name, "a number from 0 to 1", value)
        return float(value)

    def positive(self, name: str, *, default: float) -> float:
        """The number above zero under *name*."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LARGEST:
            self.fail(name, "a number above 0", value)
        return float(value)

    def table(self, name: str) -> Section:
        """The table under *name*; an absent table is an empty one."""
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            self.fail(name, "a table", value)
        return Section(self.file, self._key(name), value)

    def tables(self, name: str) -> list[Section]:
        """The tables that stand under *name* as `[[name]]`, at least one."""
        values = self.values.get(name)
        if not isinstance(values, list) or not values or not all(isinstance(value, dict) for value in values):
            self.fail(name, f"one or more tables [[{name}]]", values)
        return [Section(self.file, self._key(f"{name}[{place}]"), value) for place, value in enumerate(values)]

    def fail(self, name: str, expected: str, seen: object) -> NoReturn:
        """Raise the error that says what was expected under *name* and what was seen."""
        raise self.error(name, f"expected {expected}, saw {'nothing' if seen is None else repr(seen)}")

    def error(self, name: str, problem: str) -> TopologyError:
        """The error that names the file, the key and the problem."""
        return TopologyError(f"{self.file}: {self._key(name)}: {problem}")

    def _text(self, name: str, value: object, form: Form) -> str:
        if not isinstance(value, str) or not re.fullmatch(form.pattern, value):
            self.fail(name, form.expected, value)
        return value

    def _key(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name
