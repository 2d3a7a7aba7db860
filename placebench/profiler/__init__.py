"""The SQL profiler for anyone's SQLAlchemy application: where the time of one request went, from pool to plan.

The key piece is `SqlProfiler`; what it records is a `Recording` of `Statement`s and `Transaction`s, with its
`findings()` and its `diff()`. Every name is loaded on first use: the pytest plugin, in every user's run of pytest,
loads none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placebench.profiler.analysis.difference import RecordingDifference
    from placebench.profiler.analysis.findings import Finding, Limits
    from placebench.profiler.analysis.merging import merge_sessions
    from placebench.profiler.analysis.summary import StatementGroup, Summary
    from placebench.profiler.capture.active_recording import Clocks
    from placebench.profiler.integrations.sampling import Keep, Sampling
    from placebench.profiler.model.plan import PlanNode
    from placebench.profiler.model.recording import Recording
    from placebench.profiler.model.statement import Caller, Span, Statement, Transaction
    from placebench.profiler.output.dataframes import plans_frame, statements_frame, transactions_frame
    from placebench.profiler.output.flame_page import write_flame_page, write_speedscope
    from placebench.profiler.output.recording_page import write_difference_page, write_recording_page
    from placebench.profiler.sql_profiler import SqlProfiler

__all__ = [
    "Caller",
    "Clocks",
    "Finding",
    "Keep",
    "Limits",
    "PlanNode",
    "Recording",
    "RecordingDifference",
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
    "Caller": "placebench.profiler.model.statement",
    "Clocks": "placebench.profiler.capture.active_recording",
    "Finding": "placebench.profiler.analysis.findings",
    "Keep": "placebench.profiler.integrations.sampling",
    "Limits": "placebench.profiler.analysis.findings",
    "PlanNode": "placebench.profiler.model.plan",
    "Recording": "placebench.profiler.model.recording",
    "RecordingDifference": "placebench.profiler.analysis.difference",
    "Sampling": "placebench.profiler.integrations.sampling",
    "Span": "placebench.profiler.model.statement",
    "SqlProfiler": "placebench.profiler.sql_profiler",
    "Statement": "placebench.profiler.model.statement",
    "StatementGroup": "placebench.profiler.analysis.summary",
    "Summary": "placebench.profiler.analysis.summary",
    "Transaction": "placebench.profiler.model.statement",
    "merge_sessions": "placebench.profiler.analysis.merging",
    "plans_frame": "placebench.profiler.output.dataframes",
    "statements_frame": "placebench.profiler.output.dataframes",
    "transactions_frame": "placebench.profiler.output.dataframes",
    "write_difference_page": "placebench.profiler.output.recording_page",
    "write_flame_page": "placebench.profiler.output.flame_page",
    "write_recording_page": "placebench.profiler.output.recording_page",
    "write_speedscope": "placebench.profiler.output.flame_page",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
