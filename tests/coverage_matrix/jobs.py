"""The job of a driver, recorded alone, wherever it runs: in a thread, a task, a greenlet, a request or another process.

A process that is started anew finds the settings in its environment.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent)]  # a safe path has no folder of the script

from place import Place, driver_of, trace_counts  # noqa: E402
from program import summary_of  # noqa: E402

from placebench.profiler import SqlProfiler  # noqa: E402

settings: dict[str, str] = json.loads(os.environ["COVERAGE_MATRIX"])
profiler = SqlProfiler()
driver = driver_of(settings["driver"])


def place_of(number: int) -> Place:
    """The place of one job; a database in this process traces what the job runs."""
    return Place(profiler, settings, str(number), settings["mode"])


def run(number: int) -> dict[str, Any]:
    """Run the job in a recording of its own; the result is like that of an operation."""
    place = place_of(number)
    with profiler.record(place.name, place.mode) as recording:
        handed_out = driver.finish(driver.job(place))
    return result_of(place, summary_of(recording), handed_out)


async def run_awaited(number: int) -> dict[str, Any]:
    """Await the job in a recording of its own."""
    place = place_of(number)
    with profiler.record(place.name, place.mode) as recording:
        handed_out = await driver.job(place)
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
    return result_of(place, None, driver.finish(driver.job(place)))
