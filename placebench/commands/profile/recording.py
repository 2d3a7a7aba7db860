"""Shared parts of the commands of `placebench profile`: recording, and the files and text that result from it."""

from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench import units
from placebench.commands import options
from placebench.commands.output import emit, say, warn
from placebench.errors import GateFailedError, ProfilerError

if TYPE_CHECKING:
    from placebench.profiler import Clocks, Recording, SqlProfiler
    from placebench.profiler.analysis.budget import Budget
    from placebench.profiler.integrations.application import Interface

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
            raise ProfilerError(f"{saved} is there and is no recording: name another folder with --out")
    elif not page.exists():
        ends = (".pyisession", *(end for each in _FORMATS.values() for end in each))
        for path in (
            folder / name for name in ("flame.html", "flame.speedscope.json", *(f"recording{end}" for end in ends))
        ):
            if path.exists():
                raise ProfilerError(
                    f"{path} is there, beside no recording of placebench: name another folder with --out"
                )


def write_recording(recording: "Recording", folder: Path, formats: "Sequence[str]") -> dict[str, Path]:
    """Write the recording, its pages, its speedscope file and the *formats*; return the paths by kind."""
    from placebench.profiler import write_speedscope

    files = {**write_pages(recording, folder, "index", flame="flame"), "recording": folder / "recording.json"}
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


def write_pages(recording: "Recording", folder: Path, name: str, *, flame: str | None = None) -> dict[str, Path]:
    """Write the page *name*.html, and the page of the flame graph if there is one; return the paths by kind."""
    from placebench.profiler import write_flame_page

    files = {"page": folder / f"{name}.html"}
    if recording.session is None:
        recording.write_page(files["page"])
        return files
    files["flame"] = folder / f"{flame or f'{name}.flame'}.html"
    recording.write_page(files["page"], flame_page=files["flame"].name)
    write_flame_page(
        recording.session,
        files["flame"],
        title=recording.name,
        requests=recording.requests,
        notes=recording.notes,
        back=files["page"].name,
    )
    return files


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
