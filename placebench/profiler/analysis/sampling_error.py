"""How exact the shares of a flame graph are: `SamplingError`, from the number of its samples."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placebench.profiler.model.session import FlameSession

_EXACT = ("sql", "plan", "gc")
_Z = 1.96
"""For 95 %."""
_SHIFTS = {0.010: (0.03, 0.15), 0.00025: (0.10, 0.13)}
"""By the interval, which is that of `sampled` or of `flame`: docs/explanation/overhead.md#per-program, rounded up."""


@dataclass(frozen=True, slots=True)
class SamplingError:
    """The sampling error of one flame graph.

    Statements, plan nodes and garbage collections are measured; the rest of the time is given to frames by samples.
    interval_s: the time between two samples, if Python allows it. samples: their number in
    the estimated time.
    """

    total_s: float
    estimated_s: float
    samples: float
    interval_s: float

    @classmethod
    def of(cls, session: "FlameSession") -> "SamplingError":
        """Return the sampling error of a session; its samples are taken to be spread evenly over its time."""
        total_s = sum(seconds for _, seconds in session.frame_records)
        estimated_s = sum(seconds for stack, seconds in session.frame_records if not is_exact(stack))
        samples = session.sample_count * estimated_s / total_s if total_s else 0.0
        return cls(total_s, estimated_s, samples, session.min_interval)

    @property
    def shifts(self) -> tuple[float, float] | None:
        """How much more than its margin a share was wrong in nine of ten programs, and in the tenth.

        None if it was not measured. The sampling thread looks only where Python checks for its lock, and a profile
        function slows down calls.
        """
        return _SHIFTS.get(self.interval_s)

    def margin(self, seconds: float) -> float | None:
        """Return the half-width of the 95 % interval of a share of the whole time; None if there are no samples.

        The share is that of a frame, of whose time *seconds* are estimated; 0.0 if none are. The interval is Wilson's
        score interval, as if the samples were independent; its longer side is returned. Stacks that last longer than
        the time between two samples are more exact than it says.
        """
        share = min(1.0, max(0.0, seconds / self.estimated_s)) if self.estimated_s else 0.0
        if not share:
            return 0.0
        if not self.samples:
            return None
        weight = _Z**2 / self.samples
        centre = (share + weight / 2) / (1 + weight)
        half = math.sqrt(weight * (share * (1 - share) + weight / 4)) / (1 + weight)
        return (half + abs(centre - share)) * self.estimated_s / self.total_s


def is_exact(stack: list[str]) -> bool:
    """Return whether the time of a stack was measured and not sampled."""
    return bool(stack) and stack[-1].split("\x00")[1:2] in [[kind] for kind in _EXACT]
