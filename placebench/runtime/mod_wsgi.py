"""Apache with mod_wsgi: `find_mod_wsgi` finds both, `mod_wsgi_options` returns the options to serve an application.

mod_wsgi is embedded in Apache's own processes, so that no other process copies the bytes. A mod_wsgi is built for one
version of Python, and loads the packages of an application's environment of that version. Apache's own configuration is
not read, and an Apache service of the machine is left alone.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from placebench.errors import MissingExtraError
from placebench.runtime.postgres.binaries import server_account
from placebench.runtime.running_server import ServerSpec

_PROGRAMS = ("apache2", "httpd")
_PATH = "/usr/sbin:/usr/local/sbin:/usr/local/apache2/bin"
_MODULES = ("lib/apache2/modules", "lib64/httpd/modules", "modules")
"""Folders of Apache's modules, relative to the parent of its program's folder."""
_SCRIPT = Path(__file__).with_name("standalone") / "mod_wsgi_application.py"
_LINKED = re.compile(rb"libpython(3\.\d+)")
_INSTALL = (
    "apt-get install --no-install-recommends apache2-bin libapache2-mod-wsgi-py3 (nothing of it has to run; "
    "placebench starts a server of its own)"
)
_INSPECT = """
import glob, json, os, site, sys
folders = [folder for folder in site.getsitepackages() if os.path.isdir(folder)]  # Debian's names missing ones
built = [path for folder in folders for path in glob.glob(folder + "/mod_wsgi/server/mod_wsgi-py*.so")]
print(json.dumps([folders, built, sys.base_prefix, "%d.%d" % sys.version_info[:2]]))
"""
_LINE_BYTES = 65_535


@dataclass(frozen=True)
class ModWsgi:
    """The paths of Apache and its module for one environment."""

    program: str
    modules: Path
    """The folder of Apache's own modules."""
    module: str
    """The path of mod_wsgi, from the environment or the system."""
    home: str
    """The folder in which the environment's Python is installed."""
    packages: tuple[str, ...]
    """Folders of the environment's packages."""


def find_mod_wsgi(python: Path | None = None, folder: Path | None = None) -> ModWsgi:
    """Return Apache and the mod_wsgi for the environment of *python* (None: this one); costs the start of a Python.

    folder: the folder of the application, if it has one.

    Raises MissingExtraError, with what to do, if one is missing, if mod_wsgi is for another version of Python, or if
    Apache could not read the packages or the application.
    """
    path = f"{os.environ.get('PATH', '')}:{_PATH}"
    program = next(filter(None, (shutil.which(name, path=path) for name in _PROGRAMS)), None)
    if program is None:
        raise MissingExtraError(f"no Apache on this machine: {_INSTALL}")
    top = Path(program).resolve().parents[1]
    modules = next((top / each for each in _MODULES if (top / each).is_dir()), top / _MODULES[0])
    inspect = [python or sys.executable, "-c", _INSPECT]
    asked = subprocess.run(inspect, cwd="/", capture_output=True, text=True, check=True)
    packages, built, prefix, version = json.loads(asked.stdout)
    if built:
        return _readable(ModWsgi(program, modules, built[0], prefix, tuple(packages)), folder)
    module = modules / "mod_wsgi.so"
    if not module.is_file():
        raise MissingExtraError(f"no mod_wsgi beside {program}: {_INSTALL}")
    linked = _LINKED.search(module.read_bytes())
    if linked is not None and linked[1].decode() != version:
        raise MissingExtraError(
            f"{module} is for Python {linked[1].decode()}, the application has {version}: "
            f"{python or sys.executable} -m pip install mod_wsgi (needs apache2-dev)"
        )
    return _readable(ModWsgi(program, modules, str(module), "/usr", tuple(packages)), folder)


def _readable(found: ModWsgi, application: Path | None) -> ModWsgi:
    """Return what was found, if the account that runs root's Apache can read the packages and the application."""
    account, folders = server_account(), [*map(Path, found.packages), _SCRIPT.parent]
    folders += [application] if application else []
    if closed := next((each for each in folders if not account.may_enter(each)), None):
        raise MissingExtraError(
            f"Apache runs as {account.name} for root, and cannot enter {closed}: let others enter that folder and "
            "those above it (chmod o+x), or run placebench as an ordinary user"
        )
    return found


def apache_account_limit() -> str:
    """Return why Apache's processes cannot use files in the folder of a run, such as recordings; empty if they can."""
    account = server_account()
    if not account.ids:
        return ""
    return (
        f"Apache runs as {account.name} for root, who cannot read revisions, packages or SQLite files in the private "
        "folder of a run, or write recordings there: run placebench as an ordinary user, or use another server"
    )


def mod_wsgi_options(found: ModWsgi, spec: ServerSpec, scratch: Path) -> list[str]:
    """Return the options of Apache, which keeps its files in *scratch* and reads no configuration file.

    Apache has exactly the processes and threads that *spec* states; if root starts it, they run as another user.
    """
    account = server_account().ids
    users = (f"User #{account[0]}", f"Group #{account[1]}") if account else ()
    shared = [(name, found.modules / f"mod_{name}.so") for name in ("mpm_worker", "authz_core", "unixd")]
    slots = spec.processes * spec.threads
    directives = [
        *(f'LoadModule {name}_module "{path}"' for name, path in shared if path.is_file()),
        f'LoadModule wsgi_module "{found.module}"',
        *(f'ServerRoot "{scratch}"', "ServerName localhost", f"Listen {spec.address}", *users),
        *(f'PidFile "{scratch}/apache.pid"', f'DefaultRuntimeDir "{scratch}"', "Mutex posixsem"),
        *("ErrorLog /dev/stderr", "LogLevel warn", "ListenBacklog 1024"),
        # Each connection is closed after its response, as under the other servers.
        *("KeepAlive Off", f"LimitRequestLine {_LINE_BYTES}", f"LimitRequestFieldSize {_LINE_BYTES}", "Timeout 300"),
        *(f"StartServers {spec.processes}", f"ServerLimit {spec.processes}", f"ThreadsPerChild {spec.threads}"),
        *(f"ThreadLimit {spec.threads}", f"MaxRequestWorkers {slots}", "MinSpareThreads 1", f"MaxSpareThreads {slots}"),
        *(f'WSGIPythonHome "{found.home}"', f'WSGIPythonPath "{os.pathsep.join(found.packages)}"'),
        f'WSGIScriptAlias / "{_SCRIPT}"',
        f'WSGIImportScript "{_SCRIPT}" process-group=%{{GLOBAL}} application-group=%{{GLOBAL}}',
        *("WSGIApplicationGroup %{GLOBAL}", "WSGIPassAuthorization On"),
    ]
    return ["-f", "/dev/null", "-DFOREGROUND", *(part for each in directives for part in ("-C", each))]
