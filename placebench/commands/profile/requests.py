"""Requests to an application in this process, each recorded: `run_requests`."""

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.commands.output import emit, progress, say, warn
from placebench.commands.profile.recording import (
    ProfileOptions,
    check_replaceable,
    hold_gates,
    make_profiler,
    note_nothing_seen,
    record,
    recording_document,
    recording_text,
    write_recording,
)
from placebench.errors import GateFailedError, PlacebenchError, ProfilerError
from placebench.masking import mask
from placebench.paths import make_folder

if TYPE_CHECKING:
    from placebench.http_session import Request
    from placebench.profiler import Recording, SqlProfiler
    from placebench.profiler.analysis.budget import Budget
    from placebench.profiler.integrations.in_process_client import InProcessClient, Response


def run_requests(given: ProfileOptions, budget: "Budget | None") -> int:
    """Record requests to an application; exit code 1 if one of them failed or a gate does not hold."""
    from placebench.http_session import Request
    from placebench.profiler import Recording

    out = given.recording.out
    requests = given.workload.requests() or [Request("GET", "/")]
    if len(requests) > 1:
        for number, request in enumerate(requests, 1):
            check_replaceable(out / _folder_name(number, request))
    recorded = _recorded(given, requests)
    done = [each for each in recorded if each.recordings]
    folders = [out] if len(done) == 1 else [make_folder(out / each.folder) for each in done]
    for each, folder in zip(done, folders, strict=True):
        each.files = write_recording(each.merged, folder, given.format)
        say(f"{each.name}: status {', '.join(map(each.status_text, sorted(set(each.statuses))))}")
    merged, files = done[0].merged, done[0].files
    if len(done) > 1:
        merged = Recording.merge([each.merged for each in done], name=", ".join(each.name for each in done))
        files = write_recording(merged, out, given.format)
    emit(
        given.recording.output,
        text=lambda: "\n\n".join(recording_text(each.merged) for each in done),
        markdown=lambda: "\n".join(each.merged.to_markdown() for each in done),
        document=lambda: {
            **recording_document(merged, files),
            "statuses": [status for each in done for status in each.statuses],
            "requests": [
                {"request": each.name, "statuses": each.statuses, **recording_document(each.merged, each.files)}
                for each in done
            ],
        },
        page=files["page"],
    )
    count = sum(len(each.statuses) for each in recorded)
    if count < (expected := given.recording.requests * len(requests)):
        say(f"{count} of {expected} requests were made")
        raise KeyboardInterrupt
    for each in done:
        _check_statuses(each, given.expect_status)
    hold_gates(budget, [each.merged for each in done])
    return 0


def _check_statuses(recorded: "_Recorded", expected: int | None) -> None:
    """Raise GateFailedError if a response has another status than the expected one."""
    statuses = recorded.statuses
    failed = [each for each in statuses if (each >= 400 if expected is None else each != expected)]
    if failed:
        said = recorded.responses[failed[0]].text if failed[0] in recorded.responses else ""
        wanted = "below 400 (or say --expect-status)" if expected is None else expected
        raise GateFailedError(
            f"{recorded.name}: {len(failed)} of {len(statuses)} responses have status {failed[0]}, expected {wanted}"
            f"{f': {said}' if said else ''}"
        )


@dataclass
class _Recorded:
    """One request of the command line, with what was recorded of it."""

    request: "Request"
    folder: str
    """Below that of the command, where there are several requests."""
    recordings: "list[Recording]" = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    responses: "dict[int, Response]" = field(default_factory=dict)
    """The first one of each status."""
    files: dict[str, Path] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The method, path and query without secrets: requests may differ in the query alone."""
        return mask(f"{self.request.method} {self.request.path}")

    def status_text(self, status: int) -> str:
        """Return a status with the target of its redirect."""
        response = self.responses.get(status)
        target = response.header("location") if response and 300 <= status < 400 else ""
        return f"{status} to {target}" if target else str(status)

    @cached_property
    def merged(self) -> "Recording":
        from placebench.profiler import Recording

        return Recording.merge(self.recordings)


def _recorded(given: ProfileOptions, requests: "Sequence[Request]") -> list[_Recorded]:
    """Record each request; an interrupt ends it, and what was recorded by then is returned."""
    from placebench.profiler.integrations.application import package_folders
    from placebench.profiler.integrations.in_process_client import in_process_client

    logins = given.workload.logins()
    recorded = [_Recorded(request, _folder_name(number, request)) for number, request in enumerate(requests, 1)]
    # Before the application is imported: connections that it makes at once are timed too.
    name = _application_name(given.target)
    profiler = make_profiler(given.drivers, package_folders(name))
    try:
        with in_process_client(_load_application(name), given.interface) as client:
            for login in logins:
                _log_in(client, login)
            for each in recorded * given.warmup:
                with suppress(Exception):  # the recorded requests report it
                    client.send(each.request)
            rounds = recorded * given.recording.requests
            with progress("requests", len(rounds)) as advance:
                try:
                    for number, each in enumerate(rounds):
                        _send(profiler, client, each, given)
                        advance(number + 1)
                except KeyboardInterrupt:  # what was recorded by then is written all the same
                    if not any(each.statuses for each in recorded):
                        raise
    finally:
        profiler.remove()
    note_nothing_seen(profiler, [recording for each in recorded for recording in each.recordings])
    return recorded


def _log_in(client: "InProcessClient", login: "Request") -> None:
    """Send a request of a login. Raises ProfilerError if it fails, in the application too."""
    from placebench.profiler.integrations.program import traceback_of

    try:
        client.log_in(login)
    except PlacebenchError:
        raise
    except Exception as error:  # it is the application's, whatever it is
        warn(traceback_of(error).rstrip())
        raised = f"the application raised {type(error).__name__}, see above"
        raise ProfilerError(f"login {login}: {raised}; nothing was recorded") from error


def _send(profiler: "SqlProfiler", client: "InProcessClient", each: _Recorded, given: ProfileOptions) -> None:
    """Record one request; one that raises is recorded all the same, and counts as 500, which a server makes of it."""
    from placebench.profiler.integrations.program import traceback_of

    status = 500
    try:
        with record(profiler, each.name, given) as recording:
            response = client.send(each.request)
        status = response.status
        each.responses.setdefault(status, response)
    except PlacebenchError:
        raise
    except Exception as error:  # noqa: BLE001  it is the application's, whatever it is
        warn(traceback_of(error).rstrip())
    if client.interface == "asgi":
        recording.cpu_s = None  # only the event loop's thread was measured, and its thread pool was not
    each.recordings.append(recording)
    each.statuses.append(status)


def _folder_name(number: int, request: "Request") -> str:
    """Name the folder of one of several requests, such as 2-GET-orders-7."""
    return f"{number}-{re.sub('[^A-Za-z0-9]+', '-', str(request)).strip('-')}"[:60]


def _application_name(target: str | None) -> str:
    from placebench.profiler.integrations.application import detect_application

    if target is not None:
        return target
    name, reason = detect_application(Path())
    say(f"application {name} ({reason})")
    return name


def _load_application(name: str) -> Any:
    from placebench.profiler.integrations.application import load_application
    from placebench.profiler.integrations.program import traceback_of

    before, sys.argv = sys.argv, [name]  # it may read a command line, and ours is not its own
    try:
        return load_application(name)
    except PlacebenchError:
        raise
    except (Exception, SystemExit) as error:
        warn(traceback_of(error).rstrip())
        seen = f"{type(error).__name__}, see above"
        raise ProfilerError(f"application {name!r} could not be loaded: {seen}") from error
    finally:
        sys.argv = before
