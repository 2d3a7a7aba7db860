"""The ways to write one consumer's claim, of which `PLACEBENCH_CLAIMS` names one; rules and locks are the same.

The key piece is `WAYS`. What at_once cannot do, it leaves to step_by_step; on other databases that is all of it.
"""

from collections.abc import Callable, Mapping
from typing import Final

from placebench.reference.database import Database
from placebench.reference.store import claims
from placebench.reference.store.claims_at_once import speaks_at_once, write_at_once
from placebench.reference.store.consumers import Claim


def at_once(database: Database, claim: Claim) -> None:
    """One round trip."""
    if speaks_at_once(database.engine) and database.write_at_once(lambda connection: write_at_once(connection, claim)):
        return
    step_by_step(database, claim)


def step_by_step(database: Database, claim: Claim) -> None:
    """About 15 statements of portable SQL, each a round trip."""
    database.write(lambda connection: claims.write(connection, [claim]))


WAYS: Final[Mapping[str, Callable[[Database, Claim], None]]] = {"at_once": at_once, "step_by_step": step_by_step}
