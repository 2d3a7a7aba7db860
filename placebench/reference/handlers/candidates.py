"""Allocation candidates: the answer that is measured."""

from werkzeug import Response

from placebench.reference import answers
from placebench.reference.call import Call
from placebench.reference.candidates import answer
from placebench.reference.query import parse


def index(call: Call) -> Response:
    """GET /allocation_candidates, from one snapshot of the database, in the variant that the app was made with."""
    request = parse(call.request.query_string)
    with call.database.snapshot() as connection:
        content = answer(connection, request, call.variant)
    return answers.body(content)
