"""The known positive of a comparison: a change of known size that the run must find, `Control`.

`ControlRecord` is what was injected, which a resumed run injects again.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from placebench.compare.keep.records import Record
from placebench.decoding import Amount
from placebench.errors import UsageError

_CONTROL = re.compile(r"\+?(?P<percent>\d+\.?\d*)\s*%|wait:(?P<wait>\d+\.?\d*)(?P<unit>us|ms|s)")
_STATEMENT, NO_CONTROL = "statement", "none"
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MAX_PERCENT, _MAX_WAIT_S = 1000.0, 10.0
Kind = Literal["cpu", "wait", "statement"]


@dataclass(frozen=True)
class Control:
    """A slow-down, or a further statement, that is injected into a further copy of the baseline."""

    kind: Kind
    amount: float
    """The share of the baseline's CPU per request, the seconds that each request waits, or the number of statements."""
    is_default: bool = False
    """Whether a preset asked for the control, and not the user."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the control that is written in *text*, such as '3%' or 'wait:1ms'; UsageError for any other text."""
        if text.strip() == _STATEMENT:
            return cls("statement", 1.0)
        found = _CONTROL.fullmatch(text.strip())
        percent = float(found["percent"]) if found and found["percent"] else 0.0
        wait_s = float(found["wait"]) * _UNITS[found["unit"]] if found and found["wait"] else 0.0
        if not (0 < percent <= _MAX_PERCENT or 0 < wait_s <= _MAX_WAIT_S):
            raise UsageError(
                f"control {text!r:.60}: expected CPU such as 3% (at most {_MAX_PERCENT:g}%), a wait such as wait:1ms "
                f"(at most {_MAX_WAIT_S:g}s), statement, or none"
            )
        return cls("cpu", percent / 100) if percent else cls("wait", wait_s)

    @property
    def text(self) -> str:
        """The control as it is written on the command line and in a plan."""
        if self.kind == "statement":
            return _STATEMENT
        return f"{100 * self.amount:.10g}%" if self.kind == "cpu" else f"wait:{self.amount:.10g}s"

    @property
    def is_timed(self) -> bool:
        """Whether the control takes part in the replicates; a statement is counted and not timed."""
        return self.kind != "statement"

    @property
    def metric(self) -> str:
        """The metric in which the injected change must be found."""
        return {"cpu": "cpu_s", "wait": "wall_s", "statement": "statements"}[self.kind]

    @property
    def label(self) -> str:
        """The injected change as text, such as '+3 % CPU', '+1 ms wait' or '+1 statement'."""
        if self.kind == "statement":
            return "+1 statement"
        return f"+{100 * self.amount:g} % CPU" if self.kind == "cpu" else f"+{1000 * self.amount:g} ms wait"

    def to_json(self) -> dict[str, Any]:
        """Return the control for the head of a run."""
        return {"kind": self.kind, "amount": self.amount, **({"is_default": True} if self.is_default else {})}


@dataclass(frozen=True)
class ControlRecord(Record):
    """What was injected into the requests to the control, control.json of a run's folder."""

    kind: Kind
    amount: Amount
    """The wanted amount, as in `Control`."""
    baseline: str
    variant: str
    """The name of the control in blocks.jsonl: the baseline with the slow-down."""
    injected_s: Amount | None
    """Seconds of CPU or waiting that are added to each request; None for a statement, or if nothing is injected."""
    reason: str = ""
    """Why nothing is injected; empty for a statement that is, or if the CPU is unknown."""


def control_path(folder: Path) -> Path:
    """Return the file of the `ControlRecord` in a run's folder."""
    return folder / "control.json"
