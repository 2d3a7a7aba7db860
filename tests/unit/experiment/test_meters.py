"""CPU and memory as the kernel tells them."""

import os
import subprocess
import sys

from placebench.experiment import meters

BURN_IN_A_THREAD = """
import threading, time
def burn():
    while time.thread_time() < 0.3: pass
    print("burnt", flush=True)
    input()
threading.Thread(target=burn).start()
"""


def test_cpu_counts_every_thread() -> None:
    """The 0.3 s that a second thread burnt are in the figure of its process."""
    with subprocess.Popen(
        [sys.executable, "-c", BURN_IN_A_THREAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "burnt\n"
        measured = meters.cpu_s(child.pid)
        child.communicate("\n")

    assert measured >= 0.3


def test_a_process_that_is_gone_took_nothing() -> None:
    """No process, no CPU, no error."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    assert meters.cpu_s(child.pid) == 0.0


def test_spent_is_the_difference_and_newcomers_count_whole() -> None:
    """1.5 - 1.0 of the one that stayed, 0.25 of the one that came; the one that left is not there to read."""
    assert meters.spent({1: 1.0, 2: 4.0}, {1: 1.5, 3: 0.25}) == 0.75


def test_memory_of_this_process_is_read() -> None:
    """A Python process has more than 5 MB."""
    pss = meters.pss_bytes([os.getpid()])

    assert pss is not None
    assert pss > 5_000_000
