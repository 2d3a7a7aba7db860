"""The page of the coverage matrix, from its raw file: `page_of`."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from verdict import EXACT, NOT_MEASURED, Verdict, judge

OPERATIONS = {
    "execute": "execute, with values and without",
    "executemany": "executemany",
    "execute_values": "execute_values (psycopg2.extras)",
    "insertmanyvalues": "insertmanyvalues of SQLAlchemy",
    "server_cursor": "server-side cursor, page by page",
    "iteration": "`for` over a cursor",
    "by_next": "`next(cursor)`",
    "fetches": "fetchone, fetchmany, fetchall",
    "copy_in": "COPY in",
    "copy_out": "COPY out",
    "pipeline": "pipeline",
    "prepared": "prepared statements",
    "callproc": "callproc",
    "notify": "LISTEN and NOTIFY",
    "savepoint": "savepoints",
    "two_phase": "two-phase commit",
    "autocommit": "autocommit",
    "cancelled": "a statement that is cancelled",
    "timed_out": "a statement that times out",
    "multi_statement": "several statements in one text",
    "several_databases": "two databases in one recording",
    "pgbouncer": "pgbouncer, transaction pooling",
    "pool": "the driver's own pool",
}

MODELS = {
    "threads": "threads",
    "thread pool": "thread pool, two workers",
    "asyncio": "asyncio, with `to_thread` for drivers that are not awaited",
    "gevent": "gevent, everything patched; one event loop for awaited drivers",
    "eventlet": "eventlet, the same",
    "celery": "Celery, prefork",
    "gunicorn": "gunicorn, two workers, `--preload`",
    "uwsgi": "uWSGI, two workers forked after loading",
    "fork": "multiprocessing, fork",
    "spawn": "multiprocessing, spawn",
    "forkserver": "multiprocessing, forkserver",
    "parent": "processes of a pool, in the recording of their parent",
    "sub-interpreters": "sub-interpreters, in the recording of the main one",
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
    if verdict.is_exact:
        return EXACT
    mark = notes.number(verdict.why)
    return f"{NOT_MEASURED} {mark}" if verdict.statements == NOT_MEASURED else f"{EXACT}, rows {NOT_MEASURED} {mark}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def wrong_cells(found: dict[str, Any]) -> Iterator[str]:
    """Lines about the cells that are wrong, with their figures."""
    places = {
        "": found.get("operations", {}),
        **{f"mode {key}, ": each for key, each in found.get("modes", {}).items()},
        **{f"Python {key}, ": each for key, each in found.get("pythons", {}).items()},
    }
    tables = [
        (place + driver, each.get("done", {})) for place, drivers in places.items() for driver, each in drivers.items()
    ]
    for driver, cells in (*tables, *found.get("models", {}).items()):
        for name, each in cells.items():
            if "not_run" not in each and judge(each).is_wrong:
                yield f"wrong: {driver}, {name}: {json.dumps(each)}"


def count_exact(measured: dict[str, Any], notes: Notes) -> str:
    """The number of the operations of a driver on one Python that are exact, with the reasons of the others."""
    if "not_run" in measured:
        return cell(measured, notes)
    verdicts = [judge(each) for each in measured["done"].values() if "not_run" not in each]
    if any(each.is_wrong for each in verdicts):
        return "**wrong**"
    whys = dict.fromkeys(each.why for each in verdicts if each.why)
    whys |= dict.fromkeys(each["not_run"] for each in measured["done"].values() if "not_run" in each)
    exact = sum(each.is_exact for each in verdicts)
    return " ".join([f"{exact} of {len(verdicts)}", *map(notes.number, whys)])


def by_mode(found: dict[str, Any]) -> str:
    """The section of the modes beside `full`."""
    rows = []
    for mode, drivers in found.get("modes", {}).items():
        measured = [each for each in drivers.values() if "not_run" not in each]
        sums = (sum(each[key] for each in measured) for key in ("operations", "exact", "as_in_full"))
        rows.append([f"`{mode}`", *map(str, sums)])
    if not rows:
        return ""
    return f"""## Drivers and modes

The operations of all drivers above. Those that are not exact are not measured, in whole or in part, with the notes
above; no recording found a breach of its own account (leaves, statements and elapsed time). The times of statements
are compared in all modes by `tox -e fuzz`; Python's shares by function are
[estimates](../explanation/flame-graphs.md). What `plans` itself sends is in no figure.

{table(["Mode", "Operations", "Exact", "As in `full`"], rows)}

"""


def page_of(found: dict[str, Any]) -> str:
    """The text of the page."""
    notes, operations = (
        Notes(),
        found["operations"] | {name: {"not_run": why} for name, why in found["not_run"].items()},
    )
    head = [""]
    for name, each in operations.items():
        version = each.get("version", "")
        numbered = re.sub(r"\d\.\d", version, name) if version else name
        head.append(numbered if numbered != name else f"{name} {version}".strip())
    rows = []
    for key, label in OPERATIONS.items():
        cells = [each if "not_run" in each else each["done"].get(key) for each in operations.values()]
        rows.append([label, *(cell(each, notes) for each in cells)])
    models = {name: found["models"][name] for name in found["operations"] if name in found.get("models", {})}
    by_model = [[label, *(cell(each.get(key), notes) for each in models.values())] for key, label in MODELS.items()]
    pythons = {found["python"]: found["operations"]} | found.get("pythons", {})
    ordered = sorted(pythons, key=lambda label: [int(part) for part in re.findall(r"\d+", label)])
    by_python = [
        [name, *(count_exact(pythons[label].get(name, {"not_run": "it was not tried"}), notes) for label in ordered)]
        for name in found["operations"]
    ]
    ways = f"""## Drivers and ways to run

Four jobs of four statements and 31 rows, at the same time, each in a recording of its own: `record` in the job, tasks
of Celery by `profile_tasks`, requests by `SqlProfiler.wsgi`, with a profiler made before the workers were forked.

{table(["", *models], by_model)}

"""
    ways = ways if models else ""
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

{by_mode(found)}{ways}## Drivers and Pythons

How many operations of the first table are exact, of those that the driver has. The others are not measured, in whole
or in part; none is wrong. A Python whose number ends with a t is free-threaded and stays so: psycopg runs in pure
Python there, because its binary package has no wheel for it.

{table(["", *ordered], by_python)}

## Notes

{notes}
"""
