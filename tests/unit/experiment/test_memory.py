"""Memory of forked processes, as the kernel tells it."""

import os
from pathlib import Path

import pytest

from placebench.measure.processes import Memory, MemorySampler, read_memory

ROLLUP = """\
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
    (tmp_path / "7" / "smaps_rollup").write_text(ROLLUP)

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
