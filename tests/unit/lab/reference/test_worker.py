"""The implementations of `heap` in the worker, seen by the pages that the system hands out."""

import subprocess
import sys

import pytest

FAULTS = """
import resource
from placebench.lab.reference.optimizations.worker import keep_freed_memory, keep_malloc_defaults

{implementation}()
seen = []
for _ in range(4):
    buffers = [bytes(range(256)) * 2**16 for _ in range(4)]
    del buffers
    seen.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(seen[-1] - seen[-2])
"""


@pytest.mark.processes
@pytest.mark.parametrize(("implementation", "is_kept"), [("keep_malloc_defaults", False), ("keep_freed_memory", True)])
def test_memory_that_is_kept_needs_no_new_pages(implementation: str, is_kept: bool) -> None:
    """64 MiB taken and freed time and again: 16 384 pages are faulted in each time, or next to none."""
    ended = subprocess.run(
        [sys.executable, "-c", FAULTS.format(implementation=implementation)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert (int(ended.stdout) < 1000) is is_kept
