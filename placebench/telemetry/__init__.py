"""Series of what was measured while something ran: durations of requests, figures of processes, samples of a load run.

    application = Telemeter("telemetry").wsgi(application)      # any WSGI application: one file a process
    telemetry = placebench.telemetry.load("telemetry")          # pandas frames, with the extra "bench" or "frames"
    telemetry.summary()

The live side is `telemeter.Telemeter`, the reading side `reading.load`, which gives a `frames.Telemetry`. Inside a
locust process: `samples.Samples` (what is kept of each request), `arrivals.arrivals` (the schedule of an open load) and
`load_session.LoadSession` (both together; the only part that imports locust). Every name here is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placebench.telemetry.analysis import Cut, Offset, Telemetry
    from placebench.telemetry.reader import load
    from placebench.telemetry.telemeter import Telemeter

__all__ = ["Cut", "Offset", "Telemeter", "Telemetry", "load"]

_HOMES = {
    "Cut": "placebench.telemetry.analysis",
    "Offset": "placebench.telemetry.analysis",
    "Telemeter": "placebench.telemetry.telemeter",
    "Telemetry": "placebench.telemetry.analysis",
    "load": "placebench.telemetry.reader",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
