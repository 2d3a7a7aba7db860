"""`placebench profile live`: a page of the requests of a running process, or of a folder, as they come."""

from argparse import ArgumentParser
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from placebench import units
from placebench.commands import Command, check_linux, options
from placebench.commands.interrupts import stop_event
from placebench.commands.output import open_address, print_json, print_result, say, warn
from placebench.commands.profile.recording import OUT
from placebench.errors import UsageError

_READ_EVERY_S = 0.1


@dataclass(frozen=True)
class LiveOptions:
    """The options of `placebench profile live`."""

    output: options.OutputOptions
    pid: int | None
    folder: Path | None
    mode: str
    port: int
    out: Path


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "pid",
        nargs="?",
        type=options.whole(1, 2**22),
        metavar="PID",
        help="process with a middleware of placebench; of a server with workers, its master",
    )
    parser.add_argument(
        "--folder",
        type=options.path,
        metavar="DIR",
        help="folder in which a server saves recordings: those that are there, and those that come",
    )
    parser.add_argument(
        "--mode",
        choices=("light", "full", "sampled", "flame", "plans"),
        default="sampled",
        help="how much is recorded of the requests of PID, as in `profile attach` (default: sampled)",
    )
    parser.add_argument(
        "--port", type=options.whole(0, 65535), default=0, metavar="P", help="port on 127.0.0.1 (default: a free one)"
    )
    options.add_out(parser, f"folder of the recordings that you keep on the page (default: ./{OUT})", default=OUT)
    options.add_output(parser, page=True)


def _run(given: LiveOptions) -> int:
    """Serve the page until Ctrl-C, which is its usual end."""
    from placebench.profiler.live.journal import Journal
    from placebench.profiler.live.server import LivePage
    from placebench.profiler.live.sources import FolderSource, ProcessSource

    if given.pid is None and given.folder is None:
        raise UsageError(
            "nothing to show: expected the PID of a process with a middleware of placebench, or --folder DIR; a "
            "program without one is shown by `placebench profile run -- COMMAND`"
        )
    if given.pid is not None:
        check_linux("finds a process by its PID in /proc; --folder works here")
    with ExitStack() as stack:
        journal = Journal(folder=given.out)
        stack.callback(journal.close)
        folder = None if given.folder is None else FolderSource(given.folder, journal, warn)
        process = None if given.pid is None else ProcessSource(given.pid, given.mode, journal)
        if process is not None:
            stack.callback(process.close)
        page = stack.enter_context(LivePage(journal, port=given.port))
        stopped = stop_event()
        if given.output.json:
            print_json({"address": page.address})
        else:
            print_result(page.address)
        if given.output.open and not open_address(page.address):
            say("no browser on this machine: open the address above, or forward its port by ssh -L")
        say("until Ctrl-C; who knows the address can read the recordings")
        is_alive = True
        while not stopped.wait(_READ_EVERY_S):
            if folder is not None:
                folder.read()
            if process is not None and is_alive:
                is_alive = process.read()
                if not is_alive:
                    say(f"process {given.pid} has ended; the page stays until Ctrl-C")
        if process is not None and process.dropped:
            say(f"{units.numbered(process.dropped, 'request')} left out: too fast to be read")
    return 0


COMMANDS = {"profile live": Command(_configure, _run, options=LiveOptions)}
