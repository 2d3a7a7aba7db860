"""Are the answers the same? The canonical form of an answer, its digest, and the first difference of two.

The order of candidates, of traits and of a mapping's providers is undefined in Placement, so answers are compared
without it (docs/design.md, "Same answers").
"""

import hashlib
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from placebench.errors import LoadError
from placebench.experiment.requesting import get


@dataclass(frozen=True)
class Answer:
    """One answer to GET /allocation_candidates, in canonical form."""

    candidates: frozenset[str]
    """One text a candidate: its allocations and mappings, sorted."""
    candidate_count: int
    """As in the document; more than `candidates` when it repeats itself."""
    summaries: dict[str, str]
    """By provider's uuid, one text a summary."""

    @property
    def digest(self) -> str:
        """The same for every answer that says the same."""
        lines = [str(self.candidate_count), *sorted(self.candidates), *sorted(self.summaries.values())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def fetch(url: str, request: str) -> Answer:
    """Ask the service at *url* for *request* (path and query); raises LoadError unless it answers 200."""
    try:
        reply = get(url, request)
    except OSError as error:
        raise LoadError(f"{url}{request} gave no answer: {error}") from error
    if reply.status != HTTPStatus.OK:
        said = " ".join(reply.body[:300].decode(errors="replace").split())
        raise LoadError(f"{url}{request} answered {reply.status} where 200 was expected: {said}")
    return canonical(json.loads(reply.body))


def canonical(document: dict[str, Any]) -> Answer:
    """The document of an answer, without the order that means nothing."""
    candidates = [_sorted_text(candidate) for candidate in document["allocation_requests"]]
    summaries = {uuid: f"{uuid} {_sorted_text(summary)}" for uuid, summary in document["provider_summaries"].items()}
    return Answer(frozenset(candidates), len(candidates), summaries)


def first_difference(baseline: Answer, variant: Answer) -> str | None:
    """One line that shows where *variant* says something else than *baseline*; None when they agree."""
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


def _sorted_text(value: Any) -> str:
    return json.dumps(_sorted(value), sort_keys=True, ensure_ascii=False)


def _sorted(value: Any) -> Any:
    """*value* with every list sorted: traits and a mapping's providers are sets written as lists."""
    if isinstance(value, dict):
        return {key: _sorted(inner) for key, inner in value.items()}
    return sorted(value) if isinstance(value, list) else value
