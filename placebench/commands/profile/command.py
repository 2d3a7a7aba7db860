"""`placebench profile run -- COMMAND …`: run any command, and record the Python processes below it: `run_command`."""

import os
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.commands.interrupts import ENDING, ProgramInterrupted
from placebench.commands.output import emit, open_address, say, warn
from placebench.commands.profile.recording import (
    ProfileOptions,
    check_replaceable,
    hold_gates,
    recording_document,
    recording_text,
    write_recording,
)
from placebench.paths import make_ignored_folder
from placebench.runtime.foreground import foreground

if TYPE_CHECKING:
    from placebench.profiler import Recording
    from placebench.profiler.analysis.budget import Budget
    from placebench.profiler.live.journal import Journal
    from placebench.profiler.live.kept import KeptRecordings


def run_command(given: ProfileOptions, command: Path, budget: "Budget | None") -> int:
    """Run the command, write what its processes have recorded, and return its exit code.

    Raises GateFailedError if it is 0 and a gate does not hold. If a signal has ended the command, raises
    ProgramInterrupted once all is written, so that this process ends by the same signal.
    """
    from placebench.profiler.live.channel import VARIABLE, RecordingReceiver, startup_environment

    check_replaceable(given.recording.out)
    given = replace(given, recording=replace(given.recording, out=make_ignored_folder(given.recording.out).resolve()))
    output = given.recording.output
    kept: KeptRecordings
    journal: Journal
    address: str | None = None
    with ExitStack() as running:
        run = running.enter_context(foreground())
        is_ready = threading.Event()

        def add(pid: int, recording: "Recording") -> None:
            is_ready.wait()
            kept.add(recording)
            journal.add(pid, recording)

        def started() -> None:
            """Get ready to receive recordings, if possible while the command starts."""
            nonlocal kept, journal, address
            if is_ready.is_set():
                return
            from placebench.profiler.live.journal import Journal
            from placebench.profiler.live.kept import KeptRecordings

            kept, journal = KeptRecordings(), Journal(folder=given.recording.out)
            running.callback(journal.close)
            is_ready.set()
            if given.live:
                from placebench.profiler.live.server import LivePage

                address = running.enter_context(LivePage(journal, port=given.port)).address
                say(f"requests as they come: {address}")
                if output.open and not open_address(address):
                    say("no browser on this machine: open the address above, or forward its port by ssh -L")

        if given.badge or given.port:  # the processes get the address; the port may be taken
            started()
        startup = startup_environment(
            given.recording.mode,
            server_timing=given.live,
            badge=address if given.badge else None,
            python_path=os.environ.get("PYTHONPATH", ""),
        )
        receiver = RecordingReceiver(add)
        running.callback(receiver.close)
        code = run(
            str(command),
            given.arguments,
            {**os.environ, **startup, **receiver.environment},
            mark=f"{VARIABLE}={receiver.environment[VARIABLE]}",
            stdout_to_stderr=output.json or output.markdown,
            started=started,
        )
        receiver.close()
        if receiver.dropped:
            warn(f"{receiver.dropped} recordings were dropped: they came faster than they could be sent")
        routes = journal.routes()
    if not routes:
        what = "no Python process below it has loaded a database driver or a framework that placebench knows"
        if receiver.processes:
            what = f"the Python processes below it ({len(receiver.processes)}) served no request and sent no statement"
        say(f"{command.name}: nothing was recorded: {what}")
    _write(given, command, routes, kept, 128 - code if code < 0 else code)
    if code == 0:
        hold_gates(budget, kept.by_route())
    if -code in ENDING:
        raise ProgramInterrupted(-code)
    return 128 - code if code < 0 else code


def _write(
    given: ProfileOptions, command: Path, routes: list[dict[str, Any]], kept: "KeptRecordings", code: int
) -> None:
    from placebench.profiler.live.kept import routes_markdown, routes_text

    output = given.recording.output
    document = {"exit_code": code, "routes": [{k: v for k, v in row.items() if k != "trend"} for row in routes]}
    if not routes:
        if output.json:
            emit(output, text=str, document=lambda: document)
        return
    merged = kept.merged(" ".join((command.name, *given.arguments))[:100])
    files = write_recording(merged, given.recording.out, given.format)
    emit(
        replace(output, open=output.open and not given.live),
        text=lambda: f"{routes_text(routes)}\n\n{recording_text(merged)}",
        markdown=lambda: f"{routes_markdown(routes)}\n\n{merged.to_markdown()}",
        document=lambda: {**document, **recording_document(merged, files)},
        page=files["page"],
    )
