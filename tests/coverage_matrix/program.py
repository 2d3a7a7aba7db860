"""Runs the operations of one driver in this process, each in its own recording: `program.py MODULE.CLASS MODE`.

The first line of stdin has the settings; the last line of stdout has what was counted, by operation:
`{"statements": [recorded, sets of values, counted], "rows": [recorded, counted, handed out], "notes": [...]}`.
"""

import json
import platform
import sqlite3
import sys
import tempfile
import warnings
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # a safe path has no folder of the script
warnings.simplefilter("ignore")

from page import OPERATIONS  # noqa: E402
from place import Place, driver_of  # noqa: E402

from placebench.profiler import Recording, SqlProfiler  # noqa: E402


def summary_of(recording: Recording) -> dict[str, Any]:
    """The counts of a recording, as comparisons need them."""
    sets = sum(each.value_count or 1 if each.kind != "read" else 1 for each in recording.statements)
    left_out = ("CONNECT", "PING", "PREPARE STATEMENT")  # no text of the application
    return {
        "statements": recording.statement_count,
        "sets": sets,
        "rows": recording.row_count,
        "steps": [each.kind.removesuffix(" PREPARED") for each in recording.transactions if each.kind not in left_out],
        "missed": recording.missed,
        "failed_hooks": list(recording.failed_hooks),
        "breaches": list(recording.breaches),
        "notes": list(recording.notes),
    }


def main() -> None:
    """Run the operations of a driver, and print what was counted."""
    driver, mode = driver_of(sys.argv[1]), sys.argv[2]
    settings = json.loads(sys.stdin.readline())
    profiler = SqlProfiler()
    found = {}
    for name in OPERATIONS:
        operation = getattr(driver, name, None)
        if operation is None or (name == "pgbouncer" and not settings.get("pooled")):
            continue
        if name == "insertmanyvalues" and driver.awaited and find_spec("greenlet") is None:
            found[name] = {"not_run": "SQLAlchemy's async engines need greenlet, which has no wheel for this Python"}
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Place(profiler, driver.prepared_settings(settings | {"folder": folder}), name, mode)
            handed_out = driver.finish(operation(place))
        assert place.recording is not None, name
        found[name] = {"recorded": summary_of(place.recording), "counted": place.counted, "handed_out": handed_out}
    distribution = settings["distribution"]
    version = metadata.version(distribution) if distribution else sqlite3.sqlite_version
    suffix = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else "t"  # that nothing has switched the GIL on
    print(json.dumps({"done": found, "python": platform.python_version() + suffix, "version": version}))


if __name__ == "__main__":
    main()
