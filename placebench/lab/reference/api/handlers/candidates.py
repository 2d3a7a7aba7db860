"""Handler of GET /allocation_candidates, the request that the benchmark measures.

`find_candidates` searches with the algorithm of the variant.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace

import orjson
from sqlalchemy import Connection
from werkzeug import Response

from placebench.lab.reference.api import responses
from placebench.lab.reference.api.call import Call
from placebench.lab.reference.api.microversion import (
    NEWEST,
    SINCE_MAPPINGS,
    SINCE_TREES,
    check_candidates_query,
    in_older_form,
)
from placebench.lab.reference.candidates.cached_index import find_candidates_at_once, find_candidates_from_cache
from placebench.lab.reference.candidates.dedup_service import find_candidates_by_dedup
from placebench.lab.reference.candidates.implementations import Implementations
from placebench.lab.reference.candidates.objects_solver import find_candidates_by_objects
from placebench.lab.reference.candidates.results import Body
from placebench.lab.reference.domain.candidates_query import CandidateRequest, parse_query
from placebench.lab.reference.domain.settings import DEFAULTS, ServiceSettings
from placebench.lab.reference.variants import ReferenceVariant

_Algorithm = Callable[[Connection, CandidateRequest, Implementations, ServiceSettings], Body]

_ALGORITHMS: Mapping[str, _Algorithm] = {
    "objects": find_candidates_by_objects,
    "dedup": find_candidates_by_dedup,
    "cached": find_candidates_from_cache,
}


def find_candidates(
    connection: Connection, request: CandidateRequest, variant: ReferenceVariant, settings: ServiceSettings = DEFAULTS
) -> Body:
    """Return the JSON body of GET /allocation_candidates, read with SELECTs in the connection's transaction.

    A variant with a cache service may return the body that was computed for the same request and database state. A body
    over 50 MB is an iterator of parts, which may still read from the connection.

    Raises BadRequest for unknown names, unless the response is known to be empty before they are checked.
    """

    def compute() -> Body:
        return _ALGORITHMS[variant.algorithm](connection, request, variant.implementations, settings)

    if settings.randomize or not settings.cache_url:
        return compute()
    key = (variant.name, request, replace(settings, cache_url=""))
    return variant.implementations.responses(compute, connection, key, settings.cache_url)


def list_candidates(call: Call) -> Response:
    """GET /allocation_candidates: find candidates with the application's variant, in one snapshot of the database.

    If the body is sent in parts, the snapshot stays open until the last part is sent.
    """
    query = call.request.query_string
    request = parse_query(query if call.version == NEWEST else check_candidates_query(query, call.minor), call.minor)
    # A standby does not report which transactions its snapshot excludes, so the change log is read on the primary.
    snapshot = call.database.primary_snapshot if call.variant.needs_change_log else call.database.snapshot
    if call.minor < SINCE_MAPPINGS:  # the response is rewritten, which takes time and memory
        # Before 1.29, `in_older_form` applies the limit, after it has removed candidates.
        bounded = request if call.minor >= SINCE_TREES else replace(request, limit=None)
        with snapshot() as connection:
            body = find_candidates(connection, bounded, call.variant, call.settings)
            found = orjson.loads(body if isinstance(body, bytes) else b"".join(body))
        return responses.document(in_older_form(found, request, call.minor))
    content: Body | None = None
    if call.variant.algorithm == "cached" and call.database.takes_messages:
        with call.database.primary_at_once() as connection:
            content = find_candidates_at_once(connection, request, call.variant.implementations, call.settings)
    with ExitStack() as stack:
        if content is None:
            content = find_candidates(stack.enter_context(snapshot()), request, call.variant, call.settings)
        if isinstance(content, bytes):
            return responses.body(content)
        return responses.stream(content, stack.pop_all().close)
