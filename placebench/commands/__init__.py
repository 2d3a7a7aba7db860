"""The command line: `COMMANDS` names every command with its line of help; each command is in a module of its own.

A module defines its commands in `COMMANDS: dict[str, Command]`, keyed by the words that call them. It is imported when
one of its commands is called, and imports what a command needs inside the function that runs it, so that
`placebench --help` is fast and works without the extras.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Command(NamedTuple):
    """What a command's module defines for it."""

    configure: Callable[[ArgumentParser], None]
    """Adds the command's options to its parser."""
    run: Callable[[Namespace], int]
    """Runs the command; returns its exit code."""
    run_name: str = ""
    """What its run folder is called after, if the whole command can run on another machine by --host."""


class Entry(NamedTuple):
    """What the command line knows of a command, or of a group of commands, before its module is imported."""

    help: str
    module: str = ""
    """Below placebench.commands; empty for a group."""


COMMANDS: Mapping[str, Entry] = {
    "profile": Entry("profile the SQL of an application, and open or compare its recordings"),
    "profile run": Entry("profile requests to an application, or a script or module", "profile.run"),
    "profile show": Entry("show a saved recording", "profile.show"),
    "profile diff": Entry("show what changed between two saved recordings", "profile.show"),
    "profile check": Entry(
        "profile requests, and fail if a gate such as 'statements <= 10' does not hold", "profile.run"
    ),
    "profile attach": Entry("record the requests of a running process for a while", "profile.attach"),
    "compare": Entry("compare versions of a service: CPU, latency and SQL, with confidence intervals", "compare"),
    "load": Entry("put a closed-loop or open-loop load on a service, or find its capacity", "load"),
    "history": Entry("follow an application over its commits, as ratios to a pinned reference"),
    "history add": Entry("measure a commit against the reference, and append it to the history", "history"),
    "history show": Entry("show the history with its steps, and write its page", "history"),
    "history check": Entry("exit with 1 if the history has a regression that nobody accepted", "history"),
    "history bless": Entry("accept a step, with a reason", "history"),
    "history backfill": Entry("measure the commits of a range that the history does not hold", "history"),
    "calibrate": Entry("measure which differences this machine can detect", "calibrate"),
    "report": Entry("open, list, compare, export or reproduce the runs that were made"),
    "report open": Entry("show a run, and build its page again", "report"),
    "report list": Entry("list the runs of a folder", "report"),
    "report diff": Entry("show two runs side by side", "report"),
    "report export": Entry("print the figures of a run as a small JSON document, to be published", "report"),
    "report reproduce": Entry("run a published plan here, and say which claims are reproduced", "report"),
    "db": Entry("start and stop an embedded PostgreSQL, and remove scratch databases"),
    "db start": Entry("start the embedded PostgreSQL unless it is running, and print its URL", "db"),
    "db stop": Entry("stop the embedded PostgreSQL; its data is kept", "db"),
    "db url": Entry("print the URL of the running PostgreSQL", "db"),
    "db clean": Entry("list the scratch databases on a server, and drop those that no run uses", "db"),
    "mcp": Entry("serve results and comparisons to agents: Model Context Protocol on stdin and stdout", "mcp"),
    "doctor": Entry("check what is installed, and say what is missing", "doctor"),
    "lab": Entry("laboratory: the benchmark of allocation candidates, its reference service and studies"),
    "lab perfload": Entry("seed, serve, load, profile and compare all variants, and write the report", "lab.perfload"),
    "lab seed": Entry("create the schema in a database, and fill it with an inventory data set", "lab.seed"),
    "lab serve": Entry("serve a seeded database with the reference service, in the foreground", "lab.serve"),
    "lab scaleout": Entry("serve on several hosts: nginx, uWSGI, a primary and its replicas", "lab.scaleout"),
    "lab verify": Entry("check the seeded data, and that every variant sends the same responses", "lab.verify"),
    "lab export": Entry("export the inventory of a running Placement, anonymised, as a topology file", "lab.export"),
    "lab steps": Entry("measure what each optimization brings", "lab.steps"),
    "lab study": Entry("run one of the laboratory's studies"),
    "lab study network": Entry("what latency, bandwidth and proxies cost each variant", "lab.study.network"),
    "lab study workers": Entry("threads or processes: throughput, CPU and memory of every mix", "lab.study.workers"),
    "lab study matrix": Entry("what each part of the stack costs, against a control", "lab.study.matrix"),
    "lab study breakdown": Entry("what the latency of a request consists of", "lab.study.breakdown"),
    "lab study operators": Entry("what each setting of the real Placement is worth", "lab.study.operators"),
    "lab study herd": Entry("claims that schedulers lose to each other on the real Placement", "lab.study.herd"),
    "lab study saturation": Entry("how much load each variant takes, and how it breaks", "lab.study.saturation"),
    "lab study scaleout": Entry("throughput and CPU by the number of hosts and replicas", "lab.study.scaleout"),
    "lab study published": Entry("the published figures of Placement, measured again", "lab.study.published"),
}
"""By the words that call them, in the order of the help: everybody's commands first, then the laboratory."""
