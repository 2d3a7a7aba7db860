"""What an optimization is: its baseline and its alternative implementations, and where the difference should show.

The main class is `Optimization`. Where no implementation is better for everyone, there is no alternative: `naive` and
`tuned` both take the baseline.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from placebench.errors import MissingExtraError

REFERENCE_REQUEST = (
    "/allocation_candidates?resources=DISK_GB:10&required=COMPUTE_VOLUME_MULTI_ATTACH"
    "&resources_COMPUTE=VCPU:1,MEMORY_MB:256&required_COMPUTE=CUSTOM_FOO"
    "&resources_FPGA=FPGA:1&group_policy=none&same_subtree=_COMPUTE,_FPGA"
)

OBJECTS = "objects"
"""The algorithm that the cumulative series improves; naive and tuned are variants of it."""


@dataclass(frozen=True, slots=True)
class Extra:
    """A package that an implementation needs and that `pip install 'placebench[name]'` brings."""

    name: str
    module: str

    @property
    def is_installed(self) -> bool:
        """Whether its module can be found; it is not imported."""
        return find_spec(self.module) is not None


@dataclass(frozen=True, slots=True)
class Implementation:
    """One implementation of an optimization.

    Attributes:
        name: [a-z0-9_]+, as it is in a variant's name after the colon.
        value: What a variant holds: a function, a table, a namespace of classes; with an extra, a function that makes
            it.
        extra: The package that it needs.
        revision: Of schema/options, which the variant's database must be at.
        postgresql_only: Whether it needs PostgreSQL.
        cache_server: Whether it needs a cache server, and the change log.
    """

    name: str
    value: Any
    extra: Extra | None = None
    revision: str = ""
    postgresql_only: bool = False
    cache_server: bool = False

    def load(self) -> Any:
        """Return what a variant holds; raise MissingExtraError where its package is not installed."""
        if self.extra is None:
            return self.value
        if not self.extra.is_installed:
            raise MissingExtraError(self.missing_extra())
        return self.value()

    def missing_extra(self) -> str:
        """Say which package is missing, in one line; empty when none is."""
        if self.extra is None or self.extra.is_installed:
            return ""
        return f"{self.name} needs {self.extra.module}: pip install 'placebench[{self.extra.name}]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """One thing that the service can do by several implementations, and where the difference should show.

    Attributes:
        name: [a-z0-9_]+, as it is in a variant's name; that of its field where there is no alternative.
        field: Of `Implementations` or `WorkerImplementations`.
        algorithms: Those that have it.
        baseline: The implementation of naive.
        alternative: The implementation of tuned; None where tuned takes the baseline too.
        further: Others, chosen by +field:implementation only.
        why: Why it should help.
        source: The commit of Placement that it comes from, or our own measurement.
        request: Path and query on which it should show.
        metric: Where it should show first.
        data: The data and the load that it takes to show, as text.
        topology: The same for an experiment; None: the usual one.
        utilization: Of the data in an experiment.
        scope: Whether it is taken in a request, when a worker starts, or in the database.
    """

    name: str
    field: str
    algorithms: tuple[str, ...] = (OBJECTS,)
    baseline: Implementation
    alternative: Implementation | None = None
    further: tuple[Implementation, ...] = ()
    why: str
    source: str
    request: str = REFERENCE_REQUEST
    metric: Literal["cpu_s", "pss_bytes", "round_trips", "rows"]
    data: str = "nested-perfload"
    topology: str | None = None
    utilization: float | None = None
    scope: Literal["request", "worker", "database"] = "request"

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """All of them, the baseline first."""
        return (self.baseline, *((self.alternative,) if self.alternative else ()), *self.further)

    @property
    def best(self) -> Implementation:
        """The implementation of tuned."""
        return self.alternative or self.baseline
