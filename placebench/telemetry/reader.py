"""Telemetry files as frames: every complete line is read, truncated lines are counted.

`load` reads a folder. Lines are sorted by their kind as bytes and parsed by pandas in bulk: a million of them take
about two seconds (tests/bench, section telemetry).
"""

import itertools
import json
import os
import re
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.errors import MissingExtraError, RunFolderError
from placebench.telemetry.analysis import Telemetry, TelemetryFile
from placebench.telemetry.series_file import FORMAT_VERSION

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = {
    b"q": ("kind", "started_s", "request", "verb", "path", "status", "server", "framework", "handler"),
    b"d": ("kind", "started_s", "request", "verb", "path", "status", "series", "label", "duration_s"),
    b"r": ("kind", "at_s", "name", "value"),
}
_STATEMENT = re.compile(rb's,([0-9a-f]+),("(?:[ !#-\[\]-~]|\\(?:["\\bfnrt]|u[0-9a-f]{4}))*")')
"""A line with the text of a statement as JSON, in ASCII as `json.dumps` writes it."""
_NUMBERS = ("started_s", "at_s", "server", "framework", "handler", "duration_s", "value")
_NESTED = ("server", "framework", "handler")
_MAX_TIME_S = 1e11
"""A time or a duration beyond three thousand years is a corrupt one."""
_MEASURES = {b"q": "server", b"d": "duration_s", b"r": "value"}


def load(folder: Path | str) -> "Telemetry":
    """Read the telemetry of every process that wrote to *folder* or a folder in it.

    Raises RunFolderError if there is none or if it has another format, MissingExtraError without pandas.
    """
    folder = Path(folder)
    # Not `rglob`, which before Python 3.13 fails for a folder that has just gone or whose path is too long.
    inside = (Path(base, name) for base, _, names in os.walk(folder) for name in names if name.endswith(".csv"))
    paths = [folder] if folder.is_file() else sorted(inside)
    if not paths:
        what = f"no telemetry in {folder}" if folder.exists() else f"no folder {folder}"
        raise RunFolderError(
            f"{what}: make some with Telemeter(DIR) in the application, `placebench load --telemetry DIR`, "
            "`lab serve --telemetry DIR` or `lab perfload --record-telemetry`"
        )
    files = [_sort_lines(path, folder) for path in paths]
    if not any(file.head or any(file.lines.values()) for file in files):
        raise RunFolderError(
            f"no telemetry in {folder}: {paths[0].name} holds no line of telemetry: name the folder that was given "
            "to Telemeter(DIR) or --telemetry DIR"
        )
    frames = {kind: _parse_lines(kind, [file.lines[kind] for file in files]) for kind in _COLUMNS}
    statements = {name: text for file in files for name, text in file.statements.items()}
    files_read = [file.as_read(number, frames) for number, file in enumerate(files)]
    return Telemetry(
        durations=_name_files(_durations(frames[b"q"], frames[b"d"]), files_read),
        runtime=_name_files(frames[b"r"].drop(columns="kind"), files_read),
        files=tuple(files_read),
        statements=statements,
    )


@dataclass(frozen=True)
class _SortedFile:
    """The lines of one file by their kind, and the number of lines that have none."""

    path: Path
    part: str
    head: dict[str, Any]
    lines: dict[bytes, list[bytes]]
    truncated: int
    statements: dict[str, str]
    """The texts of the statements by their fingerprints."""

    def as_read(self, number: int, frames: dict[bytes, "pd.DataFrame"]) -> TelemetryFile:
        lines = sum(map(len, self.lines.values()))
        read = sum(int((frame["file"] == number).sum()) for frame in frames.values())
        truncated = self.truncated + lines - read
        return TelemetryFile(self.path, self.part, self.path.stem, self.head, read + len(self.statements), truncated)


def _sort_lines(path: Path, folder: Path) -> _SortedFile:
    *lines, rest = path.read_bytes().split(b"\n")
    found: dict[bytes, list[bytes]] = {kind: [] for kind in _COLUMNS}
    commas = {kind: len(columns) - 1 for kind, columns in _COLUMNS.items()}
    head, truncated, statements = b"", int(rest != b""), dict[str, str]()
    for line in lines:
        kind = line[:1]
        if line.count(b",") == commas.get(kind) and line[1:2] == b",":
            found[kind].append(line)
        elif line[:2] == b"h," and not head:
            head = line[2:]
        elif statement := _STATEMENT.fullmatch(line):
            statements[statement[1].decode()] = json.loads(statement[2]).encode(errors="replace").decode()
        else:
            truncated += 1
    part = "" if path == folder else path.parent.relative_to(folder).as_posix().removeprefix(".")
    return _SortedFile(path, part, _head(head, path), found, truncated, statements)


def _head(line: bytes, path: Path) -> dict[str, Any]:
    try:
        head = json.loads(line or b"{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(head, dict):
        return {}
    if head.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
        raise RunFolderError(
            f"{path} is of format {head['format_version']}, this placebench reads {FORMAT_VERSION}: use a newer one"
        )
    return head


def _parse_lines(kind: bytes, lines: list[list[bytes]]) -> "pd.DataFrame":
    """Parse the lines of one kind, given as a list per file; lines without valid numbers and times are left out."""
    pandas, columns = _pandas(), list(_COLUMNS[kind])
    text = b"\n".join(itertools.chain.from_iterable(lines))
    if not text:
        return pandas.DataFrame({name: pandas.Series(dtype=_dtype(name)) for name in [*columns, "file"]})
    files = [number for number, found in enumerate(lines) for _ in found]
    needed = [columns[1], _MEASURES[kind]]
    try:
        frame = _csv(text, columns, {name: _dtype(name) for name in columns})
    except (ValueError, OverflowError):
        numbers = [name for name in columns if _dtype(name) != "category"]
        frame = _csv(text, columns, {name: "str" if name in numbers else "category" for name in columns})
        frame[numbers] = frame[numbers].apply(pandas.to_numeric, errors="coerce")
        needed += [name for name in ("request",) if name in columns]
    frame = frame.assign(file=files).dropna(subset=needed)
    for name in needed[:2] if kind != b"r" else needed[:1]:
        frame = frame[frame[name].abs() < _MAX_TIME_S]
    return frame.astype({name: _dtype(name) for name in columns if _dtype(name) != "category"})


def _csv(text: bytes, columns: list[str], types: dict[str, str]) -> "pd.DataFrame":
    # quoting=3: a quote is a character like any other, so that no line can swallow the next one.
    frame = _pandas().read_csv(
        BytesIO(text),
        header=None,
        names=columns,
        dtype=types,
        quoting=3,
        na_values={name: [""] for name in columns if _dtype(name) != "category"},
        keep_default_na=False,
        encoding_errors="replace",
    )
    # A status is text, although pandas reads a number.
    categorical = [name for name, kind in types.items() if kind == "category"]
    return frame.assign(**{name: frame[name].cat.rename_categories(str) for name in categorical})


def _dtype(column: str) -> str:
    return "float64" if column in _NUMBERS else "int64" if column in ("request", "file") else "category"


def _durations(requests: "pd.DataFrame", others: "pd.DataFrame") -> "pd.DataFrame":
    """Return one row per duration: first the durations of request lines, up to three per line, then the others."""
    pandas = _pandas()
    shared = requests[["started_s", "request", "verb", "path", "status", "file"]]
    parts = [
        shared.assign(series=name, label="", duration_s=requests[name])[requests[name].notna()] for name in _NESTED
    ]
    parts.append(others.drop(columns="kind"))
    for name in ("verb", "path", "status", "series", "label"):
        columns = [part[name].astype("category") for part in parts]
        every = sorted({str(value) for each in columns for value in each.cat.categories})
        parts = [
            part.assign(**{name: each.cat.set_categories(every)}) for part, each in zip(parts, columns, strict=True)
        ]
    return pandas.concat(parts, ignore_index=True)


def _name_files(frame: "pd.DataFrame", files: list[TelemetryFile]) -> "pd.DataFrame":
    """Replace the file's number by the worker (the file's name) and the part (its folder)."""
    categorical, codes = _pandas().Categorical.from_codes, frame["file"].to_numpy()
    parts = sorted({file.part for file in files})
    of_part = _pandas().Series([parts.index(file.part) for file in files]).to_numpy()[codes]
    workers = categorical(codes, [f"{file.part}/{file.worker}".lstrip("/") for file in files])
    return frame.drop(columns="file").assign(worker=workers, part=categorical(of_part, parts))


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise MissingExtraError("telemetry frames need pandas: pip install 'placebench[frames]'") from error
    return pandas
