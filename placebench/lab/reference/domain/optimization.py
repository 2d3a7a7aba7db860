"""Describes optimizations: the baseline, alternative implementations, and where the difference should show.

The main class is `Optimization`. An optimization without an implementation that is better for everyone has no
alternative: `naive` and `tuned` both have the baseline.
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
        """Whether the package's module can be found (without importing it)."""
        return find_spec(self.module) is not None


@dataclass(frozen=True, slots=True)
class Implementation:
    """One implementation of an optimization.

    Attributes:
        name: The part after the colon in a variant's name, [a-z0-9_]+.
        value: The object that a variant gets, such as a function, a table or a set of classes. With an extra, a
            function that returns this object.
        extra: The package that the implementation needs.
        revision: The revision of schema/options that the variant's database must have; "" for none.
        postgresql_only: Whether the implementation needs PostgreSQL.
        cache_server: Whether the implementation needs a cache server and the change log.
    """

    name: str
    value: Any
    extra: Extra | None = None
    revision: str = ""
    postgresql_only: bool = False
    cache_server: bool = False

    def load(self) -> Any:
        """Return the object that a variant gets; raise MissingExtraError if its package is not installed."""
        if self.extra is None:
            return self.value
        if not self.extra.is_installed:
            raise MissingExtraError(self.missing_extra())
        return self.value()

    def missing_extra(self) -> str:
        """Return one line about the missing package, or "" if none is missing."""
        if self.extra is None or self.extra.is_installed:
            return ""
        return f"{self.name} needs {self.extra.module}: pip install 'placebench[{self.extra.name}]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """A part of the service that has several implementations, and where the difference should show.

    Attributes:
        name: The name in a variant's name, [a-z0-9_]+; equal to *field* if there is no alternative.
        field: The name of the field in `Implementations` or `WorkerImplementations`.
        algorithms: The algorithms that have this optimization.
        baseline: The implementation of naive.
        alternative: The implementation of tuned; None if tuned has the baseline too.
        further: Further implementations, chosen by +field:implementation only.
        why: Why the alternative should be better.
        source: The commit of Placement that it comes from, or our own measurement.
        request: The path and query on which the difference should show.
        metric: The metric in which the difference should show first.
        data: The data set and load with which the difference shows, as text.
        topology: The topology of the data in an experiment; None: the default topology.
        utilization: The utilization of the data in an experiment, from 0 to 1; None: that of the topology.
        scope: Where the optimization takes effect: in a request, when a worker starts, or in the database.
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
        """All implementations, the baseline first."""
        return (self.baseline, *((self.alternative,) if self.alternative else ()), *self.further)

    @property
    def best(self) -> Implementation:
        """The implementation of tuned: the alternative if there is one, else the baseline."""
        return self.alternative or self.baseline
