"""What an optimization is: one step, its plain way, its better way, others, and where the difference should show.

The key piece is `Optimization`. A step whose ways are a matter of taste has no better way: it is a choice.
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

Place = Literal["request", "deployment", "database"]
OBJECTS = "objects"
"""The algorithm that the ladder improves; naive and tuned are ways of it."""


@dataclass(frozen=True, slots=True)
class Extra:
    """A package that a way needs and that `pip install 'placebench[name]'` brings."""

    name: str
    module: str

    @property
    def is_installed(self) -> bool:
        """Whether its module can be found; it is not imported."""
        return find_spec(self.module) is not None


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to take a step."""

    name: str  # [a-z0-9_]+, as it stands in a variant's name after the colon
    value: (
        Any  # what takes the step: a function, a table, a namespace of classes; with an extra, a function that makes it
    )
    extra: Extra | None = None
    revision: str = ""  # of schema/options, which the variant's database must be at
    postgresql_only: bool = False

    def load(self) -> Any:
        """What takes the step; raises MissingExtraError where its package is not installed."""
        if self.extra is None:
            return self.value
        if not self.extra.is_installed:
            raise MissingExtraError(self.missing_extra())
        return self.value()

    def missing_extra(self) -> str:
        """One line about the package that is missing; empty when nothing is."""
        if self.extra is None or self.extra.is_installed:
            return ""
        return f"the way {self.name} needs {self.extra.module}: pip install 'placebench[{self.extra.name}]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """A step with its plain way and its better way, the reason, and the request and metric on which it should show."""

    name: str  # [a-z0-9_]+, as it stands in a variant's name; that of its step where no way is better
    step: str  # the field of Ways or Deployment
    of: tuple[str, ...] = (OBJECTS,)  # the algorithms that take the step
    baseline: Implementation
    alternative: Implementation | None = None  # None: a choice, whose plain way naive and tuned take alike
    further: tuple[Implementation, ...] = ()  # reached as +step:way only
    why: str
    source: str  # the commit of Placement it comes from, or our own measurement
    request: str = REFERENCE_REQUEST  # path and query on which it should show
    metric: str  # where it should show first
    on: str = "nested-perfload"  # the data and the load that it takes to show, in words
    topology: str | None = None  # the same for an experiment; None: the usual one
    utilization: float | None = None  # and of which utilization
    place: Place = "request"  # in a request, when the service is deployed, or in its database

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Every way of the step, the plain one first."""
        return (self.baseline, *((self.alternative,) if self.alternative else ()), *self.further)

    @property
    def best(self) -> Implementation:
        """The way of tuned."""
        return self.alternative or self.baseline
