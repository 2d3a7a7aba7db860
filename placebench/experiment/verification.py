"""Does every variant answer alike? Each is served and asked; the key piece is `verify_variants`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placebench.experiment.answers import Answer, fetch, first_difference
from placebench.experiment.server import ServerSpec, serve
from placebench.reference.variants import variant as chosen


@dataclass(frozen=True)
class Verified:
    """What one variant answered to one request."""

    variant: str
    request: str
    candidates: int
    summaries: int
    digest: str
    difference: str | None
    """The first difference from the first variant's answer; None when it is the same."""


def verify_variants(database_url: str, requests: Sequence[str], variants: Sequence[str]) -> Iterator[Verified]:
    """Ask each variant for each request, in turn; the first variant's answers are what the others are held to."""
    expected: dict[str, Answer] = {}
    for variant in variants:
        processes, threads = chosen(variant).deployment.workers or (1, 1)
        spec = ServerSpec(database_url=database_url, variant=variant, processes=processes, threads=threads)
        with serve(spec) as server:
            for request in requests:
                answer = fetch(server.url, request)
                yield Verified(
                    variant=variant,
                    request=request,
                    candidates=answer.candidate_count,
                    summaries=len(answer.summaries),
                    digest=answer.digest,
                    difference=first_difference(expected.setdefault(request, answer), answer),
                )
