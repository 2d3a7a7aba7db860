"""Whether a connection is tried before a request uses it."""

from placebench.reference.steps.optimization import Optimization, Way

OPTIMIZATION = Optimization(
    name="ping",
    step="ping",
    plain=Way("never", False),
    others=(Way("before_use", True),),
    why="A connection that the server has dropped is found before it fails a request, for round trips each time.",
    source="SQLAlchemy's pool_pre_ping. Our count: 16 round trips instead of 13 with psycopg2.",
    request="/resource_classes",
    metric="round_trips",
    place="deployment",
)
