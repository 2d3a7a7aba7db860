"""When two answers are the same: in any order, and under a limit if both are legal. The main part is `same`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloud import Cloud, provider_uuid
from programs import Answer
from specification import Candidate


@dataclass(frozen=True)
class Content:
    """A document of candidates without its order."""

    candidates: frozenset[Candidate]
    count: int  # of the candidates in the document, which may repeat one
    summaries: str


def content(document: Mapping[str, Any]) -> Content:
    """What a document of candidates says."""
    requests = [_candidate(request) for request in document["allocation_requests"]]
    return Content(frozenset(requests), len(requests), in_any_order(document["provider_summaries"]))


def _candidate(request: Mapping[str, Any]) -> Candidate:
    resources = frozenset(
        (_place(uuid), name, amount)
        for uuid, allocation in request["allocations"].items()
        for name, amount in allocation["resources"].items()
    )
    mappings = request["mappings"].items()
    return Candidate(resources, frozenset((suffix, frozenset(map(_place, uuids))) for suffix, uuids in mappings))


def _place(uuid: str) -> int:
    return int(uuid.partition("-")[0])


def in_any_order(document: Any) -> str:
    """The document as text, the same for every order of its lists."""
    return json.dumps(_sorted(document), sort_keys=True)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    return int(value) if isinstance(value, float) and value.is_integer() else value  # 2.0 is 2 in JSON


def same(theirs: Answer, ours: Answer) -> bool:
    """Whether two answers say the same: status, code and document."""
    if (theirs.status, theirs.error) != (ours.status, ours.error):
        return False
    if ours.error is not None:
        return True
    return in_any_order(theirs.document) == in_any_order(ours.document)


def legal(answer: Answer, full: Answer, limit: int) -> bool:
    """Whether a response under a limit has that many candidates of the full set, and summaries of their trees only."""
    if answer.status != full.status or answer.error is not None:
        return (answer.status, answer.error) == (full.status, full.error)
    some, every = content(answer.document), content(full.document)
    summaries = full.document["provider_summaries"]
    giving = {place for each in some.candidates for place, _, _ in each.resources}
    roots = {summaries[provider_uuid(place)]["root_provider_uuid"] for place in giving}
    wanted = {uuid: each for uuid, each in summaries.items() if each["root_provider_uuid"] in roots}
    return (
        some.count == len(some.candidates) == min(limit, len(every.candidates))
        and some.candidates <= every.candidates
        and some.summaries == in_any_order(wanted)
    )


def specified(answer: Answer, cloud: Cloud, expected: frozenset[Candidate] | None) -> bool:
    """Whether an answer without limit is what the specification says, to the last summary."""
    if expected is None or answer.error is not None:
        return expected is None and answer.status == 400
    said = content(answer.document)
    summaries = in_any_order(_summaries(cloud, expected))
    return said.candidates == expected and said.count == len(expected) and said.summaries == summaries


def _summaries(cloud: Cloud, candidates: frozenset[Candidate]) -> dict[str, Any]:
    """1.8: all providers of every tree that gives something."""
    roots = {cloud.root(place) for each in candidates for place, _, _ in each.resources}
    return {
        provider_uuid(place): {
            "resources": {
                name: {"capacity": inventory.capacity, "used": inventory.used}
                for name, inventory in provider.inventories.items()
            },
            "traits": list(provider.traits),
            "parent_provider_uuid": None if provider.parent is None else provider_uuid(provider.parent),
            "root_provider_uuid": provider_uuid(cloud.root(place)),
        }
        for place, provider in enumerate(cloud.providers)
        if cloud.root(place) in roots
    }
