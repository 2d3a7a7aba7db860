"""The job of a driver, recorded alone, wherever it runs: in a thread, a task, a greenlet, a request or another process.

A process that is started anew finds the settings in its environment.
"""

import json
import os
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent)]  # a safe path has no folder of the script

from place import ROWS, Place, trace_counts  # noqa: E402
from program import summary_of  # noqa: E402

from placebench.profiler import SqlProfiler  # noqa: E402

VARIABLE = "COVERAGE_MATRIX"
settings: dict[str, str] = json.loads(os.environ.get(VARIABLE, "{}"))
profiler = SqlProfiler()


def place_of(number: int) -> Place:
    """The place of one job; a database in this process traces what the job runs."""
    place = Place(profiler, settings, str(number), settings["mode"])
    place.traced = [] if settings["in_process"] else None
    return place


def job_of(module: str) -> Any:
    """The job of a driver's module."""
    return import_module(module).job


def run(number: int) -> dict[str, Any]:
    """Run the job in a recording of its own; the result is like that of an operation."""
    place = place_of(number)
    with profiler.record(place.name, place.mode) as recording:
        handed_out = job_of(settings["module"])(place)
    return result_of(place, summary_of(recording), handed_out)


async def run_awaited(number: int) -> dict[str, Any]:
    """Await the job in a recording of its own."""
    place = place_of(number)
    with profiler.record(place.name, place.mode) as recording:
        handed_out = await import_module(settings["module"]).awaited_job(place)
    return result_of(place, summary_of(recording), handed_out)


def result_of(place: Place, recorded: dict[str, Any] | None, handed_out: int) -> dict[str, Any]:
    """The result of a job; *recorded* is None where an integration records it."""
    counted = None if place.traced is None else trace_counts(place.traced)
    return {"recorded": recorded, "counted": counted, "handed_out": handed_out, "process": os.getpid()}


def run_and_write(number: int) -> str:
    """Run the job, which an integration records, and write the result into the folder."""
    text = json.dumps(run_unrecorded(number))
    Path(settings["folder"], f"result-{os.getpid()}-{threading.get_ident()}-{number}.json").write_text(text)
    return text


def run_unrecorded(number: int) -> dict[str, Any]:
    """Run the job, whose recording is that of another process, if there is one."""
    place = place_of(number)
    return result_of(place, None, job_of(settings["module"])(place))


def make_table() -> None:
    """Make the file of a database in this process, with the table."""
    import sqlite3

    settings["url"] = str(Path(settings["folder"], "jobs.db"))
    with sqlite3.connect(settings["url"]) as connection:
        connection.execute("create table item (id integer primary key, name text)")
        connection.executemany("insert into item values (?, 'x')", [(1 + n,) for n in range(ROWS)])
    connection.close()
