"""The known positive of a comparison: a slow-down of known size that the run must find, `Control`.

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
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MAX_PERCENT, _MAX_WAIT_S = 1000.0, 10.0


@dataclass(frozen=True)
class Control:
    """A slow-down that is injected into a further copy of the baseline."""

    kind: Literal["cpu", "wait"]
    amount: float
    """The share of the baseline's CPU per request, or the seconds that each request waits."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the control that is written in *text*, such as '3%' or 'wait:1ms'; UsageError for any other text."""
        found = _CONTROL.fullmatch(text.strip())
        percent = float(found["percent"]) if found and found["percent"] else 0.0
        wait_s = float(found["wait"]) * _UNITS[found["unit"]] if found and found["wait"] else 0.0
        if not (0 < percent <= _MAX_PERCENT or 0 < wait_s <= _MAX_WAIT_S):
            raise UsageError(
                f"control {text!r:.60}: expected CPU such as 3% (at most {_MAX_PERCENT:g}%), or a wait such as "
                f"wait:1ms (at most {_MAX_WAIT_S:g}s)"
            )
        return cls("cpu", percent / 100) if percent else cls("wait", wait_s)

    @property
    def metric(self) -> str:
        """The metric in which the slow-down must be found."""
        return "cpu_s" if self.kind == "cpu" else "wall_s"

    @property
    def label(self) -> str:
        """The slow-down as text, such as '+3 % CPU' or '+1 ms wait'."""
        return f"+{100 * self.amount:g} % CPU" if self.kind == "cpu" else f"+{1000 * self.amount:g} ms wait"

    def to_json(self) -> dict[str, Any]:
        """Return the control for the head of a run."""
        return {"kind": self.kind, "amount": self.amount}


@dataclass(frozen=True)
class ControlRecord(Record):
    """What was injected into the requests to the control, control.json of a run's folder."""

    kind: Literal["cpu", "wait"]
    amount: Amount
    """The wanted amount, as in `Control`."""
    baseline: str
    variant: str
    """The name of the control in blocks.jsonl: the baseline with the slow-down."""
    injected_s: Amount | None
    """CPU or waiting time in seconds that is added to each request; None if the baseline's CPU is unknown."""


def control_path(folder: Path) -> Path:
    """Return the file of the `ControlRecord` in a run's folder."""
    return folder / "control.json"
