"""A WSGI or ASGI application whose use of some files is written down: `application`, made on import.

PLACEBENCH_EXECUTED_APP    module:callable or module:factory(); required on import by a server
PLACEBENCH_EXECUTED_KIND   "wsgi" (the default) or "asgi"
PLACEBENCH_EXECUTED_FILES  a file with the absolute paths of the watched files, one a line; some may not exist
PLACEBENCH_EXECUTED_OUT    the folder to which each process appends the lines that `Watch` describes

Python 3.12 and later report lines by sys.monitoring, which costs nothing for other files; earlier ones by sys.settrace.
A server imports this module by name from its own folder, in any environment; it imports nothing of placebench.
"""

import _posixsubprocess
import functools
import importlib
import os
import resource
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

_TOOL = 4  # none of the tools to which sys.monitoring gives a number of its own
_ASKING = ("stat", "lstat", "access", "readlink", "open")
"""Functions of os that ask for a file and have no audit event, or one without the folder that a name is relative to."""
_PATH_EVENTS = {
    *("open", "os.listdir", "os.scandir", "os.getxattr", "os.listxattr"),
    *("os.chdir", "os.mkdir", "os.rmdir", "os.remove", "os.rename"),
    *("os.link", "os.truncate", "os.chmod", "os.chown", "os.utime"),
}
"""Audit events whose first argument is a path."""
_OTHER_CODE = {
    "subprocess.Popen": "starts another program",
    "os.exec": "starts another program",
    "os.posix_spawn": "starts another program",
    "os.system": "starts another program",
    "ctypes.dlopen": "calls a library by ctypes",
    "ctypes.dlsym": "calls a library by ctypes",
    "sys.settrace": "sets a trace function",
}
"""Audit events after which files may be used unseen."""
_INTERPRETERS = ("_interpreters", "_xxsubinterpreters")
"""Modules that make interpreters, to which the hooks do not belong; Python 3.13 has no audit event for that."""
_IMPORT = "<frozen importlib._bootstrap_external>"
_METADATA = f"{os.path.dirname(os.__file__)}/importlib/metadata/"  # noqa: PTH120  os.path is loaded anyway
_OWN_TRACE = (__file__, threading.__file__)


class Watch:
    """Writes down which lines of the watched files are executed, and what else is done with these files.

    The fields of a line are separated by tabs:

        executed PATH LINE   the line was executed
        imported PATH        the file was opened by Python's import
        used     PATH        the file was opened otherwise, it was asked for, or a folder with it was listed
        unknown  REASON      from now on, files may be used that this process does not see
    """

    def __init__(self, files: Collection[str], out: str) -> None:
        """files: absolute paths without links. out: the folder for the results."""
        self._out = out
        self._seen: set[str] = set()
        self._watched: dict[str, str] = {}
        self._stat = os.stat
        self._has_forked = self._is_traced = False
        self._inodes: dict[tuple[int, int], set[str]] = defaultdict(set)
        """The watched files by device and inode."""
        self._folders: dict[tuple[int, int], set[str]] = defaultdict(set)
        """The watched files by the folder that shows by its list whether they exist."""
        self._missing: dict[tuple[int, int, str], set[str]] = defaultdict(set)
        """Watched files that do not exist, by the last folder on their path that exists, and the name after it."""
        for path in files:
            if is_there := Path(path).exists():
                self._inodes[self._inode(path)].add(path)
            folder = next(each for each in Path(path).parents if each.is_dir())
            self._folders[self._inode(folder)].add(path)
            if not is_there:
                self._missing[(*self._inode(folder), Path(path).relative_to(folder).parts[0])].add(path)
        self._missing_names = {last for _, _, last in self._missing}

    def start(self) -> None:
        """Watch from now on, in this thread and in all that are started later."""
        for name in _ASKING:
            self._watch_call(name)
        start_program = _posixsubprocess.fork_exec

        def fork_exec(*arguments: Any) -> int:  # multiprocessing calls it without an audit event
            self._write("unknown", "starts another program")
            return start_program(*arguments)

        _posixsubprocess.fork_exec = fork_exec
        sys.addaudithook(self._audit)
        monitoring: Any = getattr(sys, "monitoring", None)
        if monitoring is None or monitoring.get_tool(_TOOL) is not None:
            self._is_traced = True
            threading.settrace(self.trace)
            sys.settrace(self.trace)
            return
        monitoring.use_tool_id(_TOOL, "placebench executed lines")

        def line(code: Any, number: int) -> Any:
            self._line(code.co_filename, number)
            return monitoring.DISABLE

        monitoring.register_callback(_TOOL, monitoring.events.LINE, line)
        monitoring.set_events(_TOOL, monitoring.events.LINE)

    def trace(self, frame: Any, event: str, _: object) -> Any:
        """Follow the lines of a frame if its file is watched; a trace function of sys.settrace."""
        if event == "line":
            self._line(frame.f_code.co_filename, frame.f_lineno)
        elif not self._path(frame.f_code.co_filename):
            return None
        return self.trace

    def begin_request(self) -> None:
        """Watch this thread too, which something else than Python may have started; see what has ended by now."""
        # Code in C, such as uvloop's, starts programs without an audit event, but the kernel counts what they did.
        if not self._has_forked and resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt:
            self._write("unknown", "starts another program")
        if self._is_traced and sys.gettrace() is None:
            sys.settrace(self.trace)

    def _watch_call(self, name: str) -> None:
        call = getattr(os, name)

        @functools.wraps(call)
        def watched(*arguments: Any, **named: Any) -> Any:
            self._use(arguments[0] if arguments else named.get("path"), named.get("dir_fd"))
            return call(*arguments, **named)

        for supporting in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
            if call in supporting:
                supporting.add(watched)
        setattr(os, name, watched)

    def _line(self, name: str, number: int) -> None:
        if path := self._path(name):
            self._write("executed", path, str(number))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _PATH_EVENTS:
            frame = sys._getframe(1)
            if is_listed := event in ("os.listdir", "os.scandir"):
                if frame.f_code.co_filename.startswith((_IMPORT, _METADATA)):
                    return  # it looks for modules, or for the metadata of packages
            elif frame.f_code.co_filename == _IMPORT and frame.f_back and frame.f_back.f_code.co_name == "get_code":
                for path in self._find(arguments[0], None, self._inodes):
                    self._write("imported", path)
                return
            name = "." if arguments[0] is None else arguments[0]
            self._use(name, None, self._folders if is_listed else self._inodes)
        elif event == "import":
            if arguments[0] in _INTERPRETERS:
                self._write("unknown", "makes another interpreter")
            if (name := str(arguments[0]).rpartition(".")[2]) in self._missing_names:
                for (_, _, last), paths in self._missing.items():
                    for path in paths if last == name else ():
                        self._write("used", path)
        elif event in ("os.fork", "os.forkpty"):
            self._has_forked = True
        elif event in _OTHER_CODE:
            is_own = (event == "ctypes.dlopen" and arguments[0] is None) or (
                event == "sys.settrace" and sys._getframe(1).f_code.co_filename in _OWN_TRACE
            )
            if not is_own:
                self._write("unknown", _OTHER_CODE[event])

    def _use(self, name: Any, folder: int | None, known: Mapping[tuple[int, int], set[str]] | None = None) -> None:
        for path in self._find(name, folder, self._inodes if known is None else known):
            self._write("used", path)

    def _find(self, name: Any, folder: int | None, known: Mapping[tuple[int, int], set[str]]) -> Collection[str]:
        """Return the watched files that a name stands for, or that would be found by it if they existed."""
        try:
            name = os.fspath(name) if isinstance(name, os.PathLike) else name
            name = os.fsdecode(name) if isinstance(name, bytes) else name
            return known.get(self._inode(name, folder), ())
        except (OSError, ValueError, TypeError):
            if not isinstance(name, str):
                return ()
        top = "/" if name.startswith("/") else "."
        while name:
            name, _, last = name.rstrip("/").rpartition("/")
            try:
                return self._missing.get((*self._inode(name or top, folder), last), ())
            except (OSError, ValueError):
                continue
        return ()

    def _inode(self, name: Any, folder: int | None = None) -> tuple[int, int]:
        found = self._stat(name) if folder is None else self._stat(name, dir_fd=folder)
        return found.st_dev, found.st_ino

    def _path(self, name: str) -> str:
        """Return the watched file of this name; empty for any other."""
        known = self._watched.get(name)
        if known is None:
            known = self._watched[name] = next(iter(self._find(name, None, self._inodes)), "")
        return known

    def _write(self, *fields: str) -> None:
        text = "\t".join(fields)
        if text not in self._seen:
            self._seen.add(text)
            # Opened anew, since a server may fork or close what is open.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            descriptor = os.open(f"{self._out}{os.sep}{os.getpid()}", flags, 0o600)
            try:
                os.write(descriptor, f"{text}\n".encode())
            finally:
                os.close(descriptor)


def _watched_application(variables: Mapping[str, str]) -> Callable[..., Any]:
    files = Path(variables["PLACEBENCH_EXECUTED_FILES"]).read_text(encoding="utf-8").splitlines()
    watch = Watch(files, variables["PLACEBENCH_EXECUTED_OUT"])
    watch.start()
    module, _, name = variables["PLACEBENCH_EXECUTED_APP"].partition(":")
    loaded: Any = importlib.import_module(module)
    for part in name.removesuffix("()").split("."):
        loaded = getattr(loaded, part)
    if name.endswith("()"):
        loaded = loaded()

    def watched(environ: Any, start_response: Any) -> Any:
        watch.begin_request()
        return loaded(environ, start_response)

    # With the parameters of ASGI: uvicorn calls what needs none, since it may be a factory.
    async def watched_asgi(scope: Any, receive: Any, send: Any) -> None:
        watch.begin_request()
        await loaded(scope, receive, send)

    return watched_asgi if variables.get("PLACEBENCH_EXECUTED_KIND") == "asgi" else watched


if "PLACEBENCH_EXECUTED_APP" in os.environ:
    application = _watched_application(os.environ)
