"""CPU and memory as the kernel tells them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from placebench.measure import processes

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
        measured = processes.read_cpu_s(pid)

    assert measured >= 0.3


def test_cpu_is_what_the_scheduler_counted() -> None:
    """While all threads live the figure is the sum of theirs in schedstat, to 10 ms: one of them may run a moment."""
    with burnt(BURN_IN_A_THREAD) as pid:
        measured = processes.read_cpu_s(pid)
        tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
        counted = sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    assert measured == pytest.approx(counted, abs=0.01)


def test_a_process_that_is_gone_took_nothing() -> None:
    """No process, no CPU, no error."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    assert processes.read_cpu_s(child.pid) == 0.0


def test_spent_is_the_difference_and_newcomers_count_whole() -> None:
    """1.5 - 1.0 of the one that stayed, 0.25 of the one that came; the one that left is not there to read."""
    assert processes.cpu_between({1: 1.0, 2: 4.0}, {1: 1.5, 3: 0.25}) == 0.75


ROLLUP = """55d0-7ffe ---p 00000000 00:00 0    [rollup]
Rss:              {rss} kB
Pss:              {pss} kB
Pss_Anon:         {own} kB
Anonymous:        {anonymous} kB
"""


def process(proc: Path, pid: int, *, rss: int, pss: int, own: int, anonymous: int) -> int:
    """A process whose memory is so much, in KiB; returns its pid."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "smaps_rollup").write_text(ROLLUP.format(rss=rss, pss=pss, own=own, anonymous=anonymous))
    return pid


def test_who_else_maps_a_file_makes_no_difference_to_memory(tmp_path: Path) -> None:
    """20 MiB of its own and 10 of libraries are 30, whether strangers use the libraries too or not."""
    alone = process(tmp_path, 1, rss=30720, pss=30720, own=20480, anonymous=20480)
    shared = process(tmp_path, 2, rss=30720, pss=25600, own=20480, anonymous=20480)

    assert processes.read_pss_bytes([alone], tmp_path) == processes.read_pss_bytes([shared], tmp_path) == 30 * 2**20


def test_workers_share_what_was_there_before_the_fork(tmp_path: Path) -> None:
    """Two with 4 MiB of their own, 8 shared between them and the same 10 of libraries: 4 + 4 + 8 + 10."""
    workers = [process(tmp_path, pid, rss=22528, pss=13312, own=8192, anonymous=12288) for pid in (1, 2)]

    assert processes.read_pss_bytes([*workers, 3], tmp_path) == 26 * 2**20


def test_memory_that_cannot_be_told_apart_is_not_measured(tmp_path: Path) -> None:
    """A kernel before 5.4 says nothing of anonymous memory."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "smaps_rollup").write_text("55d0-7ffe ---p 00000000 00:00 0    [rollup]\nRss: 9 kB\nPss: 9 kB\n")

    assert processes.read_pss_bytes([1], tmp_path) is None


def test_memory_of_this_process_is_read() -> None:
    """A Python process has more than 5 MB."""
    pss = processes.read_pss_bytes([os.getpid()])

    assert pss is not None
    assert pss > 5_000_000
