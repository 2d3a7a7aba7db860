"""`placebench profile`: requests to an application in this process through the SQL profiler, and their recordings."""

import re
import sys
import time
import traceback
from argparse import REMAINDER, Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from placebench.commands import Command, options
from placebench.commands.output import emit, progress, say, warn
from placebench.errors import GateFailedError, PlacebenchError, ProfilerError, UsageError
from placebench.paths import make_folder

if TYPE_CHECKING:
    from placebench.http_session import Request
    from placebench.profiler import Clocks, Recording, SqlProfiler
    from placebench.profiler.integrations.in_process_client import InProcessClient
    from placebench.profiler.integrations.program import Program

_MODES = ("light", "full", "sampled", "external", "flame", "plans")
_OUT = Path("profile")
_FORMATS = {
    "firefox": (".firefox.json.gz",),
    "otlp": (".traces.jsonl", ".metrics.jsonl"),
    "sarif": (".sarif",),
    "speedscope": (".speedscope.json",),
}
"""What a recording is written as with --format, and how the names of the files end."""


class _ReadTarget(Action):
    """Reads APP, whose options may follow it, or a script, to which everything after it belongs."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: object, _option: str | None = None
    ) -> None:
        from placebench.profiler.integrations.program import is_script

        words = [str(word) for word in cast("Sequence[Any]", values)]
        if namespace.module:
            namespace.module += words
            return
        explicit = words[:1] == ["--"]
        if not words[explicit:]:
            return
        target, *rest = words[explicit:]
        namespace.target = target
        if explicit or is_script(target):
            namespace.arguments = rest[1:] if rest[:1] == ["--"] and not explicit else rest
        else:
            parser.parse_args(rest, namespace)


def _configure_run(parser: ArgumentParser) -> None:
    parser.usage = (
        f"{parser.prog} [options] [APP]\n"
        f"       {parser.prog} [options] SCRIPT [ARGUMENTS ...]\n"
        f"       {parser.prog} [options] -m MODULE [ARGUMENTS ...]"
    )
    parser.set_defaults(target=None, arguments=[], module=None)
    parser.add_argument(
        "target",
        action=_ReadTarget,
        nargs=REMAINDER,
        metavar="APP",
        help="MODULE:CALLABLE of WSGI or ASGI, a factory too (default: the FastAPI, Flask or Django project in this "
        "folder); or a script with its arguments",
    )
    parser.add_argument(
        "-m", dest="module", nargs=REMAINDER, metavar="MODULE", help="module to run as a program, with its arguments"
    )
    options.add_requests(parser, default="GET /")
    options.add_login(parser)
    parser.add_argument(
        "--expect-status",
        type=options.whole(100, 599),
        metavar="N",
        help="status that the responses have to have (default: any below 400)",
    )
    parser.add_argument("--interface", choices=("wsgi", "asgi"), help="interface of APP (default: by its signature)")
    parser.add_argument(
        "--requests",
        type=options.request_count,
        default=1,
        metavar="N",
        help="number of times that each request is recorded (default: 1)",
    )
    parser.add_argument(
        "--warmup",
        type=options.warmup_count,
        default=1,
        metavar="N",
        help="number of times that each request is sent before, not recorded (default: 1)",
    )
    parser.add_argument(
        "--drivers",
        type=_names,
        default=(),
        metavar="NAME,…",
        help="record what these database drivers execute, and nothing else (default: SQLAlchemy and every driver that "
        "the program imports)",
    )
    parser.add_argument("--mode", choices=_MODES, default="flame", help="how much is recorded (default: flame)")
    parser.add_argument("--parameters", action="store_true", help="keep bound values and literals; they may be secrets")
    parser.add_argument(
        "--explain", action="store_true", help="with --mode plans: estimated plans where the role may see no real one"
    )
    options.add_out(parser, f"folder of the page and the recording (default: ./{_OUT})", default=_OUT)
    _add_format(parser)
    options.add_output(parser, markdown=True, page=True)


def _configure_check(parser: ArgumentParser) -> None:
    _configure_run(parser)
    parser.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="EXPR",
        help="what must hold for each request on average, as 'statements <= 10': of statements, rows, round_trips, "
        "duplicates, n_plus_one; exit code 1 where it does not; may be repeated",
    )


def _configure_show(parser: ArgumentParser) -> None:
    _add_recording(parser, "path", "PATH")
    parser.add_argument(
        "--samples",
        type=options.path,
        metavar="FILE",
        help="make the flame graph of samples that `python -m profiling.sampling attach -a --gecko -o FILE PID` of "
        "Python 3.15 took while PATH was recorded",
    )
    options.add_out(parser, "folder of its page (default: beside the recording)")
    _add_format(parser)
    options.add_output(parser, markdown=True, page=True)


def _configure_diff(parser: ArgumentParser) -> None:
    _add_recording(parser, "before", "A")
    _add_recording(parser, "after", "B")
    options.add_out(parser, f"folder of the page difference.html (default: ./{_OUT})", default=_OUT)
    options.add_output(parser, markdown=True, page=True)


def _add_format(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        action="append",
        default=[],
        choices=tuple(_FORMATS),
        help="also write the recording in this format, for another program; may be repeated",
    )


def _add_recording(parser: ArgumentParser, name: str, metavar: str) -> None:
    parser.add_argument(
        name, type=options.path, metavar=metavar, help="recording.json, or the folder that `profile run` made"
    )


def _run(arguments: Namespace) -> int:
    """Run the program, or send the requests, and write what was recorded."""
    arguments.out = make_folder(arguments.out).resolve()
    program = _program(arguments)
    return _run_requests(arguments) if program is None else _run_program(arguments, program)


def _check(arguments: Namespace) -> int:
    """Do as `profile run` does, with gates; exit code 1 if one does not hold."""
    from placebench.profiler.analysis.budget import Budget

    if not arguments.gate:
        raise UsageError("the following arguments are required: --gate")
    arguments.budget = Budget.parse(arguments.gate)
    arguments.budget.check(arguments.mode)
    return _run(arguments)


def _program(arguments: Namespace) -> "Program | None":
    """The script or module to run; None if it is an application that requests are sent to."""
    from placebench.profiler.integrations.program import Program, is_script

    if arguments.module is not None:
        if not arguments.module or arguments.target is not None:
            raise UsageError("expected one program: -m MODULE, or APP, or a script")
        name, *rest = arguments.module
        program = Program(name, tuple(rest[rest[:1] == ["--"] :]), is_module=True)
    elif arguments.target is not None and is_script(arguments.target):
        program = Program(arguments.target, tuple(arguments.arguments))
    elif arguments.arguments:
        raise UsageError(f"{arguments.target!r} is no script: expected its options before --")
    else:
        return None
    if arguments.requests_given or arguments.login:
        raise UsageError(f"{program} is a program: requests are sent to an application only")
    program.check()
    return program


def _run_program(arguments: Namespace, program: "Program") -> int:
    """Record a program; its exit code is ours, unless it is 0 and a gate does not hold."""
    from placebench.profiler import Clocks
    from placebench.profiler.integrations.application import missing_package, package_folders
    from placebench.profiler.integrations.program import stdout_to_stderr, traceback_of

    interrupted = False
    folders = package_folders(program.name) if program.is_module else ()
    profiler = _profiler(arguments, folders, Clocks(cpu=time.process_time))  # of all its threads
    try:
        with stdout_to_stderr() if arguments.json or arguments.markdown else nullcontext():
            try:
                with _record(profiler, str(program), arguments) as recording:
                    code = program.run()
            except KeyboardInterrupt:
                interrupted = True
            except BaseException as error:  # noqa: BLE001  it is the program's, whatever it is
                warn(traceback_of(error).rstrip())
                code = 1
                if isinstance(error, ModuleNotFoundError) and (hint := missing_package(error)):
                    warn(f"placebench profile run: {hint}")
    finally:
        profiler.remove()
    _note_nothing_seen(profiler, [recording])
    files = _write(recording, arguments.out, arguments.format)
    emit(
        arguments,
        text=lambda: _text(recording),
        markdown=recording.to_markdown,
        document=lambda: {**_document(recording, files), "exit_code": None if interrupted else code},
        page=files["page"],
    )
    if interrupted:
        raise KeyboardInterrupt
    if code:
        return code
    _hold_gates(arguments, [recording])
    return 0


def _run_requests(arguments: Namespace) -> int:
    """Record requests to an application; exit code 1 if one of them failed or a gate does not hold."""
    from placebench.http_session import Request
    from placebench.profiler import Recording

    requests = options.read_requests(arguments) or [Request("GET", "/")]
    recorded = _recorded(arguments, requests)
    done = [each for each in recorded if each.recordings]
    folders = [arguments.out] if len(done) == 1 else [make_folder(arguments.out / each.folder) for each in done]
    for each, folder in zip(done, folders, strict=True):
        each.files = _write(each.merged, folder, arguments.format)
        say(f"{each.request}: status {', '.join(map(str, sorted(set(each.statuses))))}")
    merged, files = done[0].merged, done[0].files
    if len(done) > 1:
        merged = Recording.merge([each.merged for each in done], name=", ".join(str(each.request) for each in done))
        files = _write(merged, arguments.out, arguments.format)
    emit(
        arguments,
        text=lambda: "\n\n".join(_text(each.merged) for each in done),
        markdown=lambda: "\n".join(each.merged.to_markdown() for each in done),
        document=lambda: {
            **_document(merged, files),
            "statuses": [status for each in done for status in each.statuses],
            "requests": [
                {"request": str(each.request), "statuses": each.statuses, **_document(each.merged, each.files)}
                for each in done
            ],
        },
        page=files["page"],
    )
    count = sum(len(each.statuses) for each in recorded)
    if count < (expected := arguments.requests * len(requests)):
        say(f"{count} of {expected} requests were made")
        raise KeyboardInterrupt
    for each in done:
        _check_statuses(each, arguments.expect_status)
    _hold_gates(arguments, [each.merged for each in done])
    return 0


def _check_statuses(recorded: "_Recorded", expected: int | None) -> None:
    """Raise GateFailedError if a response has another status than the expected one."""
    statuses = recorded.statuses
    failed = [each for each in statuses if (each >= 400 if expected is None else each != expected)]
    if failed:
        wanted = "below 400 (or say --expect-status)" if expected is None else expected
        raise GateFailedError(
            f"{recorded.request}: {len(failed)} of {len(statuses)} responses have status {failed[0]}, expected {wanted}"
        )


def _hold_gates(arguments: Namespace, recordings: "Sequence[Recording]") -> None:
    """Raise GateFailedError if one of the recordings breaks the budget, with the statements on stderr."""
    if "budget" not in arguments:
        return
    broken = [text for recording in recordings if (text := arguments.budget.broken_by(recording))]
    if broken:
        warn("\n".join(broken))
        raise GateFailedError("a gate does not hold: see the statements above")


def _show(arguments: Namespace) -> int:
    """Write the page of a saved recording, and print its figures."""
    path = _recording_file(arguments.path)
    recording = _load(path)
    if arguments.samples is not None:
        recording.join_samples(arguments.samples)
    folder = make_folder(arguments.out) if arguments.out else path.parent
    name = path.name.removesuffix(".json")
    files = {**_write_pages(recording, folder, name), **_write_formats(recording, folder, name, arguments.format)}
    emit(
        arguments,
        text=lambda: _text(recording),
        markdown=recording.to_markdown,
        document=lambda: _document(recording, files),
        page=files["page"],
    )
    return 0


def _diff(arguments: Namespace) -> int:
    """Write the page of what changed between two recordings, and print it."""
    from placebench.profiler import write_difference_page
    from placebench.profiler.output.markdown import difference_markdown

    difference = _load(_recording_file(arguments.before)).diff(_load(_recording_file(arguments.after)))
    page = make_folder(arguments.out) / "difference.html"
    write_difference_page(difference, page)
    emit(
        arguments,
        text=lambda: str(difference),
        markdown=lambda: difference_markdown(difference),
        document=difference.to_json,
        page=page,
    )
    return 0


def _recording_file(path: Path) -> Path:
    return path / "recording.json" if path.is_dir() else path


def _load(path: Path) -> "Recording":
    from placebench.profiler import Recording

    return Recording.load(path)


@dataclass
class _Recorded:
    """One request of the command line, with what was recorded of it."""

    request: "Request"
    folder: str
    """Below that of the command, where there are several requests."""
    recordings: "list[Recording]" = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)

    @cached_property
    def merged(self) -> "Recording":
        from placebench.profiler import Recording

        return Recording.merge(self.recordings)


def _recorded(arguments: Namespace, requests: "Sequence[Request]") -> list[_Recorded]:
    """What was recorded of each request; an interrupt ends it, and what was recorded by then is returned."""
    from placebench.http_session import Request
    from placebench.profiler.integrations.application import package_folders
    from placebench.profiler.integrations.in_process_client import in_process_client

    logins = [Request.parse(text) for text in arguments.login]
    recorded = [_Recorded(request, _folder_name(number, request)) for number, request in enumerate(requests, 1)]
    # Before the application is imported: connections that it makes at once are timed too.
    name = _application_name(arguments)
    profiler = _profiler(arguments, package_folders(name))
    try:
        with in_process_client(_load_application(name), arguments.interface) as client:
            for login in logins:
                client.log_in(login)
            for each in recorded * arguments.warmup:
                with suppress(Exception):  # the recorded requests report it
                    client.send(each.request)
            _record_all(profiler, client, recorded, arguments)
    finally:
        profiler.remove()
    _note_nothing_seen(profiler, [recording for each in recorded for recording in each.recordings])
    return recorded


def _record_all(
    profiler: "SqlProfiler", client: "InProcessClient", recorded: list[_Recorded], arguments: Namespace
) -> None:
    """Send the requests in their order, as often as requested."""
    rounds = recorded * arguments.requests
    with progress("requests", len(rounds)) as advance, _until_interrupted(recorded):
        for number, each in enumerate(rounds):
            recording, status = _send(profiler, client, each.request, arguments)
            each.recordings.append(recording)
            each.statuses.append(status)
            advance(number + 1)


@contextmanager
def _until_interrupted(recorded: list[_Recorded]) -> Iterator[None]:
    """An interrupt ends the requests, and what was recorded by then is written all the same."""
    try:
        yield
    except KeyboardInterrupt:
        if not any(each.statuses for each in recorded):
            raise


def _send(
    profiler: "SqlProfiler", client: "InProcessClient", request: "Request", arguments: Namespace
) -> "tuple[Recording, int]":
    """One recorded request; one that raises is recorded all the same, and counts as 500, which a server makes of it."""
    try:
        with _record(profiler, str(request), arguments) as recording:
            status = client.send(request).status
    except PlacebenchError:
        raise
    except Exception:  # noqa: BLE001  it is the application's, whatever it is
        warn(traceback.format_exc())
        status = 500
    if client.interface == "asgi":
        recording.cpu_s = None  # only the event loop's thread was measured, and its thread pool was not
    return recording, status


def _record(profiler: "SqlProfiler", name: str, arguments: Namespace) -> "AbstractContextManager[Recording]":
    return profiler.record(name, arguments.mode, parameters=arguments.parameters, explain=arguments.explain)


def _profiler(arguments: Namespace, folders: tuple[str, ...], clocks: "Clocks | None" = None) -> "SqlProfiler":
    """Of the whole process, or of the drivers that were named. folders: of the application."""
    from placebench.profiler import SqlProfiler
    from placebench.profiler.integrations.process_profiler import share_profiler

    made = SqlProfiler.for_drivers if arguments.drivers else SqlProfiler
    profiler = made(*arguments.drivers, clocks=clocks, application=folders)
    share_profiler(profiler)
    return profiler


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _note_nothing_seen(profiler: "SqlProfiler", recordings: "Sequence[Recording]") -> None:
    """Note in all recordings, if none has a statement, what was looked for."""
    if not any(each.statements or each.transactions for each in recordings):
        for each in recordings:
            each.notes = (*each.notes, profiler.nothing_seen)


def _folder_name(number: int, request: "Request") -> str:
    """A name for the files of one of several requests, such as 2-GET-orders-7."""
    return f"{number}-{re.sub('[^A-Za-z0-9]+', '-', str(request)).strip('-')}"[:60]


def _application_name(arguments: Namespace) -> str:
    from placebench.profiler.integrations.application import detect_application

    if arguments.target is not None:
        return str(arguments.target)
    name, reason = detect_application(Path())
    say(f"application {name} ({reason})")
    return name


def _load_application(name: str) -> Any:
    from placebench.profiler.integrations.application import load_application

    before, sys.argv = sys.argv, [name]  # it may read a command line, and ours is not its own
    try:
        return load_application(name)
    except PlacebenchError:
        raise
    except (Exception, SystemExit) as error:
        warn(traceback.format_exc())
        seen = f"{type(error).__name__}, see above"
        raise ProfilerError(f"application {name!r} could not be loaded: {seen}") from error
    finally:
        sys.argv = before


def _write(recording: "Recording", folder: Path, formats: "Sequence[str]") -> dict[str, Path]:
    """Write the recording, its pages, its speedscope file and other *formats*; return their paths by kind."""
    from placebench.profiler import write_speedscope

    files = {**_write_pages(recording, folder, "index", flame="flame"), "recording": folder / "recording.json"}
    recording.save(files["recording"])
    if recording.session is not None:
        files["speedscope"] = folder / "flame.speedscope.json"
        write_speedscope(recording.session, files["speedscope"])
    return {**files, **_write_formats(recording, folder, "recording", formats)}


def _write_formats(recording: "Recording", folder: Path, name: str, formats: "Sequence[str]") -> dict[str, Path]:
    """Write what other programs read, as --format requests it; return the paths by their kinds."""
    from placebench.profiler import (
        write_firefox_profile,
        write_otlp_metrics,
        write_otlp_traces,
        write_sarif,
        write_speedscope,
    )

    if "speedscope" in formats and recording.session is None:
        raise ProfilerError(f"{recording.name} has no flame graph to write for speedscope: see --mode of `profile run`")
    writers: dict[str, tuple[Callable[..., None], ...]] = {
        "firefox": (write_firefox_profile,),
        "otlp": (write_otlp_traces, write_otlp_metrics),
        "sarif": (write_sarif,),
        "speedscope": (lambda each, path: write_speedscope(each.session, path),),
    }
    files: dict[str, Path] = {}
    for each in dict.fromkeys(formats):
        for end, write in zip(_FORMATS[each], writers[each], strict=True):
            path = files[end.split(".")[1]] = folder / f"{name}{end}"
            write(recording, path)
            say(f"{each}: {path}")
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


def report_recording(arguments: Namespace, recording: "Recording") -> None:
    """Write the files of a recording into --out, and print it."""
    files = _write(recording, arguments.out, ())
    emit(
        arguments,
        text=lambda: _text(recording),
        markdown=recording.to_markdown,
        document=lambda: _document(recording, files),
        page=files["page"],
    )


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
