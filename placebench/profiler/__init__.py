"""The SQL profiler for anyone's SQLAlchemy application: where the time of one request went, from pool to fetch.

The key piece is `SqlProfiler`; what it records is a `Recording` of `Statement`s and `Transaction`s. The flame's pages
stand in `placebench.profiler.pages`, which alone loads pyinstrument's renderers.
"""

from placebench.profiler.middleware import Keep
from placebench.profiler.recorder import SqlProfiler
from placebench.profiler.recording import Recording
from placebench.profiler.statement import Caller, Span, Statement, Transaction
from placebench.profiler.summary import StatementGroup, Summary
from placebench.profiler.tape import Clocks

__all__ = [
    "Caller",
    "Clocks",
    "Keep",
    "Recording",
    "Span",
    "SqlProfiler",
    "Statement",
    "StatementGroup",
    "Summary",
    "Transaction",
]
