"""pyinstrument's sampler with looks that cost a fiftieth, so that it may look four times as often.

The key piece is `Sampler`, a `pyinstrument.Profiler`. pyinstrument names each frame when it looks, class and all, which
takes 0.5 ms for the sixty frames of an ORM below a web framework: as long as a statement. Here a look keeps code and
instruction, and names come at the end. The look is private to pyinstrument (`StackSampler._sample`); where somebody
else's profiler runs on the same thread too, the looks are pyinstrument's own.
"""

from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

import pyinstrument
from pyinstrument import stack_sampler

from placebench.profiler.capture.active_recording import Clock, inside_event_loop
from placebench.profiler.capture.stack import Frames, Stacks, awaiting, frames_of, root_of_thread

_INTERVAL_S = 0.00025
_MOST_LOOKS = 40_000


class Sampler(pyinstrument.Profiler):
    """Samples the thread or task that makes it; a look that fails is told to *give_up*, and not to the application."""

    holds = False

    def __init__(self, clock: Clock, give_up: Callable[[Exception], None], *, interval_s: float = _INTERVAL_S) -> None:
        # "disabled": any number of profilers may run, each on its thread. A task shares its thread with others.
        mode: Literal["enabled", "disabled"] = "enabled" if inside_event_loop() else "disabled"
        super().__init__(interval=interval_s, async_mode=mode)
        self.interval_s = interval_s
        self.give_up = give_up
        self._stacks = Stacks(root_of_thread())
        known = getattr(stack_sampler.thread_locals, "stack_sampler", None)
        if known is None or (type(known) is stack_sampler.StackSampler and not known.subscribers):
            stack_sampler.thread_locals.stack_sampler = _Looks()
        self.start()
        self._started = clock()

    def samples(self) -> list[tuple[float, list[str]]]:
        """End; each look's reading of the clock and its stack, in order of time. For the thread that made it."""
        taken, found = self._started, []
        for look, seconds in self.stop().frame_records:
            taken += seconds
            found.append((taken, self._named(look)))
        return found

    def looked(self, frames: Frames, built_in: list[str], seconds: float, async_state: Any) -> None:
        """A look, *seconds* after the one before; *built_in*: what has just returned to these frames."""
        records: list[Any] = self._active_session.frame_records if self._active_session else []
        if len(records) >= _MOST_LOOKS:  # of a long record only every other look is kept, with the time of both
            pairs = zip(records[::2], records[1::2], strict=True)
            records[:] = [(look, before + seconds) for (_, before), (look, seconds) in pairs]
        if async_state is not None and async_state.state == "out_of_context_awaited":
            self._sampler_saw_call_stack([], seconds, async_state)
        else:
            records.append(((frames, built_in), seconds))

    def _named(self, look: Any) -> list[str]:
        """The stack of a look of ours, or of pyinstrument's own."""
        return look if isinstance(look, list) else [*self._stacks(look[0]), *look[1]]


class _Looks(stack_sampler.StackSampler):
    """Takes the looks for the samplers of one thread."""

    def _sample(self, frame: FrameType, event: str, arg: Any) -> None:
        """Called between two steps of the program, once an interval."""
        samplers = [each for each in map(_behind, self.subscribers) if isinstance(each, Sampler)]
        if event == "context_changed" or len(samplers) < len(self.subscribers):
            super()._sample(frame, event, arg)
            return
        try:
            self._look(frame, event, arg, samplers)
        except Exception as error:  # noqa: BLE001  called inside of the application's own calls
            for sampler in samplers:
                sampler.give_up(error)

    def _look(self, frame: FrameType, event: str, arg: Any, samplers: list[Sampler]) -> None:
        """One look for all of them."""
        now: float = self._timer()  # type: ignore[no-untyped-call]  # pyinstrument has not typed it
        # A function that is being called has done nothing yet; the built-in one that returned has.
        frames = [*frames_of(frame.f_back if event == "call" else frame), *awaiting()]
        built_in = [f"{arg.__qualname__}\x00<built-in>\x000"] if event in ("c_return", "c_exception") else []
        for sampler, subscriber in zip(samplers, self.subscribers, strict=True):
            sampler.looked(frames, built_in, now - self.last_profile_time, subscriber.async_state)
        self.last_profile_time = now


def _behind(subscriber: stack_sampler.StackSamplerSubscriber) -> object:
    """The profiler whose method is called."""
    return getattr(subscriber.target, "__self__", None)
