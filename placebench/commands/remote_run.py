"""A comparison on another machine, by SSH: `run_on_host` starts it and gets its folder, `serve` is what runs there.

Here `ssh` starts a Python that has placebench, an installed one or uvx's. The files of the project, its repository and
a run to resume go through its standard input into a scratch folder there; the run's folder comes back through its
standard output, as it grows and at the end. All is measured there, as by the same command on that machine: servers,
databases and client are there, and so is the reading of their CPU. Reports are made here.

A comparison whose connection ends, or is silent for half a minute, is interrupted as by Ctrl-C. Its scratch folder goes
with its process, however that ends.
"""

import copyreg
import hashlib
import io
import json
import os
import pickle
import platform
import queue
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from placebench import __version__, errors
from placebench.commands.interrupts import interrupted_once
from placebench.commands.output import say, set_verbosity, warn
from placebench.errors import HostError, PlacebenchError, RunFolderError, ServerError, UsageError
from placebench.measure.remote_hosts import FIND_PYTHON, RemoteHost, find_host, ssh_command
from placebench.paths import make_folder
from placebench.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from placebench.experiment.trials import Experiment

_BEAT_S: Final = 5.0
_SILENCE_S: Final = 30.0
_SEND_EVERY_S: Final = 10.0
_LINES_IN_A_MESSAGE: Final = 3
_MOST_BYTES: Final = 512 * 2**20
_RUNS: Final = "profiles/*Z-*/"
_STAYS: Final = ("sources", "log/lock")
"""Of a run's folder: its worktrees, and what keeps other processes of the same machine out."""
_PROGRAM: Final = (
    'import json, placebench; print(json.dumps({"placebench": placebench.__version__}), flush=True); '
    "from placebench.commands.runs import compare_plan; from placebench.commands.remote_run import serve; "
    "serve(compare_plan)"
)
_SCRIPT: Final = f"""{FIND_PYTHON}
if [ -z "$python" ]; then
    command -v uvx >/dev/null || {{ echo "there is neither placebench nor uv on it" >&2; exit 2; }}
    python="uvx --quiet --from 'placebench[bench]=={__version__}' python"
fi
program={shlex.quote(_PROGRAM)}
eval "exec env $python -c \\"\\$program\\""
"""
_Header = dict[str, Any]
_Received = tuple[_Header, bytes] | None


@dataclass(frozen=True)
class RemoteJob:
    """What is to be compared there: the arguments of `compare_plan`."""

    arguments: Namespace
    plan: "Experiment"
    more: Mapping[str, Any] = field(default_factory=dict)


def run_on_host(job: RemoteJob, folder: Path) -> None:
    """Compare on the host that the arguments name, into the run's *folder*, which grows here meanwhile.

    Raises the PlacebenchError that ended the comparison there, and HostError where the host is not reached, has no
    placebench or another version, or the connection is lost.
    """
    arguments = job.arguments
    host = find_host(arguments.host, arguments.hosts)
    project = _Project.of(job.plan)
    with _connected(arguments.host, host) as session:
        session.stream.send({"place": _place(folder), "run": folder.name, "within": project.within})
        if getattr(arguments, "resume", False):
            session.stream.send_files(folder, _files_of_run(folder), below=f"run/{folder.name}")
        project.send(session.stream)
        sent = Namespace(**{**vars(arguments), "host": None, "out": None})
        session.stream.send({"job": True}, _pickled(replace(job, arguments=sent, plan=project.plan)))
        session.follow(folder)


def _pickled(job: RemoteJob) -> bytes:
    """The job for any Python: the modules that pathlib's classes are found in are not the same in all of them."""
    made = io.BytesIO()
    pickler = pickle.Pickler(made)
    pickler.dispatch_table = copyreg.dispatch_table | {type(Path()): lambda path: (_path, (str(path),))}
    pickler.dump(job)
    return made.getvalue()


def _path(text: str) -> Path:
    return Path(text)


def _place(folder: Path) -> str:
    """The same one for a run that is resumed: its settings hold paths."""
    return "placebench-remote-" + hashlib.sha256(f"{platform.node()}{folder.resolve()}".encode()).hexdigest()[:16]


class _Stream:
    """Headers, one JSON line each, with bytes after those that announce some; written by several threads."""

    def __init__(self, reading: IO[bytes], writing: IO[bytes]) -> None:
        self._reading, self._writing, self._lock = reading, writing, threading.Lock()

    def send(self, header: Mapping[str, Any], payload: bytes = b"") -> None:
        with self._lock:
            self._writing.write(json.dumps({**header, "bytes": len(payload)}).encode() + b"\n" + payload)
            self._writing.flush()

    def send_files(self, folder: Path, files: "Iterable[Path]", *, below: str) -> None:
        """Send files of *folder*; one that went meanwhile is left out."""
        for path in files:
            header = {"below": below, "file": path.relative_to(folder).as_posix()}
            with suppress(FileNotFoundError):
                if path.is_symlink():
                    self.send({**header, "link": str(path.readlink())})
                elif path.is_file():
                    self.send({**header, "mode": path.stat().st_mode & 0o777}, path.read_bytes())

    def receive(self) -> _Received:
        """The next header with its bytes; None at the end, which may be in the middle of them."""
        line = self._reading.readline()
        if not line.endswith(b"\n"):
            return None
        header: _Header = json.loads(line)
        payload = self._reading.read(header["bytes"])
        return (header, payload) if len(payload) == header["bytes"] else None

    def receive_all(self) -> "queue.SimpleQueue[_Received]":
        """What comes from now on, received by a thread of its own; None is the last."""
        received: queue.SimpleQueue[_Received] = queue.SimpleQueue()

        def work() -> None:
            got: _Received = ({}, b"")
            while got is not None:
                try:
                    got = self.receive()
                except (OSError, ValueError):
                    got = None
                received.put(got)

        threading.Thread(target=work, daemon=True).start()
        return received


def _write_file(folder: Path, header: _Header, payload: bytes, *, links: bool) -> None:
    """Write a file that was sent, in place of an older one; raises HostError for one that belongs elsewhere."""
    path = folder / header["file"]
    if not path.resolve().is_relative_to(folder.resolve()) or ("link" in header and not links):
        raise HostError(f"a file {header['file']!r} was sent for {folder}, which is not inside of it")
    path.parent.mkdir(parents=True, exist_ok=True)
    if "link" in header:
        path.symlink_to(header["link"])
        return
    written = path.with_name(f"{path.name}.part")
    written.write_bytes(payload)
    written.chmod(header["mode"])
    written.replace(path)


def _files_of_run(folder: Path) -> list[Path]:
    every = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in every if not path.relative_to(folder).as_posix().startswith(_STAYS)]


@dataclass(frozen=True)
class _Project:
    """What the plan's variants are made of: the files around it, without those that git ignores, and the repository."""

    plan: "Experiment"
    """Its paths are relative."""
    top: Path | None = None
    """None: only the reference service is compared, which every placebench has."""
    within: str = "."
    """The current folder, from the top on."""
    files: tuple[Path, ...] = ()
    head: str = ""
    """The commit; empty: no repository."""

    @classmethod
    def of(cls, plan: "Experiment") -> "_Project":
        """Raises UsageError for a plan outside of the current folder or its repository, or of too many bytes."""
        if not (plan.tables.app or plan.tables.variants or plan.setup):
            return cls(plan)
        here = Path.cwd()
        found = _git(here, "rev-parse", "--show-toplevel")
        top = Path(found.decode().strip()) if found else here
        if not plan.folder.resolve().is_relative_to(top):
            raise UsageError(f"the plan {plan.source} lies outside of {top}, which is what --host sends: move it there")
        files = tuple(_files_of_checkout(top) if found else _all_files(top))
        size = sum(path.lstat().st_size for path in files if path.is_symlink() or path.exists())
        if size > _MOST_BYTES:
            seen = f"{top} holds {size / 2**20:.0f} MB, and --host sends {_MOST_BYTES // 2**20} MB at most"
            raise UsageError(f"{seen}: let git ignore what the application does not need")
        folder = Path(os.path.relpath(plan.folder.resolve(), here))
        moved = replace(plan, folder=folder, tables=replace(plan.tables, folder=folder))
        return cls(moved, top, os.path.relpath(here, top), files, _git(top, "rev-parse", "HEAD").decode().strip())

    def send(self, stream: _Stream) -> None:
        """Send the repository with all of its history, and the files as they are."""
        if self.top and self.head:
            stream.send({"head": self.head}, _git(self.top, "bundle", "create", "--quiet", "-", "--all", "HEAD"))
        if self.top:
            stream.send_files(self.top, self.files, below="project")


def _files_of_checkout(top: Path) -> list[Path]:
    """What git knows, and what it does not ignore, but our runs."""
    listed = _git(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard", f"--exclude={_RUNS}")
    return [top / os.fsdecode(each) for each in listed.split(b"\0") if each]


def _all_files(top: Path) -> list[Path]:
    """Those of a folder without git, but our runs."""
    runs = tuple(top.rglob(_RUNS))
    every = (path for path in sorted(top.rglob("*")) if path.is_symlink() or path.is_file())
    return [path for path in every if not any(path.is_relative_to(run) for run in runs)]


def _git(folder: Path, *arguments: str) -> bytes:
    """What git prints; nothing where it fails, or is not there."""
    try:
        return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""


@contextmanager
def _connected(name: str, host: RemoteHost) -> Iterator["_Session"]:
    """The far side for the `with` block, of the same version; it cleans up by itself as soon as we let go of it."""
    with ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            ssh_command(host, _SCRIPT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # Ctrl-C in the terminal is ours: the run there ends first, and ssh after it
        )
        session = _Session(name, process, said)
        try:
            session.greet()
            yield session
        finally:
            session.close()


class _Session:
    """The connection to a host."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._name, self._process, self._said = name, process, said
        self._input, self._output = process.stdin, process.stdout
        self.stream = _Stream(self._output, self._input)
        self._closed = threading.Event()

    def greet(self) -> None:
        """Read which placebench is there; a shell may say something of its own before."""
        for line in self._output:
            if line.startswith(b'{"placebench": '):
                version = json.loads(line)["placebench"]
                if version != __version__:
                    what = f"placebench {version} is on {self._name}, and {__version__} here"
                    raise HostError(f"{what}: install the same one there, or name its Python in the hosts file")
                say(f"{self._name} has placebench {version}: the comparison runs there")
                return
        raise self._lost(f"ssh to {self._name}")

    def follow(self, folder: Path) -> None:
        """Show what the far side prints and write what it sends into *folder*, to its end; Ctrl-C interrupts it."""
        threading.Thread(target=self._beat, daemon=True).start()
        received = self.stream.receive_all()
        try:
            ended = self._follow(folder, received)
        except KeyboardInterrupt:
            with suppress(OSError):
                self.stream.send({"stop": True})
            say(f"interrupted: what was measured on {self._name} comes back")
            self._follow(folder, received)
            raise
        if (kind := ended["ended"]) == KeyboardInterrupt.__name__:
            raise self._lost(f"the comparison on {self._name} was interrupted there")
        if kind:
            raise vars(errors).get(kind, ServerError)(f"on {self._name}: {ended['message']}")

    def close(self) -> None:
        """Let go of the far side."""
        self._closed.set()
        with suppress(OSError):
            self._input.close()
        try:
            self._process.wait(_BEAT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _follow(self, folder: Path, received: "queue.SimpleQueue[_Received]") -> _Header:
        """Return how it ended."""
        while (got := received.get()) is not None:
            header, payload = got
            if "line" in header:
                warn(header["line"])
            elif "file" in header:
                _write_file(folder, header, payload, links=False)
            elif "ended" in header:
                return header
        raise self._lost(f"the connection to {self._name} was lost, and --resume goes on with {folder}")

    def _beat(self) -> None:
        """Say that we are there, which a connection without its end does not tell."""
        while not self._closed.wait(_BEAT_S):
            try:
                self.stream.send({"beat": True})
            except (OSError, ValueError):
                return

    def _lost(self, what: str) -> HostError:
        """What ssh or the far side said last."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_BEAT_S)
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip().splitlines()[-_LINES_IN_A_MESSAGE:]
        return HostError(f"{what}: {' | '.join(map(str.strip, said)) or 'it ended without a word'}")


def serve(compare_plan: Callable[..., object]) -> None:
    """Do the one job that comes through standard input, and send its folder; the process ends here.

    compare_plan: that of `placebench.commands.runs`.
    """
    stream = _Stream(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # no command that we start reads what is sent to us
    first = stream.receive()
    if first is not None:
        with suppress(OSError):
            stream.send(_serve(stream, first[0], compare_plan))
    os._exit(0)


def _serve(stream: _Stream, asked: _Header, compare_plan: Callable[..., object]) -> _Header:
    """Do the job in a folder of its own; return how it ended."""
    place = Path(tempfile.gettempdir()) / asked["place"]
    if place.exists():
        message = f"{place} is there: another session works in it, or has left it; remove it in that case"
        return _ended(RunFolderError(message))
    try:
        with Supervisor(place):
            try:
                job = _receive_job(stream, place)
                folder = make_folder(place / "project" / asked["within"])
                os.chdir(folder)
                with _relayed(stream, place / "run" / asked["run"]), interrupted_once():
                    set_verbosity(job.arguments)
                    arguments = Namespace(**{**vars(job.arguments), "out": place / "run" / asked["run"]})
                    compare_plan(arguments, job.plan, **job.more, emit=lambda _: None)
            finally:
                os.chdir("/")
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  here it is told what became of the job
        return _ended(error)
    return {"ended": "", "message": ""}


def _ended(error: BaseException) -> _Header:
    return {"ended": type(error).__name__, "message": " ".join(str(error).split())}


def _receive_job(stream: _Stream, place: Path) -> RemoteJob:
    """Write the files that are sent, and return the job that comes after them."""
    project = make_folder(place / "project")
    while (received := stream.receive()) is not None:
        header, payload = received
        if "job" in header:
            job: RemoteJob = pickle.loads(payload)
            return job
        if "head" in header:
            _unpack_repository(project, header["head"], payload)
        elif "file" in header:
            _write_file(place / header["below"], header, payload, links=True)
    raise KeyboardInterrupt


def _unpack_repository(project: Path, head: str, bundle: bytes) -> None:
    """The branches, tags and commits, and no files. Where git is missing, only revisions are, which say so."""
    packed = project.with_name("bundle")
    packed.write_bytes(bundle)
    _git(project, "init", "--quiet")
    _git(project, "fetch", "--quiet", "--update-head-ok", str(packed), "+refs/*:refs/*", head)
    _git(project, "update-ref", "--no-deref", "HEAD", head)
    _git(project, "reset", "--quiet")
    packed.unlink()


@contextmanager
def _relayed(stream: _Stream, folder: Path) -> Iterator[None]:
    """Send what is printed, and what changes in *folder*; interrupt the `with` block when the other side is gone."""
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
        traceback.print_exc()  # of a bug
        raise
    finally:
        done.set()
        sys.stdout.flush()
        sys.stderr.flush()
        _close_output()
        if not lost.is_set():
            relay.join(_BEAT_S)  # longer only where a process of the application has outlived its server
            stream.send_files(folder, _changed(folder, sent), below="")


def _close_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _relay(stream: _Stream, printed: IO[bytes], folder: Path, sent: dict[Path, tuple[int, int]]) -> None:
    """Send the lines that are printed, and between them what is measured, so that it is not lost with this machine."""
    sent_at = time.monotonic()
    with suppress(OSError):
        for line in printed:
            stream.send({"line": line.decode(errors="replace").rstrip()})
            if time.monotonic() - sent_at > _SEND_EVERY_S:
                stream.send_files(folder, _changed(folder, sent), below="")
                sent_at = time.monotonic()


def _changed(folder: Path, sent: dict[Path, tuple[int, int]]) -> Iterator[Path]:
    """The files of a run that are not as they were when they were sent."""
    for path in _files_of_run(folder):
        with suppress(FileNotFoundError):
            seen = path.stat()
            if sent.get(path) != (state := (seen.st_mtime_ns, seen.st_size)):
                sent[path] = state
                yield path


def _watch(received: "queue.SimpleQueue[_Received]", done: threading.Event, lost: threading.Event) -> None:
    """Interrupt the main thread when the other side says so, has gone, or is silent for too long."""
    while not lost.is_set():
        try:
            got = received.get(timeout=_SILENCE_S)
        except queue.Empty:
            got = None
        if got is None:
            lost.set()
            if done.is_set():
                os._exit(0)  # nobody reads the rest
            _close_output()
        if (got is None or "stop" in got[0]) and not done.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
