"""A recording as pandas frames: a row per statement, per transaction step, per node of a plan.

The main functions are `statements_frame`, `transactions_frame` and `plans_frame`. They need the extra `frames`.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from placebench.errors import MissingExtraError
from placebench.profiler.model.recording_data import RecordingData

if TYPE_CHECKING:
    import pandas as pd


def statements_frame(recording: RecordingData) -> "pd.DataFrame":
    """Return a frame with a row per statement and a column per field, three for the call site.

    Raises MissingExtraError if pandas is not installed.
    """
    rows = []
    for statement in recording.statements:
        row = asdict(statement)
        caller = statement.caller
        del row["plan"], row["caller"]
        place = {"file": None, "line": None, "function": None} if caller is None else caller._asdict()
        rows.append({**row, "elapsed_s": statement.elapsed_s, **place})
    return _frame(rows)


def transactions_frame(recording: RecordingData) -> "pd.DataFrame":
    """Return a frame with a row per transaction step. Raises MissingExtraError if pandas is not installed."""
    return _frame([asdict(step) for step in recording.transactions])


def plans_frame(recording: RecordingData) -> "pd.DataFrame":
    """Return a frame with a row per node of each plan, with the statement's index.

    Raises MissingExtraError if pandas is not installed.
    """
    rows = []
    for number, statement in enumerate(recording.statements):
        for depth, node in () if statement.plan is None else statement.plan.walk():
            row = asdict(node)
            del row["children"]
            rows.append({"statement": number, "depth": depth, **row, "self_s": node.self_s, "title": node.title})
    return _frame(rows)


def _frame(rows: list[dict[str, Any]]) -> "pd.DataFrame":
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "frames need pandas, which is not installed: pip install 'placebench[frames]'"
        ) from error
    return pd.DataFrame(rows)
