"""`placebench profile run` and `check`: run a program, or requests to an application, under the SQL profiler."""

import os
import re
import shutil
import signal
import sys
import time
from argparse import REMAINDER, Action, ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from placebench.commands import Command, options
from placebench.commands.interrupts import ProgramInterrupted, signals_of_program
from placebench.commands.output import emit, progress, say, warn
from placebench.commands.profile.recording import (
    ProfileOptions,
    add_format,
    add_recording,
    check_replaceable,
    emit_recording,
    hold_gates,
    make_profiler,
    note_nothing_seen,
    record,
    recording_document,
    recording_text,
    write_recording,
)
from placebench.errors import (
    CommandNotExecutableError,
    CommandNotFoundError,
    GateFailedError,
    PlacebenchError,
    ProfilerError,
    UsageError,
)
from placebench.masking import mask
from placebench.paths import make_folder, make_ignored_folder
from placebench.profiler.model.session import gil_is_off

if TYPE_CHECKING:
    from placebench.http_session import Request
    from placebench.profiler import Recording, SqlProfiler
    from placebench.profiler.analysis.budget import Budget
    from placebench.profiler.integrations.in_process_client import InProcessClient, Response
    from placebench.profiler.integrations.program import Program

_SCRIPTS = (".py", ".pyw", ".pyz")
_MODES = ("light", "full", "sampled", "external", "flame", "plans")


class _ReadTarget(Action):
    """Parses APP, which options may follow, or a script, to which all following arguments belong."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: object, _option: str | None = None
    ) -> None:
        # Loaded late: a command starts sooner without it.
        from placebench.profiler.integrations.program import is_script

        words = [str(word) for word in cast("Sequence[Any]", values)]
        if namespace.module:
            namespace.module += words
            return
        explicit = words[:1] == ["--"]
        if not words[explicit:]:
            return
        target, *rest = words[explicit:]
        namespace.target, namespace.explicit = target, explicit
        if explicit or is_script(target):
            namespace.arguments = rest[1:] if rest[:1] == ["--"] and not explicit else rest
        else:
            parser.parse_args(rest, namespace)
            if namespace.target is not target:  # a second word that is not an option
                namespace.target, namespace.arguments = target, [namespace.target, *namespace.arguments]


def _configure_run(parser: ArgumentParser) -> None:
    parser.usage = (
        f"{parser.prog} [options] [APP]\n"
        f"       {parser.prog} [options] SCRIPT [ARGUMENTS ...]\n"
        f"       {parser.prog} [options] -m MODULE [ARGUMENTS ...]\n"
        f"       {parser.prog} [options] -- COMMAND [ARGUMENTS ...]"
    )
    parser.set_defaults(target=None, arguments=[], module=None, explicit=False)
    parser.add_argument(
        "target",
        action=_ReadTarget,
        nargs=REMAINDER,
        metavar="APP",
        help="MODULE:CALLABLE of WSGI or ASGI, a factory too (default: the FastAPI, Flask or Django project in this "
        "folder); or a script with its arguments; or, after --, any command, such as a server",
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
        help="status that every response must have (default: any below 400)",
    )
    parser.add_argument("--interface", choices=("wsgi", "asgi"), help="interface of APP (default: by its signature)")
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
    parser.add_argument("--parameters", action="store_true", help="keep bound values and literals; they may be secrets")
    parser.add_argument(
        "--explain", action="store_true", help="with --mode plans: estimated plans where the role may see no real one"
    )
    parser.add_argument(
        "--no-live",
        dest="live",
        action="store_false",
        help="of a command: serve no page on this machine that shows its requests as they come",
    )
    parser.add_argument(
        "--port",
        type=options.whole(0, 65535),
        default=0,
        metavar="P",
        help="port of that page (default: a free one); --open opens it",
    )
    parser.add_argument(
        "--badge",
        action="store_true",
        help="of a command: put a link to the recording into each HTML page that it serves",
    )
    add_format(parser)
    default = "full" if gil_is_off() else "sampled"
    add_recording(parser, modes=_MODES, mode=default, requests=1, per="times that each request is recorded")


def _configure_check(parser: ArgumentParser) -> None:
    _configure_run(parser)
    parser.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="EXPR",
        help="what must hold for each request on average, such as 'statements <= 10': of statements, rows, "
        "round_trips, duplicates, n_plus_one; exit code 1 if it does not; may be repeated",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _run(given: ProfileOptions, budget: "Budget | None" = None) -> int:
    """Run the program or send the requests, and write the recording."""
    if (command := _command(given)) is not None:
        from placebench.commands.profile.command import run_command

        return run_command(given, command, budget)
    program = _program(given)
    check_replaceable(given.recording.out)
    given = replace(given, recording=replace(given.recording, out=make_ignored_folder(given.recording.out).resolve()))
    return _run_requests(given, budget) if program is None else _run_program(given, program, budget)


def _check(given: ProfileOptions) -> int:
    """Run like `profile run`, then check the gates; exit code 1 if one does not hold."""
    from placebench.profiler.analysis.budget import Budget

    if not given.gate:
        raise UsageError(
            "there is no --gate: expected what must hold for each request, as in --gate 'statements <= 10'"
        )
    budget = Budget.parse(given.gate)
    budget.check(given.recording.mode)
    return _run(given, budget)


def _command(given: ProfileOptions) -> Path | None:
    """Return the file of the command after `--`; None if what stands there is a script or an application.

    Raises CommandNotFoundError or CommandNotExecutableError if there is no such command.
    """
    word = given.target
    if word is None:
        return None
    path, is_path = shutil.which(word), os.sep in word
    if not given.explicit:
        if path is not None and not is_path and ":" not in word and not Path(word).exists():
            raise UsageError(f"{word!r} is a command: expected `placebench {given.command} -- {word} …`")
        return None
    if Path(word).suffix in _SCRIPTS or (Path(word) / "__main__.py").is_file():
        return None
    if path is None:
        if ":" in word or (Path(word).is_file() and not is_path):
            return None
        if Path(word).exists():
            raise CommandNotExecutableError(f"{word} cannot be executed: expected a program, or `python {word}`")
        raise CommandNotFoundError(f"the command {word!r} was not found: expected a program on PATH or a file")
    refused = {
        "requests are sent to an application only": given.workload.requests_given or given.workload.login,
        "--drivers": given.drivers,
        "--parameters": given.parameters,
        "--explain": given.explain,
        "--requests": given.recording.requests != 1,
        "--mode external": given.recording.mode == "external",
        "--badge with --no-live": given.badge and not given.live,
    }
    for option, is_given in refused.items():
        if is_given:
            raise UsageError(
                f"{word} is a command: {option}" if " are " in option else f"{option} is not for a command ({word})"
            )
    return Path(path)


def _program(given: ProfileOptions) -> "Program | None":
    """Return the script or module to run; None if the target is an application that requests are sent to."""
    from placebench.profiler.integrations.program import Program, is_script

    if given.module is not None:
        if not given.module or given.target is not None:
            raise UsageError("expected one program: -m MODULE, or APP, or a script")
        name, *rest = given.module
        program = Program(name, tuple(rest[rest[:1] == ["--"] :]), is_module=True)
    elif given.target is not None and is_script(given.target):
        program = Program(given.target, given.arguments)
    elif given.arguments:
        raise UsageError(
            f"{given.target!r} is not a script, but {given.arguments[0]!r} follows it: expected one application, with "
            "its options before it, or a command after --"
        )
    else:
        return None
    if given.workload.requests_given or given.workload.login:
        raise UsageError(f"{program} is a program: requests are sent to an application only")
    program.check()
    return program


def _run_program(given: ProfileOptions, program: "Program", budget: "Budget | None") -> int:
    """Record a program and return its exit code, unless it is 0 and a gate does not hold.

    Raises ProgramInterrupted after writing the recording if a signal would have ended the program.
    """
    from placebench.profiler import Clocks
    from placebench.profiler.integrations.application import missing_package, package_folders
    from placebench.profiler.integrations.program import stdout_to_stderr, traceback_of

    begun, code, notes, received = False, 0, list[str](), list[int]()
    folders = package_folders(program.name) if program.is_module else ()
    profiler = make_profiler(given.drivers, folders, Clocks(cpu=time.process_time))  # of all its threads
    profiler.record_program()

    def leave(code: int) -> int:
        """Write the recording before the program's `os._exit` takes effect."""
        notes.append("the program ended by os._exit: what it would have done at its end is not in this recording")
        running.close()
        try:
            return _finish(given, budget, program, profiler, recording, notes, code)
        except GateFailedError as error:
            warn(f"placebench {given.command}: {error}")
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    try:
        with ExitStack() as running:
            if given.recording.output.json or given.recording.output.markdown:
                running.enter_context(stdout_to_stderr())
            recording = running.enter_context(record(profiler, str(program), given))
            begun = True
            with signals_of_program() as received:
                code = program.run(leave, notes.append)
    except KeyboardInterrupt:
        if not begun:
            raise
        received = received or [signal.SIGINT]
    except BaseException as error:
        if not begun:
            raise
        warn(traceback_of(error).rstrip())  # it is the program's, whatever it is
        code = 1
        if isinstance(error, ModuleNotFoundError) and (hint := missing_package(error)):
            warn(f"placebench profile run: {hint}")
    finally:
        profiler.remove()
    if received:  # whatever the program did then: without us it would have ended at once
        _finish(given, budget, program, profiler, recording, notes, None)
        raise ProgramInterrupted(received[0])
    return _finish(given, budget, program, profiler, recording, notes, code)


def _finish(
    given: ProfileOptions,
    budget: "Budget | None",
    program: "Program",
    profiler: "SqlProfiler",
    recording: "Recording",
    notes: Sequence[str],
    code: int | None,
) -> int:
    """Write the recording of a program that has ended, with *notes* added, and return the exit code *code*.

    code: None if the program was interrupted. Raises GateFailedError if *code* is 0 and a gate does not hold.
    """
    from placebench.profiler.integrations.application import application_in

    recording.notes = (*recording.notes, *notes)
    note_nothing_seen(profiler, [recording])
    if not recording.statement_count and (found := application_in(Path(program.name))) is not None:
        warn(
            f"{program} has an application, {found.reason}: `placebench profile run {found.name}` sends requests to it"
        )
    files = write_recording(recording, given.recording.out, given.format)
    emit_recording(given.recording.output, recording, files, exit_code=code)
    if code == 0:
        hold_gates(budget, [recording])
    return code or 0


def _run_requests(given: ProfileOptions, budget: "Budget | None") -> int:
    """Record requests to an application; raise GateFailedError if a response failed or a gate does not hold."""
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
    """Raise GateFailedError if a response does not have the expected status (None: any status below 400)."""
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
    """One request of the command line with its recordings and responses."""

    request: "Request"
    folder: str
    """The subfolder for the request's files, used if there are several requests."""
    recordings: "list[Recording]" = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    responses: "dict[int, Response]" = field(default_factory=dict)
    """The first response of each status, by status."""
    files: dict[str, Path] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The method and the path with its query, without secrets; requests may differ in the query only."""
        return mask(f"{self.request.method} {self.request.path}")

    def status_text(self, status: int) -> str:
        response = self.responses.get(status)
        target = response.header("location") if response and 300 <= status < 400 else ""
        return f"{status} to {target}" if target else str(status)

    @cached_property
    def merged(self) -> "Recording":
        from placebench.profiler import Recording

        return Recording.merge(self.recordings)


def _recorded(given: ProfileOptions, requests: "Sequence[Request]") -> list[_Recorded]:
    """Record each request; if interrupted, return what was recorded until then."""
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
    """Send a login request; raise ProfilerError if it fails, even by an exception of the application."""
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
    """Record one request; if the application raises, its status is 500, as a server would send."""
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
    """Return the folder name for one of several requests, such as 2-GET-orders-7."""
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


COMMANDS = {
    "profile run": Command(_configure_run, _run, options=ProfileOptions),
    "profile check": Command(_configure_check, _check, options=ProfileOptions),
}
