"""The places at which responses of the same code to the same request differ: times, random ids, CSRF tokens.

`varying_places` compares two responses and returns what must be ignored for them to be equal, as rules.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs

from placebench.compare.what.canonical_response import DocumentResponse, ResponseRules

_TOKEN = re.compile(r"[\w.:+/=-]+")
"""A word of a text: a number, a time such as 18:40:03, an id, a token in base64."""
_BEFORE = 24
"""About how many characters before a varying word its pattern has."""


class VaryingPlaces(Struct, frozen=True):
    """What differs between responses of the same code, in the terms of `ResponseRules`."""

    ignore: frozenset[str] = frozenset()
    ignore_headers: frozenset[str] = frozenset()
    ignore_text: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.ignore or self.ignore_headers or self.ignore_text)

    def __or__(self, other: "VaryingPlaces") -> "VaryingPlaces":
        return VaryingPlaces(*(getattr(self, name) | getattr(other, name) for name in self.__struct_fields__))

    def added_to(self, rules: ResponseRules) -> ResponseRules:
        """Return the rules with these places ignored too."""
        return structs.replace(
            rules, **{name: (*getattr(rules, name), *sorted(getattr(self, name))) for name in self.__struct_fields__}
        )

    def named(self) -> list[str]:
        """Return the places for readers, such as "$.rows[*].seen_at", "header x-served" and 'text after value="'."""
        before = (each.rpartition("(")[0].replace(_TOKEN.pattern, "…") for each in sorted(self.ignore_text))
        texts = [re.sub(r"\\(.)", r"\1", each) for each in before]
        return [
            *sorted(self.ignore),
            *(f"header {each}" for each in sorted(self.ignore_headers)),
            *(f"the text after {each}" if each else "the text at the beginning" for each in texts),
        ]


def varying_places(first: DocumentResponse, second: DocumentResponse) -> VaryingPlaces | None:
    """Return the places at which two responses differ; None if they cannot be ignored, as of another status.

    A list is ignored as a whole if its length differs, and the items of a list alike. A text is ignored word by word,
    if both texts have the same number of words.
    """
    if first.head.get("status") != second.head.get("status"):
        return None
    names = {*first.head, *second.head}
    headers = frozenset(name for name in names if first.head.get(name) != second.head.get(name))
    before, after = first.document, second.document
    if isinstance(before, bytes) and isinstance(after, bytes):
        patterns = _varying_text(before.decode(errors="surrogateescape"), after.decode(errors="surrogateescape"))
        return None if patterns is None else VaryingPlaces(ignore_headers=headers, ignore_text=patterns)
    if isinstance(before, bytes) or isinstance(after, bytes):
        return None
    paths = frozenset(_varying_paths(before, after, "$"))
    return None if "$" in paths else VaryingPlaces(ignore=paths, ignore_headers=headers)


def _varying_paths(before: Any, after: Any, place: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            inner = _below(place, key)
            if key in before and key in after:
                yield from _varying_paths(before[key], after[key], inner)
            else:
                yield inner
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for pair in zip(before, after, strict=True):
            yield from _varying_paths(*pair, f"{place}[*]")
    elif type(before) is not type(after) or before != after:
        yield place


def _below(place: str, key: str) -> str:
    """Return the path of a key, or the path of its object if the key cannot be written in a path."""
    if re.fullmatch(r"[\w-]+", key):
        return f"{place}.{key}"
    if "'" not in key:
        return f"{place}['{key}']"
    return f'{place}["{key}"]' if '"' not in key else place


def _varying_text(before: str, after: str) -> frozenset[str] | None:
    """Return a pattern for each varying word, with what stands before it; None if the texts differ otherwise."""
    words, others = list(_TOKEN.finditer(before)), _TOKEN.findall(after)
    if len(words) != len(others) or _TOKEN.split(before) != _TOKEN.split(after):
        return None
    varying = [word[0] != other for word, other in zip(words, others, strict=True)]
    patterns = set()
    for number in (number for number, varies in enumerate(varying) if varies):
        start, parts = words[number].start(), [f"({_TOKEN.pattern})"]
        end, place = start, number
        while end > 0 and start - end < _BEFORE:
            previous = words[place - 1] if place else None
            begin = previous.end() if previous else 0
            parts.append(re.escape(before[begin:end]))
            if previous is None:
                break
            place -= 1
            parts.append(_TOKEN.pattern if varying[place] else re.escape(previous[0]))
            end = previous.start()
        patterns.add("".join(reversed(parts)))
    if any("\ud800" <= letter <= "\udfff" for pattern in patterns for letter in pattern):
        return None  # bytes that are not text: no order to the client can hold such a pattern
    return frozenset(patterns)
