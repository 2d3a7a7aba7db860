"""The canonical form of a response, its digest, and the first difference of two.

The order of candidates, of traits and of a mapping's providers is undefined in Placement, so responses are
compared without it. What any other service responds is compared as the document it is.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CandidatesResponse:
    """One response to GET /allocation_candidates, in canonical form."""

    candidates: frozenset[str]
    """One text a candidate: its allocations and mappings, sorted."""
    candidate_count: int
    """As in the document; more than `candidates` when it repeats itself."""
    summaries: dict[str, str]
    """By provider's uuid, one text a summary."""

    @property
    def digest(self) -> str:
        """The same for every response that says the same."""
        lines = [str(self.candidate_count), *sorted(self.candidates), *sorted(self.summaries.values())]
        return _digest("\n".join(lines).encode())


@dataclass(frozen=True)
class OtherResponse:
    """What a service that is not Placement's responds: a JSON document, or any other bytes."""

    document: Any
    """As parsed; the body as text where it is no JSON."""

    @property
    def digest(self) -> str:
        """The same for every document that says the same; the order of lists counts, that of keys does not."""
        return _digest(_text(self.document).encode())


Response = CandidatesResponse | OtherResponse


def parse_response(body: bytes) -> Response:
    """Return the body of a response without the order that means nothing."""
    try:
        document = json.loads(body, parse_float=_number)
    except ValueError:
        return OtherResponse(body.decode(errors="replace"))
    if isinstance(document, dict) and {"allocation_requests", "provider_summaries"} <= document.keys():
        return canonical_candidates(document)
    return OtherResponse(document)


def canonical_candidates(document: dict[str, Any]) -> CandidatesResponse:
    """Return the document of a response, without the order that means nothing."""
    candidates = [_sorted_text(candidate) for candidate in document["allocation_requests"]]
    summaries = {uuid: f"{uuid} {_sorted_text(summary)}" for uuid, summary in document["provider_summaries"].items()}
    return CandidatesResponse(frozenset(candidates), len(candidates), summaries)


def difference(baseline: Response, variant: Response) -> str | None:
    """Return one line that shows where *variant* says something else than *baseline*; None when they agree."""
    if isinstance(baseline, CandidatesResponse) and isinstance(variant, CandidatesResponse):
        return _candidates_difference(baseline, variant)
    if isinstance(baseline, CandidatesResponse) or isinstance(variant, CandidatesResponse):
        return "one responds with allocation candidates, the other does not"
    return next(_different_places(baseline.document, variant.document, "the document"), None)


def _candidates_difference(baseline: CandidatesResponse, variant: CandidatesResponse) -> str | None:
    """Return one line that shows where *variant* says something else than *baseline*; None when they agree."""
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
    """Return why *limited* is no legal response to a request with *limit*, *whole* being that without; None if it is.

    Legal are exactly min(limit, all) distinct members of the whole, with the summaries of just their trees.
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


def _different_places(expected: Any, seen: Any, place: str) -> Iterator[str]:
    """Each place of a document that differs, with both values cut short."""
    if isinstance(expected, dict) and isinstance(seen, dict) and expected.keys() == seen.keys():
        for key in expected:
            yield from _different_places(expected[key], seen[key], f"{place}[{key!r}]")
    elif isinstance(expected, list) and isinstance(seen, list) and len(expected) == len(seen):
        for number, pair in enumerate(zip(expected, seen, strict=True)):
            yield from _different_places(*pair, f"{place}[{number}]")
    elif _text(expected) != _text(seen):  # for Python true is equal to 1
        yield f"{place} is {_short(seen)} where {_short(expected)} was expected"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"


def _number(text: str) -> float:
    """1.0 as 1: JSON has one kind of number."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _sorted_text(value: Any) -> str:
    return _text(_sorted(value))


def _sorted(value: Any) -> Any:
    """*value* with every list sorted: traits and a mapping's providers are sets written as lists."""
    if isinstance(value, dict):
        return {key: _sorted(inner) for key, inner in value.items()}
    return sorted(value) if isinstance(value, list) else value
