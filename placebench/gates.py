"""Gates are conditions that are fixed before a run: `parse_gate` parses one, and `Gate.outcome` evaluates it.

    statements <= 10    a value, in the metric's own unit
    p95 <= 500ms        a value with its unit: us, ms, s; B, KiB, MiB
    cpu_s < 1.03x       the ratio of a variant to its base
    cpu_s < +3%         that ratio as a change: less than 3 % more

Gates of `compare`, budgets of `profile check` and the objective of `load --slo` are written in this grammar.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from placebench.errors import UsageError, did_you_mean

Outcome = Literal["passed", "failed", "inconclusive"]
SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
BYTES: Final = {"B": 1.0, "KiB": 1024.0, "MiB": 1024.0**2}
COUNT: Final[Mapping[str, float]] = {}
"""The units of a count: none. Like SECONDS and BYTES, it maps units to their factor to the metric's own unit."""
_GATE = re.compile(r"(\w+)\s*(<=|>=|<|>)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*|%)")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MAX_SHOWN_LENGTH = 60


@dataclass(frozen=True)
class Gate:
    """A condition on a metric that must hold."""

    metric: str
    operator: str
    """One of <, <=, > and >=."""
    value: float
    """The limit, in the metric's own unit (such as seconds) or as a ratio."""
    unit: str
    """The unit as the user wrote it; "x" or "%" for a ratio."""
    is_ratio: bool
    """Whether the condition is on the ratio of a variant to its base, rather than on the variant's own value."""
    text: str

    def holds(self, value: float) -> bool:
        """Return whether *value* satisfies the condition."""
        return _OPERATORS[self.operator](value, self.value)

    def outcome(self, low: float | None, high: float | None) -> Outcome:
        """Return whether the condition holds for all, none or part of a confidence interval; None is inconclusive."""
        if low is None or high is None:
            return "inconclusive"
        held = {self.holds(low), self.holds(high)}
        return "inconclusive" if len(held) > 1 else "passed" if True in held else "failed"


def parse_gate(text: str, metrics: Mapping[str, Mapping[str, float]], *, ratios: bool = False) -> Gate:
    """Parse the gate in *text*.

    metrics: the metrics of the command, each with its units. ratios: whether there is a base to compare with. The unit
    may be omitted if the metric's name has it, as in cpu_s. Raises UsageError if *text* is not a gate.
    """
    found = _GATE.fullmatch(text.strip())
    if found is None or found[1] not in metrics:
        names = ", ".join(metrics)
        if found is None:
            raise _error(text, f"expected METRIC <, <=, > or >= NUMBER and its unit, METRIC one of {names}")
        raise _error(text, f"there is no metric {found[1]!r}: {did_you_mean(found[1], metrics)}expected one of {names}")
    metric, relation, number, unit = found.groups()
    is_ratio = unit in ("x", "%")
    if is_ratio and not ratios:
        raise _error(text, "there is no base to be a ratio of")
    if unit == "%" and number[0] not in "+-":
        share = f"{float(number) / 100:g} for that share of all, " if metric.endswith("_share") else ""
        raise _error(text, f"expected {share}+{number}% for that much more than the base, or a ratio such as 1.03x")
    value = float(number)
    if unit == "%":
        value = 1 + value / 100
    elif not is_ratio:
        units = metrics[metric]
        own_is_known = not units or metric.endswith("_s") or "bytes" in metric
        if unit not in units and (unit or not own_is_known):
            raise _error(text, f"{metric} is in one of {', '.join(units)}" if units else f"{metric} has no unit")
        value *= units.get(unit, 1.0)
    if not math.isfinite(value) or (is_ratio and value <= 0) or value < 0:
        raise _error(text, "its number is out of range")
    return Gate(metric, relation, value, unit, is_ratio, text)


def _error(text: str, problem: str) -> UsageError:
    shown = text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]} …"
    return UsageError(f"gate {shown!r}: {problem}")
