"""Recordings on their way from the processes of a command to `placebench profile run`: the two ends of a channel.

The main classes are `RecordingSender` in each process of the command, and `RecordingReceiver` in placebench.

The channel is a Unix socket: on Linux one without a file (an abstract name), so that nothing stays after a kill, and a
process that changes its user can still connect; elsewhere a socket in a private folder, or TCP on the loopback address.
Whoever connects sends a secret first, which only the command's environment has. Then each message is a length of eight
bytes and a JSON document. Nothing is ever sent back.

The sender runs in applications that may be patched by gevent or eventlet: its thread is one of the operating system,
and what it waits for are the interpreter's own locks and sockets.
"""

import _socket
import _thread
import hmac
import json
import os
import secrets
import selectors
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
from _queue import Empty, SimpleQueue
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a command starts before its recordings can be read
    from placebench.profiler.recording import Recording

VARIABLE = "PLACEBENCH_CHANNEL"
"""The environment variable with the secret and the address: SECRET@unix:PATH, SECRET@abstract:NAME, SECRET@tcp:PORT."""
MAX_QUEUED = 1_000
MAX_MESSAGE_BYTES = 256 * 2**20
_SECRET_LENGTH = 32
_LENGTH = struct.Struct("<Q")
_SEND_TIMEOUT_S = 5.0
_FLUSH_S = 2.0
_MAX_WAITING_CONNECTIONS = 128


class RecordingSender:
    """Sends recordings from this process to the command that started it; a `Store` that keeps nothing.

    A background thread sends them. It starts with the first recording of each process, ends before a fork, and begins
    again after it, so that no process is forked beside a thread of ours. If the command does not read fast enough, or
    has ended, recordings are dropped and counted.
    """

    def __init__(self, channel: str, *, has_threads: bool = True) -> None:
        """Take the value of `VARIABLE`; nothing is connected before the first message.

        has_threads: False in a uWSGI without `enable-threads`, whose threads stand still between requests.
        """
        self._has_threads = has_threads
        self._connection: _socket.socket | None = None
        self._secret, _, self._address = channel.partition("@")
        self._start_thread = _original("start_new_thread")
        self._new_lock = _original("allocate_lock")
        self._start_anew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._stop_thread, after_in_parent=self._start_if_needed, after_in_child=self._start_anew
            )

    def save(self, recording: "Recording") -> int:
        """Queue a recording; return 1 if it is dropped because too many wait, else 0. Never waits."""
        if os.getpid() != self._pid:  # uWSGI forks in C, and calls no function of Python's
            self._start_anew()
        if not self._has_threads:
            self._send(recording)
            return 0
        if self._queue.qsize() >= MAX_QUEUED:
            self._dropped += 1
            return 1
        self._queue.put(recording)
        self._start_if_needed()
        return 0

    def flush(self) -> None:
        """Send what is queued, within some two seconds; for the end of the process."""
        if os.getpid() != self._pid:
            self._start_anew()
        if not self._stop_thread():  # it goes on; two writers would mix their messages
            return
        with suppress(Empty, OSError, ValueError):
            until = time.monotonic() + _FLUSH_S
            while time.monotonic() < until:
                if (recording := self._queue.get(False)) is not None:
                    self._send(recording)
        self._disconnect()

    def announce(self) -> None:
        """Tell the command that this process is recorded; a failure shows when recordings are sent."""
        with suppress(OSError):
            self._write({"pid": os.getpid(), "dropped": 0})

    def _start_anew(self) -> None:
        """Forget the queue, thread and connection of the process that this one was forked from."""
        self._pid = os.getpid()
        self._queue: SimpleQueue[Recording | None] = SimpleQueue()
        self._running = self._new_lock()
        self._ended = self._new_lock()
        self._disconnect()
        self._dropped = 0

    def _start_if_needed(self) -> None:
        """Start the thread if recordings wait and it does not run."""
        if not self._queue.empty() and self._running.acquire(False):
            self._ended = self._new_lock()
            self._ended.acquire()
            try:
                self._start_thread(self._run, ())
            except RuntimeError:  # the interpreter ends: `flush` sends what is queued
                self._ended.release()
                self._running.release()

    def _stop_thread(self) -> bool:
        """Have the thread end after the recordings that are queued now; return whether it has, within two seconds."""
        if self._running.acquire(False):
            self._running.release()
            return True
        self._queue.put(None)
        return bool(self._ended.acquire(True, _FLUSH_S))

    def _run(self) -> None:
        running, ended = self._running, self._ended
        while (recording := self._queue.get()) is not None:
            self._send(recording)
        running.release()
        ended.release()

    def _send(self, recording: "Recording") -> None:
        """Send one recording; it is dropped if the command is gone or takes too long."""
        try:
            session = None if recording.session is None else recording.session.to_json()
            dropped = self._dropped
            document = {"pid": os.getpid(), "dropped": dropped}
            self._write({**document, "recording": recording.to_json(), "session": session})
            self._dropped -= dropped  # others may have been dropped meanwhile
        except (OSError, ValueError, RecursionError):
            self._dropped += 1
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _write(self, document: Mapping[str, Any]) -> None:
        data = json.dumps(document).encode()
        if self._connection is None:
            kind, _, place = self._address.partition(":")
            family = _socket.AF_INET if kind == "tcp" else _socket.AF_UNIX
            connection = _socket.socket(family, _socket.SOCK_STREAM)
            connection.settimeout(_SEND_TIMEOUT_S)
            address = ("127.0.0.1", int(place)) if kind == "tcp" else f"\0{place}" if kind == "abstract" else place
            try:
                connection.connect(address)
                connection.sendall(self._secret.encode())
            except OSError:
                connection.close()
                raise
            self._connection = connection
        self._connection.sendall(_LENGTH.pack(len(data)))
        self._connection.sendall(data)


def _original(name: str) -> Any:
    """Return a function of the module _thread as it was before gevent or eventlet replaced it."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None:
        return gevent.get_original("_thread", name)
    patcher = sys.modules.get("eventlet.patcher")
    return getattr(_thread if patcher is None else patcher.original("_thread"), name)


def startup_environment(
    mode: str, *, server_timing: bool = False, badge: str | None = None, python_path: str = ""
) -> dict[str, str]:
    """Return the variables by which each Python below a command records itself, beside those of its receiver.

    badge: the address of the live page, for a badge in each page. python_path: the command's own PYTHONPATH.
    """
    settings = {"mode": mode, "server_timing": server_timing, "badge": badge}
    return entry_environment("placebench.profiler.live.process", settings, python_path=python_path)


def entry_environment(module: str, settings: Mapping[str, Any], *, python_path: str = "") -> dict[str, str]:
    """Return the variables by which each Python below a command calls `begin` of this *module* with the *settings*.

    python_path: the command's own PYTHONPATH.
    """
    package = Path(__file__).parents[2]
    path = [str(package / "profiler" / "live" / "startup"), *filter(None, [python_path])]
    run = {**settings, "package": str(package), "module": module}
    return {"PLACEBENCH_RUN": json.dumps(run), "PYTHONPATH": os.pathsep.join(path)}


class RecordingReceiver:
    """Receives recordings in a thread of this process until it is closed.

    environment: the variables for the command whose processes send.
    processes: the ids of the processes that have connected.
    dropped: recordings that their processes could not send.
    """

    def __init__(self, on_recording: "Callable[[int, Recording], None]") -> None:
        """Call *on_recording* in the receiver's thread with each process id and recording, one at a time."""
        self._on_recording = on_recording
        self._secret = secrets.token_hex(_SECRET_LENGTH // 2)
        self._folder: Path | None = None
        self._socket, address = self._listen()
        self.environment: dict[str, str] = {VARIABLE: f"{self._secret}@{address}"}
        self.processes: set[int] = set()
        self.dropped: int = 0
        self._failure: Exception | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._wake, woken = socket.socketpair()
        self._selector.register(woken, selectors.EVENT_READ)
        self._woken = woken
        self._thread = threading.Thread(target=self._receive, name="placebench-receiver", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take what the processes have sent by now, end the thread, and remove the socket; idempotent.

        Raises what *on_recording* has raised, if anything.
        """
        if self._thread.is_alive():
            self._wake.send(b"\0")
            self._thread.join()
        for each in (self._socket, self._wake, self._woken):
            each.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _listen(self) -> tuple[socket.socket, str]:
        if not hasattr(socket, "AF_UNIX"):
            listening = socket.create_server(("127.0.0.1", 0), backlog=_MAX_WAITING_CONNECTIONS)
            return listening, f"tcp:{listening.getsockname()[1]}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if sys.platform == "linux":
            name = f"placebench-{secrets.token_hex(16)}"
            listening.bind(f"\0{name}")
            address = f"abstract:{name}"
        else:
            self._folder = Path(tempfile.mkdtemp(prefix="placebench-"))
            listening.bind(str(self._folder / "socket"))
            address = f"unix:{self._folder / 'socket'}"
        listening.listen(_MAX_WAITING_CONNECTIONS)
        return listening, address

    def _receive(self) -> None:
        connections: dict[socket.socket, bytearray] = {}
        is_open = True
        while True:
            # Once it is to end, what has arrived by now is still read: the processes have ended.
            events = self._selector.select(None if is_open else 0.05)
            if not events:
                break
            for key, _ in events:
                source: Any = key.fileobj
                if source is self._woken:
                    self._selector.unregister(source)
                    is_open = False
                elif source is self._socket:
                    connection, _ = self._socket.accept()
                    connections[connection] = bytearray()
                    self._selector.register(connection, selectors.EVENT_READ)
                elif not self._read(source, connections[source]):
                    self._selector.unregister(source)
                    source.close()
                    del connections[source]
        for connection in connections:
            connection.close()
        self._selector.close()

    def _read(self, connection: socket.socket, received: bytearray) -> bool:
        """Read from a connection and take the whole messages; return whether it stays open.

        *received* begins with the secret, once it has come, so that one buffer says all about a connection.
        """
        try:
            data = connection.recv(2**20)
        except OSError:
            return False
        received += data
        if len(received) >= _SECRET_LENGTH and not hmac.compare_digest(
            bytes(received[:_SECRET_LENGTH]), self._secret.encode()
        ):
            return False
        while len(received) >= _SECRET_LENGTH + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, _SECRET_LENGTH)
            begin = _SECRET_LENGTH + _LENGTH.size
            if length > MAX_MESSAGE_BYTES:
                return False
            if len(received) < begin + length:
                break
            message = bytes(received[begin : begin + length])
            del received[_SECRET_LENGTH : begin + length]
            try:
                self._take(json.loads(message))
            except Exception as error:  # noqa: BLE001  the other processes' recordings still come
                self._failure = self._failure or error
        return bool(data)

    def _take(self, document: dict[str, Any]) -> None:
        """Count one message, and hand its recording on, if it has one."""
        self.processes.add(document["pid"])
        self.dropped += document["dropped"]
        if "recording" in document:
            from placebench.profiler.recording import Recording

            recording = Recording.from_json(document["recording"], source=f"what process {document['pid']} sent")
            if document["session"] is not None:
                from placebench.profiler.model.session import FlameSession

                recording.session = FlameSession.from_json(document["session"])
            self._on_recording(document["pid"], recording)
