"""`placebench profile`: requests to an application in this process through the SQL profiler, and their recordings."""

import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.commands import Command, options
from placebench.commands.output import emit, progress, say, warn
from placebench.errors import GateFailedError, PlacebenchError, ProfilerError
from placebench.paths import make_folder

if TYPE_CHECKING:
    from placebench.profiler import Recording, SqlProfiler
    from placebench.profiler.integrations.in_process_client import Request, Send

_MODES = ("light", "full", "sampled", "flame", "plans")
_OUT = Path("profile")


def _configure_run(parser: ArgumentParser) -> None:
    parser.add_argument(
        "app", metavar="APP", help="MODULE:CALLABLE of WSGI or ASGI, or MODULE:FACTORY(), which is called"
    )
    parser.add_argument("--request", required=True, metavar="'GET /x'", help="method and path, with its query")
    parser.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="header of the request; may be repeated"
    )
    parser.add_argument("--body", type=options.path, metavar="FILE", help="body of the request")
    parser.add_argument("--interface", choices=("wsgi", "asgi"), help="interface of APP (default: by its signature)")
    parser.add_argument(
        "--requests",
        type=options.request_count,
        default=1,
        metavar="N",
        help="number of recorded requests (default: 1)",
    )
    parser.add_argument(
        "--warmup",
        type=options.warmup_count,
        default=1,
        metavar="N",
        help="number of requests before, not recorded (default: 1)",
    )
    parser.add_argument("--mode", choices=_MODES, default="flame", help="how much is recorded (default: flame)")
    parser.add_argument("--parameters", action="store_true", help="keep bound values and literals; they may be secrets")
    parser.add_argument(
        "--explain", action="store_true", help="with --mode plans: estimated plans where the role may see no real one"
    )
    options.add_out(parser, f"folder of the page and the recording (default: ./{_OUT})", default=_OUT)
    options.add_output(parser, page=True)


def _configure_check(parser: ArgumentParser) -> None:
    _configure_run(parser)
    parser.add_argument(
        "--gate",
        action="append",
        required=True,
        metavar="EXPR",
        help="what must hold for the mean request, as 'statements <= 10': of statements, rows, round_trips, "
        "duplicates, n_plus_one; exit code 1 where it does not; may be repeated",
    )


def _configure_show(parser: ArgumentParser) -> None:
    _add_recording(parser, "path", "PATH")
    options.add_out(parser, "folder of its page (default: beside the recording)")
    options.add_output(parser, page=True)


def _configure_diff(parser: ArgumentParser) -> None:
    _add_recording(parser, "before", "A")
    _add_recording(parser, "after", "B")
    options.add_out(parser, f"folder of the page difference.html (default: ./{_OUT})", default=_OUT)
    options.add_output(parser, page=True)


def _add_recording(parser: ArgumentParser, name: str, metavar: str) -> None:
    parser.add_argument(
        name, type=options.path, metavar=metavar, help="recording.json, or the folder that `profile run` made"
    )


def _run(arguments: Namespace) -> int:
    """Make the requests and write what was recorded; exit code 1 if a request failed."""
    make_folder(arguments.out)
    recording, statuses = _recorded(arguments)
    files = _write(recording, arguments.out)
    emit(
        arguments,
        text=lambda: _text(recording),
        document=lambda: {**_document(recording, files), "statuses": statuses},
        page=arguments.out / "index.html",
    )
    if len(statuses) < arguments.requests:
        say(f"{len(statuses)} of {arguments.requests} requests were made")
        raise KeyboardInterrupt
    if failed := [status for status in statuses if status >= 500]:
        raise GateFailedError(f"{len(failed)} of {len(statuses)} responses have status {failed[0]}, expected below 500")
    if broken := arguments.budget.broken_by(recording) if "budget" in arguments else "":
        warn(broken)
        raise GateFailedError("a gate does not hold: see the statements above")
    return 0


def _check(arguments: Namespace) -> int:
    """Do as `profile run` does, with gates; exit code 1 if one does not hold."""
    from placebench.profiler.analysis.budget import Budget

    arguments.budget = Budget.parse(arguments.gate)
    arguments.budget.check(arguments.mode)
    return _run(arguments)


def _show(arguments: Namespace) -> int:
    """Write the page of a saved recording, and print its figures."""
    path = _recording_file(arguments.path)
    recording = _load(path)
    folder = make_folder(arguments.out) if arguments.out else path.parent
    files = _write_pages(recording, folder, path.name.removesuffix(".json"))
    emit(
        arguments,
        text=lambda: _text(recording),
        document=lambda: _document(recording, files),
        page=files["page"],
    )
    return 0


def _diff(arguments: Namespace) -> int:
    """Write the page of what changed between two recordings, and print it."""
    from placebench.profiler import write_difference_page

    difference = _load(_recording_file(arguments.before)).diff(_load(_recording_file(arguments.after)))
    page = make_folder(arguments.out) / "difference.html"
    write_difference_page(difference, page)
    emit(arguments, text=lambda: str(difference), document=difference.to_json, page=page)
    return 0


def _recording_file(path: Path) -> Path:
    return path / "recording.json" if path.is_dir() else path


def _load(path: Path) -> "Recording":
    from placebench.profiler import Recording

    return Recording.load(path)


def _recorded(arguments: Namespace) -> "tuple[Recording, list[int]]":
    """The requests, merged into one recording, and the status of each."""
    from placebench.profiler import Recording, SqlProfiler
    from placebench.profiler.integrations.in_process_client import in_process_client

    request = _request(arguments)
    # Before the application is imported: connections that it makes at once are timed too.
    profiler = SqlProfiler()
    try:
        with in_process_client(_application(arguments), arguments.interface) as send:
            recordings, statuses = _record_all(profiler, send, request, arguments)
    finally:
        profiler.remove()
    return Recording.merge(recordings), statuses


def _record_all(
    profiler: "SqlProfiler", send: "Send", request: "Request", arguments: Namespace
) -> "tuple[list[Recording], list[int]]":
    """A recording and a status for each request after the warm-up."""
    recordings: list[Recording] = []
    statuses: list[int] = []
    for _ in range(arguments.warmup):
        with suppress(Exception):  # the recorded requests report it
            send(request)
    with progress("requests", arguments.requests) as advance, _until_interrupted(statuses):
        for number in range(arguments.requests):
            recording, status = _record(profiler, send, request, arguments)
            recordings.append(recording)
            statuses.append(status)
            advance(number + 1)
    return recordings, statuses


@contextmanager
def _until_interrupted(statuses: list[int]) -> Iterator[None]:
    """An interrupt ends the requests, and what was recorded by then is written all the same."""
    try:
        yield
    except KeyboardInterrupt:
        if not statuses:
            raise


def _record(profiler: "SqlProfiler", send: "Send", request: "Request", arguments: Namespace) -> "tuple[Recording, int]":
    """One recorded request; one that raises is recorded all the same, and counts as 500, which a server makes of it."""
    record = profiler.record(str(request), arguments.mode, parameters=arguments.parameters, explain=arguments.explain)
    try:
        with record as recording:
            status = send(request)
    except PlacebenchError:
        raise
    except Exception:  # noqa: BLE001  it is the application's, whatever it is
        warn(traceback.format_exc())
        status = 500
    return recording, status


def _request(arguments: Namespace) -> "Request":
    from placebench.profiler.integrations.in_process_client import Request

    headers = {}
    for text in arguments.header:
        name, colon, value = text.partition(":")
        if not colon:
            raise ProfilerError(f"header {text!r}: expected 'NAME: VALUE'")
        headers[name.strip()] = value.strip()
    try:
        body = arguments.body.read_bytes() if arguments.body else b""
    except OSError as error:
        raise ProfilerError(f"--body {arguments.body}: {error.strerror}") from error
    return Request.parse(arguments.request, headers=headers, body=body)


def _application(arguments: Namespace) -> Any:
    from placebench.profiler.integrations.in_process_client import application_named

    try:
        return application_named(arguments.app)
    except PlacebenchError:
        raise
    except Exception as error:
        warn(traceback.format_exc())
        seen = f"{type(error).__name__}, see above"
        raise ProfilerError(f"application {arguments.app!r} could not be loaded: {seen}") from error


def _write(recording: "Recording", folder: Path) -> dict[str, Path]:
    """Write the recording, its pages and its speedscope file; return their paths by kind."""
    from placebench.profiler import write_speedscope

    files = {**_write_pages(recording, folder, "index", flame="flame"), "recording": folder / "recording.json"}
    recording.save(files["recording"])
    if recording.session is not None:
        files["speedscope"] = folder / "flame.speedscope.json"
        write_speedscope(recording.session, files["speedscope"])
    return files


def _write_pages(recording: "Recording", folder: Path, name: str, *, flame: str | None = None) -> dict[str, Path]:
    """Write name.html, and the page of its flame graph where it has one."""
    from placebench.profiler import write_flame_page

    files = {"page": folder / f"{name}.html"}
    if recording.session is None:
        recording.write_page(files["page"])
        return files
    files["flame"] = folder / f"{flame or f'{name}.flame'}.html"
    recording.write_page(files["page"], flame_page=files["flame"].name)
    write_flame_page(
        recording.session, files["flame"], title=recording.name, requests=recording.requests, notes=recording.notes
    )
    return files


def _document(recording: "Recording", files: dict[str, Path]) -> dict[str, Any]:
    return {
        "summary": asdict(recording.summary()),
        "findings": [finding.to_json() for finding in recording.findings()],
        "notes": list(recording.notes),
        "files": {kind: str(path) for kind, path in files.items()},
    }


def _text(recording: "Recording") -> str:
    return "\n".join(map(str, (recording.summary(), *recording.notes, *recording.findings())))


COMMANDS = {
    "profile run": Command(_configure_run, _run),
    "profile show": Command(_configure_show, _show),
    "profile diff": Command(_configure_diff, _diff),
    "profile check": Command(_configure_check, _check),
}
