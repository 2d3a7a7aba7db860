"""`placebench lab verify`: check that the data is what was seeded, and that all variants send the same responses."""

from argparse import ArgumentParser
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from placebench import units
from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.output import emit, progress, say
from placebench.errors import GateFailedError, SeedError, VariantError

if TYPE_CHECKING:
    from placebench.lab.inventory.seeding import SeedReceipt

_OWN_TOPOLOGY = "nested-perfload"
"""The topology for which the requests of the optimizations are written."""
_OWN_TREES = 20


@dataclass(frozen=True)
class VerifyOptions:
    """The options of `placebench lab verify`."""

    output: options.OutputOptions
    db: str | None
    topology: str | None
    variants: tuple[str, ...] | None


def _configure(parser: ArgumentParser) -> None:
    options.add_database(
        parser, f"seeded database, which is only read (default: {_OWN_TREES} trees in a server of its own)"
    )
    parser.add_argument(
        "--topology",
        metavar="NAME|FILE",
        help="topology that --db was seeded with (default: by the name in its receipt)",
    )
    parser.add_argument("--variants", type=options.names, metavar="V,V", help="variants (default: all)")
    options.add_output(parser)


def _run(given: VerifyOptions) -> int:
    """Send the same requests to every variant; raise GateFailedError if the data or a response differs."""
    from placebench.lab.inventory.seeding import data_digest, find_topology
    from placebench.lab.reference.variants import (
        ALGORITHMS,
        CATALOGUE,
        algorithms_leave_one_out,
        cumulative,
        further_alternatives,
        leave_one_out,
    )

    every = [*cumulative(), *leave_one_out(), *further_alternatives(), *ALGORITHMS, *algorithms_leave_one_out()]
    named = given.variants or every
    with _seeded(given.db) as (url, receipt):
        variants = list(_available(named, url, must=bool(given.variants)))
        digest = data_digest(url)
        requests = [find_topology(given.topology or receipt.topology, trees=0).request]
        if receipt.topology == _OWN_TOPOLOGY:
            # With a limit any of the candidates may come back, so those requests are sent without one.
            own = (each.request for each in CATALOGUE if each.request.startswith("/allocation_candidates"))
            requests += {request.partition("&limit=")[0]: None for request in own}
        with progress("variants", len(variants) * len(requests)) as advance:
            verified = []
            for each in _verify(url, requests, variants):
                verified.append(each)
                advance(len(verified))
    differing = [each for each in verified if each.difference]
    same_data = digest == receipt.digest
    if given.output.json or (same_data and not differing):
        emit(
            given.output,
            text=lambda: (
                f"{len(variants)} variants send the same responses to {units.numbered(len(requests), 'request')}; "
                f"data digest {digest}"
            ),
            document=lambda: {
                "data_digest": digest,
                "seeded_digest": receipt.digest,
                "same_data": same_data,
                "same_responses": not differing,
                "responses": [asdict(each) for each in verified],
            },
        )
    if not same_data:
        raise GateFailedError(f"the data is not what was seeded: digest {digest}, receipt {receipt.digest}")
    if differing:
        first = differing[0]
        raise GateFailedError(f"{first.variant} responds to {first.request} differently: {first.difference}")
    return 0


@dataclass(frozen=True)
class _VerifiedResponse:
    """The response of one variant to one request."""

    variant: str
    request: str
    candidates: int
    summaries: int
    digest: str
    difference: str | None
    """The first difference from the first variant's response; None if there is none."""


def _verify(database_url: str, requests: Sequence[str], variants: Sequence[str]) -> Iterator[_VerifiedResponse]:
    """Send each request for candidates to each variant, and compare the responses with the first variant's."""
    from placebench.compare.measure.same_responses import SameResponses
    from placebench.compare.what.canonical_response import parse_response
    from placebench.compare.what.http_request import fetch
    from placebench.lab.placement_api import RULES, CandidatesResponse
    from placebench.lab.reference.variants import variant as reference_variant
    from placebench.runtime.application_servers import serve
    from placebench.runtime.running_server import ServerSpec

    same = SameResponses(rules=RULES)
    for variant in variants:
        chosen = reference_variant(variant)
        processes, threads = chosen.worker.workers
        spec = ServerSpec(database_url, variant, processes=processes, threads=threads, **chosen.serving)
        with serve(spec) as server:
            for request in requests:
                response = parse_response(fetch(server.url, request).body, RULES)
                assert isinstance(response, CandidatesResponse)
                yield _VerifiedResponse(
                    variant=variant,
                    request=request,
                    candidates=response.candidate_count,
                    summaries=len(response.summaries),
                    digest=response.digest,
                    difference=same.first_difference(variant, request, response),
                )


def _available(names: Sequence[str], url: str, *, must: bool) -> Iterator[str]:
    """Yield the variants that can be served with this environment and database; print a line for each one left out.

    must: whether the user named the variants, so that one that cannot be served is an error.
    """
    from placebench.lab.inventory.seeding import applied_options, has_change_log

    there, logged = applied_options(url), has_change_log(url)
    for name in names:
        if not (problem := _problem(name, there, logged=logged)):
            yield name
        elif must:
            raise VariantError(f"the variant {name} cannot be served: {problem}")
        else:
            say(f"left out: {name}, {problem}")


def _problem(name: str, there: Collection[str], *, logged: bool) -> str:
    """Return why a variant cannot be served on a database with the revisions *there*; empty if it can."""
    from placebench.lab.reference.store.change_log import NO_CHANGE_LOG
    from placebench.lab.reference.variants import missing_extra, variant

    if missing := missing_extra(name):  # before anything else: without it the variant cannot be made
        return missing
    if variant(name).needs_change_log and not logged:
        return NO_CHANGE_LOG
    lacking = [each for each in variant(name).revisions if each not in there]
    return "".join(f"its database lacks the revision {each}: placebench lab seed --option {each}" for each in lacking)


@contextmanager
def _seeded(url: str | None) -> "Iterator[tuple[str, SeedReceipt]]":
    """Yield a seeded database and its receipt: the database at *url*, or for None a small temporary one."""
    from placebench.lab.inventory.seeding import find_topology, migrate_options, read_receipt, seed
    from placebench.lab.reference.variants import REVISIONS
    from placebench.runtime.postgres import open_server

    if url is not None:
        receipt = read_receipt(url)
        if receipt is None:
            raise SeedError("the database has no receipt of placebench: run `placebench lab seed --db URL` first")
        yield url, receipt
        return
    with open_server() as server:
        own = server.create_database("placebench_verify")
        receipt = seed(find_topology(_OWN_TOPOLOGY, trees=_OWN_TREES), own)
        migrate_options(own, REVISIONS)
        yield own, receipt


COMMANDS = {"lab verify": Command(_configure, _run, options=VerifyOptions, needs_linux=STARTS_SERVERS)}
