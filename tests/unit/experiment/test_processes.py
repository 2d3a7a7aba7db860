"""CPU and memory as the kernel tells them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from placebench.experiment import processes

BURN_IN_A_THREAD = """
import threading, time
def burn():
    while time.thread_time() < 0.3: pass
    print("burnt", flush=True)
    input()
threading.Thread(target=burn).start()
"""


BURN_IN_THREADS_THAT_END = """
import threading, time
def burn():
    while time.thread_time() < 0.1: pass
for _ in range(3):
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()
print("burnt", flush=True)
input()
"""


@contextmanager
def burnt(program: str) -> Iterator[int]:
    """The process id of *program* once it says that it burnt its CPU; it stands still meanwhile."""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "burnt\n"
        yield child.pid
        child.communicate("\n")


@pytest.mark.parametrize("program", [BURN_IN_A_THREAD, BURN_IN_THREADS_THAT_END])
def test_cpu_counts_every_thread(program: str) -> None:
    """The 0.3 s that a second thread burnt are in the figure of its process, and those of threads that have ended."""
    with burnt(program) as pid:
        measured = processes.cpu_s(pid)

    assert measured >= 0.3


def test_cpu_is_what_the_scheduler_counted() -> None:
    """While all threads live the figure is the sum of theirs in schedstat, to 10 ms: one of them may run a moment."""
    with burnt(BURN_IN_A_THREAD) as pid:
        measured = processes.cpu_s(pid)
        tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
        counted = sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    assert measured == pytest.approx(counted, abs=0.01)


def test_a_process_that_is_gone_took_nothing() -> None:
    """No process, no CPU, no error."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    assert processes.cpu_s(child.pid) == 0.0


def test_spent_is_the_difference_and_newcomers_count_whole() -> None:
    """1.5 - 1.0 of the one that stayed, 0.25 of the one that came; the one that left is not there to read."""
    assert processes.spent({1: 1.0, 2: 4.0}, {1: 1.5, 3: 0.25}) == 0.75


def test_memory_of_this_process_is_read() -> None:
    """A Python process has more than 5 MB."""
    pss = processes.pss_bytes([os.getpid()])

    assert pss is not None
    assert pss > 5_000_000
