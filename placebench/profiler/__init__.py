"""The SQL profiler for anyone's SQLAlchemy application: where the time of one request went, from pool to plan.

The key piece is `SqlProfiler`; what it records is a `Recording` of `Statement`s and `Transaction`s, with its
`findings()` and its `diff()`. Every name is loaded on first use: the pytest plugin, in every user's run of pytest,
loads none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placebench.profiler.difference import Difference
    from placebench.profiler.findings import Finding, Limits
    from placebench.profiler.frames import plans_frame, statements_frame, transactions_frame
    from placebench.profiler.keeping import Keep, Sampling
    from placebench.profiler.merging import merge_sessions
    from placebench.profiler.pages import write_flame_page, write_speedscope
    from placebench.profiler.plans import PlanNode
    from placebench.profiler.recorder import SqlProfiler
    from placebench.profiler.recording import Recording
    from placebench.profiler.recording_page import write_difference_page, write_recording_page
    from placebench.profiler.statement import Caller, Span, Statement, Transaction
    from placebench.profiler.summary import StatementGroup, Summary
    from placebench.profiler.tape import Clocks

__all__ = [
    "Caller",
    "Clocks",
    "Difference",
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
    "plans_frame",
    "statements_frame",
    "transactions_frame",
    "write_difference_page",
    "write_flame_page",
    "write_recording_page",
    "write_speedscope",
]

_HOMES = {
    "Caller": "placebench.profiler.statement",
    "Clocks": "placebench.profiler.tape",
    "Difference": "placebench.profiler.difference",
    "Finding": "placebench.profiler.findings",
    "Keep": "placebench.profiler.keeping",
    "Limits": "placebench.profiler.findings",
    "PlanNode": "placebench.profiler.plans",
    "Recording": "placebench.profiler.recording",
    "Sampling": "placebench.profiler.keeping",
    "Span": "placebench.profiler.statement",
    "SqlProfiler": "placebench.profiler.recorder",
    "Statement": "placebench.profiler.statement",
    "StatementGroup": "placebench.profiler.summary",
    "Summary": "placebench.profiler.summary",
    "Transaction": "placebench.profiler.statement",
    "merge_sessions": "placebench.profiler.merging",
    "plans_frame": "placebench.profiler.frames",
    "statements_frame": "placebench.profiler.frames",
    "transactions_frame": "placebench.profiler.frames",
    "write_difference_page": "placebench.profiler.recording_page",
    "write_flame_page": "placebench.profiler.pages",
    "write_recording_page": "placebench.profiler.recording_page",
    "write_speedscope": "placebench.profiler.pages",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
