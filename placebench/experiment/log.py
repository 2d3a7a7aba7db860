"""The log of a child process: what it has written since its start, and the end of that on one line for a message."""

from pathlib import Path

_LINES_IN_A_MESSAGE = 4


class ChildLog:
    """A log file that a child appends to; what stood in the file before is left alone and not read.

    Nothing is made here: the child's guard makes the file, whose folder has to be there by then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._begin = path.stat().st_size if path.exists() else 0

    def text(self) -> str:
        """Everything since the start."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as stream:
            stream.seek(self._begin)
            return stream.read().decode(errors="replace")

    def tail(self, lines: int = 10) -> str:
        """The last *lines* lines that are not blank."""
        written = [line.rstrip() for line in self.text().splitlines() if line.strip()]
        return "\n".join(written[-lines:])

    def end(self) -> str:
        """The tail on one line, for a message."""
        return "the end of its log: " + (self.tail(_LINES_IN_A_MESSAGE).replace("\n", " | ") or "(empty)")
