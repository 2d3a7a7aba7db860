"""Virtual environments that hold placebench with some of its extras and nothing else, and commands that run in them.

The main class is `Environment`; `build_wheel` and `installed` make one. They need uv.
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
CONSTRAINTS = TOP / "constraints.txt"
LIMIT_S = 300.0
"""For one command; the slowest takes ten seconds on an idle machine."""


@dataclass(frozen=True)
class Ended:
    """What a command left: its exit code, and what it wrote to stdout and stderr."""

    exit_code: int
    output: str


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    path: Path

    def run(
        self,
        program: str,
        *arguments: str,
        folder: Path,
        on_terminal: bool = False,
        until: Callable[[Path, str], bool] = lambda *_: False,
    ) -> Ended:
        """Run *program* of the environment in *folder*; of environment variables it has little more than HOME and PATH.

        until: called with *folder* and the output so far; SIGINT is sent once it is true.
        """
        variables = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TMPDIR": tempfile.gettempdir(), "TERM": "xterm"}
        read_end, write_end = pty.openpty() if on_terminal else os.pipe()
        try:
            child = subprocess.Popen(
                [str(self.path / "bin" / program), *arguments],
                stdin=write_end if on_terminal else subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                cwd=folder,
                env=variables,
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        try:
            return _follow(child, read_end, lambda output: until(folder, output))
        finally:
            os.close(read_end)

    @contextmanager
    def extended(self, wheel: Path, extras: str) -> Iterator[None]:
        """Add *extras* inside the `with` block; afterwards the environment has the packages that it had before.

        What both need was installed and compiled before, which takes longer than the rest.
        """
        before = self.packages()
        self.install(wheel, extras)
        try:
            yield
        finally:
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
                file.write(before)
                file.flush()
                _uv("pip", "sync", "--quiet", "--python", self.python, file.name)
            assert self.packages() == before

    @property
    def python(self) -> str:
        """Its Python."""
        return str(self.path / "bin" / "python")

    def packages(self) -> str:
        """What is installed, a line for each package."""
        return _uv("pip", "freeze", "--quiet", "--python", self.python)

    def install(self, wheel: Path, extras: str) -> None:
        """Install the wheel with *extras* ("" for none, commas between)."""
        wanted = f"placebench{f'[{extras}]' if extras else ''} @ {wheel.as_uri()}"
        _uv("pip", "install", "--quiet", "--constraint", str(CONSTRAINTS), "--python", self.python, wanted)


def _follow(child: "subprocess.Popen[bytes]", source: int, until: Callable[[str], bool]) -> Ended:
    """Read what the child writes until it ends; raises TimeoutError with it after LIMIT_S."""
    output, interrupted, give_up_at = b"", False, time.monotonic() + LIMIT_S
    with child:
        while (running := child.poll() is None) or _is_readable(source, 0):
            piece = _read(source) if _is_readable(source, 0.05) else b""
            output += piece
            if not piece and not running:
                break
            if not interrupted and until(output.decode(errors="replace")):
                interrupted = True
                child.send_signal(signal.SIGINT)
            if time.monotonic() > give_up_at:
                child.kill()
                raise TimeoutError(f"no result within {LIMIT_S:g} s: {output.decode(errors='replace')}")
    return Ended(child.returncode, output.decode(errors="replace"))


def _is_readable(source: int, wait_s: float) -> bool:
    return bool(select.select([source], [], [], wait_s)[0])


def _read(source: int) -> bytes:
    try:
        return os.read(source, 1 << 16)
    except OSError:  # the other side of a terminal is closed
        return b""


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout in *folder*."""
    _uv("build", "--quiet", "--wheel", "--out-dir", str(folder), str(TOP))
    (wheel,) = folder.glob("*.whl")
    return wheel


@contextmanager
def installed(wheel: Path, extras: str) -> Iterator[Environment]:
    """An environment of this Python with the wheel and *extras* ("" for none, commas between), removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="placebench-installed-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # root's PostgreSQL runs its programs as another user
        _uv("venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
        environment = Environment(folder / "venv")
        environment.install(wheel, extras)
        yield environment


def requirements(python: str) -> set[str]:
    """The packages that all extras bring to an environment of Python *python*, each as "name==version"."""
    options = ["--quiet", "--no-header", "--no-annotate", "--constraint", str(CONSTRAINTS), "--python-version", python]
    resolved = _uv("pip", "compile", *options, "--all-extras", str(TOP / "pyproject.toml"))
    return {re.sub(r"\[.*\]", "", line.split(" ;")[0]) for line in resolved.splitlines()}


def _uv(*arguments: str) -> str:
    """What uv writes to stdout."""
    from uv import find_uv_bin

    # A command compiles the modules that it imports, which are a fraction of what is installed; uWSGI, whose name for
    # further flags of the compiler this is, has to run once.
    environment = {**os.environ, "UV_COMPILE_BYTECODE": "0", "APPEND_CFLAGS": "-O0"}
    command = [find_uv_bin(), *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
