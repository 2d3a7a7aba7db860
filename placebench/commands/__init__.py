"""The command line: `COMMANDS` lists every command with its help line; each command is implemented in its own module.

A module defines its commands in `COMMANDS`, a mapping from the words that call a command to a `Command`. It is imported
when one of its commands is called, and imports what a command needs inside the function that runs it. So `placebench
--help` is fast and works without the extras.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from placebench.errors import PlacebenchError
from placebench.registries import Registry

_Options = TypeVar("_Options")


class Command(NamedTuple, Generic[_Options]):
    """The implementation of a command, defined by its module."""

    configure: Callable[[ArgumentParser], None]
    """Adds the command's options to its parser."""
    run: Callable[[_Options], int]
    """Runs the command; returns its exit code."""
    options: type[_Options]
    """The frozen dataclass of options that `run` gets, built by `placebench.commands.options.read`."""
    run_name: str = ""
    """The name of its run folders, if the whole command can run on another machine by --host; else empty."""
    needs_linux: str = ""
    """What the command does that only Linux allows, so that it ends at once elsewhere; empty if it runs anywhere."""


STARTS_SERVERS = "starts servers, and reads their CPU and memory in /proc"
"""What most commands do that need Linux."""


def check_linux(does: str) -> None:
    """Raise PlacebenchError unless this is Linux, which alone allows what the command *does*."""
    if sys.platform != "linux":
        here = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        raise PlacebenchError(f"needs Linux, and this is {here}: it {does}")


class Entry(NamedTuple):
    """The facts about a command or a group of commands that are known without importing its module."""

    help: str
    module: str = ""
    """The name of the module, such as "placebench.commands.load"; empty for a group."""


OWN: Mapping[str, Entry] = {
    "profile": Entry("profile the SQL of an application, and open or compare its recordings"),
    "profile run": Entry(
        "profile requests to an application, or a script or module", "placebench.commands.profile.run"
    ),
    "profile show": Entry("show a saved recording", "placebench.commands.profile.show"),
    "profile diff": Entry("show what changed between two saved recordings", "placebench.commands.profile.show"),
    "profile check": Entry(
        "profile requests, and fail if a gate such as 'statements <= 10' does not hold",
        "placebench.commands.profile.run",
    ),
    "profile attach": Entry(
        "record the requests of a running process for a while", "placebench.commands.profile.attach"
    ),
    "profile live": Entry(
        "show the requests of a running process, or of a folder, in a browser as they come",
        "placebench.commands.profile.live",
    ),
    "compare": Entry(
        "compare versions of a service: CPU, latency and SQL, with confidence intervals", "placebench.commands.compare"
    ),
    "load": Entry("put a closed-loop or open-loop load on a service, or find its capacity", "placebench.commands.load"),
    "study": Entry("measure your own work in different ways: values of its options, threads or processes"),
    "study matrix": Entry(
        "a command or an application with each combination of some values: effects over a control",
        "placebench.commands.study_matrix",
    ),
    "study network": Entry(
        "an application or a command behind links: time, round trips, bytes and CPU by latency",
        "placebench.commands.study_network",
    ),
    "study saturation": Entry(
        "how much load an application takes, and what is full: over arrival rates or users",
        "placebench.commands.study_saturation",
    ),
    "study workers": Entry(
        "threads, processes or an event loop for a function or command: time, CPU and memory",
        "placebench.commands.study",
    ),
    "telemetry": Entry("show what a running service recorded over time"),
    "telemetry show": Entry(
        "print tables of a folder of telemetry, and write a page with charts", "placebench.commands.telemetry"
    ),
    "history": Entry("follow an application over its commits, as ratios to a pinned reference"),
    "history add": Entry(
        "measure a commit against the reference, and append it to the history", "placebench.commands.history"
    ),
    "history show": Entry("show the history with its steps, and write its page", "placebench.commands.history"),
    "history check": Entry(
        "exit with 1 if the history has a regression that nobody accepted", "placebench.commands.history"
    ),
    "history bless": Entry("accept a step, with a reason", "placebench.commands.history"),
    "history backfill": Entry(
        "measure the commits of a range that the history does not hold", "placebench.commands.history"
    ),
    "ci": Entry("compare each pull or merge request with its base, on GitHub or GitLab"),
    "ci init": Entry("write the job that compares a change with its base", "placebench.commands.ci"),
    "ci report": Entry(
        "show a run in CI: summary, annotations, and one comment that is kept up to date", "placebench.commands.ci"
    ),
    "calibrate": Entry("measure which differences this machine can detect", "placebench.commands.calibrate"),
    "report": Entry("open, list, compare, export or reproduce the runs that were made"),
    "report open": Entry("show a run, and build its page again", "placebench.commands.report"),
    "report list": Entry("list the runs of a folder", "placebench.commands.report"),
    "report diff": Entry("show two runs side by side", "placebench.commands.report"),
    "report export": Entry(
        "print the figures of a run as a small JSON document, to be published", "placebench.commands.report"
    ),
    "report reproduce": Entry(
        "run a published plan here, and say which claims are reproduced", "placebench.commands.report"
    ),
    "db": Entry("start and stop an embedded PostgreSQL, and remove scratch databases"),
    "db start": Entry(
        "start the embedded PostgreSQL unless it is running, and print its URL", "placebench.commands.db"
    ),
    "db stop": Entry("stop the embedded PostgreSQL; its data is kept", "placebench.commands.db"),
    "db url": Entry("print the URL of the running PostgreSQL", "placebench.commands.db"),
    "db clean": Entry(
        "list the scratch databases on a server, and drop those that no run uses", "placebench.commands.db"
    ),
    "link": Entry(
        "emulate a network between a program and its database or service, and count what passes through it",
        "placebench.commands.link",
    ),
    "mcp": Entry(
        "serve results and comparisons to agents: Model Context Protocol on stdin and stdout", "placebench.commands.mcp"
    ),
    "doctor": Entry("check what is installed, and say what is missing", "placebench.commands.doctor"),
}
"""The commands for everybody, by the words that call them, in the order of the help text."""

COMMANDS: Registry[Entry] = Registry("placebench.commands", "placebench.commands:OWN", "placebench.lab.commands:OWN")
"""All commands: those for everybody, those of the laboratory, and those that other packages add."""
