"""The channel between the processes of a command and placebench."""

import os
import socket
import threading

import pytest

from placebench.profiler import Recording
from placebench.profiler.live import channel
from placebench.profiler.live.channel import MAX_QUEUED, VARIABLE, RecordingReceiver, RecordingSender


@pytest.mark.processes
def test_what_is_sent_is_received_also_from_a_forked_process() -> None:
    """Each message arrives whole, with its process, before `close` returns."""
    received: list[tuple[int, str]] = []
    receiver = RecordingReceiver(lambda pid, recording: received.append((pid, recording.name)))
    sender = RecordingSender(receiver.environment[VARIABLE])
    sender.save(Recording("before", "light"))
    child = os.fork()
    if not child:
        sender.save(Recording("in the child", "light"))
        sender.flush()
        os._exit(0)
    os.waitpid(child, 0)
    sender.save(Recording("after", "light"))
    sender.flush()
    receiver.close()

    assert [(os.getpid(), "before"), (child, "in the child"), (os.getpid(), "after")] == received
    assert {os.getpid(), child} == receiver.processes


def test_what_cannot_be_sent_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the reader takes nothing, a bounded number waits; nothing waits for a reader that has gone."""
    monkeypatch.setattr(channel, "_FLUSH_S", 60.0)  # on a busy machine too, a flush ends when all is sent
    go_on = threading.Event()
    received: list[str] = []

    def receive(_pid: int, recording: Recording) -> None:
        go_on.wait()
        received.append(recording.name)

    receiver = RecordingReceiver(receive)
    sender = RecordingSender(receiver.environment[VARIABLE])
    large = Recording("x" * 2**14, "light")  # the socket's buffers take some of these
    dropped = sum(sender.save(large) for _ in range(2 * MAX_QUEUED))
    go_on.set()
    sender.flush()
    sender.save(Recording("last", "light"))
    sender.flush()
    receiver.close()

    assert dropped > 0
    assert "last" == received[-1]
    assert receiver.dropped >= dropped
    gone = RecordingSender(receiver.environment[VARIABLE])
    assert 0 == gone.save(large)
    gone.flush()


def test_a_flush_that_gives_up_mixes_no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the thread still sends, nothing else writes to its connection: each recording arrives whole."""
    monkeypatch.setattr(channel, "_FLUSH_S", 0.05)
    go_on, all_received = threading.Event(), threading.Event()
    received: list[str] = []

    def receive(_pid: int, recording: Recording) -> None:
        go_on.wait()
        received.append(recording.name)
        if len(received) == 100:
            all_received.set()

    receiver = RecordingReceiver(receive)
    sender = RecordingSender(receiver.environment[VARIABLE])
    names = [f"{number}".ljust(2**14, "x") for number in range(100)]  # more than the socket's buffers take
    for name in names:
        sender.save(Recording(name, "light"))
    threading.Timer(0.5, go_on.set).start()
    sender.flush()
    all_received.wait(60)
    receiver.close()

    assert names == received


@pytest.mark.parametrize("sent", [b"", b"0" * 32 + b"\x02\0\0\0\0\0\0\0{}", b"short"])
def test_who_does_not_know_the_secret_is_not_read(sent: bytes) -> None:
    """The connection is closed, and others are served."""
    received: list[str] = []
    receiver = RecordingReceiver(lambda _, recording: received.append(recording.name))
    secret, _, address = receiver.environment[VARIABLE].partition("@")
    stranger = socket.socket(socket.AF_UNIX)
    kind, _, place = address.partition(":")
    stranger.connect(f"\0{place}" if kind == "abstract" else place)
    stranger.sendall(sent)
    sender = RecordingSender(receiver.environment[VARIABLE])
    sender.save(Recording("mine", "light"))
    sender.flush()
    receiver.close()

    assert ["mine"] == received
    assert secret not in address
    assert b"" == stranger.recv(1)
    stranger.close()
