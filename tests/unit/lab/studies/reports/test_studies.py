"""What the reports of all studies have in common."""

from pathlib import Path

import pytest
from failed_points import REASON, with_failures
from fake_survey import POINTS, write_survey

from placebench.report.study_report import STUDIES


@pytest.mark.parametrize("study", STUDIES)
def test_points_that_failed_are_rows_whichever_they_are(study: str, tmp_path: Path) -> None:
    """One point or more, up to all of them: there is a row for each point, and those that failed say why."""
    for failed, rows in with_failures(write_survey(tmp_path / "run", study)):
        assert len(rows) == len(POINTS[study])
        assert [row["reason"] for row in rows].count(REASON) == failed
