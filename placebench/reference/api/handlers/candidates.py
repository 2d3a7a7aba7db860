"""Allocation candidates: the request that is measured."""

from contextlib import ExitStack

from werkzeug import Response

from placebench.reference.api import responses
from placebench.reference.api.call import Call
from placebench.reference.api.candidates_query import parse_query
from placebench.reference.candidates.algorithms import find_candidates


def list_candidates(call: Call) -> Response:
    """GET /allocation_candidates, from one snapshot of the database, in the variant that the app was made with.

    The snapshot of a body that is too long to be held lasts until its last byte is sent.
    """
    request = parse_query(call.request.query_string)
    with ExitStack() as stack:
        connection = stack.enter_context(call.database.snapshot())
        content = find_candidates(connection, request, call.variant, call.settings)
        if isinstance(content, bytes):
            return responses.body(content)
        return responses.stream(content, stack.pop_all().close)
