"""The canonical form of a response by the rules of its comparison, its digest, and the first difference of two.

`ResponseRules` says what is compared, `parse_response` returns the canonical form, `difference` compares two. By
`PLACEMENT_RULES` the order of candidates, of traits and of a mapping's providers means nothing, as in Placement. The
responses of other services are compared as documents, with their status and headers.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta, Struct

from placebench.errors import PlacebenchError

_CANDIDATES = {"allocation_requests", "provider_summaries"}


@dataclass(frozen=True)
class CandidatesResponse:
    """One response to GET /allocation_candidates, in canonical form."""

    candidates: frozenset[str]
    """One text per candidate: its allocations and mappings, sorted."""
    candidate_count: int
    """The number of candidates in the document, which may repeat one."""
    summaries: dict[str, str]
    """The text of each summary by the provider's uuid."""

    @cached_property
    def digest(self) -> str:
        """A digest that is equal for responses of equal contents."""
        lines = [str(self.candidate_count), *sorted(self.candidates), *sorted(self.summaries.values())]
        return _digest("\n".join(lines).encode())


@dataclass(frozen=True)
class _OtherResponse:
    """A response of any other service: a JSON document or other bytes, with its status and headers."""

    document: Any
    """The parsed document without what the rules ignore; the body as bytes if it is no JSON."""
    head: Mapping[str, Any] = field(default_factory=dict)
    """The `status` and the compared headers by their names in lower case; empty if neither is compared."""

    @cached_property
    def digest(self) -> str:
        """A digest that is equal for equal documents; the order of lists counts, that of keys does not."""
        body = self.document if isinstance(self.document, bytes) else _text(self.document).encode()
        return _digest(_text(dict(self.head)).encode() + b"\n" + body if self.head else body)


Response = CandidatesResponse | _OtherResponse


class ResponseRules(Struct, frozen=True, forbid_unknown_fields=True):
    """How responses are compared: the table [same_responses] of a plan."""

    ignore: tuple[str, ...] = ()
    """JSON paths of values that may differ, such as $.items[*].created_at, or $..id at any depth."""
    unordered: tuple[str, ...] = ()
    """JSON paths of lists whose order means nothing."""
    tolerance: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Allowed difference of two numbers, not both integers: a share of the larger one, or absolute below 1."""
    ignore_headers: tuple[str, ...] = ()
    """Further headers that may differ, besides those that usually do; "*" is all headers."""
    ignore_text: tuple[str, ...] = ()
    """Regular expressions of text that may differ in a body that is no JSON."""
    candidates: bool = False
    """Whether responses of Placement's GET /allocation_candidates are compared as the sets that they are."""
    off: str = ""
    """The reason why nothing is compared, if so."""

    def check(self, source: str) -> None:
        """Raise PlacebenchError, which begins with *source*, for a rule that is not valid."""
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


PLACEMENT_RULES = ResponseRules(ignore_headers=("*",), candidates=True)
"""Placement's responses differ in headers and in order; a request with a limit leaves open which candidates come."""
_MAX_SHOWN, _CONTEXT = 80, 20
"""Length of a value in a message, and the part of it before the difference."""
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
"""Whether the step matches at any depth, and the key or the place in a list, None for any."""
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
    """Sort by text first, then by the numbers, so that numbers within the tolerance get the same place."""
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
    body: bytes, rules: ResponseRules = PLACEMENT_RULES, head: Mapping[str, Any] = MappingProxyType({})
) -> Response:
    """Return the canonical form of a body by the *rules*, with the *head* of `compared_head`.

    JSON that is nested too deeply to be read is compared by its bytes.
    """
    try:
        document = json.loads(body, parse_float=float if rules.tolerance else _parse_number)
        made: Response
        if rules.candidates and isinstance(document, dict) and document.keys() >= _CANDIDATES:
            made = canonical_candidates(document)
        else:
            ignored = [parse_path(path) or () for path in rules.ignore]
            unordered = [steps for path in rules.unordered if (steps := parse_path(path)) is not None]
            made = _OtherResponse(_without(document, ignored, unordered), head)
        made.digest  # noqa: B018  it walks through the whole document, as a comparison does
    except (ValueError, RecursionError):
        text = body.decode(errors="surrogateescape")  # so that a pattern may have letters of any alphabet
        for pattern in rules.ignore_text:
            text = re.sub(pattern, "", text)
        return _OtherResponse(text.encode(errors="surrogateescape"), head)
    return made


def canonical_candidates(document: dict[str, Any]) -> CandidatesResponse:
    """Return the canonical form of a document with allocation candidates."""
    candidates = [_sorted_text(candidate) for candidate in document["allocation_requests"]]
    summaries = {uuid: f"{uuid} {_sorted_text(summary)}" for uuid, summary in document["provider_summaries"].items()}
    return CandidatesResponse(frozenset(candidates), len(candidates), summaries)


def difference(baseline: Response, variant: Response, tolerance: float = 0.0) -> str | None:
    """Return one line that shows where *variant* differs from *baseline*, or None if they agree."""
    if isinstance(baseline, CandidatesResponse) and isinstance(variant, CandidatesResponse):
        return _candidates_difference(baseline, variant)
    if isinstance(baseline, CandidatesResponse) or isinstance(variant, CandidatesResponse):
        return "one responds with allocation candidates, the other does not"
    heads = _different_places(dict(baseline.head), dict(variant.head), "", 0.0)
    bodies = _different_bodies(baseline.document, variant.document, tolerance)
    try:
        return next(
            chain((f"{'' if place.startswith('.status') else 'header '}{place[1:]}" for place in heads), bodies), None
        )
    except RecursionError:
        return None if baseline.digest == variant.digest else "the documents differ, nested too deeply to say where"


def _candidates_difference(baseline: CandidatesResponse, variant: CandidatesResponse) -> str | None:
    for what, ours, theirs in (
        ("candidate", baseline.candidates, variant.candidates),
        ("summary", set(baseline.summaries.values()), set(variant.summaries.values())),
    ):
        if missing := sorted(ours - theirs):
            return f"{len(missing)} of {len(ours)} {what} entries are missing, first: {missing[0]}"
        if added := sorted(theirs - ours):
            return f"{len(added)} {what} entries more than {len(ours)}, first: {added[0]}"
    if baseline.candidate_count != variant.candidate_count:
        return f"{variant.candidate_count} candidates where {baseline.candidate_count} were expected"
    return None


def limit_violation(whole: CandidatesResponse, limited: CandidatesResponse, limit: int) -> str | None:
    """Return why *limited* is no legal response to a request with *limit*, or None if it is legal.

    whole: the response without the limit. A legal one has exactly min(limit, all) of its distinct candidates, with the
    summaries of just their trees.
    """
    expected = min(limit, whole.candidate_count)
    if (limited.candidate_count, len(limited.candidates)) != (expected, expected):
        seen = f"{limited.candidate_count} candidates, {len(limited.candidates)} of them distinct"
        return f"{seen}, where {expected} were expected"
    if strange := sorted(limited.candidates - whole.candidates):
        return f"a candidate that the response without a limit does not hold: {strange[0]}"
    roots = {_root(whole, uuid) for each in limited.candidates for uuid in json.loads(each)["allocations"]}
    summaries = {uuid: text for uuid, text in whole.summaries.items() if _root(whole, uuid) in roots}
    return _candidates_difference(CandidatesResponse(limited.candidates, expected, summaries), limited)


def _root(response: CandidatesResponse, uuid: str) -> str:
    summary = json.loads(response.summaries[uuid].partition(" ")[2])
    return str(summary.get("root_provider_uuid", uuid))


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
    """Yield each place of a document that differs, as a JSON path, with both values cut short."""
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
    """Whether both are numbers, not both integers, that lie within the tolerance."""
    kinds = {type(expected), type(seen)}
    if float not in kinds or not kinds <= {int, float}:
        return False
    return bool(abs(seen - expected) <= tolerance * max(1.0, abs(expected), abs(seen)))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def _short_pair(seen: Any, expected: Any) -> tuple[str, str]:
    """Return both values as JSON; long ones begin shortly before the first letter that differs."""
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
    """Read 1.0 as 1, since JSON has one kind of number."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _sorted_text(value: Any) -> str:
    return _text(_sorted(value))


def _sorted(value: Any) -> Any:
    """Return *value* with every list sorted: traits and a mapping's providers are sets written as lists."""
    if isinstance(value, dict):
        return {key: _sorted(inner) for key, inner in value.items()}
    return sorted(value) if isinstance(value, list) else value
