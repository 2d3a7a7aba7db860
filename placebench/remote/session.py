"""A run on another machine: `run_on_host` starts it there by SSH, and receives its folder.

`ssh` starts a Python that has placebench, an installed one or uvx's. The files of the project, its repository and a run
to resume are sent through its standard input into a scratch folder there. The run's folder comes back through its
standard output, as it grows and at the end. Everything is measured on that machine, as by the same command there: it
has the servers, the databases and the client, and reads their CPU. Reports are made on this machine.
"""

import copyreg
import hashlib
import io
import pickle
import platform
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from placebench import errors
from placebench.errors import HostError, PlacebenchError, ServerError
from placebench.meters.remote_hosts import RemoteHost, python_command, read_greeting
from placebench.remote.project import Project
from placebench.remote.stream import Header, Received, Stream, files_of_run, write_file

_BEAT_S: Final = 5.0
_LINES_IN_A_MESSAGE: Final = 3
_PROGRAM: Final = "from placebench.remote.far_side import serve; serve()"
Work = Callable[[Path], object]
"""A function that makes a run in the folder that it gets; it is pickled for the other machine."""


def run_on_host(
    name: str,
    host: RemoteHost,
    work: Work,
    project: Project,
    folder: Path,
    *,
    say: Callable[[str], None],
    show: Callable[[str], None],
) -> None:
    """Do *work* on a host; the run's *folder* grows here meanwhile, and files that it already holds are sent first.

    name: the host's name, for messages. say: called with each step. show: called with each line printed there.
    Raises the PlacebenchError that ended the work there, and HostError if the host is not reached, has no placebench or
    another version, or if the connection is lost.
    """
    with _connected(name, host) as session:
        say(f"{name} has this placebench: the run is made there")
        # A resumed run gets the same place, since its settings hold paths.
        place = "placebench-remote-" + hashlib.sha256(f"{platform.node()}{folder.resolve()}".encode()).hexdigest()[:16]
        session.stream.send({"place": place, "run": folder.name, "within": project.within})
        session.stream.send_files(folder, files_of_run(folder), below=f"run/{folder.name}")
        project.send(session.stream)
        session.stream.send({"job": True}, _pickled(work))
        session.follow(folder, say=say, show=show)


def _pickled(work: Work) -> bytes:
    """Pickle the work so that any Python version can load it: the modules of pathlib's classes differ."""
    made = io.BytesIO()
    pickler = pickle.Pickler(made)
    pickler.dispatch_table = copyreg.dispatch_table | {type(Path()): lambda path: (_path, (str(path),))}
    pickler.dump(work)
    return made.getvalue()


def _path(text: str) -> Path:
    return Path(text)


@contextmanager
def _connected(name: str, host: RemoteHost) -> Iterator["_Session"]:
    """Connect to the host for the `with` block; the host cleans up by itself as soon as the connection ends."""
    with ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            python_command(host, _PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # Ctrl-C in the terminal must not reach ssh, which ends after the run there
        )
        session = _Session(name, process, said)
        try:
            session.greet()
            yield session
        finally:
            session.close()


class _Session:
    """The connection to one host."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._name, self._process, self._said = name, process, said
        self._input, self._output = process.stdin, process.stdout
        self.stream = Stream(self._output, self._input)
        self._closed = threading.Event()

    def greet(self) -> None:
        """Wait for the greeting of placebench on the host; raises HostError if it has none of this version."""
        if not read_greeting((line.decode(errors="replace") for line in self._output), self._name):
            raise self._lost(f"ssh to {self._name}")

    def follow(self, folder: Path, *, say: Callable[[str], None], show: Callable[[str], None]) -> None:
        """Show the host's lines and write its files into *folder*, until the run ends; Ctrl-C interrupts the run."""

        def beat() -> None:  # while no file is sent, only this shows the host that the connection is alive
            while not self._closed.wait(_BEAT_S):
                try:
                    self.stream.send({"beat": True})
                except (OSError, ValueError):
                    return

        threading.Thread(target=beat, daemon=True).start()
        received = self.stream.receive_all()
        try:
            ended = self._follow(folder, received, show)
        except KeyboardInterrupt:
            with suppress(OSError):
                self.stream.send({"stop": True})
            say(f"interrupted: what was measured on {self._name} comes back")
            self._follow(folder, received, show)
            raise
        if (kind := ended["ended"]) == KeyboardInterrupt.__name__:
            raise self._lost(f"the run on {self._name} was interrupted there")
        if kind:
            found = vars(errors).get(kind)
            error = found if isinstance(found, type) and issubclass(found, PlacebenchError) else ServerError
            raise error(f"on {self._name}: {_printable(ended.get('message', ''))}")

    def close(self) -> None:
        """End the connection, and ssh if it does not end by itself."""
        self._closed.set()
        with suppress(OSError):
            self._input.close()
        try:
            self._process.wait(_BEAT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _follow(
        self, folder: Path, received: "queue.Queue[Received | HostError]", show: Callable[[str], None]
    ) -> Header:
        """Handle messages until the job on the host ends; return the message that says how it ended."""
        while isinstance(got := received.get(), tuple):
            header, payload = got
            if "line" in header:
                show(_printable(header["line"]))
            elif "file" in header:
                write_file(folder, header, payload, links=False)
            elif "ended" in header:
                return header
        if got is not None:
            raise HostError(f"on {self._name}: {got}")
        raise self._lost(f"the connection to {self._name} was lost; what came until then is in {folder}")

    def _lost(self, what: str) -> HostError:
        """Return an error with the last lines that ssh or the host's program printed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_BEAT_S)
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip().splitlines()[-_LINES_IN_A_MESSAGE:]
        return HostError(f"{what}: {_printable(' | '.join(map(str.strip, said))) or 'it ended without a word'}")


def _printable(text: str) -> str:
    """Replace the control characters in a text from another machine."""
    return "".join(letter if letter.isprintable() or letter == "\t" else "\N{REPLACEMENT CHARACTER}" for letter in text)
