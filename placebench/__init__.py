"""The public API of placebench: the profiler's names, loaded on first use.

Importing a package (`import placebench.stats`) loads that package alone, so this file imports nothing itself.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to load than all that this file does
    from typing import Any

__version__ = "0.3.0"
__all__ = ["Recording", "SqlProfiler", "Statement", "__version__"]

_HOMES = {"SqlProfiler": "placebench.profiler", "Recording": "placebench.profiler", "Statement": "placebench.profiler"}


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
