"""Processes and interpreters that a recorded block starts: it says that their statements are not in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import json, os, sqlite3, sys, threading
def query(number): return sqlite3.connect(":memory:").execute("select ?", (number,)).fetchall()
if __name__ == "__main__":
    from placebench import SqlProfiler
    profiler = SqlProfiler.for_drivers()
    with profiler.record("before"): pass
    with profiler.record("outer") as outer, profiler.record("inner") as inner:
        query(0)
        {started}
    with profiler.record("after") as after: pass
    print(json.dumps([[each.statement_count, each.missed, each.notes] for each in (outer, inner, after)]))
"""
_POOL = (
    "import multiprocessing\n        with multiprocessing.get_context({!r}).Pool(2) as pool: pool.map(query, range(4))"
)
_EXECUTOR = """from concurrent.futures import ProcessPoolExecutor
        with ProcessPoolExecutor(2) as pool: list(pool.map(query, range(4)))"""
_INTERPRETERS = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
_CHILDREN = "2 child processes were started; their statements are not in this recording"
_INTERPRETER = "1 sub-interpreter was started; its statements are not in this recording"
STARTED = {
    **{method: (_POOL.format(method), _CHILDREN) for method in ("fork", "spawn", "forkserver")},
    "executor": (_EXECUTOR, _CHILDREN),
    "os.fork": (
        "for _ in range(2):\n            os.fork() or os._exit(len(query(1)))\n            os.wait()",
        _CHILDREN,
    ),
    "sub-interpreter": (
        f"import {_INTERPRETERS} as made; made.run_string(made.create(), 'import sqlite3')",
        _INTERPRETER,
    ),
    "nothing": ("import subprocess; subprocess.run(['true'])", None),
}


@pytest.mark.parametrize("way", STARTED)
def test_what_a_recorded_block_starts_is_noted(way: str, tmp_path: Path) -> None:
    """In the recordings of the thread that starts it, and in no later one."""
    started, note = STARTED[way]
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM.format(started=started))

    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stderr
    told = [1, 0, [note] if note else []]
    assert json.loads(done.stdout.splitlines()[-1]) == [told, told, [0, 0, []]]
