"""`placebench profile attach`: record the requests of a running process for a while, without a restart."""

import time
from argparse import ArgumentParser
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placebench import units
from placebench.commands import Command, options
from placebench.commands.output import say
from placebench.commands.profile.recording import (
    SERVICE_MODES,
    RecordingOptions,
    add_recording,
    check_replaceable,
    emit_recording,
    say_names,
    write_recording,
)
from placebench.errors import ProfilerError
from placebench.paths import make_ignored_folder

if TYPE_CHECKING:
    from placebench.profiler import Recording
    from placebench.profiler.requests.attachment import Attachment

_READ_EVERY_S = 0.1
_MAX_S = 3600.0


@dataclass(frozen=True)
class AttachOptions:
    """The options of `placebench profile attach`."""

    recording: RecordingOptions
    pid: int
    seconds: float


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "pid",
        type=options.whole(1, 2**22),
        metavar="PID",
        help="process with a middleware of placebench; of a server with workers, its master",
    )
    parser.add_argument(
        "--seconds",
        type=options.number(0.1, _MAX_S),
        default=30.0,
        metavar="S",
        help="how long requests that begin are recorded (default: 30)",
    )
    add_recording(
        parser, modes=SERVICE_MODES, mode="full", requests=1000, per="recorded requests after which it ends earlier"
    )


def _run(given: AttachOptions) -> int:
    """Record the process, and write all its requests as one recording."""
    from placebench.profiler import Recording
    from placebench.profiler.requests.attachment import Attachment, channels_of

    check_replaceable(given.recording.out)
    out = make_ignored_folder(given.recording.out).resolve()
    with ExitStack() as stack:
        attachments: list[Attachment] = []
        for path in channels_of(given.pid).values():
            attachments.append(Attachment(path))
            stack.callback(attachments[-1].close)
        came, interrupted = _recorded(attachments, given)
    dropped = sum(each.dropped for each in attachments)
    if dropped:
        say(f"{units.numbered(dropped, 'request')} left out: too fast to be read")
    if not came:
        if interrupted:
            raise KeyboardInterrupt
        raise ProfilerError(
            f"no request of process {given.pid} began and ended within {given.seconds:g} s: "
            "expected at least one; send some, or give more --seconds"
        )
    processes = {pid for pid, _ in came}
    say_names([recording for _, recording in came])
    merged = Recording.merge((recording for _, recording in came), name=f"process {given.pid}")
    say(f"{units.numbered(len(came), 'request')} of {len(processes)} process{'' if len(processes) == 1 else 'es'}")
    emit_recording(given.recording.output, merged, write_recording(merged, out, ()))
    if interrupted:
        raise KeyboardInterrupt
    return 0


def _recorded(attachments: "list[Attachment]", given: AttachOptions) -> "tuple[list[tuple[int, Recording]], bool]":
    """Record until the time or number of requests is reached; return (process, recording) and whether interrupted."""
    from placebench.profiler.requests.attachment import process_tree

    came: list[tuple[int, Recording]] = []
    interrupted = False
    ends = time.monotonic() + given.seconds
    say(f"recording process {given.pid} for {given.seconds:g} s; Ctrl-C ends it earlier")
    try:
        for each in attachments:
            each.start(given.recording.mode, given.seconds)
        while time.monotonic() < ends and len(came) < given.recording.requests:
            time.sleep(min(_READ_EVERY_S, max(0.0, ends - time.monotonic())))
            came += [received for each in attachments for received in each.read()]
            if not process_tree(given.pid):
                say(f"process {given.pid} has ended")
                break
    except KeyboardInterrupt:
        interrupted = True
    came += [received for each in attachments for received in each.stop()]
    return came, interrupted


COMMANDS = {
    "profile attach": Command(_configure, _run, options=AttachOptions, needs_linux="finds the process in /proc")
}
