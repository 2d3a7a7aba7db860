"""The SQL profiler for any SQLAlchemy application: where the time of one request went, from pool to plan.

The main class is `SqlProfiler`; it fills a `Recording` of `Statement`s and `Transaction`s, with its `findings()` and
`diff()`. Names are loaded on first use: the pytest plugin, which each run of pytest imports, loads none of them.
"""

from typing import TYPE_CHECKING

from placebench.lazy_names import load_on_use

if TYPE_CHECKING:
    from placebench.profiler.analysis.difference import RecordingDifference
    from placebench.profiler.analysis.findings import Finding, Limits
    from placebench.profiler.analysis.merging import merge_sessions
    from placebench.profiler.analysis.summary import RecordingSummary, StatementGroup
    from placebench.profiler.capture.options import Clocks
    from placebench.profiler.model.plan import PlanNode
    from placebench.profiler.model.statement import (
        Caller,
        Checkout,
        DatabaseAddress,
        RecordedRequest,
        Span,
        Statement,
        Transaction,
    )
    from placebench.profiler.model.statement_statistics import StatementStatistics
    from placebench.profiler.output.dataframes import plans_frame, statements_frame, transactions_frame
    from placebench.profiler.output.firefox import write_firefox_profile
    from placebench.profiler.output.otlp import write_otlp_metrics, write_otlp_traces
    from placebench.profiler.output.pages import (
        write_difference_page,
        write_flame_page,
        write_recording_page,
        write_speedscope,
    )
    from placebench.profiler.output.prometheus import write_prometheus_text
    from placebench.profiler.output.sarif import write_sarif
    from placebench.profiler.recording import Recording
    from placebench.profiler.requests.sampling import Keep, Sampling
    from placebench.profiler.sql_profiler import SqlProfiler

__all__ = [
    "Caller",
    "Checkout",
    "Clocks",
    "DatabaseAddress",
    "Finding",
    "Keep",
    "Limits",
    "PlanNode",
    "RecordedRequest",
    "Recording",
    "RecordingDifference",
    "RecordingSummary",
    "Sampling",
    "Span",
    "SqlProfiler",
    "Statement",
    "StatementGroup",
    "StatementStatistics",
    "Transaction",
    "merge_sessions",
    "plans_frame",
    "statements_frame",
    "transactions_frame",
    "write_difference_page",
    "write_firefox_profile",
    "write_flame_page",
    "write_otlp_metrics",
    "write_otlp_traces",
    "write_prometheus_text",
    "write_recording_page",
    "write_sarif",
    "write_speedscope",
]

__getattr__, __dir__ = load_on_use(
    __name__,
    {
        "analysis.difference": ("RecordingDifference",),
        "analysis.findings": ("Finding", "Limits"),
        "analysis.merging": ("merge_sessions",),
        "analysis.summary": ("RecordingSummary", "StatementGroup"),
        "capture.options": ("Clocks",),
        "requests.sampling": ("Keep", "Sampling"),
        "model.plan": ("PlanNode",),
        "model.statement": (
            "Caller",
            "Checkout",
            "DatabaseAddress",
            "RecordedRequest",
            "Span",
            "Statement",
            "Transaction",
        ),
        "model.statement_statistics": ("StatementStatistics",),
        "output.dataframes": ("plans_frame", "statements_frame", "transactions_frame"),
        "output.firefox": ("write_firefox_profile",),
        "output.otlp": ("write_otlp_metrics", "write_otlp_traces"),
        "output.pages": ("write_difference_page", "write_flame_page", "write_recording_page", "write_speedscope"),
        "output.prometheus": ("write_prometheus_text",),
        "output.sarif": ("write_sarif",),
        "recording": ("Recording",),
        "sql_profiler": ("SqlProfiler",),
    },
)
