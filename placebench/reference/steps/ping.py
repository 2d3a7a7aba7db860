"""Whether a connection is tried before a request uses it."""

from placebench.reference.steps.optimization import Optimization, Way

OPTIMIZATION = Optimization(
    name="ping",
    step="ping",
    plain=Way("never", False),
    others=(Way("before_use", True),),
    why="A connection that the server has dropped is found before it fails a request, for one round trip each time.",
    source="SQLAlchemy's pool_pre_ping.",
    request="/resource_classes",
    metric="round_trips",
    place="deployment",
)
