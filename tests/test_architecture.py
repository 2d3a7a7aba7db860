"""Imports point one way: each package may import only those that docs/explanation/architecture.md names for it.

Inside a package no two modules import each other, and a class name exists once.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from placebench.paths import resource_folder

PACKAGE = Path(__import__("placebench").__file__).parent
TESTS = Path(__file__).parent

BASE = {
    "errors",
    "units",
    "paths",
    "decoding",
    "limits",
    "addresses",
    "gates",
    "http_session",
    "lazy_names",
    "masking",
    "plain_text",
    "registries",
}
PROGRAMS = {"runtime", "meters", "loadgen"}
PRODUCT = (
    BASE
    | PROGRAMS
    | {"stats", "telemetry", "page", "profiler", "compare", "history", "results", "report", "study", "remote", "ci"}
)
MAY_IMPORT = {
    "__init__": set(),
    "__main__": {"cli", "paths", "errors"},
    "errors": set(),
    "units": set(),
    "limits": set(),
    "gates": {"errors"},
    "lazy_names": set(),
    "masking": set(),
    "plain_text": set(),
    "registries": set(),
    "paths": {"errors"},
    "decoding": {"errors"},
    "addresses": {"errors"},
    "http_session": {"masking", "errors"},
    "stats": {"decoding", "errors"},
    "telemetry": {"lazy_names", "errors"},
    "runtime": {"decoding", "limits", "units", "errors"},
    "meters": {"runtime", "telemetry", "decoding", "units", "errors"},
    "page": {"units", "errors"},
    "profiler": {
        "page",
        "decoding",
        "units",
        "gates",
        "http_session",
        "lazy_names",
        "masking",
        "paths",
        "plain_text",
        "errors",
    },
    "pytest_plugin": {"profiler"},
    "loadgen": {"telemetry", "http_session", "masking", "errors"},
    "remote": {"meters", "runtime", "paths", "errors"},
    "compare": BASE | PROGRAMS | {"stats", "telemetry", "profiler"},
    "history": {"stats", "decoding", "errors"},
    "results": {"compare", "profiler", "telemetry", "errors"},
    "report": {
        "results",
        "history",
        "compare",
        "profiler",
        "telemetry",
        "stats",
        "page",
        "units",
        "gates",
        "decoding",
        "lazy_names",
        "masking",
        "plain_text",
        "errors",
    },
    "study": {
        "report",
        "results",
        "compare",
        "meters",
        "runtime",
        "stats",
        "page",
        "units",
        "decoding",
        "http_session",
        "masking",
        "errors",
    },
    "ci": {"report", "results", "profiler", "stats", "units", "errors"},
    "commands": PRODUCT | {"commands"},
    "lab": PRODUCT | {"commands"},
    "reference": set(),
    "cli": PRODUCT | {"commands", "__init__"},
    "loaders": {"lab", "decoding", "addresses", "errors"},
    "schema": {"lab"},
    "locustfiles": {"lab", "loadgen", "telemetry", "paths"},
    # Programs among the tests, which are run by themselves.
    "bench": PRODUCT | {"commands", "lab", "SqlProfiler"},
    "oracle": {"runtime", "lab", "errors"},
}


def files() -> list[tuple[str, Path]]:
    """Each Python file with the package that it is part of."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        if inside.parts[0] != "_workbench":
            found.append((Path(inside.parts[0]).stem, path))
    for name in ("loaders", "schema", "locustfiles"):
        found.extend((name, path) for path in sorted(resource_folder(name).rglob("*.py")))
    for name in ("bench", "oracle"):
        found.extend((name, path) for path in sorted((TESTS / name).rglob("*.py")))
    return found


def imported_packages(path: Path) -> set[str]:
    """The packages of placebench that the file at *path* imports, anywhere in it."""
    packages = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "placebench":
            names = [f"placebench.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        packages |= {name.split(".")[1] for name in names if name.startswith("placebench.")}
    return packages - {"__version__"}


@pytest.mark.parametrize(("name", "path"), files(), ids=lambda value: value if isinstance(value, str) else value.name)
def test_a_package_imports_only_what_it_may(name: str, path: Path) -> None:
    """Every import of ours in this file points to a package that its own package may import."""
    allowed = MAY_IMPORT[name] | {name}

    assert imported_packages(path) - allowed == set()


def test_every_package_is_named() -> None:
    """A new package has to say what it may import."""
    assert {name for name, _ in files()} - set(MAY_IMPORT) == set()


def test_the_folders_opened_by_path_are_not_packages() -> None:
    """schema, loaders and locustfiles hold no __init__.py: nobody imports them, and they shadow nothing."""
    assert [
        path for name in ("schema", "loaders", "locustfiles") for path in resource_folder(name).rglob("__init__.py")
    ] == []


PROFILER_FOLDERS = {
    "model": set(),
    "capture": {"model"},
    "drivers": {"capture", "model"},
    "analysis": {"model"},
    "output": {"analysis", "model"},
    "requests": {"capture", "model", "recording"},
    "live": {
        "analysis",
        "capture",
        "drivers",
        "integrations",
        "model",
        "output",
        "recording",
        "requests",
        "sql_profiler",
    },
}
"""What each folder of the profiler may import: the model is pure data, and an analysis knows no recorder."""


@pytest.mark.parametrize("folder", PROFILER_FOLDERS)
def test_a_folder_of_the_profiler_imports_only_those_below(folder: str) -> None:
    """Statements flow one way: from the drivers through the recorder into the model, then to analysis and output."""
    named = {
        imported.split(".")[2]
        for name in MODULES
        if name.startswith(f"placebench.profiler.{folder}.")
        for imported in imported_modules(name)
        if imported.startswith("placebench.profiler.")
    }

    assert named - {folder} <= PROFILER_FOLDERS[folder]


def test_only_the_hooks_import_sqlalchemy() -> None:
    """The timed drivers and the recording that they write into work without it."""
    importing = {
        path.stem
        for path in (PACKAGE / "profiler").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sqlalchemy"
    }

    assert importing == {"engine", "hooks", "sql_profiler", "statement_hooks"}


MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "_workbench" not in path.parts
}


@cache
def imported_modules(name: str) -> frozenset[str]:
    """The modules of placebench that this one imports, inside functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                found.add(inside if inside in MODULES else node.module)
    return frozenset(found & set(MODULES)) - {name}


def test_no_modules_import_each_other() -> None:
    """Imports inside functions and those for type checkers count: a cycle is one module in two files."""
    try:
        order = list(TopologicalSorter({name: imported_modules(name) for name in MODULES}).static_order())
    except CycleError as error:
        pytest.fail(f"these modules import each other: {error.args[1]}")
    assert len(order) == len(MODULES)


PACKAGES = sorted({name.rpartition(".")[0] for name in MODULES if name.count(".") > 1} | {"placebench"})


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folders_of_a_package_import_each_other(package: str) -> None:
    """The files and folders of a package are layers: where one stands says what it knows."""
    below: dict[str, set[str]] = defaultdict(set)
    for name in MODULES:
        if name.startswith(f"{package}."):
            place = name.removeprefix(f"{package}.").split(".")[0]
            imported = {
                each.removeprefix(f"{package}.") for each in imported_modules(name) if each.startswith(f"{package}.")
            }
            below[place] |= {each.split(".")[0] for each in imported} - {place}
    try:
        layers = set(TopologicalSorter(below).static_order())
    except CycleError as error:
        pytest.fail(f"these parts of {package} import each other: {error.args[1]}")
    assert set(below) <= layers


def test_a_class_name_exists_once() -> None:
    """Whoever searches for a name finds one thing."""
    modules = defaultdict(list)
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(name)

    assert {name: places for name, places in modules.items() if len(places) > 1} == {}


MODULES_WITH_ONE_IMPORTER = 85
"""At most; most are what a package offers, one integration, driver, handler or topic of findings of many, loaded late,
or a process."""


def test_modules_with_one_importer_do_not_grow_in_number() -> None:
    """A module that only one other imports, and that is read with it, is part of it."""
    importers = defaultdict(set)
    for name in MODULES:
        for imported in imported_modules(name):
            importers[imported].add(name)

    assert len([name for name in MODULES if len(importers[name]) == 1]) <= MODULES_WITH_ONE_IMPORTER


def test_statistics_and_analysis_are_mutated() -> None:
    """tests/mutation/modules.toml names each module that computes a verdict or a finding, and tests that exist."""
    modules = tomllib.loads((Path(__file__).parent / "mutation" / "modules.toml").read_text())
    folders = (PACKAGE / "stats", PACKAGE / "profiler" / "model", PACKAGE / "profiler" / "analysis")
    computing = {str(each.relative_to(PACKAGE)) for folder in folders for each in folder.rglob("[!_]*.py")}
    tests = {name.partition("::")[0].removeprefix("--deselect=") for each in modules.values() for name in each["tests"]}

    assert computing <= set(modules)
    assert [name for name in modules if not (PACKAGE / name).is_file()] == []
    assert [name for name in tests if not (Path(__file__).parents[1] / name).is_file()] == []


BORDER = {
    "placebench.commands.link._ReadTarget.__call__",
    "placebench.cli._run",
    "placebench.commands.options.read",
    "placebench.commands.options._ReadRequest.__call__",
    "placebench.commands.profile.run._ReadTarget.__call__",
    # locust's own command line, in the processes that make a load.
    "placebench.loadgen.options.LoadOptions.of",
    "placebench.loadgen.locustfile_hooks.LocustfileSession._read_options",
    "placebench.loadgen.session.LoadSession._read_options",
    "placebench.loadgen.session.LoadSession._new_samples",
}
"""The functions that get what argparse has parsed."""


def functions(name: str, body: list[ast.stmt]) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each function below *name*, with its whole name."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}.{node.name}", node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from functions(f"{name}.{node.name}", node.body)


def test_what_was_parsed_ends_at_the_border() -> None:
    """A command gets a frozen dataclass of its options: no other function takes a Namespace."""
    taking = {
        whole
        for name, path in MODULES.items()
        for whole, function in functions(name, ast.parse(path.read_text()).body)
        for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        if each.annotation is not None and re.search(r"\bNamespace\b", ast.unparse(each.annotation))
    }

    assert taking == BORDER


@pytest.mark.parametrize("package", ["placebench.profiler", "placebench.report", "placebench.telemetry"])
def test_a_public_name_that_is_loaded_on_first_use_is_no_module(package: str) -> None:
    """Once a module of that name is imported, it would be what the package gives."""
    assert [name for name in import_module(package).__all__ if f"{package}.{name}" in MODULES] == []


@pytest.mark.processes
def test_reports_load_nothing_that_measures() -> None:
    """What `placebench report` lists, opens, compares and exports is there without SQLAlchemy, locust or a server."""
    modules = ("building", "reproduction", "run_difference", "run_list")

    loaded = modules_after_import(", ".join(f"placebench.report.{name}" for name in modules))

    assert {"sqlalchemy", "locust", "psycopg2", "placebench.runtime", "placebench.loadgen"} & loaded == set()


@pytest.mark.processes
def test_the_process_that_sends_requests_loads_no_database_library() -> None:
    """Each part of a comparison starts one: with SQLAlchemy the start would take three times its CPU."""
    loaded = modules_after_import("placebench.compare.load.client_process")

    assert {"sqlalchemy", "locust", "psycopg2", "placebench.runtime.postgres"} & loaded == set()


def modules_after_import(names: str) -> set[str]:
    """The modules that a Python has loaded once it has imported these."""
    argv = [sys.executable, "-c", f"import {names}, sys; print(*sys.modules)"]
    return set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())


def test_no_program_of_ours_imports_from_the_current_folder() -> None:
    """`python -m` looks there first, where a user may have a copy.py or a queue.py: `-P` keeps it out."""
    unsafe = [
        (name, line)
        for name, path in MODULES.items()
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r'sys\.executable, "-m"', line)
    ]

    assert [] == unsafe


def test_the_profiler_imports_nothing_that_windows_lacks() -> None:
    """Its modules, the commands and the reports can be imported there: see tests/processes/test_other_systems.py."""
    asked = re.compile(r"^(?:import|from) (?:fcntl|grp|pwd|resource|termios)\b|^os\.(?:register_at_fork|fork)\b", re.M)
    lacking = [
        name
        for name, path in MODULES.items()
        if name.startswith(
            ("placebench.profiler.", "placebench.commands.", "placebench.report.", "placebench.history.")
        )
        and asked.search(path.read_text(encoding="utf-8"))
    ]

    assert lacking == []
