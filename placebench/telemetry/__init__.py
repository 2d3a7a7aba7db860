"""Time series of a running service: durations of requests and figures of processes.

    application = Telemeter("telemetry").wsgi(application)      # any WSGI application: one file per process
    telemetry = placebench.telemetry.load("telemetry")          # pandas frames, with the extra "bench" or "frames"
    telemetry.summary()

`Telemeter` writes files, `load` reads them into a `Telemetry`. Every name here is loaded on first use.
"""

from typing import TYPE_CHECKING

from placebench.lazy_names import load_on_use

if TYPE_CHECKING:
    from placebench.telemetry.analysis import Offset, Telemetry, WarmupTrim
    from placebench.telemetry.reader import load
    from placebench.telemetry.telemeter import Telemeter

__all__ = ["Offset", "Telemeter", "Telemetry", "WarmupTrim", "load"]

__getattr__, __dir__ = load_on_use(
    __name__, {"analysis": ("Offset", "Telemetry", "WarmupTrim"), "reader": ("load",), "telemeter": ("Telemeter",)}
)
