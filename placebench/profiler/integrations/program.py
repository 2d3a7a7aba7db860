"""A Python program in this process, as `python FILE …` and `python -m MODULE …` would run it: `Program`."""

import os
import runpy
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from placebench.errors import ProfilerError

_SCRIPTS = (".py", ".pyw", ".pyz")


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

        Raises what the program raises, apart from SystemExit.
        """
        with _as_main_program(self):
            try:
                if self.is_module:
                    runpy.run_module(self.name, run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(self.name, run_name="__main__")
            except SystemExit as ended:
                return _exit_code(ended.code)
            finally:
                _wait_for_threads()
        return 0


def is_script(word: str) -> bool:
    """Whether a word of a command line names a script rather than an application."""
    path = Path(word)
    return path.suffix in _SCRIPTS or path.is_file() or (path / "__main__.py").is_file()


def traceback_of(error: BaseException) -> str:
    """The traceback that Python would print, without the frames that started the program."""
    own = (__file__, runpy.__file__, "<frozen runpy>")
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename not in own:
        first = first.tb_next
    while first is not None and first.tb_frame.f_code.co_filename in own:
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


def _exit_code(code: object) -> int:
    """The exit code of a SystemExit; a text is printed, as Python does."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _wait_for_threads() -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread not in (threading.main_thread(), threading.current_thread()):
            thread.join()
