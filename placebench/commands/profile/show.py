"""`placebench profile show` and `diff`: pages of saved recordings."""

from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.commands import Command, options
from placebench.commands.output import emit, say
from placebench.commands.profile.recording import (
    OUT,
    add_format,
    check_page,
    emit_recording,
    say_names,
    write_formats,
    write_pages,
)
from placebench.errors import ProfilerError
from placebench.paths import make_ignored_folder

if TYPE_CHECKING:
    from placebench.profiler import Recording


@dataclass(frozen=True)
class ShowOptions:
    """The options of `placebench profile show`."""

    output: options.OutputOptions
    path: Path
    name: str | None
    samples: Path | None
    out: Path | None
    format: tuple[str, ...]
    prove_on: str | None


@dataclass(frozen=True)
class RecordingDiffOptions:
    """The options of `placebench profile diff`."""

    output: options.OutputOptions
    before: Path
    after: Path
    out: Path


def _configure_show(parser: ArgumentParser) -> None:
    _add_recording(parser, "path", "PATH")
    parser.add_argument(
        "--name",
        type=options.text,
        metavar="NAME",
        help="of a folder of recordings: merge only those with this name, such as 'GET /orders' (default: all)",
    )
    parser.add_argument(
        "--samples",
        type=options.path,
        metavar="FILE",
        help="make the flame graph of samples that `python -m profiling.sampling attach -a --gecko -o FILE PID` of "
        "Python 3.15 took while PATH was recorded",
    )
    parser.add_argument(
        "--prove-on",
        metavar="URL",
        help="propose indexes for the sequential scans in its plans, each proved on this PostgreSQL 16 or later: by "
        "HypoPG, or created in a transaction that is rolled back; an expendable copy, since that locks its tables",
    )
    options.add_out(parser, "folder of its page (default: beside the recording)")
    add_format(parser)
    options.add_output(parser, markdown=True, page=True)


def _configure_diff(parser: ArgumentParser) -> None:
    _add_recording(parser, "before", "A")
    _add_recording(parser, "after", "B")
    options.add_out(parser, f"folder of the page difference.html (default: ./{OUT})", default=OUT)
    options.add_output(parser, markdown=True, page=True)


def _add_recording(parser: ArgumentParser, name: str, metavar: str) -> None:
    parser.add_argument(
        name,
        type=options.path,
        metavar=metavar,
        help="recording.json, the folder that `profile run` made, "
        "or a folder into which a service recorded its requests: they are merged",
    )


def _show(given: ShowOptions) -> int:
    """Write the page of a saved recording, and print its summary and findings."""
    recording, path = _read(given.path, given.name)
    if given.samples is not None:
        recording.join_samples(given.samples)
    folder = make_ignored_folder(given.out) if given.out else path.parent
    name = path.name.removesuffix(".json")
    check_page(folder / f"{name}.html")
    files = {**write_pages(recording, folder, name), **write_formats(recording, folder, name, given.format)}
    if given.prove_on is None:
        emit_recording(given.output, recording, files)
        return 0
    from placebench.commands.profile.index_proof import prove_indexes

    proved = prove_indexes(recording, given.prove_on)
    for index in proved or ("index: none was proved: no scan with a condition, or none that an index makes cheap",):
        say(str(index))
    emit_recording(given.output, recording, files, indexes=[index.to_json() for index in proved])
    return 0


def _diff(given: RecordingDiffOptions) -> int:
    """Write a page on the differences between two recordings, and print the differences."""
    from placebench.profiler import write_difference_page
    from placebench.profiler.output.markdown import difference_markdown

    (before, _), (after, _) = _read(given.before), _read(given.after)
    difference = before.diff(after)
    page = given.out / "difference.html"
    check_page(page)
    make_ignored_folder(given.out)
    write_difference_page(difference, page)
    emit(
        given.output,
        text=lambda: str(difference),
        markdown=lambda: difference_markdown(difference),
        document=difference.to_json,
        page=page,
    )
    return 0


def _read(path: Path, name: str | None = None) -> "tuple[Recording, Path]":
    """Return the recording at *path*, and the path by which its page is named.

    The recordings that a middleware left in a folder are merged, those of *name* if it is given. Raises ProfilerError
    if there is none, or one of them cannot be read.
    """
    from placebench.profiler import Recording

    saved = path / "recording.json" if path.is_dir() else path
    found = sorted(path.glob("*-*.recording.json"))
    if saved.is_file() or not path.is_dir():
        if name is not None:
            raise ProfilerError(
                f"--name {name!r}: {saved} is one recording; expected a folder of a service's recordings"
            )
        return Recording.load(saved), saved
    if not found:
        raise ProfilerError(
            f"{path} has no recording: expected recording.json, or PID-NUMBER.recording.json of a service"
        )
    recordings = [Recording.load(each) for each in found]
    say_names(recordings)
    if name is not None:
        seen = ", ".join(dict.fromkeys(each.name for each in recordings))
        recordings = [each for each in recordings if each.name == name]
        if not recordings:
            raise ProfilerError(f"--name {name!r}: no recording in {path} has it: expected one of {seen}")
    names = {each.name for each in recordings}
    return Recording.merge(recordings, name=names.pop() if len(names) == 1 else path.name), path / "merged.json"


COMMANDS: dict[str, Command[Any]] = {
    "profile show": Command(_configure_show, _show, options=ShowOptions),
    "profile diff": Command(_configure_diff, _diff, options=RecordingDiffOptions),
}
