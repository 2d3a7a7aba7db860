"""Placeholders in the words of a command: the values that replace them, and the words with values in place."""

import re
from collections.abc import Mapping, Sequence

from placebench.errors import UsageError

_AXIS = re.compile(r"[A-Za-z_][\w-]*")


def read_axes(given: Sequence[str], words: Sequence[str] | None = None) -> dict[str, tuple[str, ...]]:
    """Return the values of each --axis by its name; raise UsageError for one that the command's *words* do not use.

    words: None for an application, whose axes have other uses.
    """
    axes: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, _, values = text.partition("=")
        found = tuple(values.split(","))
        if not _AXIS.fullmatch(name) or name in axes or not all(found) or len(set(found)) < len(found):
            raise UsageError(
                f"--axis {text!r}: expected NAME=V,V with different names and values, such as plugin=off,on"
            )
        if words is not None and not any(f"{{{name}}}" in word for word in words):
            raise UsageError(f"--axis {name}: the command has no {{{name}}}, which the values are to replace")
        axes[name] = found
    return axes


def fill_words(words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with {NAME} replaced by the value of each name; braces in a value are not replaced in turn."""
    names = re.compile("|".join(re.escape(f"{{{name}}}") for name in values))
    return tuple(names.sub(lambda found: values[found[0][1:-1]], word) for word in words)
