"""The SQL profiler for anyone's SQLAlchemy application: where the time of one request went, from pool to fetch.

The key piece is `SqlProfiler`; what it records is a `Recording` of `Statement`s and `Transaction`s. The flames of many
requests become one page by `merge_sessions` and `write_flame_page`, which are loaded on first use: only they need
pyinstrument's renderers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from placebench.profiler.findings import Finding, Limits
from placebench.profiler.keeping import Keep, Sampling
from placebench.profiler.plans import PlanNode
from placebench.profiler.recorder import SqlProfiler
from placebench.profiler.recording import Recording
from placebench.profiler.statement import Caller, Span, Statement, Transaction
from placebench.profiler.summary import StatementGroup, Summary
from placebench.profiler.tape import Clocks

if TYPE_CHECKING:
    from placebench.profiler.merging import merge_sessions
    from placebench.profiler.pages import write_flame_page, write_speedscope

__all__ = [
    "Caller",
    "Clocks",
    "Finding",
    "Keep",
    "Limits",
    "PlanNode",
    "Recording",
    "Sampling",
    "Span",
    "SqlProfiler",
    "Statement",
    "StatementGroup",
    "Summary",
    "Transaction",
    "merge_sessions",
    "write_flame_page",
    "write_speedscope",
]

_HOMES = {
    "merge_sessions": "placebench.profiler.merging",
    "write_flame_page": "placebench.profiler.pages",
    "write_speedscope": "placebench.profiler.pages",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
