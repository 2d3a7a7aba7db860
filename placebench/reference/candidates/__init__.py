"""The candidates that answer a request: the key piece is `answer`."""

from collections.abc import Callable, Mapping

from sqlalchemy import Connection

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.api.responses import Body
from placebench.reference.candidates.cached import answer_from_cache
from placebench.reference.candidates.dedup.service import answer_by_dedup
from placebench.reference.candidates.objects.solver import answer_by_objects
from placebench.reference.optimizations import Ways
from placebench.reference.settings import DEFAULTS, Settings
from placebench.reference.variants import ReferenceVariant

Algorithm = Callable[[Connection, CandidateRequest, Ways, Settings], Body]

_ALGORITHMS: Mapping[str, Algorithm] = {
    "objects": answer_by_objects,
    "dedup": answer_by_dedup,
    "cached": answer_from_cache,
}


def answer(
    connection: Connection, request: CandidateRequest, variant: ReferenceVariant, settings: Settings = DEFAULTS
) -> Body:
    """The JSON body of GET /allocation_candidates, from plain SELECTs in the connection's transaction.

    A body over 50 MB comes in parts, of which the last ones read from the connection.
    Raises BadRequest for names that the database does not know, unless the answer is empty before they matter.
    """
    return _ALGORITHMS[variant.algorithm](connection, request, variant.ways, settings)
