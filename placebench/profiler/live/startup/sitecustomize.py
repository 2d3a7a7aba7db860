"""Runs at the start of each Python below a command of `profile run` or `compare`, which put its folder on PYTHONPATH.

It runs the project's own sitecustomize and then waits: placebench is loaded, from the folder of the command, only when
a driver, a framework or a task queue is imported, or when a server gets its application. Every Python reads this file,
also an old one or one of another environment: it uses nothing that is not in all of them, and has no effect without
the variable PLACEBENCH_RUN.
"""
# ruff: noqa: PTH100, PTH118, PTH120, UP031

import os
import sys

TYPE_CHECKING = False  # typing takes some milliseconds to import
if TYPE_CHECKING:
    from typing import Any

_MODULES = frozenset(
    [
        "MySQLdb",
        "aiohttp.web",
        "aiomysql",
        "aiosqlite",
        "apscheduler",
        "apsw",
        "asyncmy",
        "asyncpg",
        "bottle",
        "celery",
        "django.core",
        "dramatiq",
        "duckdb",
        "falcon",
        "flask",
        "huey",
        "litestar",
        "mariadb",
        "oracledb",
        "psycopg",
        "psycopg2",
        "pymssql",
        "pymysql",
        "pyodbc",
        "pyramid",
        "rq",
        "sanic",
        "sqlalchemy",
        "sqlite3",
        "starlette",
        "taskiq",
    ]
)
"""The modules before whose import the recording begins."""
_FUNCTIONS = {
    "_pytest.runner": (("runtestprotocol", "item"),),
    "cheroot.wsgi": (("Server.__init__", "wsgi_app"),),
    "daphne.server": (("Server.__init__", "application"),),
    "gevent.pywsgi": (("WSGIServer.__init__", "application"),),
    "granian.asgi": (("_callback_wrapper", "callback"),),
    "granian.wsgi": (("_callback_wrapper", "callback"),),
    "gunicorn.app.base": (("BaseApplication.wsgi", None),),
    "hypercorn.app_wrappers": (("ASGIWrapper.__init__", "app"), ("WSGIWrapper.__init__", "app")),
    "uvicorn.config": (("Config.load", "self"),),
    "waitress.server": (("create_server", "application"),),
    "werkzeug.serving": (("BaseWSGIServer.__init__", "app"),),
    "wsgiref.simple_server": (("WSGIServer.set_app", "application"),),
}
"""The functions by which servers get their application, or a test runner its test, and the parameter that it is.

The recording begins with the first call: most processes of a server import these modules and serve nothing.
"""


class _Watch:
    """A meta path finder that sees what is imported, and finds nothing by itself."""

    def __init__(self) -> "None":
        self._has_begun = False
        self._recorder = None  # type: Any

    def find_spec(self, name: "str", path: "Any" = None, target: "Any" = None) -> "Any":
        """Begin the recording if it is due; return the spec that later finders find."""
        functions = _FUNCTIONS.get(name)
        if functions is None and (self._has_begun or name not in _MODULES):
            return None
        if functions is None:
            self.recorder()
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)  # type: Any
                if spec is not None:
                    if functions is not None and hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader, self, functions)
                    return spec
        return None

    def recorder(self) -> "Any":
        """Begin the recording on the first call; return the recorder of this process, None if there cannot be one."""
        if not self._has_begun:
            self._has_begun = True
            try:
                self._recorder = _begin()
            except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
                _say("%s: %s" % (type(error).__name__, error))
        return self._recorder


class _Loader:
    """Wraps the loader of one module, and the module's functions when it has run."""

    def __init__(self, loader: "Any", watch: "_Watch", functions: "Any") -> "None":
        self._loader = loader
        self._watch = watch
        self._functions = functions

    def __getattr__(self, name: "str") -> "Any":
        return getattr(self.__dict__["_loader"], name)

    def exec_module(self, module: "Any") -> "None":
        """Run the module, give it its own loader back, and wrap its functions."""
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        for path, parameter in self._functions:
            names = path.split(".")
            owner = module
            for name in names[:-1]:
                owner = getattr(owner, name, None)
            function = getattr(owner, names[-1], None)
            if function is not None:
                setattr(owner, names[-1], _wrapped(function, self._watch, parameter))


def _wrapped(function: "Any", watch: "_Watch", parameter: "Any") -> "Any":
    from functools import wraps

    @wraps(function)  # granian pickles by name
    def call(*args: "Any", **kwargs: "Any") -> "Any":
        recorder = watch.recorder()
        if recorder is None:
            return function(*args, **kwargs)
        return recorder.call(function, parameter, args, kwargs)

    return call


def _begin() -> "Any":
    """Load placebench from the folder of the command; return the recorder of this process, None if it cannot be."""
    import importlib
    import importlib.util
    import json

    settings = json.loads(os.environ["PLACEBENCH_RUN"])
    if sys.version_info < (3, 11) or sys.implementation.name != "cpython":
        version = "%s %d.%d" % (sys.implementation.name, sys.version_info[0], sys.version_info[1])
        _say("%s is %s, expected CPython 3.11 or later" % (sys.executable, version))
        return None
    package = settings["package"]
    if "placebench" not in sys.modules:
        # Only this package, whatever else is installed beside it, and the same version as that of the command.
        file, folders = os.path.join(package, "__init__.py"), [package]
        spec = importlib.util.spec_from_file_location(  # type: Any
            "placebench", file, submodule_search_locations=folders
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules["placebench"] = module
        spec.loader.exec_module(module)
    return importlib.import_module(settings["module"]).begin(settings)


def _say(reason: "str") -> "None":
    sys.stderr.write("placebench: a process of the command is not recorded: %s\n" % reason)


def _run_own_sitecustomize() -> "None":
    """Run the sitecustomize of the project or the system, which comes later on the path, if there is one."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != folder]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


if os.environ.get("PLACEBENCH_RUN"):
    sys.meta_path.insert(0, _Watch())
if "sitecustomize" in sys.modules:
    _run_own_sitecustomize()
