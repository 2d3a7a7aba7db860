"""How a request that asks one question asks it: between BEGIN and ROLLBACK, or as a statement by itself.

One statement sees one snapshot in any case. Requests that take several keep their transaction in every variant.
"""

from typing import Any, Final

from placebench.reference.steps.optimization import Optimization, Way

AUTOCOMMIT: Final[dict[str, Any]] = {"isolation_level": "AUTOCOMMIT"}

OPTIMIZATION = Optimization(
    name="transaction",
    step="transaction",
    plain=Way("snapshot", None),
    others=(Way("autocommit", AUTOCOMMIT),),
    why="BEGIN and ROLLBACK are two of the three round trips of a request with one statement.",
    source="Our count; allocation candidates take 11 statements or more, so there it changes nothing.",
    request="/resource_classes",
    metric="round_trips",
)
