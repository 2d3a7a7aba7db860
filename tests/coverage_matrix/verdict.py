"""Whether a recording agrees with an independent count: exact, wrong or not measured, with the reason."""

import re
from dataclasses import dataclass
from typing import Any

EXACT, WRONG, NOT_MEASURED = "exact", "wrong", "not measured"
_REASONS = {
    "with several statements": "a text with several statements is counted as one, and a note in the recording says "
    "so; sqlite3 runs them one by one, and psycopg2, asyncpg and PyMySQL report the rows of the last one only",
    "started; ": "the recording is of the process or interpreter that starts them, and a note in it says that their "
    "statements are missing",
    "without SQLAlchemy": "placebench has no hooks for this driver, and a note in the recording says so; its "
    "statements through SQLAlchemy are recorded",
    "the rows of": "the driver does not report them, and a note in the recording says so",
}


@dataclass(frozen=True)
class Verdict:
    """What a cell says of statements (with transaction steps) and of rows; *why* for what is not exact."""

    statements: str
    rows: str
    why: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether one of the figures is wrong."""
        return WRONG in (self.statements, self.rows)

    @property
    def is_exact(self) -> bool:
        """Whether all of the figures are exact."""
        return self.statements == self.rows == EXACT


def judge(cell: dict[str, Any]) -> Verdict:
    """Compare the figures of one recording, or the sums of several, with what was counted beside it.

    What is not measured has a note in the recording; otherwise it is wrong.
    """
    recorded, counted = cell["recorded"], cell["counted"]
    noted = next((why for words, why in _REASONS.items() if any(words in note for note in recorded["notes"])), "")
    if recorded["missed"] or recorded["failed_hooks"] or recorded["breaches"]:
        return Verdict(WRONG, WRONG)
    expected_rows = cell["handed_out"] if counted["rows"] is None else counted["rows"]
    if recorded["rows"] is None:
        rows, why = NOT_MEASURED if noted else WRONG, noted
    else:
        rows, why = (EXACT, "") if recorded["rows"] == expected_rows else (WRONG, "")
    if counted["statements"] in (recorded["statements"], recorded["sets"]):
        steps_agree = "steps" not in counted or without_release(counted["steps"]) == without_release(recorded["steps"])
        return Verdict(EXACT if steps_agree else WRONG, rows, why)
    return Verdict(NOT_MEASURED if noted else WRONG, rows, why)


def without_release(steps: list[str]) -> list[str]:
    """The steps, with the RELEASE that psycopg sends with a ROLLBACK TO as a part of that."""
    return re.sub(r"ROLLBACK TO,RELEASE(,|$)", r"ROLLBACK TO\1", ",".join(steps)).split(",")
