"""What a release promises, as one document: `python tests/contract/promises.py` writes it to files/promises.json.

`promises` reads it from the code: Python API, commands, exit codes, keys of JSON, formats of files, extras, entry
points, environment variables and findings. `broken` names what an earlier document has and a later one lacks; what is
new breaks nothing. docs/build.py makes the table of docs/reference/stability.md from the file.
"""

import argparse
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, get_args

TOP = Path(__file__).parents[2]
REFERENCE = TOP / "docs" / "reference"
KEPT = Path(__file__).parent / "files" / "promises.json"
_OBJECT = re.compile(r"^::: (\S+)\n(?:    options:\n      members: \[(.*)\])?", re.MULTILINE)
_SIMPLE = (type(None), bool, int, float, str, tuple)


def promises() -> dict[str, Any]:
    """Return what this version promises."""
    metadata = distribution("placebench")
    return {
        "api": dict(_public_api()),
        "commands": dict(_commands()),
        "exit codes": [int(code) for code in re.findall(r"^\| (\d+) \|", _page("exit-codes"), re.MULTILINE)],
        "json": _keys_of_documents(),
        "formats": _formats(),
        "extras": sorted(metadata.metadata.get_all("Provides-Extra") or ()),
        "entry points": sorted(f"{each.group}: {each.name}" for each in metadata.entry_points),
        "environment variables": sorted(set(re.findall(r"PLACEBENCH_[A-Z_]*[A-Z]", _page("environment")))),
        "findings": sorted(get_args(import_module("placebench.profiler.analysis.findings.kinds").Kind)),
    }


def broken(promised: Any, actual: Any, where: str = "") -> Iterator[str]:
    """Yield a line for each part of *promised* that *actual* lacks or has otherwise; null stands for any value."""
    if isinstance(promised, dict) and isinstance(actual, dict):
        for name, value in promised.items():
            if name not in actual:
                yield f"{where}{name} is gone"
            else:
                yield from broken(value, actual[name], f"{where}{name}: ")
        if where.endswith("parameters: "):
            yield from _given_otherwise(promised, actual, where)
    elif isinstance(promised, list) and isinstance(actual, list):
        yield from (f"{where}{value} is gone" for value in promised if value not in actual)
    elif promised != actual and promised not in (None, "null") and actual != "null":
        yield f"{where}{actual}, was {promised}"


def _given_otherwise(promised: Mapping[str, Any], actual: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield a line for each parameter that is new and has to be given, and one if the order is another."""
    yield from (f"{where}{name} has to be given" for name in actual if name not in promised and "=" not in actual[name])
    positional = [name for name in promised if promised[name].startswith("positional")]
    if [name for name in actual if name in positional] != [name for name in positional if name in actual]:
        yield f"{where}in another order"


def _page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def _public_api() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each name of docs/reference/api.md with its parameters and members."""
    for match in _OBJECT.finditer(_page("api")):
        module, _, name = match[1].rpartition(".")
        value = getattr(import_module(module), name)
        members = match[2].split(", ") if match[2] else None
        yield match[1], _described(value, members)


def _described(value: Any, members: list[str] | None = None) -> dict[str, Any]:
    if not isinstance(value, type):
        return {"parameters": _parameters(value)} if callable(value) else {"type": type(value).__name__}
    own = {name for each in value.__mro__ if each.__module__.startswith("placebench") for name in vars(each)}
    public = members or sorted(name for name in own if not name.startswith("_"))
    described: dict[str, Any] = {"members": {name: _member(value, name) for name in public}}
    if not issubclass(value, Exception | str):
        described["parameters"] = _parameters(value)
    return described


def _member(owner: type, name: str) -> dict[str, Any] | str:
    value = inspect.getattr_static(owner, name, None)
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return {"parameters": _parameters(function)} if inspect.isfunction(function) else "attribute"


def _parameters(function: Any) -> dict[str, str]:
    """Return each parameter but the first one of a method: how it is given, and its default."""
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in ("self", "cls") and not parameter.name.startswith("_"):
            default = parameter.default
            shown = repr(default) if isinstance(default, _SIMPLE) else "…"
            given = "" if default is parameter.empty else f" = {shown}"
            found[parameter.name] = f"{parameter.kind.description}{given}"
    return found


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each command with its options and arguments."""
    from placebench.cli import parser

    waiting = [parser()]
    for command in waiting:
        names = []
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting.extend(dict.fromkeys(action.choices.values()))
            else:
                names += action.option_strings or [action.dest]
        yield command.prog, sorted(names)


def _formats() -> dict[str, int]:
    places = {
        "run folder": "placebench.compare.keep.records",
        "recording": "placebench.profiler.model.recording_data",
        "telemetry": "placebench.telemetry.series_file",
        "export of a run": "placebench.report.documents",
    }
    found = {name: vars(import_module(place)) for name, place in places.items()}
    return {name: values.get("FORMAT_VERSION", values.get("_FORMAT_VERSION")) for name, values in found.items()}


def _keys_of_documents() -> dict[str, dict[str, str]]:
    """Return the keys of each document with their types: of a made-up run, and of a recording of three statements."""
    from fake_run import FakeRun, write_run
    from reports import document_of

    from placebench import results

    with tempfile.TemporaryDirectory() as name:
        run = results.load(write_run(Path(name) / "run", FakeRun(requests=20, replicates=6)))
        documents = {
            "compare --json": json.loads(json.dumps(document_of(run))),
            "run.json": json.loads((run.folder / "run.json").read_bytes()),
            "blocks.jsonl": json.loads((run.folder / "blocks.jsonl").read_bytes().splitlines()[0]),
            "recording": _recording(Path(name) / "recording.json"),
        }
    # What a run is asked, and on which machine, has keys of its own kind of run, and names of variants and packages.
    del documents["run.json"]["manifest"], documents["run.json"]["settings"]
    return {name: dict(sorted(_keys(document))) for name, document in documents.items()}


def _recording(path: Path) -> Any:
    from sqlalchemy import create_engine, text

    from placebench.profiler import SqlProfiler

    engine = create_engine("sqlite://")
    profiler = SqlProfiler(engine)
    with profiler.record("GET /orders") as recording, engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
        for number in range(2):
            connection.execute(text("INSERT INTO orders VALUES (:number)"), {"number": number})
    profiler.remove()
    engine.dispose()
    recording.save(path)
    return json.loads(path.read_bytes())


_TYPES = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}


def _keys(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each value with its type; all entries of a list are one path."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _keys(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield path, "list"
        for each in value:
            yield from _keys(each, f"{path}[]")
    else:
        yield path, _TYPES[type(value)]


if __name__ == "__main__":
    sys.path.append(str(TOP / "tests" / "fakes"))
    KEPT.write_text(json.dumps(promises(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
