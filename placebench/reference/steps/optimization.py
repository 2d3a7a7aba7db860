"""What an optimization is: one step of the algorithm, its plain way, its better way, and how to see the difference."""

from dataclasses import dataclass
from typing import Any

HEADLINE = (
    "/allocation_candidates?resources=DISK_GB:10&required=COMPUTE_VOLUME_MULTI_ATTACH"
    "&resources_COMPUTE=VCPU:1,MEMORY_MB:256&required_COMPUTE=CUSTOM_FOO"
    "&resources_FPGA=FPGA:1&group_policy=none&same_subtree=_COMPUTE,_FPGA"
)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to take a step."""

    name: str  # [a-z0-9_]+, as it stands in a variant's name after the colon
    does: Any  # the function (or the class, or the namespace of classes) that takes the step


@dataclass(frozen=True, slots=True)
class Optimization:
    """A step with its plain way and its better way, the reason, and a request on which the difference can show."""

    name: str  # [a-z0-9_]+, as it stands in a variant's name
    step: str  # the field of Ways
    plain: Way
    better: Way
    others: tuple[Way, ...] = ()  # reached as naive+step:way only
    why: str = ""
    source: str = ""  # the commit of Placement it comes from, or our own measurement
    request: str = HEADLINE  # path and query on which it can show, on the topology nested-perfload
    metric: str = "cpu_s"  # where it should show first

    @property
    def ways(self) -> tuple[Way, ...]:
        """Every way of the step, the plain one first."""
        return (self.plain, self.better, *self.others)
