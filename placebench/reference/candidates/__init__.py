"""The candidates that answer a request: the key piece is `answer`."""

from collections.abc import Callable, Mapping

from sqlalchemy import Connection

from placebench.reference.candidates.objects import answer_by_objects
from placebench.reference.query import CandidateRequest
from placebench.reference.steps import Ways
from placebench.reference.variants import Variant

_ALGORITHMS: Mapping[str, Callable[[Connection, CandidateRequest, Ways], bytes]] = {"objects": answer_by_objects}


def answer(connection: Connection, request: CandidateRequest, variant: Variant) -> bytes:
    """The JSON body of GET /allocation_candidates, from plain SELECTs in the connection's transaction.

    Raises BadRequest for names that the database does not know, unless the answer is empty before they matter.
    """
    return _ALGORITHMS[variant.algorithm](connection, request, variant.ways)
