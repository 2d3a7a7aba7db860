"""Imports point one way: each room may import only the rooms that docs/explanation/architecture.md names for it."""

import ast
from pathlib import Path

import pytest

from placebench.paths import room

PACKAGE = Path(__import__("placebench").__file__).parent
TESTS = Path(__file__).parent

BASE = {"errors", "units", "tables", "paths", "decoding", "limits", "addresses", "gates"}
DATA = {"topology", "seeding", "export", "telemetry", "stats"}
PROGRAMS = {"runtime", "measure", "loadgen"}
ALL = BASE | DATA | PROGRAMS | {"page", "profiler", "reference", "experiment", "results", "report"}
MAY_IMPORT = {
    "__init__": set(),
    "__main__": {"cli"},
    "errors": set(),
    "units": set(),
    "tables": set(),
    "limits": set(),
    "gates": {"errors"},
    "paths": {"errors"},
    "decoding": {"errors"},
    "addresses": {"errors"},
    "topology": {"decoding", "limits", "addresses", "errors"},
    "stats": {"errors"},
    "telemetry": {"errors"},
    "runtime": {"decoding", "limits", "errors"},
    "measure": {"runtime", "telemetry", "decoding", "errors"},
    "page": {"units", "errors"},
    "profiler": {"page", "units", "gates", "errors"},
    "seeding": {"topology", "tables", "paths", "decoding", "errors"},
    "export": {"topology", "tables", "seeding", "decoding", "addresses", "errors"},
    "reference": {"tables", "profiler", "telemetry", "errors"},
    "loadgen": {"telemetry", "errors"},
    "experiment": ALL - {"page", "results", "report"},
    "results": {"experiment", "profiler", "telemetry", "errors"},
    "report": {"results", "experiment", "profiler", "telemetry", "stats", "page", "units", "gates", "errors"},
    "commands": ALL | {"commands"},
    "cli": ALL | {"commands", "__init__"},
    "loaders": {"seeding", "topology", "tables", "decoding", "addresses", "errors"},
    "schema": {"tables"},
    "locustfiles": {"topology", "loadgen", "telemetry"},
    # Programs among the tests, which are run by themselves.
    "bench": ALL | {"commands", "SqlProfiler"},
    "oracle": {"runtime", "reference", "seeding", "tables"},
}


def files() -> list[tuple[str, Path]]:
    """Each Python file with the room it lies in."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        if inside.parts[0] != "_workbench":
            found.append((Path(inside.parts[0]).stem, path))
    for name in ("loaders", "schema", "locustfiles"):
        found.extend((name, path) for path in sorted(room(name).rglob("*.py")))
    for name in ("bench", "oracle"):
        found.extend((name, path) for path in sorted((TESTS / name).rglob("*.py")))
    return found


def imported_rooms(path: Path) -> set[str]:
    """The rooms of placebench that the file at *path* imports, anywhere in it."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "placebench":
            names = [f"placebench.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("placebench.")}
    return rooms - {"__version__"}


@pytest.mark.parametrize(("name", "path"), files(), ids=lambda value: value if isinstance(value, str) else value.name)
def test_a_room_imports_only_what_it_may(name: str, path: Path) -> None:
    """Every import of ours in this file points to a room that its own room may import."""
    allowed = MAY_IMPORT[name] | {name}

    assert imported_rooms(path) - allowed == set()


def test_every_room_is_named() -> None:
    """A new room has to say what it may import."""
    assert {name for name, _ in files()} - set(MAY_IMPORT) == set()


def test_the_rooms_opened_by_path_are_not_packages() -> None:
    """schema, loaders and locustfiles hold no __init__.py: nobody imports them, and they shadow nothing."""
    assert [path for name in ("schema", "loaders", "locustfiles") for path in room(name).rglob("__init__.py")] == []


def imported_modules(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of placebench that the file at *path* imports anywhere in it: lazily and for typing, too."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {
                name if (name := f"{node.module}.{each.name}") in modules else node.module for each in node.names
            }
        elif isinstance(node, ast.Import):
            imported |= {each.name for each in node.names}
    return imported & set(modules)


def cycles(imports: dict[str, set[str]]) -> list[str]:
    """The modules that import themselves by way of others."""

    def reachable(start: str) -> set[str]:
        found: set[str] = set()
        waiting = list(imports[start])
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(imports[name])
        return found

    return [name for name in sorted(imports) if name in reachable(name)]


@pytest.mark.parametrize("package", ["profiler"])
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    """Inside of a package, typing and lazy imports counted."""
    paths = (PACKAGE / package).rglob("*.py")
    modules = {".".join(("placebench", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in paths}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}

    assert cycles({name: imported_modules(path, modules) - {name} for name, path in modules.items()}) == []


PROFILER_LAYERS = ("model", "capture", "analysis", "output")
"""Each may import those before it; `drivers` is one layer with `capture`."""


@pytest.mark.parametrize("layer", PROFILER_LAYERS)
def test_a_layer_of_the_profiler_imports_only_those_below(layer: str) -> None:
    """The model is pure data; analysis does not know how a recording was made, apart from its options."""
    folders = ("capture", "drivers") if layer == "capture" else (layer,)
    allowed = {*folders, *PROFILER_LAYERS[: PROFILER_LAYERS.index(layer)]} - (
        {"capture"} if layer == "analysis" else set()
    )
    paths = [path for folder in folders for path in (PACKAGE / "profiler" / folder).rglob("*.py")]
    named = [
        node.module.split(".")[2]
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("placebench.profiler.")
    ]

    assert set(named) - allowed == set()


def test_only_the_hooks_import_sqlalchemy() -> None:
    """The timed drivers and the recording that they write into work without it."""
    importing = {
        path.stem
        for path in (PACKAGE / "profiler").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sqlalchemy"
    }

    assert importing == {"engine", "hooks", "sql_profiler"}
