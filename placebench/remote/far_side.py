"""The program on the other machine: `serve` does one job in a scratch folder, and sends the run's folder as it grows.

A run is interrupted as by Ctrl-C if its connection ends or is silent for half a minute. The scratch folder is removed
with the process, however that ends.
"""

import os
import pickle
import queue
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from placebench.errors import HostError, PlacebenchError, RunFolderError
from placebench.paths import make_folder
from placebench.remote.project import unpack_repository
from placebench.remote.stream import Header, Received, Stream, files_of_run, write_file
from placebench.runtime.private_files import check_owned
from placebench.runtime.supervisor import Supervisor, safe_parent

_SILENCE_S: Final = 30.0
_JOIN_S: Final = 5.0
_SEND_EVERY_S: Final = 10.0


def serve() -> None:
    """Do the one job that arrives on standard input, and send its folder; then end the process."""
    stream = Stream(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # so that no command reads from our connection
    first = stream.receive()
    if first is not None:
        with suppress(OSError):
            stream.send(_serve(stream, first[0]))
    os._exit(0)


def _serve(stream: Stream, asked: Header) -> dict[str, str]:
    """Do the job in its own folder; return how it ended."""
    try:
        place = safe_parent(Path(tempfile.gettempdir())) / asked["place"]
        if os.path.lexists(place):
            check_owned(place, error=RunFolderError)
            message = f"{place} is there: another session works in it, or has left it; remove it in that case"
            raise RunFolderError(message)
        with Supervisor(place):
            try:
                work = _receive_job(stream, place)
                os.chdir(make_folder(place / "project" / asked["within"]))
                run = place / "run" / asked["run"]
                with _relayed(stream, run):
                    work(run)
            finally:
                os.chdir("/")
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  the other side is told how the job ended
        return {"ended": type(error).__name__, "message": " ".join(str(error).split())}
    return {"ended": "", "message": ""}


def _receive_job(stream: Stream, place: Path) -> Callable[[Path], object]:
    """Write the files that the other side sends, and return the job that follows them."""
    project = make_folder(place / "project")
    while (received := stream.receive()) is not None:
        header, payload = received
        if "job" in header:
            work: Callable[[Path], object] = pickle.load(payload)
            return work
        if "head" in header:
            unpack_repository(project, header, payload)
        elif "file" in header:
            write_file(place / header["below"], header, payload, links=True)
    raise KeyboardInterrupt


@contextmanager
def _relayed(stream: Stream, folder: Path) -> Iterator[None]:
    """Send printed lines and changes of *folder*, and interrupt the `with` block when the other side is gone."""
    ours, theirs = os.pipe()
    for number in (1, 2):
        os.dup2(theirs, number)
    os.close(theirs)
    done, lost = threading.Event(), threading.Event()
    sent: dict[Path, tuple[int, int]] = {}
    relay = threading.Thread(target=_relay, args=(stream, os.fdopen(ours, "rb"), folder, sent), daemon=True)
    watch = threading.Thread(target=_watch, args=(stream.receive_all(), done, lost), daemon=True)
    for thread in (relay, watch):
        thread.start()
    try:
        yield
    except (PlacebenchError, ImportError, OSError):
        raise
    except Exception:
        traceback.print_exc()  # it is a bug
        raise
    finally:
        done.set()
        sys.stdout.flush()
        sys.stderr.flush()
        _close_output()
        if not lost.is_set():
            relay.join(_JOIN_S)  # it takes longer only if a process of the application has outlived its server
            stream.send_files(folder, _changed(folder, sent), below="")


def _close_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _relay(stream: Stream, printed: IO[bytes], folder: Path, sent: dict[Path, tuple[int, int]]) -> None:
    """Send the printed lines, and between them the files of the run, so that they are not lost with this machine."""
    sent_at = time.monotonic()
    with suppress(OSError):
        for line in printed:
            stream.send({"line": line.decode(errors="replace").rstrip()})
            if time.monotonic() - sent_at > _SEND_EVERY_S:
                stream.send_files(folder, _changed(folder, sent), below="")
                sent_at = time.monotonic()


def _changed(folder: Path, sent: dict[Path, tuple[int, int]]) -> Iterator[Path]:
    """Yield the files of a run that have changed since they were last sent."""
    for path in files_of_run(folder):
        with suppress(FileNotFoundError):
            seen = path.stat()
            if sent.get(path) != (state := (seen.st_mtime_ns, seen.st_size)):
                sent[path] = state
                yield path


def _watch(received: "queue.Queue[Received | HostError]", done: threading.Event, lost: threading.Event) -> None:
    """Interrupt the main thread when the other side requests it, is gone, or is silent for too long."""
    while not lost.is_set():
        try:
            got = received.get(timeout=_SILENCE_S)
        except queue.Empty:
            got = None
        if not isinstance(got, tuple):
            lost.set()
            if done.is_set():
                os._exit(0)  # nobody reads the rest
            _close_output()
        if (not isinstance(got, tuple) or "stop" in got[0]) and not done.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
