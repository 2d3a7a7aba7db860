"""CPU and memory of processes as the kernel counts them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from placebench.meters import processes
from placebench.meters.processes import Memory, MemorySampler, read_memory

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


def test_a_thread_that_would_run_is_ready_and_one_that_waits_is_not(eventually: Callable[..., bool]) -> None:
    """Whether it has a CPU or not; a process that is gone has none."""
    computes = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    waits = subprocess.Popen(["sleep", "60"])

    assert eventually(lambda: processes.has_ready_thread([waits.pid, computes.pid]))
    assert eventually(lambda: not processes.has_ready_thread([waits.pid]))
    for child in (computes, waits):
        child.kill()
        child.wait()
    assert not processes.has_ready_thread([computes.pid])


def test_a_process_that_is_gone_took_nothing() -> None:
    """No process, no CPU, no error."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    assert processes.read_cpu_s(child.pid) == 0.0


WITH_CHILDREN = """
import subprocess, sys
burn = "import time\\nwhile time.process_time() < 0.2: pass\\n"
subprocess.run([sys.executable, "-c", burn])
living = subprocess.Popen([sys.executable, "-c", burn + "print(flush=True)\\ninput()"], stdin=-1, stdout=-1)
living.stdout.readline()
print("burnt", flush=True)
input()
"""


def test_the_cpu_of_a_family_contains_children_that_live_and_that_ended() -> None:
    """0.2 s of each, where the process itself took less; nobody knows the family of a process that is gone."""
    with burnt(WITH_CHILDREN) as pid:
        own, family = processes.read_cpu_s(pid), processes.read_family_cpu_s(pid)

    assert family is not None
    assert family - own >= 0.4 - 0.01  # what ended is counted in steps of 10 ms
    assert processes.read_family_cpu_s(pid) is None


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


TREE_ROLLUP = """\
5630bc300000-7ffcd1dc9000 ---p 00000000 00:00 0                          [rollup]
Rss:                1760 kB
Pss:                 184 kB
Shared_Clean:       1600 kB
Shared_Dirty:          8 kB
Private_Clean:        40 kB
Private_Dirty:       112 kB
"""


def test_what_the_kernel_says_in_kilobytes_is_bytes(tmp_path: Path) -> None:
    """USS is what is private, clean or not: 40 + 112 KiB."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "smaps_rollup").write_text(TREE_ROLLUP)

    expected = Memory(pss_bytes=184 << 10, uss_bytes=152 << 10, rss_bytes=1760 << 10, shared_dirty_bytes=8 << 10)
    assert expected == read_memory(7, tmp_path)


def test_a_process_that_is_gone_takes_nothing(tmp_path: Path) -> None:
    """No process, no memory, no error."""
    assert Memory() == read_memory(7, tmp_path)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_loses_the_pages_that_it_writes_to() -> None:
    """Of 16 MiB that a child shares with us after the fork, it writes 8: so many are lost, and 8 are still shared."""
    state = bytearray(b"x") * (16 << 20)
    to_child, from_child = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.read(to_child[0], 1)
        state[: 8 << 20 : 4096] = b"y" * (8 << 8)
        os.write(from_child[1], b"done")
        os.read(to_child[0], 1)
        os._exit(0)

    with MemorySampler(os.getpid(), [child]) as sampler:
        os.write(to_child[1], b"1")
        os.read(from_child[0], 4)
    os.write(to_child[1], b"2")
    os.waitpid(child, 0)

    assert 8 << 20 <= sampler.unshared_bytes < 10 << 20
    assert sampler.samples[-1].shared_bytes >= 8 << 20
    assert sampler.peak.rss_bytes > sampler.peak.pss_bytes > sampler.peak.uss_bytes
