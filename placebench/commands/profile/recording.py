"""What commands that record share: their options, `ServiceProfile`, and the files and text that result from it."""

import threading
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench import units
from placebench.commands import options
from placebench.commands.output import emit, say, warn
from placebench.errors import GateFailedError, LoadError, ProfilerError
from placebench.paths import make_ignored_folder

if TYPE_CHECKING:
    from placebench.profiler import Clocks, Recording, SqlProfiler
    from placebench.profiler.analysis.budget import Budget
    from placebench.profiler.integrations.application import Interface
    from placebench.profiler.requests.attachment import Attachment

OUT = Path("profile")
_FORMATS = {
    "firefox": (".firefox.json.gz",),
    "otlp": (".traces.jsonl", ".metrics.jsonl"),
    "sarif": (".sarif",),
    "speedscope": (".speedscope.json",),
}
"""The formats of --format, each with the endings of its file names."""


@dataclass(frozen=True)
class RecordingOptions:
    """The extent of a recording, and the folder that it is written to."""

    output: options.OutputOptions
    requests: int
    mode: str
    out: Path


@dataclass(frozen=True)
class ProfileOptions:
    """The options of `placebench profile run` and `check`."""

    recording: RecordingOptions
    workload: options.RequestOptions
    command: str
    """The words that call the command, such as "profile run"."""
    target: str | None
    arguments: tuple[str, ...]
    """The arguments of the target if it is a script."""
    explicit: bool
    """Whether the target stands behind `--`."""
    module: tuple[str, ...] | None
    """The module of -m, followed by its arguments."""
    expect_status: int | None
    interface: "Interface | None"
    warmup: int
    drivers: tuple[str, ...]
    parameters: bool
    explain: bool
    format: tuple[str, ...]
    live: bool
    port: int
    """The port of the live page; 0 takes a free one."""
    badge: bool
    """Whether HTML pages get a link to their recording on the live page."""
    gate: tuple[str, ...] = ()


def add_recording(parser: ArgumentParser, *, modes: Sequence[str], mode: str, requests: int, per: str) -> None:
    """Add --requests, --mode, --out and the output options; *per* names what --requests counts, for the help."""
    parser.add_argument(
        "--requests",
        type=options.request_count,
        default=requests,
        metavar="N",
        help=f"number of {per} (default: {requests})",
    )
    parser.add_argument(
        "--mode",
        choices=modes,
        default=mode,
        help="how much is recorded: sampled has a flame graph of 100 samples per second, the mode flame one of every "
        f"call, at twice the CPU (default: {mode})",
    )
    options.add_out(parser, f"folder of the page and the recording (default: ./{OUT})", default=OUT)
    options.add_output(parser, markdown=True, page=True)


def add_format(parser: ArgumentParser) -> None:
    """Add --format, the additional formats of a recording."""
    parser.add_argument(
        "--format",
        action="append",
        default=[],
        choices=tuple(_FORMATS),
        help="also write the recording in this format, for another program; may be repeated",
    )


def make_profiler(drivers: Sequence[str], folders: tuple[str, ...], clocks: "Clocks | None" = None) -> "SqlProfiler":
    """Return a profiler of the whole process, or of *drivers* if any are named; folders: those of the application."""
    from placebench.profiler import SqlProfiler
    from placebench.profiler.integrations.process_profiler import share_profiler

    if drivers:
        profiler = SqlProfiler.for_drivers(*drivers, clocks=clocks, application=folders)
    else:
        profiler = SqlProfiler(clocks=clocks, application=folders)
    share_profiler(profiler)
    return profiler


def record(profiler: "SqlProfiler", name: str, given: ProfileOptions) -> "AbstractContextManager[Recording]":
    """Return a context manager that records its `with` block according to the options."""
    return profiler.record(name, given.recording.mode, parameters=given.parameters, explain=given.explain)


def note_nothing_seen(profiler: "SqlProfiler", recordings: "Sequence[Recording]") -> None:
    """Add a note on what the profiler covers to all recordings if none of them has a statement."""
    if not any(each.statements or each.transactions for each in recordings):
        for each in recordings:
            each.notes = (*each.notes, profiler.nothing_seen)


def hold_gates(budget: "Budget | None", recordings: "Sequence[Recording]") -> None:
    """Raise GateFailedError if a recording exceeds the budget, after printing the statements on stderr."""
    if budget is None:
        return
    broken = [text for recording in recordings if (text := budget.broken_by(recording))]
    if broken:
        warn("\n".join(broken))
        raise GateFailedError("a gate does not hold: see the statements above")


def check_page(page: Path) -> None:
    """Raise ProfilerError if there is a file at *page* that placebench did not write."""
    if not page.exists():
        return
    from placebench.page import description_of  # imports the templates' engine

    if description_of(page) is None:
        raise ProfilerError(f"{page} is there and was not written by placebench: name another folder with --out")


def check_replaceable(folder: Path) -> None:
    """Raise ProfilerError if a file to be written already exists and was not written by placebench.

    A page is recognized by its metadata, a recording by its keys; other files are accepted only beside one of these.
    """
    from placebench.profiler.model.files import is_recording

    page, saved = folder / "index.html", folder / "recording.json"
    check_page(page)
    if saved.exists():
        if not is_recording(saved):
            raise ProfilerError(f"{saved} is there and is not a recording: name another folder with --out")
    elif not page.exists():
        ends = (".pyisession", *(end for each in _FORMATS.values() for end in each))
        for path in (
            folder / name for name in ("flame.html", "flame.speedscope.json", *(f"recording{end}" for end in ends))
        ):
            if path.exists():
                raise ProfilerError(
                    f"{path} is there, beside no recording of placebench: name another folder with --out"
                )


def write_recording(
    recording: "Recording", folder: Path, formats: "Sequence[str]", *, load: "Sequence[str]" = ()
) -> dict[str, Path]:
    """Write the recording, its pages, its speedscope file and the *formats*; return the paths by kind.

    load: lines on the load under which it was recorded, for its page.
    """
    from placebench.profiler import write_speedscope

    files = {
        **write_pages(recording, folder, "index", flame="flame", load=load),
        "recording": folder / "recording.json",
    }
    recording.save(files["recording"])
    if recording.session is not None:
        files["speedscope"] = folder / "flame.speedscope.json"
        write_speedscope(recording.session, files["speedscope"])
    return {**files, **write_formats(recording, folder, "recording", formats)}


def write_formats(recording: "Recording", folder: Path, name: str, formats: "Sequence[str]") -> dict[str, Path]:
    """Write the *formats* for other programs; return the paths by kind."""
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


def write_pages(
    recording: "Recording", folder: Path, name: str, *, flame: str | None = None, load: "Sequence[str]" = ()
) -> dict[str, Path]:
    """Write the page *name*.html, and the page of the flame graph if there is one; return the paths by kind."""
    from placebench.profiler import write_flame_page
    from placebench.profiler.output.pages import write_recording_page

    files = {"page": folder / f"{name}.html"}
    if recording.session is None:
        write_recording_page(recording, files["page"], load=load)
        return files
    files["flame"] = folder / f"{flame or f'{name}.flame'}.html"
    write_recording_page(recording, files["page"], flame_page=files["flame"].name, load=load)
    write_flame_page(
        recording.session,
        files["flame"],
        title=recording.name,
        requests=recording.requests,
        notes=recording.notes,
        back=files["page"].name,
    )
    return files


SERVICE_MODES = ("light", "full", "sampled", "flame", "plans")
_READ_EVERY_S = 0.1
_MAX_SERVICE_S = 24 * 3600.0
_MAX_SERVICE_REQUESTS = 1000


class ServiceProfile:
    """Collects what a service records during a `with` block: at most 1000 requests, of whoever sends them.

    target: the process id of a service with a middleware of placebench (of a server with workers, its master), or the
    folder into which a service records; there the recordings that the block adds count. mode: how much the process
    records; a service with a folder decides that itself. Raises ProfilerError for a process that cannot be recorded,
    and LoadError for a target that is neither.
    """

    def __init__(self, target: str, mode: str | None, out: Path | None) -> None:
        self._folder = None if target.isdecimal() else Path(target)
        self._pid = int(target) if target.isdecimal() else 0
        if self._folder is not None and not self._folder.is_dir():
            raise LoadError(
                f"--profile {target}: expected the process id of the service, or a folder of its recordings"
            )
        if self._folder is not None and mode:
            raise LoadError(f"--mode with the folder {target}: the service that records there decides the mode")
        self._mode = mode or "sampled"
        self._out = out or OUT
        check_replaceable(self._out)
        self._known: set[Path] = set()
        self._attachments: list[Attachment] = []
        self._closing = ExitStack()
        self._ended = threading.Event()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._recordings: list[Recording] = []

    def __enter__(self) -> "ServiceProfile":
        if self._folder is not None:
            self._known = set(self._folder.glob("*.recording.json"))
            return self
        from placebench.profiler.requests.attachment import Attachment, channels_of

        with ExitStack() as opened:
            for path in channels_of(self._pid).values():
                self._attachments.append(Attachment(path))
                opened.callback(self._attachments[-1].close)
            for each in self._attachments:
                each.start(self._mode, _MAX_SERVICE_S)
            self._closing = opened.pop_all()
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            from placebench.profiler import Recording

            new = sorted(set(self._folder.glob("*.recording.json")) - self._known)
            self._recordings = [Recording.load(each) for each in new[:_MAX_SERVICE_REQUESTS]]
            return
        self._ended.set()
        self._reading.join()
        with self._closing:
            self._recordings += [recording for each in self._attachments for _, recording in each.stop()]

    def _read(self) -> None:
        """Fetch recordings until the block ends, or there are enough: a process keeps few that nobody reads."""
        while not self._ended.wait(_READ_EVERY_S):
            self._recordings += [recording for each in self._attachments for _, recording in each.read()]
            if len(self._recordings) >= _MAX_SERVICE_REQUESTS:
                self._recordings += [recording for each in self._attachments for _, recording in each.stop()]
                return

    def write(self, load: Sequence[str]) -> tuple[list[str], dict[str, Any], Path]:
        """Write the page of the mean request, under the lines on the *load*; return text, document and the page.

        Raises ProfilerError if nothing was recorded.
        """
        from placebench.profiler import Recording

        if not self._recordings:
            where = f"process {self._pid}" if self._folder is None else str(self._folder)
            raise ProfilerError(
                f"no request of the load was recorded by {where}: expected one; is it the service that was requested?"
            )
        names = {each.name for each in self._recordings}
        merged = Recording.merge(self._recordings, name=names.pop() if len(names) == 1 else "the service under load")
        files = write_recording(merged, make_ignored_folder(self._out).resolve(), (), load=load)
        if dropped := sum(each.dropped for each in self._attachments):
            say(f"{units.numbered(dropped, 'request')} left out of the profile: too fast to be read")
        summary = merged.summary()
        sql, python = (units.duration(summary.mean(each)) for each in (summary.sql_s, summary.python_s))
        requests = units.numbered(merged.requests, "request")
        lines = [f"profile     {requests} in mode {merged.mode}, which slows them down: sql {sql}, python {python}"]
        lines += [f"            {finding}".partition("\n")[0] for finding in merged.findings()[:3]]
        return lines, recording_document(merged, files), files["page"]


def say_names(recordings: "Sequence[Recording]") -> None:
    """Print the number of requests and the mean time for each request name, the most expensive name first."""
    by_name: dict[str, list[Recording]] = defaultdict(list)
    for recording in recordings:
        by_name[recording.name].append(recording)
    totals = {name: sum(each.elapsed_s for each in group) for name, group in by_name.items()}
    for name, total in sorted(totals.items(), key=lambda item: -item[1])[:20]:
        count = len(by_name[name])
        say(f"{name}: {units.numbered(count, 'request')}, {units.duration(total / count)} on average")


def emit_recording(
    output: options.OutputOptions, recording: "Recording", files: dict[str, Path], **more: object
) -> None:
    """Print the recording as text, Markdown or JSON; *more*: additional keys of the JSON document."""
    emit(
        output,
        text=lambda: recording_text(recording),
        markdown=recording.to_markdown,
        document=lambda: {**recording_document(recording, files), **more},
        page=files["page"],
    )


def recording_document(recording: "Recording", files: dict[str, Path]) -> dict[str, Any]:
    """Return the document for --json: summary, findings and notes of the recording, and the paths of its files."""
    return {
        "summary": asdict(recording.summary()),
        "findings": [finding.to_json() for finding in recording.findings()],
        "notes": list(recording.notes),
        "files": {kind: str(path) for kind, path in files.items()},
    }


def recording_text(recording: "Recording") -> str:
    """Return summary, notes and findings of the recording as text for a terminal."""
    return "\n".join(map(str, (recording.summary(), *recording.notes, *recording.findings())))
