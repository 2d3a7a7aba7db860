"""Recordings of a running process on request: who may have them, what is left when a side is killed."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from placebench.errors import ProfilerError
from placebench.profiler import Sampling
from placebench.profiler.integrations.process_profiler import process_profiler
from placebench.profiler.requests import attachment
from placebench.profiler.requests.attachment import Attachment, AttachmentChannel, find_channels, process_tree

EMPTY = attachment._HEADER.size
NEVER = Sampling(rate=0.0)


@pytest.fixture(autouse=True)
def channel(monkeypatch: pytest.MonkeyPatch) -> Iterator[AttachmentChannel]:
    """A channel of the test's own instead of the process's."""
    made = AttachmentChannel()
    monkeypatch.setattr("placebench.profiler.requests.middleware.process_channel", lambda: made)
    yield made
    os.close(made._file)


@pytest.fixture
def request_once(query: Callable[[int], None]) -> Callable[[], None]:
    """Sends one request of two statements to an application whose own sampling records none."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        query(2)
        return []

    profiled = process_profiler().wsgi(application, sampling=NEVER)
    return lambda: list(profiled({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, None)) and None


def path_of(channel: AttachmentChannel) -> Path:
    """Where the channel of this process is found."""
    status = os.fstat(channel._file)
    return find_channels([os.getpid()])[status.st_dev, status.st_ino]


@pytest.fixture
def attached(channel: AttachmentChannel) -> Iterator[Attachment]:
    """A command that records for a minute."""
    made = Attachment(path_of(channel))
    made.start("full", 60.0)
    yield made
    made.close()


def size(channel: AttachmentChannel) -> int:
    """Bytes that the channel holds."""
    return os.fstat(channel._file).st_size


def in_child(work: Callable[[], int]) -> int:
    """What *work* returns in a forked process, as its exit code."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_requests_are_recorded_while_a_command_is_attached(
    channel: AttachmentChannel, attached: Attachment, request_once: Callable[[], None]
) -> None:
    """In its mode, whatever the sampling; not after it has stopped. What it has read takes no memory."""
    request_once()
    first = attached.read()
    request_once()
    last = attached.stop()
    request_once()

    assert [(pid, each.name, each.mode, each.statement_count) for pid, each in first + last] == [
        (os.getpid(), "GET /", "full", 2)
    ] * 2
    assert first[0][1].statements[0].caller is not None
    assert (size(channel), attached.read()) == (EMPTY, [])


def test_requests_after_the_time_are_not_recorded(
    channel: AttachmentChannel, attached: Attachment, request_once: Callable[[], None]
) -> None:
    """Also if the command does not stop it."""
    attached.start("full", -1.0)
    request_once()

    assert (channel.options(), attached.read()) == (None, [])


def test_a_sampled_request_is_saved_in_both_places(attached: Attachment, query: Callable[[int], None]) -> None:
    """The application's own recordings go on; a flame graph comes along."""
    attached.start("flame", 60.0)
    profiler = process_profiler()
    profiled = profiler.wsgi(lambda *_: query(1) or [])
    profiled({}, None)

    ((_, recording),) = attached.read()
    assert (recording.statement_count, recording.session is not None) == (1, True)
    assert [each.statement_count for each in profiler.recordings] == [1]


@pytest.mark.processes
def test_forked_workers_share_the_channel_of_their_master(
    attached: Attachment, request_once: Callable[[], None]
) -> None:
    """Two processes, also one that was forked while a thread of the master was saving."""
    request_once()
    code = in_child(lambda: request_once() or 0)

    pids = [pid for pid, _ in attached.read()]
    assert (code, len(set(pids)), pids[0]) == (0, 2, os.getpid())


@pytest.mark.processes
def test_a_killed_command_leaves_nothing(
    channel: AttachmentChannel, request_once: Callable[[], None], eventually: Callable[..., bool]
) -> None:
    """The next request that ends gives its memory back, and later ones are not recorded."""
    path = path_of(channel)
    child = os.fork()
    if child == 0:
        command = Attachment(path)
        command.start("full", 60.0)
        time.sleep(60)
        os._exit(0)
    eventually(lambda: channel.options() is not None)
    request_once()
    filled = size(channel)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    request_once()

    assert filled > EMPTY
    assert (size(channel), channel.options()) == (EMPTY, None)
    Attachment(path).close()


@pytest.mark.processes
def test_a_stopped_process_holds_nobody_up(channel: AttachmentChannel, attached: Attachment) -> None:
    """One that holds the lock of writers: a recording is left out after a tenth of a second, and reported later."""
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with attachment._writing(channel._file):
            os.write(ready[1], b"x")
            os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    recording = _recording()
    began = time.monotonic()

    left_out = channel.save(recording)
    waited = time.monotonic() - began
    read = attached.read(), attached.stop()
    with pytest.raises(ProfilerError):
        attached.start("full", 60.0)
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    channel.save(recording)
    came = attached.read()

    for end in (*ready, *go):
        os.close(end)
    assert (left_out, len(came), attached.dropped, read) == (1, 1, 1, ([], []))
    assert waited < 5


def test_memory_is_bounded(channel: AttachmentChannel, attached: Attachment, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command does not read in time is left out and counted."""
    monkeypatch.setattr(attachment, "_MAX_BYTES", 4000)
    for _ in range(100):
        channel.save(_recording())

    assert size(channel) <= 4000
    came = attached.read()
    assert len(came) + attached.dropped == 100
    assert came


@pytest.mark.processes
def test_threads_lose_no_recording(
    channel: AttachmentChannel, attached: Attachment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of a process that save at a time, while the command reads."""
    monkeypatch.setattr(attachment, "_MAX_WAIT_S", 30.0)
    child = os.fork()
    if child == 0:
        saving = [threading.Thread(target=lambda: [channel.save(_recording()) for _ in range(25)]) for _ in range(4)]
        for thread in saving:
            thread.start()
        for thread in saving:
            thread.join()
        os._exit(0)
    came = []
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        came += attached.read()
    came += attached.read()

    assert (len(came), attached.dropped) == (100, 0)


def test_one_command_at_a_time(channel: AttachmentChannel, attached: Attachment) -> None:
    """The second one is refused; so is a channel of another version."""
    with pytest.raises(ProfilerError):
        Attachment(path_of(channel))
    attached.close()
    os.pwrite(channel._file, b"placebench attach 9\0", 0)
    with pytest.raises(ProfilerError):
        Attachment(path_of(channel))
    attached._file = os.open(os.devnull, os.O_RDONLY)


@pytest.mark.processes
def test_another_user_cannot_attach(channel: AttachmentChannel) -> None:
    """The kernel refuses even to list what the process holds open; root may."""
    master = os.getpid() if os.geteuid() == 0 else 1

    def attach() -> int:
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            find_channels([master])
        except PermissionError:
            return 7
        return 0

    assert in_child(attach) == 7


def test_an_application_may_refuse(attached: Attachment, query: Callable[[int], None]) -> None:
    """Sampling(attach=False)."""
    process_profiler().wsgi(lambda *_: query(1) or [], sampling=Sampling(rate=0.0, attach=False))({}, None)

    assert attached.read() == []


def test_a_server_that_closes_all_files_loses_nothing_else(tmp_path: Path) -> None:
    """The number may be another file's by then, which is neither read as a request nor written to."""
    closed = AttachmentChannel()
    with (tmp_path / "precious").open("w+b") as file:
        os.dup2(file.fileno(), closed._file)
        file.write(b"x" * 200)
        file.flush()
        options, left_out = closed.options(), closed.save(_recording())
        os.close(closed._file)

    assert (options, left_out, (tmp_path / "precious").read_bytes()) == (None, 1, b"x" * 200)
    assert closed.options() is None


def test_without_memory_files_a_temporary_file_without_a_name_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python built for old systems has no memfd_create; where nothing can be written, nobody can attach."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = AttachmentChannel()
    found = path_of(made)
    os.close(made._file)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))

    assert found.parent == Path(f"/proc/{os.getpid()}/fd")
    assert list(tmp_path.iterdir()) == []
    assert AttachmentChannel().options() is None


@pytest.mark.processes
def test_the_tree_of_a_process() -> None:
    """Itself and its children; nothing of a process that is gone."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
    tree = process_tree(os.getpid())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    assert (tree[0], child in tree, process_tree(child)) == (os.getpid(), True, [])


def _recording() -> Any:
    from placebench.profiler import Recording

    return Recording("r", "full")


def test_signal_handlers_stay_as_they_are(query: Callable[[int], None]) -> None:
    """None is installed: those of a server or an application are its own."""
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    process_profiler().wsgi(lambda *_: query(1) or [])({}, None)

    assert [signal.getsignal(number) for number in signal.valid_signals()] == before
