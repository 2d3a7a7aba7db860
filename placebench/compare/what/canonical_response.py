"""The canonical form of a response by a comparison's rules, its digest, and the first difference of two responses.

`ResponseRules` says what is compared, `parse_response` returns the canonical form, `difference` compares two. Responses
are compared as documents, with their status and headers, unless the rules name one of `KINDS`.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, islice
from types import MappingProxyType
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from placebench.errors import PlacebenchError
from placebench.registries import Registry


class SpecialResponse(Protocol):
    """A response in the canonical form of one of `KINDS`."""

    @property
    def digest(self) -> str:
        """A digest that is equal for responses with equal contents."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The numbers of items in the response, by the keys of `same_responses` in a run's head."""

    def difference(self, other: "Response") -> str | None:
        """Return one line that shows where *other* differs from this response, or None if they agree."""

    def limit_violation(self, limited: "Response", limit: int) -> str | None:
        """Return why *limited* is not a legal response to the same request with a limit, or None if it is legal."""


class ResponseKind(Protocol):
    """A kind of response that is compared by its own rules instead of as a document."""

    def parse(self, document: Any) -> SpecialResponse | None:
        """Return the canonical form of a JSON document, or None if the document is not of this kind."""

    def without_limit(self, request: str) -> tuple[str, int | None]:
        """Return the request without its limit, and the limit (None if it has no limit).

        A response to a request with a limit may be any part of the whole response.
        """


KINDS: Registry[ResponseKind] = Registry("placebench.responses", "placebench.lab.placement_api:RESPONSES")
"""The kinds of responses that rules can name."""


@dataclass(frozen=True)
class DocumentResponse:
    """A response that is compared as it is: a JSON document or other bytes, with its status and headers."""

    document: Any
    """The parsed document without ignored values; the body as bytes if it is not JSON."""
    head: Mapping[str, Any] = field(default_factory=dict)
    """The `status` and the compared headers by their names in lower case; empty if they are not compared."""

    @cached_property
    def digest(self) -> str:
        """A digest that is equal for equal documents; it depends on the order of lists, but not on that of keys."""
        body = self.document if isinstance(self.document, bytes) else _text(self.document).encode()
        return _digest(_text(dict(self.head)).encode() + b"\n" + body if self.head else body)


Response = SpecialResponse | DocumentResponse


class ResponseRules(Struct, frozen=True, forbid_unknown_fields=True):
    """How responses are compared: the table [same_responses] of a plan."""

    ignore: tuple[str, ...] = ()
    """JSON paths of values that may differ, such as $.items[*].created_at, or $..id at any depth."""
    unordered: tuple[str, ...] = ()
    """JSON paths of lists whose order is ignored."""
    tolerance: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Allowed difference of two numbers, unless both are integers: a share of the larger one, or absolute below 1."""
    ignore_headers: tuple[str, ...] = ()
    """Headers that may differ, in addition to those that usually do; "*" stands for all headers and the status."""
    ignore_text: tuple[str, ...] = ()
    """Regular expressions of text that may differ in a body that is not JSON."""
    candidates: bool = False
    """Whether responses are compared by the rules of the kind "candidates" (`KINDS`)."""
    off: str = ""
    """The reason why responses are not compared; empty if they are."""

    @property
    def kind(self) -> ResponseKind | None:
        """The kind of response whose rules are used first, or None."""
        return KINDS.get("candidates") if self.candidates else None

    def check(self, source: str) -> None:
        """Raise PlacebenchError, with *source* at the beginning, for a rule that is not valid."""
        for path in (*self.ignore, *self.unordered):
            if parse_path(path) is None or (path in self.ignore and path == "$"):
                expected = "expected a JSON path such as $.items[*].id, $..id or $['a name'][0]"
                raise PlacebenchError(f"{source}: {path!r}: {expected}")
        for pattern in self.ignore_text:
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise PlacebenchError(f"{source}: ignore_text {pattern!r}: {error}") from error
        if self.off and self != ResponseRules(off=self.off):
            raise PlacebenchError(f"{source}: off = {self.off!r} compares nothing: expected no other key beside it")


DEFAULT_RULES = ResponseRules()
_MAX_SHOWN, _CONTEXT = 80, 20
"""Maximum length of a value in a message, and the number of characters shown before the difference."""
_VOLATILE = frozenset(
    [
        "age",
        "connection",
        "content-length",
        "date",
        "etag",
        "expires",
        "keep-alive",
        "last-modified",
        "server",
        "server-timing",
        "set-cookie",
        "traceparent",
        "transfer-encoding",
        "via",
        "x-process-time",
        "x-runtime",
    ]
)
_VOLATILE_ENDS = ("correlation-id", "request-id", "trace-id")


def compared_head(status: int, headers: Iterable[tuple[str, str]], rules: ResponseRules) -> dict[str, Any]:
    """Return the status and the headers of a response that are compared, for `parse_response`."""
    if "*" in rules.ignore_headers:
        return {}
    ignored = _VOLATILE | {name.lower() for name in rules.ignore_headers} if rules.ignore_headers else _VOLATILE
    head: dict[str, Any] = {"status": status}
    for name, value in headers:
        if (key := name.lower()) not in ignored and not key.endswith(_VOLATILE_ENDS):
            head[key] = f"{head[key]}, {value}" if key in head else value
    return head


_STEP = re.compile(r"\.(\.?)(\*|[^.\[\]*'\s]+)|(\.\.)?\[(?:(\d+)|(\*)|'([^']*)'|\"([^\"]*)\")\]")
_Step = tuple[bool, str | int | None]
"""Whether the step matches at any depth; and its key or list index, or None for any."""
_Path = tuple[_Step, ...]


@cache
def parse_path(text: str) -> _Path | None:
    """Return the steps of a JSON path, or None if *text* is not a valid path."""
    if not text.startswith("$"):
        return None
    steps: list[_Step] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            return None
        deep, name, deep_bracket, number, anything, quoted, double = found.groups()
        key = int(number) if number else None if anything or name == "*" else name or quoted or double or ""
        steps.append((bool(deep or deep_bracket), key))
        at = found.end()
    return tuple(steps)


def find_values(path: str, document: Any) -> Iterator[Any]:
    """Yield the values at the JSON *path* of a document."""
    yield from _found([parse_path(path) or ()], document)


def _found(paths: Sequence[_Path], value: Any) -> Iterator[Any]:
    if () in paths:
        yield value
    for key, inner in _children(value):
        if deeper := _advance(paths, key):
            yield from _found(deeper, inner)


def _children(value: Any) -> Iterable[tuple[str | int, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()


def _advance(paths: Sequence[_Path], key: str | int) -> list[_Path]:
    """Return the remaining steps of each path below *key*."""
    left = []
    for path in paths:
        if path:
            deep, expected = path[0]
            if deep:
                left.append(path)
            if expected is None or expected == key:
                left.append(path[1:])
    return left


def _without(value: Any, ignored: Sequence[_Path], unordered: Sequence[_Path]) -> Any:
    """Return *value* without the values at the ignored paths, and with the unordered lists sorted."""
    if (not ignored and not unordered) or not isinstance(value, dict | list):
        return value
    kept = {}
    for key, inner in _children(value):
        below = _advance(ignored, key)
        if () not in below:
            kept[key] = _without(inner, below, _advance(unordered, key))
    if isinstance(value, dict):
        return kept
    return sorted(kept.values(), key=_sort_key) if () in unordered else list(kept.values())


def _sort_key(value: Any) -> tuple[str, list[float]]:
    """Return a sort key: the text first, then the numbers, so that numbers within the tolerance sort alike."""
    numbers: list[float] = []

    def text_of(inner: Any) -> Any:
        if isinstance(inner, int | float) and not isinstance(inner, bool):
            numbers.append(inner)
            return None
        if isinstance(inner, dict):
            return {key: text_of(inner[key]) for key in sorted(inner)}
        return [text_of(each) for each in inner] if isinstance(inner, list) else inner

    return _text(text_of(value)), numbers


def parse_response(
    body: bytes, rules: ResponseRules = DEFAULT_RULES, head: Mapping[str, Any] = MappingProxyType({})
) -> Response:
    """Return the canonical form of a body by the *rules*, with the *head* that `compared_head` returned.

    JSON that is nested too deeply to be parsed is compared by its bytes.
    """
    try:
        document = json.loads(body, parse_float=float if rules.tolerance else _parse_number)
        made: Response | None = rules.kind.parse(document) if rules.kind else None
        if made is None:
            ignored = [parse_path(path) or () for path in rules.ignore]
            unordered = [steps for path in rules.unordered if (steps := parse_path(path)) is not None]
            made = DocumentResponse(_without(document, ignored, unordered), head)
        made.digest  # noqa: B018  it walks through the whole document, as a comparison does
    except (ValueError, RecursionError):
        text = body.decode(errors="surrogateescape")  # so that a pattern may have letters of any alphabet
        for pattern in rules.ignore_text:
            text = re.sub(pattern, "", text)
        return DocumentResponse(text.encode(errors="surrogateescape"), head)
    return made


def difference(baseline: Response, variant: Response, tolerance: float = 0.0) -> str | None:
    """Return one line that shows where *variant* differs from *baseline*, or None if they agree."""
    return next(iter(differences(baseline, variant, tolerance, at_most=1)), None)


def differences(baseline: Response, variant: Response, tolerance: float = 0.0, *, at_most: int) -> list[str]:
    """Return a line for each of the first *at_most* places where *variant* differs from *baseline*."""
    if not isinstance(baseline, DocumentResponse):
        found = baseline.difference(variant)
        return [found] if found else []
    if not isinstance(variant, DocumentResponse):
        found = variant.difference(baseline)
        return [found] if found else []
    heads = _different_places(dict(baseline.head), dict(variant.head), "", 0.0)
    bodies = _different_bodies(baseline.document, variant.document, tolerance)
    named = chain((f"{'' if place.startswith('.status') else 'header '}{place[1:]}" for place in heads), bodies)
    try:
        return list(islice(named, at_most))
    except RecursionError:
        is_same = baseline.digest == variant.digest
        return [] if is_same else ["the documents differ, nested too deeply to say where"]


def _different_bodies(expected: Any, seen: Any, tolerance: float) -> Iterator[str]:
    if not isinstance(expected, bytes) or not isinstance(seen, bytes):
        before, now = (each.decode(errors="replace") if isinstance(each, bytes) else each for each in (expected, seen))
        yield from _different_places(before, now, "$", tolerance)
    elif expected != seen:
        at = next((at for at, pair in enumerate(zip(expected, seen, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(expected), len(seen)) if at is None else at
        part = slice(max(0, at - 20), at + 40)
        before, now = (_short(each[part].decode(errors="replace")) for each in (expected, seen))
        yield f"byte {at} of the body: {now} where {before} was expected"


def _different_places(expected: Any, seen: Any, place: str, tolerance: float) -> Iterator[str]:
    """Yield the JSON path of each difference between two documents, with both values cut short."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        for key in [*expected, *(key for key in seen if key not in expected)]:
            inner = f"{place}.{key}" if re.fullmatch(r"[\w-]+", key) else f"{place}[{key!r}]"
            if key not in seen:
                yield f"{inner} is missing where {_short(expected[key])} was expected"
            elif key not in expected:
                yield f"{inner} is {_short(seen[key])} where nothing was expected"
            else:
                yield from _different_places(expected[key], seen[key], inner, tolerance)
    elif isinstance(expected, list) and isinstance(seen, list):
        for number, pair in enumerate(zip(expected, seen, strict=False)):
            yield from _different_places(pair[0], pair[1], f"{place}[{number}]", tolerance)
        if len(expected) != len(seen):
            yield f"{place} has {len(seen)} entries where {len(expected)} were expected"
    elif not _is_close(expected, seen, tolerance) and _text(expected) != _text(seen):  # for Python true is equal to 1
        now, before = _short_pair(seen, expected)
        yield f"{place} is {now} where {before} was expected"


def _is_close(expected: Any, seen: Any, tolerance: float) -> bool:
    """Return whether both values are numbers, not both integers, and lie within the tolerance."""
    kinds = {type(expected), type(seen)}
    if float not in kinds or not kinds <= {int, float}:
        return False
    return bool(abs(seen - expected) <= tolerance * max(1.0, abs(expected), abs(seen)))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def _short_pair(seen: Any, expected: Any) -> tuple[str, str]:
    """Return both values as JSON; long ones begin shortly before the first character that differs."""
    texts = [json.dumps(each, ensure_ascii=False) for each in (seen, expected)]
    pairs = enumerate(zip(*texts, strict=False))
    at = next((at for at, letters in pairs if letters[0] != letters[1]), min(map(len, texts)))
    start = at - _CONTEXT if max(map(len, texts)) > _MAX_SHOWN and at > _CONTEXT else 0
    cut = [("…" if start else "") + each[start : start + _MAX_SHOWN - 1] for each in texts]
    return (
        cut[0] + "…" * (len(texts[0]) > start + _MAX_SHOWN - 1),
        cut[1] + "…" * (len(texts[1]) > start + _MAX_SHOWN - 1),
    )


def _parse_number(text: str) -> float:
    """Parse 1.0 as 1, since JSON has only one kind of number."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
