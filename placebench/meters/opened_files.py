"""Which of some files any process opens, under whatever name and from whatever code: `watch_opens`, by inotify(7)."""

import ctypes
import os
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

_IN_OPEN, _IN_Q_OVERFLOW = 0x20, 0x4000
_EVENT = struct.Struct("iIII")
"""An event: the watch, the mask, a cookie, and the length of the name that follows, which a file has none of."""


@contextmanager
def watch_opens(paths: Collection[str]) -> Iterator[Callable[[], set[str]]]:
    """Yield a function that returns those of *paths* that were opened since the `with` block began.

    All of them, if the kernel has lost events. Raises OSError if a file is missing or the user's limit of watches is
    reached. A file of which only the size or the existence is asked is not opened.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), f"inotify_init1: {os.strerror(ctypes.get_errno())}")
    opened, watched = set[str](), defaultdict[int, set[str]](set)

    def read_events() -> set[str]:
        try:
            while events := os.read(descriptor, 1 << 16):
                for watch, mask, _, _ in _EVENT.iter_unpack(events):
                    opened.update(paths if mask & _IN_Q_OVERFLOW else watched[watch])
        except BlockingIOError:
            return opened
        return opened

    try:
        for path in paths:
            if (watch := libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_OPEN)) < 0:
                raise OSError(ctypes.get_errno(), f"inotify_add_watch: {os.strerror(ctypes.get_errno())}", path)
            watched[watch].add(path)  # two names of one file have one watch
        yield read_events
    finally:
        os.close(descriptor)
