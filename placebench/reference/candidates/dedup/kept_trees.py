"""The trees that a process decoded last, decoded again only where their rows have changed: `KeptTrees`.

Every request reads all rows. What is kept is used as far as it was decoded from equal rows, so it cannot be stale,
whoever writes to the database and however.
"""

from threading import Lock
from typing import Final

from sqlalchemy import Engine

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup.decode import DecodedTrees
from placebench.reference.candidates.dedup.relevance import Equivalence
from placebench.reference.candidates.dedup.solver import solve
from placebench.reference.candidates.dedup.statements import TreeRows
from placebench.reference.candidates.dedup.tree_index import Names, TreeIndex
from placebench.reference.candidates.per_pool import PerPool
from placebench.reference.candidates.results import Body
from placebench.reference.settings import ServiceSettings

_MAX_KEPT_PROVIDERS: Final = 50_000


class KeptTrees:
    """One index for all threads of a process. A request holds the lock while it computes, not while it reads."""

    def __init__(self, _engine: Engine) -> None:
        """Nothing is kept yet."""
        self._lock = Lock()
        self._decoded: DecodedTrees | None = None

    def solve(
        self,
        rows: TreeRows,
        names: Names,
        request: CandidateRequest,
        settings: ServiceSettings,
        equivalence: Equivalence,
    ) -> Body:
        """Return the JSON body from these rows, with the names that exist; see `solver.solve`."""
        with self._lock:
            decoded, self._decoded = self._decode(rows), None
            decoded.index.names = names
            body = solve(decoded.index, request, settings, equivalence)
            # A body in parts reads from the index while it is sent.
            if isinstance(body, bytes) and decoded.provider_count <= _MAX_KEPT_PROVIDERS:
                self._decoded = decoded
            return body

    def _decode(self, rows: TreeRows) -> DecodedTrees:
        kept = self._decoded
        if kept is None or not rows.differ_in_usages_only(kept.rows):
            return DecodedTrees(rows, TreeIndex())
        if rows.usages != kept.rows.usages:
            kept.use(rows)
        return kept


KEPT_TREES: Final = PerPool(KeptTrees)
