"""The processes below this one, as the kernel lists them: psutil reads every process of the machine to find them."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def descendants() -> Iterator[psutil.Process]:
    """The processes that this one has started, and those that they have; one that ends meanwhile may be left out."""
    parents = [os.getpid()]
    while parents:
        with suppress(OSError, psutil.NoSuchProcess):
            for task in Path(f"/proc/{parents.pop()}/task").iterdir():
                children = [int(pid) for pid in (task / "children").read_text().split()]
                parents += children
                yield from map(psutil.Process, children)
