"""A Python program in this process, as `python FILE …` and `python -m MODULE …` would run it: `Program`."""

import atexit
import inspect
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any, NoReturn, Self, cast

from placebench import units
from placebench.errors import ProfilerError
from placebench.profiler.drivers.driver_hooks import ImportWatch
from placebench.profiler.model.files import with_slashes

_EXIT_INTERRUPTED = 130
_SCRIPTS = (".py", ".pyw", ".pyz")
_STARTING = (
    with_slashes(__file__),
    with_slashes(runpy.__file__),
    "<frozen runpy>",
    "integrations/application.py",
    "importlib/__init__.py",
    "importlib._bootstrap>",
    "importlib._bootstrap_external>",
    "integrations/in_process_client.py",
    "asyncio/runners.py",
    "asyncio/base_events.py",
)
"""The ends of the file names whose code starts a program or calls an application."""
_MAX_NAMES = 100
_SHOWN_NAMES = 5
_SCRIPT_BYTES = 65_536
_SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh"})
_LAUNCHERS = frozenset(
    {
        *("env", "exec", "nice", "nohup", "time", "timeout", "sudo", "setsid", "stdbuf", "xargs"),
        *("uv", "uvx", "poetry", "pipenv", "pdm", "hatch", "pixi", "conda", "docker", "podman", "kubectl"),
    }
)
"""Commands that run another command, which is among their arguments."""
_DATABASE_PROGRAM = re.compile(
    r"(?<![\w.-])(?:(?:python|pypy)[\d.]*[a-z]?|psql|pg_dump|pg_dumpall|pg_restore|pgbench|pgcli|createdb|dropdb"
    r"|vacuumdb|reindexdb|clusterdb|mysql|mysqldump|mysqladmin|mariadb|mariadb-dump|mycli|sqlite3|litecli|uv run)"
    r"(?![\w.-])"
)
"""Matches the names of Python and of the clients that come with databases."""


@dataclass(frozen=True, slots=True)
class Program:
    """A script, a folder or archive with `__main__.py`, or a module, with its own arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def __str__(self) -> str:
        return f"-m {self.name}" if self.is_module else Path(self.name).name

    def check(self) -> None:
        """Raise ProfilerError if the file of a script does not exist; a module is not checked."""
        if not self.is_module and not Path(self.name).exists():
            raise ProfilerError(f"there is no file {self.name!r}: expected a script, -m MODULE or MODULE:CALLABLE")

    def run(self, leave: Callable[[int], int], note: Callable[[str], None]) -> int:
        """Run the program to its end as Python would, and return its exit code.

        At the end its threads are joined, and the functions that it has registered by `atexit` are called. Raises the
        exceptions of the program, except for SystemExit. A child that the program forks ends here.

        leave: called with the status of an `os._exit`, before the process ends; returns the status to end with.
        note: called with each line about processes of the program whose statements are not seen.
        """
        process, threads = os.getpid(), set(threading.enumerate())
        _restore_signals_in_children(signal.getsignal(signal.SIGTERM))
        children = _ChildProcesses()

        def leave_with_notes(status: int) -> int:
            for line in children.notes():
                note(line)
            return leave(status)

        with _as_main_program(self), _leaving(leave_with_notes), children, _ExitFunctions() as exit_functions:
            try:
                try:
                    if self.is_module:
                        runpy.run_module(self.name, run_name="__main__", alter_sys=True)
                    else:
                        runpy.run_path(self.name, run_name="__main__")
                    code = 0
                except SystemExit as ended:
                    code = 1
                    if ended.code is None or isinstance(ended.code, int):
                        code = (ended.code or 0) & 0xFF
                    else:  # Python prints a text
                        sys.stderr.write(f"{ended.code}\n")
                finally:
                    try:
                        _end_threads(threads)
                    finally:
                        exit_functions.call()
                        for line in children.notes():
                            note(line)
            except BaseException as error:
                if os.getpid() == process:
                    raise
                sys.stderr.write(traceback_of(error))
                code = 1
        if os.getpid() != process:  # a forked child has no recording to write: its parent has
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code


def is_script(word: str) -> bool:
    """Return whether a word of a command line names a script rather than an application."""
    path = Path(word)
    is_program = path.is_file() and path.suffix != ".json"  # that is a recording
    return path.suffix in _SCRIPTS or is_program or (path / "__main__.py").is_file()


def traceback_of(error: BaseException) -> str:
    """Return Python's traceback of *error*, without the frames that started the program or called the application."""
    first = error.__traceback__
    while first is not None and not with_slashes(first.tb_frame.f_code.co_filename).endswith(_STARTING):
        first = first.tb_next
    while first is not None and with_slashes(first.tb_frame.f_code.co_filename).endswith(_STARTING):
        first = first.tb_next
    return "".join(traceback.format_exception(type(error), error, first))


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send everything written to stdout in the block to stderr, the output of child processes included."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def _as_main_program(program: Program) -> Iterator[None]:
    """Give the program its own command line and sys.path while it runs."""
    arguments, path = sys.argv, list(sys.path)
    sys.argv = [program.name, *program.arguments]
    script = Path(program.name).resolve()
    sys.path.insert(0, str(Path.cwd() if program.is_module else script.parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = arguments, path


@contextmanager
def _leaving(leave: Callable[[int], int]) -> Iterator[None]:
    """Call *leave* before this process calls `os._exit`; code that has imported the function already is not seen."""
    process, exit_now = os.getpid(), os._exit

    def leave_and_exit(status: int) -> NoReturn:
        try:
            if os.getpid() == process:
                status = leave(status)
        except BaseException:  # noqa: BLE001  the program must end even if its report fails
            traceback.print_exc()
        finally:
            exit_now(status)

    os._exit = leave_and_exit
    try:
        yield
    finally:
        os._exit = exit_now


class _ChildProcesses:
    """Counts the processes that the program starts inside a `with` block, and names those that may use a database.

    Children of multiprocessing and of `os.fork` run the program's own code, so all of them are counted. Programs
    started by subprocess, asyncio, `os.system`, `os.spawn…` or `os.posix_spawn` are counted if they are Python, a
    database client, or a script that names one of these; others, such as git, are ignored. Calls of functions that the
    program already holds are not seen.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._children = 0
        self._programs: Counter[str] = Counter()
        self._starting = threading.local()
        self._is_counting = False
        self._replaced: list[tuple[Any, str, Any]] = []
        self._watch = ImportWatch(self._count_multiprocessing)

    def __enter__(self) -> Self:
        self._is_counting = True

        def count_fork() -> None:
            self._children += self._is_counting and not self._is_starting

        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_parent=count_fork)
        self._replace(subprocess.Popen, "__init__", _popen_command)
        self._replace(os, "system", lambda command: ("sh", "-c", os.fsdecode(command)))
        for name in {"posix_spawn", "posix_spawnp"} & vars(os).keys():
            self._replace(os, name, lambda path, argv, *_, **__: (path, *argv[1:]))
        for name in {"spawnv", "spawnve", "spawnvp", "spawnvpe"} & vars(os).keys():
            self._replace(os, name, lambda _mode, file, args, *_: (file, *args[1:]))
        self._watch.begin({"multiprocessing.process"})
        if "multiprocessing.process" in sys.modules:
            self._count_multiprocessing("multiprocessing.process")
        return self

    def __exit__(self, *_: object) -> None:
        self._is_counting = False
        self._watch.end()
        for owner, name, function in reversed(self._replaced):
            setattr(owner, name, function)

    def notes(self) -> list[str]:
        """Return up to two lines, one on children and one on other programs; none in a child process itself."""
        found: list[str] = []
        if os.getpid() != self._process:
            return found
        if self._children:
            started = "1 child process was started; its"
            if self._children > 1:
                started = f"{units.count(self._children)} child processes were started; their"
            found.append(f"{started} statements are not in this recording")
        if count := self._programs.total():
            names = [f"{name} ({times} times)" if times > 1 else name for name, times in self._programs.most_common()]
            named = ", ".join(names[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
            started = "1 program was started that may use a database; its"
            if count > 1:
                started = f"{units.count(count)} programs were started that may use a database; their"
            found.append(f"{started} statements are not in this recording: {named}")
        return found

    @property
    def _is_starting(self) -> bool:
        """Whether this thread runs a function that already counts the process it starts."""
        return getattr(self._starting, "value", False)

    def _count_multiprocessing(self, _module: str) -> None:
        from multiprocessing.process import BaseProcess

        if not any(owner is BaseProcess for owner, _, _ in self._replaced):
            self._replace(BaseProcess, "start", None)

    def _replace(self, owner: Any, name: str, command_of: Callable[..., Sequence[Any]] | None) -> None:
        """Count the processes that a function starts: *command_of* returns their command; None counts children."""
        start = getattr(owner, name)

        @wraps(start)
        def start_counted(*args: Any, **kwargs: Any) -> Any:
            outer, self._starting.value = self._is_starting, True
            try:
                result = start(*args, **kwargs)
            finally:
                self._starting.value = outer
            if self._is_counting and not outer:
                if command_of is None:
                    self._children += 1
                else:
                    with suppress(Exception):  # an unknown form of a command must not fail in the application
                        program = _database_program([os.fsdecode(word) for word in command_of(*args, **kwargs)])
                        if program is not None:
                            is_known = program in self._programs or len(self._programs) < _MAX_NAMES
                            self._programs[program if is_known else "others"] += 1
            return result

        self._replaced.append((owner, name, start))
        setattr(owner, name, start_counted)


class _ExitFunctions:
    """The exit functions that the program registers by `atexit` or `weakref.finalize`, called while it is recorded.

    Functions registered before the program are called when Python itself ends.
    """

    def __init__(self) -> None:
        self._registered: list[partial[object]] = []
        self._finalize = cast(Any, weakref.finalize)  # the attributes below are private to the standard library
        self._earlier_finalizers = set(self._finalize._registry)
        self._had_finalizers = self._finalize._registered_with_atexit
        self._changed = {
            "register": self._register,
            "unregister": self._unregister,
            "_clear": self._clear,
            "_run_exitfuncs": self._run_exitfuncs,
        }
        self._own = {name: getattr(atexit, name) for name in self._changed}

    def __enter__(self) -> Self:
        for name, function in self._changed.items():
            setattr(atexit, name, function)
        self._finalize._registered_with_atexit = False  # the program's first one registers its place in the order
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self._own.items():
            setattr(atexit, name, function)
        self._finalize._registered_with_atexit = self._had_finalizers

    def call(self) -> None:
        """Call the functions, the last one first; if one fails, the others are called all the same."""
        while self._registered:
            function = self._registered.pop()
            try:
                function()
            except BaseException as error:  # noqa: BLE001  as Python does
                sys.stderr.write(f"Exception ignored in atexit callback: {function.func}\n{traceback_of(error)}")

    def _register(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not callable(function):
            return self._own["register"](function)
        if getattr(function, "__func__", None) is self._finalize._exitfunc.__func__:
            function = self._call_finalizers
        self._registered.append(partial(function, *args, **kwargs))
        return function

    def _call_finalizers(self) -> None:
        """Call the program's finalizers of objects that are still alive, the newest one first."""
        known = self._finalize._registry
        while alive := [each for each in list(known) if each not in self._earlier_finalizers and each.atexit]:
            for finalizer in sorted(alive, key=lambda each: known[each].index, reverse=True):
                try:
                    finalizer()
                except Exception:  # noqa: BLE001  as Python does
                    sys.excepthook(*sys.exc_info())

    def _unregister(self, function: object) -> None:
        self._registered[:] = [each for each in self._registered if each.func != function]
        self._own["unregister"](function)

    def _clear(self) -> None:
        self._registered.clear()
        self._own["_clear"]()

    def _run_exitfuncs(self) -> None:
        self.call()
        self._own["_run_exitfuncs"]()


def _database_program(command: Sequence[str]) -> str | None:
    """Return the name of the program in a command that may use a database; None if there is none.

    Arguments are left out, since they may hold a password, except for the script or module that a Python runs.
    """
    if not command:
        return None
    name, arguments = Path(command[0]).name, command[1:]
    if name in _SHELLS and "-c" in arguments:
        return _program_of_shell("".join(arguments[arguments.index("-c") + 1 :][:1]))
    if name in _LAUNCHERS:
        for place, word in enumerate(arguments):
            named = Path(word).name
            if named not in _LAUNCHERS and (_DATABASE_PROGRAM.fullmatch(named) or shutil.which(word)):
                return _database_program(arguments[place:])
        return None
    if name in _SHELLS and arguments and _names_one(Path(arguments[-1])):
        return Path(arguments[-1]).name
    path = shutil.which(command[0])
    is_python = path is not None and Path(path).resolve() == Path(sys.executable).resolve()
    if is_python or (_DATABASE_PROGRAM.fullmatch(name) and name.startswith(("python", "pypy"))):
        return f"{name} {_python_target(arguments)}".rstrip()
    return name if _DATABASE_PROGRAM.fullmatch(name) or (path is not None and _names_one(Path(path))) else None


def _program_of_shell(text: str) -> str | None:
    """Return the first program in the text of a shell command that may use a database; None if there is none."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    commands: list[list[str]] = [[]]
    with suppress(ValueError):  # a quotation that does not end
        for word in lexer:
            if set(word) <= set(";&|()\n"):
                commands.append([])
            elif commands[-1] or not re.match(r"\w+=", word):
                commands[-1].append(word)
    return next(filter(None, map(_database_program, commands)), None)


def _python_target(arguments: Sequence[str]) -> str:
    """Return what a Python command runs: a module, a file or "-c"; empty if it names none."""
    for place, word in enumerate(arguments):
        if word in ("-m", "-c"):
            return " ".join(arguments[place : place + (2 if word == "-m" else 1)])
        if not word.startswith("-"):
            return Path(word).name
    return ""


@lru_cache(maxsize=256)
def _names_one(path: Path) -> bool:
    """Return whether a file is a script that names Python or a database client, as its interpreter or in its code."""
    try:
        with path.open("rb") as file:
            if file.read(2) != b"#!":
                return False
            first, *lines = file.read(_SCRIPT_BYTES).decode(errors="replace").splitlines() or [""]
    except OSError:
        return False
    code = (line for line in lines if not line.lstrip().startswith("#"))
    return any(_DATABASE_PROGRAM.search(line) for line in (first, *code))


def _popen_command(*args: Any, **kwargs: Any) -> Sequence[Any]:
    given = inspect.signature(subprocess.Popen).bind(*args[1:], **kwargs).arguments
    command = given["args"]
    words = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)
    if given.get("shell"):
        return ["sh", "-c", *words]
    return [given.get("executable") or words[0], *words[1:]]


def _restore_signals_in_children(own: object) -> None:
    """Replace the command's signal handlers (*own*) by Python's in forked children; keep those of the program.

    The signals are blocked meanwhile. One that came between the fork and the replacement would be lost: a pool that
    terminates a worker right after its start would wait for it for ever.
    """
    if not callable(own) or not hasattr(os, "register_at_fork"):
        return
    signals = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    masks: dict[int, set[signal.Signals | int]] = {}

    def block() -> None:
        masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop(threading.get_ident()))

    def restore() -> None:
        for number in signals:
            if signal.getsignal(number) is own:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


def _end_threads(others: Set[threading.Thread]) -> None:
    """Wait for the program's threads as Python does at its end. *others*: threads that are not the program's.

    Like Python, first call the functions that end the workers of executors (`threading._register_atexit`). An interrupt
    ends the wait for good: Python must not begin it again when placebench itself ends.
    """
    before_join: list[Callable[[], object]] = getattr(threading, "_threading_atexits", [])
    try:
        while threads := [each for each in threading.enumerate() if not each.daemon and each not in others]:
            while before_join:
                before_join.pop()()
            for thread in threads:
                if thread is not threading.current_thread():
                    thread.join()
            others = {*others, *threads}
    except KeyboardInterrupt:
        before_join.append(_end_interrupted)
        raise


def _end_interrupted() -> NoReturn:
    """End the process without waiting for threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_EXIT_INTERRUPTED)
