"""Imports point one way: each room may import only the rooms that docs/explanation/architecture.md names for it."""

import ast
from pathlib import Path

import pytest

from placebench.paths import room

PACKAGE = Path(__import__("placebench").__file__).parent
TESTS = Path(__file__).parent

BASE = {"errors", "units", "tables", "paths", "decoding", "limits", "addresses"}
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
    "paths": {"errors"},
    "decoding": {"errors"},
    "addresses": {"errors"},
    "topology": {"decoding", "limits", "addresses", "errors"},
    "stats": {"errors"},
    "telemetry": {"errors"},
    "runtime": {"decoding", "limits", "errors"},
    "measure": {"runtime", "telemetry", "decoding", "errors"},
    "page": {"units", "errors"},
    "profiler": {"page", "units", "errors"},
    "seeding": {"topology", "tables", "paths", "decoding", "errors"},
    "export": {"topology", "tables", "seeding", "decoding", "addresses", "errors"},
    "reference": {"tables", "profiler", "telemetry", "errors"},
    "loadgen": {"telemetry", "errors"},
    "experiment": ALL - {"page", "results", "report"},
    "results": {"experiment", "profiler", "telemetry", "errors"},
    "report": {"results", "experiment", "profiler", "telemetry", "stats", "page", "units", "errors"},
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
