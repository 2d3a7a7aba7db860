"""An estimated flame: another thread looks at the stack every few milliseconds, which slows the watched one little.

The key piece is `SampledFlame`, which stands where `Flame` does. It looks some 50 times a second, when Python lets it;
a call into C blurs what ran around it. Many requests merged give a true picture, one request gives a rough one; the
recording says so.
"""

import sys
import threading
from bisect import bisect_left
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pyinstrument.session import Session

from placebench import units
from placebench.profiler.flame import without_profiler
from placebench.profiler.stacks import Frames, Stacks, frames_of, leaf, root_of_thread
from placebench.profiler.tape import Clock, inside_event_loop

if TYPE_CHECKING:
    from placebench.profiler.draft import Draft

INTERVAL_S = 0.020
_MOST_EDGES = 100_000


class SampledFlame:
    """Has another thread sample this one, from its making until `stop`."""

    def __init__(self, clock: Clock, caller: FrameType | None) -> None:
        self._clock = clock
        self._watched = threading.get_ident()
        self._stacks = Stacks(root_of_thread())
        self._above = self._stacks(frames_of(caller))
        self._samples: list[tuple[float, Frames]] = []
        self._edges: list[tuple[float, float, str]] = []
        self._shared = ("its thread's other tasks are in the flame too",) if inside_event_loop() else ()
        # Free when it is over; a lock with a timeout is the cheapest sleep that can be ended.
        self._running = threading.Lock()
        self._running.acquire()
        self._thread = threading.Thread(target=self._sample, name="placebench-sampler", daemon=True)
        self._thread.start()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader has to know of this flame."""
        count = len(self._samples)
        estimated = f"the flame is estimated from {units.count(count)} samples by another thread: shares, not times"
        return (estimated, *self._shared)

    def add(self, started: float, ended: float, label: str, kind: str, draft: "Draft | None" = None) -> None:  # noqa: ARG002
        """Something from *started* to *ended*; the samples in between stand on a leaf of that name."""
        if len(self._edges) < _MOST_EDGES:
            self._edges.append((started, ended, leaf(label, kind)))

    def stop(self, started: float, ended: float) -> Session:
        """pyinstrument's session from *started* to *ended*; each sample has the time since the one before it."""
        self._running.release()
        self._thread.join()
        return Session(
            frame_records=self._records(started, ended),
            start_time=0.0,
            duration=ended - started,
            min_interval=INTERVAL_S,
            max_interval=INTERVAL_S,
            sample_count=len(self._samples),
            start_call_stack=self._above,
            target_description="estimated by a sampling thread",
            cpu_time=0.0,
            sys_path=sys.path,
            sys_prefixes=[str(Path(prefix)) for prefix in {sys.prefix, sys.base_prefix}],
        )

    def _sample(self) -> None:
        """Look until it is over."""
        while not self._running.acquire(timeout=INTERVAL_S):
            self._look()

    def _look(self) -> None:
        """Take one sample; a function of its own, so that nothing holds a frame, and its variables, any longer."""
        frame = sys._current_frames().get(self._watched)
        if frame is not None:
            self._samples.append((self._clock(), frames_of(frame)))

    def _records(self, started: float, ended: float) -> list[tuple[list[str], float]]:
        """The samples as stacks with seconds; what came after the last one belongs to where the flame began."""
        records: list[tuple[list[str], float]] = []
        ends = [ended for _, ended, _ in self._edges]
        at = started
        for taken, frames in (sample for sample in self._samples if started < sample[0] <= ended):
            stack = without_profiler(self._stacks(frames))
            records.append(([*stack, *self._leaf(ends, taken)], taken - at))
            at = taken
        return [*records, (self._above, max(0.0, ended - at))]

    def _leaf(self, ends: list[float], taken: float) -> list[str]:
        """The statement that ran at that moment, if one did; edges come in order of their ends, inner ones first."""
        index = bisect_left(ends, taken)
        return [self._edges[index][2]] if index < len(ends) and self._edges[index][0] <= taken else []
