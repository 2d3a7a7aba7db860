"""The check that the variants of the reference service send the same responses: `verify_variants`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.canonical_response import parse_response
from placebench.compare.what.http_request import fetch
from placebench.lab.placement_api import RULES, CandidatesResponse
from placebench.lab.reference.variants import variant as reference_variant
from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import ServerSpec


@dataclass(frozen=True)
class VerifiedResponse:
    """The response of one variant to one request."""

    variant: str
    request: str
    candidates: int
    summaries: int
    digest: str
    difference: str | None
    """The first difference from the first variant's response; None when it is the same."""


def verify_variants(database_url: str, requests: Sequence[str], variants: Sequence[str]) -> Iterator[VerifiedResponse]:
    """Send each request for candidates to each variant, in turn, and compare the responses with the first variant's."""
    same = SameResponses(rules=RULES)
    for variant in variants:
        chosen = reference_variant(variant)
        processes, threads = chosen.worker.workers
        spec = ServerSpec(database_url, variant, processes=processes, threads=threads, **chosen.serving)
        with serve(spec) as server:
            for request in requests:
                response = parse_response(fetch(server.url, request).body, RULES)
                assert isinstance(response, CandidatesResponse)
                yield VerifiedResponse(
                    variant=variant,
                    request=request,
                    candidates=response.candidate_count,
                    summaries=len(response.summaries),
                    digest=response.digest,
                    difference=same.first_difference(variant, request, response),
                )
