"""The ways of the heap, seen by the pages that the system hands out."""

import subprocess
import sys

import pytest

FAULTS = """
import resource
from placebench.reference.optimizations.worker import given_back, kept

{way}()
seen = []
for _ in range(4):
    buffers = [bytes(range(256)) * 2**16 for _ in range(4)]
    del buffers
    seen.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(seen[-1] - seen[-2])
"""


@pytest.mark.parametrize(("way", "is_kept"), [("given_back", False), ("kept", True)])
def test_what_is_kept_needs_no_new_pages(way: str, is_kept: bool) -> None:
    """64 MiB taken and freed time and again: 16 384 pages are faulted in each time, or next to none."""
    ended = subprocess.run(
        [sys.executable, "-c", FAULTS.format(way=way)], capture_output=True, text=True, check=True, timeout=60
    )

    assert (int(ended.stdout) < 1000) is is_kept
