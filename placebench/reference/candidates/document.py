"""The JSON document of found candidates: allocation_requests and provider_summaries."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from placebench.reference.candidates.search import Search
from placebench.reference.steps.model import Candidate, Provider, Summary

Document = dict[str, Any]


def empty_document() -> Document:
    """The answer when nothing fits."""
    return {"allocation_requests": [], "provider_summaries": {}}


def document_of(search: Search, candidates: Sequence[Candidate]) -> Document:
    """The candidates, and the summaries of the trees that give something to one; up to 4 round trips."""
    root_of = search.root_of
    named = {root_of[key] for each in candidates for providers in each.mappings.values() for key in providers}
    giving = {root_of[resource.provider_id] for each in candidates for resource in each.resources}
    search.forest.know_providers(named)
    summaries = search.forest.summaries_of(giving)
    return {
        "allocation_requests": _allocation_requests(search, candidates),
        "provider_summaries": _provider_summaries(search, summaries),
    }


def _allocation_requests(search: Search, candidates: Iterable[Candidate]) -> list[Document]:
    providers, class_names = search.forest.providers, search.catalog.class_names
    return [
        {
            "allocations": _allocations(each, providers, class_names),
            "mappings": {suffix: [providers[key].uuid for key in keys] for suffix, keys in each.mappings.items()},
        }
        for each in candidates
    ]


def _allocations(
    candidate: Candidate, providers: Mapping[int, Provider], class_names: Mapping[int, str]
) -> dict[str, Document]:
    allocations: dict[str, Document] = {}
    for resource in candidate.resources:
        allocation = allocations.setdefault(providers[resource.provider_id].uuid, {"resources": {}})
        allocation["resources"][class_names[resource.class_id]] = resource.amount
    return allocations


def _provider_summaries(search: Search, summaries: Iterable[Summary]) -> dict[str, Document]:
    providers, class_names = search.forest.providers, search.catalog.class_names
    return {
        summary.provider.uuid: {
            "resources": {
                class_names[stock.class_id]: {"capacity": stock.capacity, "used": stock.used}
                for stock in summary.stocks
            },
            "traits": summary.traits,
            "parent_provider_uuid": _uuid(providers, summary.provider.parent_id),
            "root_provider_uuid": _uuid(providers, summary.provider.root_id),
        }
        for summary in summaries
    }


def _uuid(providers: Mapping[int, Provider], provider_id: int | None) -> str | None:
    return None if provider_id is None else providers[provider_id].uuid
