"""Allocation candidates: the request that is measured."""

from contextlib import ExitStack
from dataclasses import replace

import orjson
from werkzeug import Response

from placebench.reference.api import responses
from placebench.reference.api.call import Call
from placebench.reference.api.candidates_query import parse_query
from placebench.reference.api.microversion import NEWEST
from placebench.reference.api.older_versions import check_candidates_query, in_older_form
from placebench.reference.candidates.algorithms import find_candidates


def list_candidates(call: Call) -> Response:
    """GET /allocation_candidates, from one snapshot of the database, in the variant that the app was made with.

    The snapshot of a body that is too long to be held lasts until its last byte is sent.
    """
    if call.version != NEWEST:
        return _list_for_older_version(call)
    request = parse_query(call.request.query_string)
    with ExitStack() as stack:
        connection = stack.enter_context(call.database.snapshot())
        content = find_candidates(connection, request, call.variant, call.settings)
        if isinstance(content, bytes):
            return responses.body(content)
        return responses.stream(content, stack.pop_all().close)


def _list_for_older_version(call: Call) -> Response:
    """The same for a version before 1.39: a checked query, and the document rewritten, which takes time and memory."""
    request = parse_query(check_candidates_query(call.request.query_string, call.minor))
    with call.database.snapshot() as connection:
        # Candidates are left out of the document of an old version, so the limit can only be applied there.
        content = find_candidates(connection, replace(request, limit=None), call.variant, call.settings)
        found = orjson.loads(content if isinstance(content, bytes) else b"".join(content))
    return responses.document(in_older_form(found, request, call.minor))
