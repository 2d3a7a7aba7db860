"""What runs on another machine."""

import signal
import threading

import pytest

from placebench.remote import far_side


def test_a_connection_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was cut without an end: the comparison there is interrupted."""
    monkeypatch.setattr(far_side, "_SILENCE_S", 0.1)
    done, lost = threading.Event(), threading.Event()
    monkeypatch.setattr(far_side, "_close_output", lambda: None)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore

    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  the signal arrives in one of the two
            far_side._watch(far_side.queue.SimpleQueue(), done, lost)
            threading.Event().wait(5)
    finally:
        signal.signal(signal.SIGINT, before)
    assert lost.is_set()
