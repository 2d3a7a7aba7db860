"""A Python program in this process, as `python FILE …` and `python -m MODULE …` would run it: `Program`."""

import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from placebench.errors import ProfilerError

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

    def run(self) -> int:
        """Run it, wait for its threads as Python does at its end, and return its exit code.

        The threads that it starts run in copies of the context, so that a recording around it has all of them.
        Raises what the program raises, apart from SystemExit. A child that the program forks ends here.
        """
        process = os.getpid()
        os.register_at_fork(after_in_child=partial(_restore_signals, signal.getsignal(signal.SIGTERM)))
        with _as_main_program(self), _threads_in_context():
            try:
                if self.is_module:
                    runpy.run_module(self.name, run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(self.name, run_name="__main__")
                code = 0
            except SystemExit as ended:
                code = _exit_code(ended.code)
            finally:
                _wait_for_threads()
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
def _threads_in_context() -> Iterator[None]:
    """Threads begin in a copy of the context of who starts them, as they do in later versions of Python."""
    start = threading.Thread.start

    def start_in_context(thread: threading.Thread) -> None:
        thread.run = partial(copy_context().run, thread.run)  # type: ignore[method-assign]
        start(thread)

    threading.Thread.start = start_in_context  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


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
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _wait_for_threads() -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread not in (threading.main_thread(), threading.current_thread()):
            thread.join()
