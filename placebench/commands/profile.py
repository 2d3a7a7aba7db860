"""`placebench profile`: requests to an application in this process, through the SQL profiler."""

import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.commands import values
from placebench.commands.console import print_json, print_result, progress, say
from placebench.errors import GateFailedError, PlacebenchError, ProfilerError
from placebench.paths import make_folder

if TYPE_CHECKING:
    from placebench.profiler import Recording, SqlProfiler
    from placebench.profiler.analysis.budget import Budget
    from placebench.profiler.integrations.in_process_client import Request, Send

HELP = "profile requests to a WSGI or ASGI application, and hold them to a budget"
_MODES = ("light", "full", "sampled", "flame", "plans")


def configure(parser: ArgumentParser) -> None:
    """The options of `profile`."""
    parser.add_argument("--app", required=True, metavar="MODULE:CALLABLE", help="MODULE:FACTORY() is called")
    parser.add_argument("--request", required=True, metavar="'GET /x'", help="method and path, with its query")
    parser.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="may be given again")
    parser.add_argument("--body", type=values.path, metavar="FILE", help="what the request sends")
    parser.add_argument("--interface", choices=("wsgi", "asgi"), help="default: as the callable looks")
    parser.add_argument("--repeat", type=values.requests, default=1, metavar="N", help="requests recorded (default: 1)")
    parser.add_argument(
        "--warmup", type=values.warm_up, default=1, metavar="N", help="requests before, unrecorded (default: 1)"
    )
    parser.add_argument("--mode", choices=_MODES, default="flame", help="how closely (default: flame)")
    parser.add_argument("--parameters", action="store_true", help="keep bound values and literals; may be secrets")
    parser.add_argument("--explain", action="store_true", help="mode plans: estimates where the role may see no plan")
    parser.add_argument(
        "--budget",
        action="append",
        default=[],
        metavar="NAME=N",
        help="exit 1 if the mean request has more: statements, rows, round_trips, duplicates, n_plus_one",
    )
    parser.add_argument("--against", type=values.path, metavar="FILE", help="an earlier recording.json to compare with")
    parser.add_argument(
        "--out", type=values.path, default=Path("profile"), metavar="DIR", help="page and files (default: ./profile)"
    )
    parser.add_argument("--json", action="store_true", help="the recording's sums and findings as one JSON document")


def run(arguments: Namespace) -> int:
    """Make the requests and write what was seen; exit code 1 if the budget is broken or a request failed."""
    from placebench.profiler import Recording
    from placebench.profiler.analysis.budget import Budget

    budget = Budget.parse(arguments.budget)
    budget.check(arguments.mode)
    # Before the requests: a wrong name is not to cost them.
    earlier = Recording.load(arguments.against) if arguments.against else None
    make_folder(arguments.out)
    recording, statuses = _recorded(arguments)
    files = _written(recording, earlier, arguments.out)
    if arguments.json:
        print_json(_document(recording, statuses, files))
    else:
        _show(recording, files)
    if len(statuses) < arguments.repeat:
        say(f"{len(statuses)} of {arguments.repeat} requests were made")
        raise KeyboardInterrupt
    return _judged(recording, statuses, budget)


def _recorded(arguments: Namespace) -> "tuple[Recording, list[int]]":
    """The requests, merged into one recording, and the status of each."""
    from placebench.profiler import Recording, SqlProfiler
    from placebench.profiler.integrations.in_process_client import in_process_client

    request = _request(arguments)
    # Before the application is imported: connections that it makes at once are timed too.
    profiler = SqlProfiler()
    try:
        with in_process_client(_application(arguments), arguments.interface) as send:
            recordings, statuses = _recordings(profiler, send, request, arguments)
    finally:
        profiler.remove()
    return Recording.merge(recordings), statuses


def _recordings(
    profiler: "SqlProfiler", send: "Send", request: "Request", arguments: Namespace
) -> "tuple[list[Recording], list[int]]":
    """A recording and a status for each request after the warm-up."""
    recordings: list[Recording] = []
    statuses: list[int] = []
    for _ in range(arguments.warmup):
        with suppress(Exception):  # the recorded ones will tell
            send(request)
    with progress("requests", arguments.repeat) as advance, _as_many_as_there_are(statuses):
        for number in range(arguments.repeat):
            recording, status = _one(profiler, send, request, arguments)
            recordings.append(recording)
            statuses.append(status)
            advance(number + 1)
    return recordings, statuses


@contextmanager
def _as_many_as_there_are(statuses: list[int]) -> Iterator[None]:
    """An interrupt ends the requests, and what was recorded by then is written all the same."""
    try:
        yield
    except KeyboardInterrupt:
        if not statuses:
            raise


def _one(profiler: "SqlProfiler", send: "Send", request: "Request", arguments: Namespace) -> "tuple[Recording, int]":
    """One recorded request; one that raises is recorded all the same, and counts as 500, which a server makes of it."""
    watched = profiler.record(str(request), arguments.mode, parameters=arguments.parameters, explain=arguments.explain)
    try:
        with watched as recording:
            status = send(request)
    except PlacebenchError:
        raise
    except Exception:  # noqa: BLE001  it is the application's, whatever it is
        say(traceback.format_exc())
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
        say(traceback.format_exc())
        seen = f"{type(error).__name__}, see above"
        raise ProfilerError(f"application {arguments.app!r} could not be loaded: {seen}") from error


def _written(recording: "Recording", earlier: "Recording | None", folder: Path) -> dict[str, str]:
    """What was written, by kind."""
    from placebench.profiler import write_difference_page, write_flame_page, write_speedscope

    files = {"page": folder / "index.html", "recording": folder / "recording.json"}
    recording.write_page(files["page"], flame_page=None if recording.session is None else "flame.html")
    recording.save(files["recording"])
    if recording.session is not None:
        files |= {"flame": folder / "flame.html", "speedscope": folder / "flame.speedscope.json"}
        title, requests, notes = recording.name, recording.requests, recording.notes
        write_flame_page(recording.session, files["flame"], title=title, requests=requests, notes=notes)
        write_speedscope(recording.session, files["speedscope"])
    if earlier is not None:
        files["difference"] = folder / "difference.html"
        found = earlier.diff(recording)
        write_difference_page(found, files["difference"])
        say(str(found))
    return {kind: str(path) for kind, path in files.items()}


def _document(recording: "Recording", statuses: list[int], files: dict[str, str]) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "summary": asdict(recording.summary()),
        "findings": [finding.to_json() for finding in recording.findings()],
        "notes": list(recording.notes),
        "statuses": statuses,
        "files": files,
    }


def _show(recording: "Recording", files: dict[str, str]) -> None:
    print_result(str(recording.summary()))
    for note in recording.notes:
        print_result(note)
    for finding in recording.findings():
        print_result(str(finding))
    print_result(Path(files["page"]).resolve().as_uri())


def _judged(recording: "Recording", statuses: list[int], budget: "Budget") -> int:
    failed = [status for status in statuses if status >= 500]
    if failed:
        raise GateFailedError(
            f"{len(failed)} of {len(statuses)} requests were answered with status {failed[0]}, expected below 500"
        )
    broken = budget.broken_by(recording)
    if broken:
        say(broken)
        raise GateFailedError("the SQL budget is broken: see the statements above")
    return 0
