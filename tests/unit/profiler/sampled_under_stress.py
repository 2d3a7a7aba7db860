"""What kills a Python that has the defects which the sampling thread goes around; for the tests.

    MALLOC_MMAP_THRESHOLD_=65536 python sampled_under_stress.py MODE SECONDS

Threads make profiled requests with a statement in each. A generator resumes with an object on its stack that is freed
before the next collection: under a profile function Python 3.11.2 visits it then, and the variable has freed memory
leave the process (gh-101975). Collections are frequent: they free `threading.local`s, which need the lock that
`sys._current_frames` holds (gh-106883), and let other threads run, whose stacks are being read. Prints as JSON the
requests, the samples in their flame graphs, and the notes.
"""

import gc
import json
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from placebench import SqlProfiler

THREADS = 4


def frees() -> Generator[None, int, None]:
    """Has a megabyte on its stack while it waits, above what the call of the collector puts there."""
    while True:
        _ = [0, 0, 0, 0, 0, 0, bytes(1 << 20), (yield)]
        del _
        gc.collect()


def deep(depth: int) -> bool:
    """Garbage on a stack that is another one soon."""
    cycle: list[Any] = [threading.local()]
    cycle.append(cycle)
    return deep(depth - 1) if depth else any(number < 0 for number in range(1000))


def lets_others_run(_phase: str, _details: dict[str, int]) -> None:
    """In a collection while stacks are read, of which there should be none."""
    caller = sys._getframe()
    while caller.f_back and caller.f_code.co_name != "read_stacks":
        caller = caller.f_back
    if caller.f_code.co_name == "read_stacks":
        time.sleep(0)


def main(mode: str, seconds: float) -> None:
    """Make requests until the time is over, and print what came of them."""
    engine = create_engine("sqlite://", poolclass=NullPool)
    profiler = SqlProfiler(engine)
    until = time.monotonic() + seconds
    seen: list[Any] = []

    def use() -> None:
        while time.monotonic() < until:
            with profiler.record("request", mode=mode) as recording, engine.connect() as connection:
                connection.execute(text("select 1")).all()
                generator = frees()
                next(generator)
                for size in range(5):
                    generator.send(size)
                for number in range(100):
                    deep(number % 20)
            seen.append((recording.session.sample_count, recording.notes))

    gc.freeze()  # what is there now is not looked through each time
    gc.set_threshold(15)
    gc.callbacks.append(lets_others_run)
    threads = [threading.Thread(target=use) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    notes = sorted({note for _, notes in seen for note in notes})
    print(json.dumps({"requests": len(seen), "samples": sum(count for count, _ in seen), "notes": notes}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
