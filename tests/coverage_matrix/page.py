"""The page of the coverage matrix, from its raw file: `page_of`."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from verdict import EXACT, NOT_MEASURED, Verdict, judge

OPERATIONS = {
    "execute": "execute, with values and without",
    "executemany": "executemany",
    "execute_values": "execute_values (psycopg2.extras)",
    "insertmanyvalues": "insertmanyvalues of SQLAlchemy",
    "server cursor": "server-side cursor, page by page",
    "for": "`for` over a cursor",
    "next": "`next(cursor)`",
    "fetchone, fetchmany, fetchall": "fetchone, fetchmany, fetchall",
    "COPY in": "COPY in",
    "COPY out": "COPY out",
    "pipeline": "pipeline",
    "prepared": "prepared statements",
    "callproc": "callproc",
    "NOTIFY": "LISTEN and NOTIFY",
    "savepoint": "savepoints",
    "two-phase": "two-phase commit",
    "autocommit": "autocommit",
    "cancelled": "a statement that is cancelled",
    "timed out": "a statement that times out",
    "multi-statement": "several statements in one text",
    "several databases": "two databases in one recording",
    "pgbouncer": "pgbouncer, transaction pooling",
    "pool": "the driver's own pool",
}


class Notes:
    """Numbered notes below the tables; equal ones have one number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> str:
        """The mark of a note with this text."""
        return f"[{self._numbers.setdefault(text, len(self._numbers) + 1)}](#notes)"

    def __str__(self) -> str:
        return "\n".join(f"{number}. {text[0].upper()}{text[1:]}." for text, number in self._numbers.items())


def cell(found: dict[str, Any] | None, notes: Notes) -> str:
    """What the table says of one recording, or of the recordings of one way to run."""
    if found is None:
        return "–"
    if "not_run" in found:
        return f"not run {notes.number(found['not_run'])}"
    return shown(judge(found), notes)


def shown(verdict: Verdict, notes: Notes) -> str:
    """A verdict in a few words, with the mark of its reason."""
    if verdict.is_wrong:
        return "**wrong**"
    if verdict.statements == verdict.rows == EXACT:
        return EXACT
    mark = notes.number(verdict.why)
    return f"{NOT_MEASURED} {mark}" if verdict.statements == NOT_MEASURED else f"{EXACT}, rows {NOT_MEASURED} {mark}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def wrong_cells(found: dict[str, Any]) -> Iterator[str]:
    """Lines about the cells that are wrong, with their figures."""
    for driver, measured in found["operations"].items():
        for name, each in measured.get("done", {}).items():
            if judge(each).is_wrong:
                yield f"wrong: {driver}, {name}: {json.dumps(each)}"


def page_of(found: dict[str, Any]) -> str:
    """The text of the page."""
    notes, operations = (
        Notes(),
        found["operations"] | {name: {"not_run": why} for name, why in found["not_run"].items()},
    )
    head = ["", *(f"{name} {each.get('version', '')}".strip() for name, each in operations.items())]
    rows = []
    for key, label in OPERATIONS.items():
        cells = [each if "not_run" in each else each["done"].get(key) for each in operations.values()]
        rows.append([label, *(cell(each, notes) for each in cells)])
    return f"""# Coverage

What a recording counts, beside an independent count of the same work: for each driver and each way to use it. This page
is made by `tox -e coverage` from [its raw file](coverage.json), last on {found["date"]}. A test makes a part of it anew
with every change.

Each cell is a program that ran while it was recorded, and says:

* **exact**: statements, transaction steps and rows of the recording are those of the independent count;
* **not measured**, all or the rows alone: the recording itself has no such figure, or a note says what is missing;
* **wrong**: neither of these. No cell may be wrong: the test fails;
* **not run**: why it could not be tried here;
* –: the driver has no such call.

| Database | Statements and transaction steps | Rows |
| --- | --- | --- |
| PostgreSQL | the server's log, with `log_statement = all` | `pg_stat_statements` |
| MariaDB | the general log (statements alone) | rows that the program was handed out, from a table of known content |
| SQLite | sqlite3's trace callback | the same |
| DuckDB | the program's own text | the same |

The fetches and the close of a server-side cursor are parts of its statement. An executemany is one statement with its
number of sets of values, which is compared with the number of statements that the server ran.

## Drivers and operations

Python {found["python"]}, mode `full`.

{table(head, rows)}

## Notes

{notes}
"""
