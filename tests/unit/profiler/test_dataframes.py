"""Recordings as pandas frames."""

import pandas as pd
from sqlalchemy.engine import Engine

from placebench.profiler import (
    Caller,
    PlanNode,
    Recording,
    SqlProfiler,
    Statement,
    plans_frame,
    statements_frame,
    transactions_frame,
)


def test_frames_have_a_row_per_statement(profiler: SqlProfiler, engine: Engine) -> None:
    """And a row per node of a plan, and a row per transaction step."""
    node = PlanNode("Seq Scan", relation="t", rows_expected=5, rows=2000.0, loops=1, elapsed_s=0.004)
    caller = Caller("/app/views.py", 7, "view")
    statement = Statement("select 1", "f", 0.0, execute_s=0.005, row_count=3, plan=node, caller=caller)
    recording = Recording("r", "plans", statements=[statement] * 5 + [Statement("select 2", "g", 0.1, execute_s=0.001)])
    statements = statements_frame(recording)
    with profiler.record("steps") as stepping, engine.begin():
        pass

    assert isinstance(statements, pd.DataFrame)
    assert statements.groupby("fingerprint")["execute_s"].sum().round(6).to_dict() == {"f": 0.025, "g": 0.001}
    assert statements["line"].tolist()[0] == 7
    assert plans_frame(recording)["self_s"].tolist() == [0.004] * 5
    assert transactions_frame(stepping)["kind"].tolist() == ["BEGIN", "COMMIT"]
