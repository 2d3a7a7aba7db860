"""Read files with a declared content: JSON, lines of JSON and TOML, validated against Python types.

`read_json`, `read_lines` and `read_toml` read files, `check` validates a document in memory, and `append_lines` writes
files for `read_lines`. An error is one line with the file, the key, the expected and the given value. Keys that a type
does not declare are ignored, except in a `msgspec.Struct` that forbids unknown fields.
"""

import codecs
import operator
import os
import re
import reprlib
from collections.abc import Callable, Iterable
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta as Meta
from msgspec import Struct as Struct

from placebench.errors import PlacebenchError, did_you_mean

_T = TypeVar("_T")

Count = Annotated[int, Meta(ge=0, le=2**53)]
"""An integer from 0 to 2**53, up to which floats hold integers exactly."""
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Amount = Annotated[float, Meta(ge=0, le=1e15)]
"""Seconds, bytes or counts; may be 0."""
AtLeastOne = Annotated[int, Meta(ge=1, le=2**53)]
Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(ge=1e-9, le=1e15)]
"""Seconds, bytes or counts above 0, so that the ratio of two of them is defined."""

_PLACE = re.compile(r"(.*) - at `(?:key` in `)?\$(.*)`", re.DOTALL)
_STEPS = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_SHAPES = {
    repr("^/"): "a path that begins with /",
    repr(r"^[^:]+:[^:]+$"): "module:callable, such as shop.main:app",
    repr(r"^[A-Za-z0-9_.-]+$"): "letters, digits, _, . or -",
}
"""Descriptions of the texts that a declared type accepts, by the regular expression that msgspec names."""
_QUOTED = re.compile(r"`([^`]*)`")
_WORDS = {
    "array": "a list",
    "object": "an object",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
}
_KINDS: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool, "array": list, "object": dict}
_MAX_DEPTH = 16
_TOO_DEEP = "nested deeper than anything that placebench writes"


def read_json(path: Path, kind: type[_T], *, error: type[PlacebenchError]) -> _T:
    """Return the JSON document in a file as a *kind*; raise *error* if it is not valid or cannot be read."""
    return decode_json(_content(path, error), kind, str(path), error=error)


def decode_json(content: bytes, kind: type[_T], source: str, *, error: type[PlacebenchError]) -> _T:
    """Return the JSON in *content* as a *kind*; source: its name in error messages."""
    return _decode(content, kind, msgspec.json.decode, source, error)


def read_lines(path: Path, kind: type[_T], *, error: type[PlacebenchError]) -> list[_T]:
    """Return each line of a file as a *kind*; a missing file has no lines.

    A truncated last line, left by a killed process, is ignored. A complete last line counts even without a newline,
    which editors and merges may remove.
    """
    if not path.is_file():
        return []
    *lines, last = _content(path, error).split(b"\n")
    lines += [last] if _is_whole(last) else []
    return [
        decode_json(line, kind, f"{path}: line {number}", error=error) for number, line in enumerate(lines, start=1)
    ]


def append_lines(path: Path, documents: Iterable[bytes]) -> None:
    """Append one line per JSON document; the lines are on the disk when the function returns.

    A truncated last line, left by a killed process, is removed; a complete one without a newline gets its newline.
    """
    with path.open("ab+") as file:
        file.seek(0)
        whole, newline, last = file.read().rpartition(b"\n")
        is_whole = _is_whole(last)
        if not is_whole:
            file.truncate(len(whole) + len(newline))
        file.write(b"\n" * is_whole + b"".join(each + b"\n" for each in documents))
        file.flush()
        os.fsync(file.fileno())


def _is_whole(line: bytes) -> bool:
    """Return whether a line, which holds one JSON object, was written completely."""
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError):
        return False
    except RecursionError:
        return True
    return True


def read_toml(path: Path, kind: type[_T], *, error: type[PlacebenchError]) -> _T:
    """Return the TOML document in a file as a *kind*; raise *error* if it is not valid or cannot be read."""
    return _decode(_content(path, error), kind, msgspec.toml.decode, str(path), error)


def check(
    document: Any, kind: Any, source: str, *, at: str = "", error: type[PlacebenchError], max_depth: int = _MAX_DEPTH
) -> Any:
    """Return *document* as a *kind*; raise *error* if it is not valid.

    source: its name in error messages. at: the key of the document within the source, such as "providers[2]".
    max_depth: maximum nesting of lists and objects in the document.
    """
    # Level by level: a walk that calls itself would end at Python's limit before it has found out.
    level, finite = [document], True
    for _ in range(max_depth):
        finite = finite and all(isfinite(each) for each in level if isinstance(each, float))
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    if level:
        raise error(f"{source}: cannot be read: {_TOO_DEEP}")
    try:
        made = msgspec.convert(document, kind)
    except RecursionError as found:
        raise error(f"{source}: cannot be read: {_TOO_DEEP}") from found
    except msgspec.ValidationError as found:
        raise error(f"{source}: {_in_words_of(source, _describe_error(found, document, kind, at))}") from found
    if not finite:
        raise error(f"{source}: cannot be read: it holds a number that is infinite or NaN")
    return made


def _content(path: Path, error: type[PlacebenchError]) -> bytes:
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)  # which programs on Windows write
    except (OSError, ValueError) as found:  # a name may hold a null character
        raise error(f"{path}: cannot be read: {getattr(found, 'strerror', None) or found}") from found


def _decode(
    content: bytes, kind: type[_T], decode: Callable[..., Any], source: str, error: type[PlacebenchError]
) -> _T:
    try:
        made: _T = decode(content, type=kind)
    except msgspec.ValidationError as found:
        described = _describe_error(found, _decode_unchecked(content, decode), kind)
        raise error(f"{source}: {_in_words_of(source, described)}") from found
    except RecursionError as found:
        raise error(f"{source}: cannot be read: {_TOO_DEEP}") from found
    except (msgspec.MsgspecError, ValueError) as found:
        raise error(f"{source}: cannot be read: {found}") from found
    return made


def _decode_unchecked(content: bytes, decode: Callable[..., Any]) -> Any:
    """Return the document without validation, to show the invalid value; UNSET if it cannot be parsed."""
    try:
        return decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return msgspec.UNSET


def _describe_error(found: msgspec.ValidationError, seen: Any, kind: Any, at: str = "") -> str:
    """Return a text like 'settings.proxies: expected a whole number >= 1, saw -1'; seen: the whole document."""
    placed = _PLACE.fullmatch(str(found))
    what, place = (placed[1], placed[2]) if placed else (str(found), "")
    declared: Any = msgspec.inspect.type_info(kind)
    for key, number in _STEPS.findall(place):
        if number == "..." and isinstance(seen, dict):
            number = _key_of(seen, what, _type_in(declared, key))
            place = place.replace("[...]", f".{number}", 1)
        seen, declared = _value_in(seen, key or number), _type_in(declared, key)
    described = _translate_expectation(what, declared)
    if seen is not msgspec.UNSET and described.startswith("expected"):
        described = f"{described.partition(', got ')[0]}, saw {reprlib.repr(seen)}"
    place = (at + place).lstrip(".")
    return f"{place}: {described}" if place else described


def _in_words_of(source: str, described: str) -> str:
    """Return the description in TOML's terms if the source is a TOML file."""
    if ".toml" not in source:
        return described
    expected, saw, seen = described.partition(", saw ")
    for of_json, of_toml in (("an object", "a table"), ("a list", "an array"), ("a text", "a string")):
        expected = expected.replace(of_json, of_toml)
    return f"{expected}{saw}{seen}"


def _translate_expectation(what: str, declared: Any) -> str:
    """Return msgspec's message in the terms of our messages."""
    name = what.rpartition(" ")[2].strip("`")
    kinds = getattr(declared, "types", (declared,))
    if "unknown field" in what:
        known = [each.encode_name for kind in kinds for each in getattr(kind, "fields", ())]
        return f"unknown key {name!r}, {did_you_mean(name, known)}expected one of {', '.join(known)}"
    if "missing required field" in what:
        return f"{name} is missing"
    if "enum value" in what:
        values = (value for kind in kinds for value in getattr(kind, "values", ()))
        return f"expected one of {', '.join(map(str, values))}"
    pattern = what.partition(" matching regex ")[2]
    if pattern in _SHAPES:
        return f"expected {_SHAPES[pattern]}"
    said = _QUOTED.sub(lambda found: " or ".join(_WORDS.get(each, each) for each in found[1].split(" | ")), what)
    return said[0].lower() + said[1:]


def _key_of(table: dict[str, Any], what: str, declared: Any) -> str:
    """Return the key of the first value that msgspec can have meant, because msgspec does not name keys of mappings.

    That is one of the type that it saw, or if it saw a good type, one beyond the bounds of the *declared* values.
    """
    _, saw, got = what.rpartition(", got ")
    if saw:
        kinds = _KINDS.get(got.strip("`"), object)
        return next((key for key, value in table.items() if isinstance(value, kinds)), "...")
    bounds = {name: getattr(declared, name, None) for name in ("ge", "gt", "le", "lt")}
    return next(
        (
            key
            for key, value in table.items()
            if isinstance(value, int | float)
            and any(bound is not None and not getattr(operator, name)(value, bound) for name, bound in bounds.items())
        ),
        next(iter(table), "..."),
    )


def _value_in(document: Any, step: str) -> Any:
    """Return the value under a key or index of the document; UNSET if there is none."""
    if isinstance(document, dict):
        return document.get(step, msgspec.UNSET)
    return document[int(step)] if isinstance(document, list) and step.isdecimal() else msgspec.UNSET


def _type_in(declared: Any, key: str) -> Any:
    """Return the type of a field, or of the items of a list or mapping; None if unknown."""
    for each in getattr(declared, "types", (declared,)):
        if key:
            found = next((field.type for field in getattr(each, "fields", ()) if field.encode_name == key), None)
        else:
            found = getattr(each, "item_type", None) or getattr(each, "value_type", None)
        if found is not None:
            return found
    return None
