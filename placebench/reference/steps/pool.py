"""How many connections a process keeps: as many as it was told, one, or none from one request to the next."""

from typing import Any

from sqlalchemy import NullPool

from placebench.reference.steps.optimization import HEADLINE, Optimization, Way


def as_told(size: int) -> dict[str, Any]:
    """PLACEBENCH_POOL_SIZE connections, 10 where that is not set."""
    return {"pool_size": size, "max_overflow": 0}


def one(_size: int) -> dict[str, Any]:
    """One connection: a second thread waits for it."""
    return {"pool_size": 1, "max_overflow": 0}


def none(_size: int) -> dict[str, Any]:
    """A new connection for each request."""
    return {"poolclass": NullPool}


OPTIMIZATION = Optimization(
    name="pool",
    step="pool",
    plain=Way("10", as_told),
    others=(Way("1", one), Way("none", none)),
    why="A connection costs a process on the server, a login and five round trips; too few of them cost waiting.",
    source="SQLAlchemy keeps 5 and lets 10 overflow. Our count: 18 round trips instead of 13 without a pool.",
    request=HEADLINE + "&limit=1",
    metric="round_trips",
    place="deployment",
)
