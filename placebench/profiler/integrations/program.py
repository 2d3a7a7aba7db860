"""A Python program in this process, as `python FILE …` and `python -m MODULE …` would run it: `Program`."""

import atexit
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

from placebench.errors import ProfilerError
from placebench.profiler.capture.driver_hooks import ImportWatch

_EXIT_INTERRUPTED = 130
_SCRIPTS = (".py", ".pyw", ".pyz")
_STARTING = (
    __file__,
    runpy.__file__,
    "<frozen runpy>",
    "integrations/application.py",
    "importlib/__init__.py",
    "importlib._bootstrap>",
    "importlib._bootstrap_external>",
    "integrations/in_process_client.py",
    "asyncio/runners.py",
    "asyncio/base_events.py",
)
"""How the names of files end whose code starts a program, or calls an application."""


@dataclass(frozen=True, slots=True)
class Program:
    """A script, a folder or archive with `__main__.py`, or a module, with its own arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def __str__(self) -> str:
        return f"-m {self.name}" if self.is_module else Path(self.name).name

    def check(self) -> None:
        """Raise ProfilerError if there is no such file."""
        if not self.is_module and not Path(self.name).exists():
            raise ProfilerError(f"there is no file {self.name!r}: expected a script, -m MODULE or MODULE:CALLABLE")

    def run(self, leave: Callable[[int], int], note: Callable[[str], None]) -> int:
        """Run it to the end that Python would let it have, and return its exit code.

        At the end its threads are waited for, and the functions that it has registered by `atexit` are called.
        Raises what the program raises, apart from SystemExit. A child that the program forks ends here.

        leave: called with the status of an `os._exit`, before the process ends; returns the status to end with.
        note: called with one line about child processes, if the program has started any.
        """
        process, threads = os.getpid(), set(threading.enumerate())
        os.register_at_fork(after_in_child=partial(_restore_signals, signal.getsignal(signal.SIGTERM)))
        with _as_main_program(self), _leaving(leave), _counting_children(note), _ExitFunctions() as exit_functions:
            try:
                try:
                    if self.is_module:
                        runpy.run_module(self.name, run_name="__main__", alter_sys=True)
                    else:
                        runpy.run_path(self.name, run_name="__main__")
                    code = 0
                except SystemExit as ended:
                    code = _exit_code(ended.code)
                finally:
                    try:
                        _end_threads(threads)
                    finally:
                        exit_functions.call()
            except BaseException as error:
                if os.getpid() == process:
                    raise
                sys.stderr.write(traceback_of(error))
                code = 1
        if os.getpid() != process:
            _end_child(code)
        return code


def is_script(word: str) -> bool:
    """Whether a word of a command line names a script rather than an application."""
    path = Path(word)
    return path.suffix in _SCRIPTS or path.is_file() or (path / "__main__.py").is_file()


def traceback_of(error: BaseException) -> str:
    """The traceback that Python would print, without the frames that started the program, or called the application."""
    first = error.__traceback__
    while first is not None and not first.tb_frame.f_code.co_filename.endswith(_STARTING):
        first = first.tb_next
    while first is not None and first.tb_frame.f_code.co_filename.endswith(_STARTING):
        first = first.tb_next
    return "".join(traceback.format_exception(type(error), error, first))


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What is written to stdout inside, by child processes too, goes to stderr."""
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
    """The command line and the path of imports are the program's, for as long as it runs."""
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
    """Before an `os._exit` in this process *leave* is called; whoever holds the function already is not seen."""
    process, exit_now = os.getpid(), os._exit

    def leave_and_exit(status: int) -> NoReturn:
        try:
            if os.getpid() == process:
                status = leave(status)
        except BaseException:  # noqa: BLE001  the program ends, whatever becomes of its report
            traceback.print_exc()
        finally:
            exit_now(status)

    os._exit = leave_and_exit
    try:
        yield
    finally:
        os._exit = exit_now


@contextmanager
def _counting_children(note: Callable[[str], None]) -> Iterator[None]:
    """Afterwards *note* is called if multiprocessing or a fork has started children: they record nothing here."""
    process, count, is_starting, is_counting = os.getpid(), 0, threading.local(), True
    own_start: list[Any] = []

    def forked() -> None:
        nonlocal count
        count += is_counting and not getattr(is_starting, "value", False)

    def count_starts(_module: str) -> None:
        from multiprocessing.process import BaseProcess

        if own_start:
            return
        start = BaseProcess.start
        own_start.append(start)

        def start_counted(started: Any) -> None:
            nonlocal count
            is_starting.value = True
            try:
                start(started)
            finally:
                is_starting.value = False
            count += is_counting

        BaseProcess.start = start_counted  # type: ignore[method-assign, assignment]

    os.register_at_fork(after_in_parent=forked)
    watch = ImportWatch(count_starts)
    watch.begin({"multiprocessing.process"})
    if "multiprocessing.process" in sys.modules:
        count_starts("multiprocessing.process")
    try:
        yield
    finally:
        is_counting = False
        watch.end()
        for start in own_start:
            sys.modules["multiprocessing.process"].BaseProcess.start = start
        if count and os.getpid() == process:
            started = (
                "1 child process was started; its" if count == 1 else f"{count} child processes were started; their"
            )
            note(f"{started} statements are not in this recording")


class _ExitFunctions:
    """What the program registers by `atexit`, to be called when it ends, and not when Python does: it is recorded so.

    The functions that were registered before the program belong to Python's end.
    """

    def __init__(self) -> None:
        self._registered: list[partial[object]] = []
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
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self._own.items():
            setattr(atexit, name, function)

    def call(self) -> None:
        """Call them, the last one first; one that fails keeps none from being called."""
        while self._registered:
            function = self._registered.pop()
            try:
                function()
            except BaseException as error:  # noqa: BLE001  as Python does
                sys.stderr.write(f"Exception ignored in atexit callback: {function.func}\n{traceback_of(error)}")

    def _register(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not callable(function):
            return self._own["register"](function)
        self._registered.append(partial(function, *args, **kwargs))
        return function

    def _unregister(self, function: object) -> None:
        self._registered[:] = [each for each in self._registered if each.func != function]
        self._own["unregister"](function)

    def _clear(self) -> None:
        self._registered.clear()
        self._own["_clear"]()

    def _run_exitfuncs(self) -> None:
        self.call()
        self._own["_run_exitfuncs"]()


def _exit_code(code: object) -> int:
    """The exit code of a SystemExit; a text is printed, as Python does."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _restore_signals(own: object) -> None:
    """In a forked child, signals do what Python has them do, unless the program has a handler; *own*: the command's."""
    if not callable(own):
        return
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is own:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _end_child(code: int) -> NoReturn:
    """End a forked child, which has no recording to write: its parent has."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end_threads(others: Set[threading.Thread]) -> None:
    """Wait for the program's threads as Python does at its end, and no longer. *others*: not the program's.

    Python first calls what ends the workers of executors (`threading._register_atexit`), which nothing else ends. An
    interrupt ends the wait for good: Python must not begin it again when placebench itself ends.
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
