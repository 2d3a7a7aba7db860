"""The command line, one module per command; placebench.cli joins them.

A command module has `HELP` (one line), `configure(parser)` and `run(arguments) -> exit code`. It imports what it needs
inside `run`, so that `placebench --help` is quick and works without the extras.
"""

from argparse import ArgumentParser, Namespace
from typing import Protocol

NAMES = (
    "perfload",
    "db",
    "seed",
    "topology",
    "serve",
    "load",
    "profile",
    "compare",
    "calibrate",
    "experiment",
    "link",
    "workers",
    "matrix",
    "gauge",
    "headline",
    "report",
    "verify",
    "doctor",
)


class Command(Protocol):
    """What placebench.cli asks of a command module."""

    HELP: str

    def configure(self, parser: ArgumentParser) -> None:
        """Add its options."""

    def run(self, arguments: Namespace) -> int:
        """Run it and return the exit code."""
