"""Recordings of a process that forks while one of them runs."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, threading, time
from placebench import SqlProfiler

profiler = SqlProfiler.for_drivers("sqlite3")
while time.process_time() < 0.3: pass

def check():
    with profiler.record("inside the child") as recording: sum(range(100_000))
    print(recording.breaches, recording.cpu_s > 0)

with profiler.record("around") as around:
    pid = os.fork()
    if pid == 0 and {in_thread}:
        thread = threading.Thread(target=check)
        thread.start()
        thread.join()
if pid == 0:
    print(around.cpu_s, around.breaches, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(around.breaches, around.cpu_s > 0)
"""


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_forked_process_has_a_cpu_account_of_its_own(in_thread: bool) -> None:
    """Its CPU time begins at 0: its own recordings hold, and one that began in the parent has no CPU time."""
    program = PROGRAM.format(in_thread=in_thread)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [*["() True"] * in_thread, "None ()", "() True"]
