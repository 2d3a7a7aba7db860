"""The application that a command names, or the one in the current folder: `load_application`, `detect_application`.

Detection reads source files and imports nothing, so that it has no side effects, and broken files in the folder do not
matter. It returns a name that `load_application` takes.
"""

import ast
import inspect
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from placebench.errors import ProfilerError

Interface = Literal["wsgi", "asgi"]
_FOLDERS = ("", "app", "src", "api", "backend")
_FILES = ("main", "app", "api", "application", "wsgi", "asgi", "server", "__init__")
_INSTANCES = ("app", "application", "api")
_FACTORIES = ("create_app", "make_app", "get_app", "create_application", "app_factory")
_FRAMEWORKS = {
    **{name: name for name in ("FastAPI", "Starlette", "Litestar", "Quart", "Flask", "Bottle", "Sanic")},
    "get_wsgi_application": "Django",
    "get_asgi_application": "Django",
    "make_wsgi_app": "Pyramid",
}
_SETTINGS = re.compile(r"""["']DJANGO_SETTINGS_MODULE["']\s*,\s*["']([\w.]+)["']""")


class DetectedApplication(NamedTuple):
    """An application in a folder: its name for `load_application`, and why it was chosen."""

    name: str
    reason: str


def load_application(name: str) -> Any:
    """Import the application that "module:callable" names, from this folder or its `src` too; or from a file's path.

    A function or class without required arguments is a factory, and is called; "module:factory()" says so explicitly.
    Raises ProfilerError if there is no such application, or if a package is missing.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        is_recording = name.endswith(".json") or Path(name, "recording.json").is_file()
        shown = f"; `placebench profile show {name}` shows a saved recording" if is_recording else ""
        raise ProfilerError(f"application {name!r}: expected MODULE:CALLABLE, such as shop.wsgi:application{shown}")
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    if module_name.endswith(".py"):
        module_name = _module_of(Path(module_name))
    top, source = module_name.partition(".")[0], Path("src").resolve()
    here, below = ((path / top).is_dir() or (path / f"{top}.py").is_file() for path in (Path(), source))
    if below and not here and str(source) not in sys.path:
        sys.path.insert(0, str(source))
    found: Any = _import(name, module_name)
    for part in attribute.removesuffix("()").split("."):
        if not hasattr(found, part):
            raise ProfilerError(f"application {name!r}: {module_name} has no {part!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ProfilerError(f"application {name!r}: a {type(found).__name__}, expected WSGI or ASGI, or a factory")
    return found() if attribute.endswith("()") or _is_factory(found) else found


def package_folders(module_name: str) -> tuple[str, ...]:
    """Return the folders of a module's outermost package, for `SqlProfiler(application=…)`: it may be installed."""
    try:
        spec = find_spec(module_name.partition(":")[0].partition(".")[0])
    except (ImportError, ValueError):
        return ()
    return tuple(spec.submodule_search_locations or ()) if spec is not None else ()


def interface_of(application: Any) -> Interface:
    """Return the interface of an application: ASGI if its call is awaited, or takes three arguments and not two."""
    call = application if inspect.isroutine(application) else getattr(application, "__call__", None)  # noqa: B004
    if inspect.iscoroutinefunction(inspect.unwrap(call) if call is not None else None):
        return "asgi"
    return "asgi" if _takes(application, 3) and not _takes(application, 2) else "wsgi"


def missing_package(error: ModuleNotFoundError) -> str:
    """Return advice if a package of the application is not installed; empty if the module is the application's own."""
    package = (error.name or "").partition(".")[0]
    if not package or any(Path(folder, package + end).exists() for folder in ("", "src") for end in ("", ".py")):
        return ""
    return (
        f"the package {package!r} is not installed in the environment that placebench runs in, {sys.prefix}: "
        f"run placebench in the application's environment{_how_to_run_there()}; CHECKOUT is the folder of placebench"
    )


def detect_application(folder: Path) -> DetectedApplication:
    """Find the application in a folder. Raises ProfilerError if there is none.

    The order is [tool.placebench.app] or [tool.fastapi] of pyproject.toml, $FLASK_APP, Django's manage.py, usual names
    assigned in the usual files, then factories there. For a Django project DJANGO_SETTINGS_MODULE is set.
    """
    for detect in (_configured, _flask_variable, _django, _assigned):
        if (found := detect(folder)) is not None:
            return found
    raise ProfilerError(
        f"no application found in {folder.resolve()}: expected a FastAPI, Flask or Django project; "
        "name the application as MODULE:CALLABLE, a script, or -m MODULE"
    )


def application_in(path: Path) -> DetectedApplication | None:
    """Find the application that a file assigns or imports by a usual name, or makes from a framework's class."""
    for node in _top_level(path):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            function = node.value.func if isinstance(node.value, ast.Call) else None
            called: str = getattr(function, "attr", "") or getattr(function, "id", "")
            framework = _FRAMEWORKS.get(called)
            if names and (framework or (names[0] in _INSTANCES and isinstance(node.value, ast.Call))):
                return DetectedApplication(f"{path}:{names[0]}", framework or f"{names[0]} in {path}")
        elif isinstance(node, ast.ImportFrom) and path.stem in ("main", "wsgi", "asgi"):
            for alias in node.names:
                if (name := alias.asname or alias.name) in ("app", "application"):
                    return DetectedApplication(f"{path}:{name}", f"{name} in {path}")
    return None


def _import(name: str, module_name: str) -> Any:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise ProfilerError(f"application {name!r}: there is no module {error.name!r}") from error
        if hint := missing_package(error):
            raise ProfilerError(f"application {name!r}: {hint}") from error
        raise


def _is_factory(found: Any) -> bool:
    """Return whether a function or class is a factory: it needs no arguments and takes no request."""
    if not (inspect.isfunction(found) or inspect.isclass(found)) or not _takes(found, 0):
        return False
    kinds = {each.kind for each in inspect.signature(found).parameters.values()}
    return inspect.Parameter.VAR_POSITIONAL not in kinds


def _takes(call: Any, count: int) -> bool:
    try:
        inspect.signature(call).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True


def _module_of(path: Path) -> str:
    """Return the name of the module in a file; puts the folder of its outermost package on sys.path."""
    if not path.is_file():
        raise ProfilerError(f"application: there is no file {path}")
    inner = path.resolve()
    parts = [] if inner.stem == "__init__" else [inner.stem]
    while (inner.parent / "__init__.py").is_file():
        inner = inner.parent
        parts.insert(0, inner.name)
    if str(inner.parent) not in sys.path:
        sys.path.insert(0, str(inner.parent))
    return ".".join(parts)


def _how_to_run_there() -> str:
    """Return the command that runs placebench, from its CHECKOUT, in the environment of this folder's project."""
    if Path("uv.lock").is_file():
        return ": uv run --with CHECKOUT placebench profile run …"
    if (python := Path(".venv/bin/python")).exists():
        return f": uv pip install --python {python} CHECKOUT, then .venv/bin/placebench profile run …"
    if Path("poetry.lock").is_file():
        return ": poetry run pip install CHECKOUT, then poetry run placebench profile run …"
    if Path("requirements.txt").is_file():
        return ": uvx --from CHECKOUT --with-requirements requirements.txt placebench profile run …"
    return ", or add the package: uvx --from CHECKOUT --with PACKAGE placebench profile run …"


def _configured(folder: Path) -> DetectedApplication | None:
    try:
        tables = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError):
        return None
    for tool, keys in (("placebench", ("app", "app")), ("fastapi", ("entrypoint",))):
        value = tables.get(tool, {})
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str):
            return DetectedApplication(value, f"[tool.{tool}] of pyproject.toml")
    return None


def _flask_variable(folder: Path) -> DetectedApplication | None:
    """Return the application that $FLASK_APP names as a module or file, with or without a name in it."""
    value = os.environ.get("FLASK_APP")
    if not value:
        return None
    if ":" in value:
        return DetectedApplication(value, "$FLASK_APP")
    path = folder / value.removesuffix(".py").replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        for search in (application_in, _factory_in):
            if (found := search(file)) is not None:
                return DetectedApplication(found.name, "$FLASK_APP")
    return None


def _django(folder: Path) -> DetectedApplication | None:
    """Return the application for the settings that manage.py names."""
    try:
        settings = _SETTINGS.search((folder / "manage.py").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if settings is None:
        return None
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings[1])
    package = settings[1].partition(".")[0]
    for interface in ("wsgi", "asgi"):
        if (folder / package / f"{interface}.py").is_file():
            return DetectedApplication(f"{package}.{interface}:application", "Django, manage.py")
    return DetectedApplication("django.core.wsgi:get_wsgi_application()", "Django, manage.py")


def _assigned(folder: Path) -> DetectedApplication | None:
    """Return the application in the first usual file that has one, or else the first factory.

    The most usual places come first, then any package in the folder or in src.
    """
    packages = sorted(path.parent for base in (folder, folder / "src") for path in base.glob("*/__init__.py"))
    inner = dict.fromkeys((*(folder / name for name in _FOLDERS), *packages))
    files = [path for each in inner for stem in _FILES if (path := each / f"{stem}.py").is_file()]
    for search in (application_in, _factory_in):
        for path in files:
            if (found := search(path)) is not None:
                return found
    return None


def _factory_in(path: Path) -> DetectedApplication | None:
    """Return the factory that a file defines by a usual name."""
    for node in _top_level(path):
        if isinstance(node, ast.FunctionDef) and node.name in _FACTORIES:
            required = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
            if required == 0 and None not in node.args.kw_defaults:
                return DetectedApplication(f"{path}:{node.name}()", f"{node.name} in {path}")
    return None


def _top_level(path: Path) -> Iterator[ast.stmt]:
    """Yield the statements of a file outside of functions and classes; none if the file is not Python."""
    try:
        pending: list[ast.stmt] = list(ast.parse(path.read_bytes()).body)
    except (OSError, SyntaxError, ValueError):
        return
    while pending:
        node = pending.pop(0)
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            pending[:0] = [*node.body, *getattr(node, "orelse", [])]
