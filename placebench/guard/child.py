"""A program that runs under the guard: `ChildSpec` says which and how, `start` starts it, `Child` is the handle."""

import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from placebench.errors import PlacebenchError
from placebench.guard.keeper import Keeper


@dataclass(frozen=True)
class ChildSpec:
    """A program to run, and how to end it."""

    name: str
    """For messages: "uwsgi", "PostgreSQL", "locust"."""
    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    """The whole environment; None: that of this process."""
    cwd: Path | None = None
    log: Path | None = None
    """Where stdout and stderr are appended; None: nowhere."""
    user: tuple[int, int] | None = None
    """The uid and gid to run as (only root can ask for that); None: as this process."""
    stop_signal: int = signal.SIGTERM
    """What ends the program cleanly; goes to the program alone, not to its process group."""
    grace_s: float = 10.0
    """How long the clean end may take; then SIGQUIT, and 0.8 s later SIGKILL to the process group."""
    remove: Path | None = None
    """A folder that goes away with the child."""
    pipes: bool = False
    """Talk to the child: its stdin and stdout are pipes; only stderr goes to the log."""
    data: Path | None = None
    """The data folder of a program of PostgreSQL's: the shared memory that it leaves when it is killed goes too."""

    def order(self) -> dict[str, Any]:
        """What the shepherd is told."""
        return {
            "argv": list(map(str, self.argv)),
            "env": None if self.env is None else dict(self.env),
            "cwd": None if self.cwd is None else str(self.cwd),
            "log": None if self.log is None else str(self.log),
            "user": self.user,
            "stop_signal": int(self.stop_signal),
            "pipes": self.pipes,
            "data": None if self.data is None else str(self.data),
        }


class Child:
    """A running program in its own session: Ctrl-C in the terminal does not reach it, the guard ends it."""

    def __init__(self, spec: ChildSpec, keeper: Keeper, *, owns_keeper: bool) -> None:
        self.spec = spec
        self._keeper = keeper
        self._owns_keeper = owns_keeper
        self.pid = _run(spec, keeper)

    @property
    def stdin(self) -> IO[str] | None:
        """The pipe into the child, line-buffered UTF-8 text; None without `ChildSpec.pipes`."""
        return self._keeper.stdin

    @property
    def stdout(self) -> IO[str] | None:
        """The pipe out of the child, UTF-8 text; None without `ChildSpec.pipes`."""
        return self._keeper.stdout

    def poll(self) -> int | None:
        """How the program ended (negative: the signal that ended it), or None while it runs."""
        return self._keeper.poll(self.pid)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the program to end by itself; raises TimeoutError after *timeout_s*."""
        return self._keeper.wait(self.pid, timeout_s)

    def stop(self) -> int:
        """End the program and its folder, wait until both are gone, and return how it ended.

        May be called again at any time, also after Ctrl-C interrupted the first call.
        """
        returncode = self._keeper.stop(self.pid, self.spec.grace_s)
        if self._owns_keeper:
            self._keeper.close()
        return returncode

    def kill(self) -> None:
        """SIGKILL to the program and its process group, without waiting; `stop` still has to be called."""
        self._keeper.kill(self.pid)

    def log_tail(self, lines: int = 10) -> str:
        """The last *lines* lines of the log, "" when there is none (any more)."""
        return tail(self.spec.log, lines) if self.spec.log else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(spec: ChildSpec, keeper: Keeper | None = None) -> Child:
    """Start the program of *spec* under the guard.

    keeper: run it there, as the next program beside its folder, which stays when the program is stopped.
    Costs some 40 ms. Raises PlacebenchError when the program is missing or may not be run.
    """
    if keeper is not None:
        return Child(spec, keeper, owns_keeper=False)
    keeper = Keeper(spec.remove, pipes=spec.pipes)
    try:
        return Child(spec, keeper, owns_keeper=True)
    except BaseException:
        keeper.close()
        raise


def tail(path: Path, lines: int = 10) -> str:
    """The last *lines* lines of a text file, "" when it does not exist."""
    if not path.exists():
        return ""
    with path.open(errors="replace") as stream:
        return "".join(deque(stream, maxlen=lines)).rstrip()


def _run(spec: ChildSpec, keeper: Keeper) -> int:
    try:
        return keeper.run(spec.order())
    except PlacebenchError as error:
        raise PlacebenchError(f"cannot start {spec.name} ({spec.argv[0]}): {error}") from error
