"""Placement's API as the benchmark uses it: defaults of requests, and the comparison of responses with candidates.

`API` has the headers, the expected status and the comparison rules for the reference service and the real Placement;
`placement_workload` makes a workload of GET requests. `RESPONSES` registers the kind of response that `RULES` refers
to, in which the order of candidates, of traits and of a mapping's providers has no meaning.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from placebench.compare.what.canonical_response import Response, ResponseKind, ResponseRules
from placebench.compare.what.http_request import HEADERS
from placebench.compare.what.workload import ServiceApi, Workload

RULES: Final = ResponseRules(ignore_headers=("*",), candidates=True)
"""Headers and order may differ between responses; for a request with a limit, different candidates are allowed."""
API: Final = ServiceApi(HEADERS, expect_status=200, rules=RULES)


def placement_workload(*paths: str) -> Workload:
    """Return a workload of GET requests with the headers of Placement's API; only status 200 is accepted."""
    return API.workload(*paths)


@dataclass(frozen=True)
class CandidatesResponse:
    """One response to GET /allocation_candidates, in canonical form."""

    candidates: frozenset[str]
    """One text per distinct candidate: its allocations and mappings, sorted."""
    candidate_count: int
    """The number of candidates in the document, including duplicates."""
    summaries: dict[str, str]
    """The text of each provider summary, by the provider's UUID."""

    @cached_property
    def digest(self) -> str:
        """A digest that is equal for responses with equal content."""
        lines = [str(self.candidate_count), *sorted(self.candidates), *sorted(self.summaries.values())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of candidates and the number of summaries."""
        return {"allocation_requests": self.candidate_count, "provider_summaries": len(self.summaries)}

    def difference(self, other: Response) -> str | None:
        """Return one line on the first difference of *other* from this response; None if they agree."""
        if not isinstance(other, CandidatesResponse):
            return "one responds with allocation candidates, the other does not"
        for what, ours, theirs in (
            ("candidate", self.candidates, other.candidates),
            ("summary", set(self.summaries.values()), set(other.summaries.values())),
        ):
            if missing := sorted(ours - theirs):
                return f"{len(missing)} of {len(ours)} {what} entries are missing, first: {missing[0]}"
            if added := sorted(theirs - ours):
                return f"{len(added)} {what} entries more than {len(ours)}, first: {added[0]}"
        if self.candidate_count != other.candidate_count:
            return f"{other.candidate_count} candidates where {self.candidate_count} were expected"
        return None

    def limit_violation(self, limited: Response, limit: int) -> str | None:
        """Return why *limited* is not a valid response to the same request with *limit*; None if it is valid.

        A valid one has exactly min(limit, all) distinct candidates of this response, and the summaries of their trees
        only.
        """
        if not isinstance(limited, CandidatesResponse):
            return self.difference(limited)
        expected = min(limit, self.candidate_count)
        if (limited.candidate_count, len(limited.candidates)) != (expected, expected):
            seen = f"{limited.candidate_count} candidates, {len(limited.candidates)} of them distinct"
            return f"{seen}, where {expected} were expected"
        if strange := sorted(limited.candidates - self.candidates):
            return f"a candidate that the response without a limit does not hold: {strange[0]}"
        roots = {self._root(uuid) for each in limited.candidates for uuid in json.loads(each)["allocations"]}
        summaries = {uuid: text for uuid, text in self.summaries.items() if self._root(uuid) in roots}
        return CandidatesResponse(limited.candidates, expected, summaries).difference(limited)

    def _root(self, uuid: str) -> str:
        summary = json.loads(self.summaries[uuid].partition(" ")[2])
        return str(summary.get("root_provider_uuid", uuid))


def canonical_candidates(document: dict[str, Any]) -> CandidatesResponse:
    """Return the canonical form of a document with allocation candidates."""
    candidates = [_sorted_text(candidate) for candidate in document["allocation_requests"]]
    summaries = {uuid: f"{uuid} {_sorted_text(summary)}" for uuid, summary in document["provider_summaries"].items()}
    return CandidatesResponse(frozenset(candidates), len(candidates), summaries)


def count_candidates(response: Response | None) -> int:
    """Return the number of candidates in a response; 0 if it has none."""
    return response.candidate_count if isinstance(response, CandidatesResponse) else 0


def _sorted_text(value: Any) -> str:
    return json.dumps(_sorted(value), sort_keys=True, ensure_ascii=False)


def _sorted(value: Any) -> Any:
    """Return *value* with all lists sorted, because traits and the providers of a mapping are sets written as lists."""
    if isinstance(value, dict):
        return {key: _sorted(inner) for key, inner in value.items()}
    return sorted(value) if isinstance(value, list) else value


class CandidatesKind:
    """The kind of responses to GET /allocation_candidates, with or without a limit."""

    def parse(self, document: Any) -> CandidatesResponse | None:
        """Return the canonical form of a document with candidates; None for any other document."""
        is_one = isinstance(document, dict) and document.keys() >= {"allocation_requests", "provider_summaries"}
        return canonical_candidates(document) if is_one else None

    def without_limit(self, request: str) -> tuple[str, int | None]:
        """Return the request without its limit, and the limit; None if there is no limit or it is not a number."""
        parts = urlsplit(request)
        given = parse_qsl(parts.query, keep_blank_values=True)
        limits = [value for name, value in given if name == "limit"]
        if len(limits) != 1 or not limits[0].isdecimal():
            return request, None
        rest = urlencode([pair for pair in given if pair[0] != "limit"], safe=":,!")
        return f"{parts.path}?{rest}" if rest else parts.path, int(limits[0])


RESPONSES: Final[Mapping[str, ResponseKind]] = {"candidates": CandidatesKind()}
