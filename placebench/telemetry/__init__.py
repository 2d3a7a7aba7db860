"""Series of what was measured while something ran: durations of requests and figures of processes.

    application = Telemeter("telemetry").wsgi(application)      # any WSGI application: one file per process
    telemetry = placebench.telemetry.load("telemetry")          # pandas frames, with the extra "bench" or "frames"
    telemetry.summary()

`Telemeter` writes, `load` reads and gives a `Telemetry`. Every name here is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placebench.telemetry.analysis import Offset, Telemetry, WarmupTrim
    from placebench.telemetry.reader import load
    from placebench.telemetry.telemeter import Telemeter

__all__ = ["Offset", "Telemeter", "Telemetry", "WarmupTrim", "load"]

_HOMES = {
    "WarmupTrim": "placebench.telemetry.analysis",
    "Offset": "placebench.telemetry.analysis",
    "Telemeter": "placebench.telemetry.telemeter",
    "Telemetry": "placebench.telemetry.analysis",
    "load": "placebench.telemetry.reader",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
