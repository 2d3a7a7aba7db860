"""The coverage matrix: what recordings say, beside independent counts, for drivers, ways to run, and Pythons.

    python tests/coverage_matrix/matrix.py                    everything; writes docs/reference/coverage.json and .md
    python tests/coverage_matrix/matrix.py --parts modes --modes light     the operations of all drivers in this mode
    python tests/coverage_matrix/matrix.py --parts models     measures this part anew and keeps the others
    python tests/coverage_matrix/matrix.py --drivers sqlite3 --parts operations --out FILE    some drivers, no page
    python tests/coverage_matrix/matrix.py --check            measures nothing: are the page and its raw file right?

Each program runs in a child process with the driver of its column. Packages that are not in this environment, and the
environments of other Pythons, are installed by uv below build/coverage.
"""

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path[:0] = [str(HERE)]

from page import MODELS, page_of, wrong_cells  # noqa: E402
from verdict import judge  # noqa: E402
from witness import SETTINGS, MariaDbWitness, NoWitness, PostgresWitness  # noqa: E402

from placebench.errors import PlacebenchError  # noqa: E402
from placebench.runtime.mariadb import temporary_mariadb  # noqa: E402
from placebench.runtime.ports import free_port  # noqa: E402
from placebench.runtime.postgres.binaries import find_binaries  # noqa: E402
from placebench.runtime.postgres.private_server import launch_private_server  # noqa: E402

RAW, PAGE = TOP / "docs" / "reference" / "coverage.json", TOP / "docs" / "reference" / "coverage.md"
ENVIRONMENTS = TOP / "build" / "coverage"
PARTS = ("operations", "modes", "models", "pythons")
MODES = ("light", "sampled", "external", "flame", "plans")
"""The modes beside `full`, in which the other parts are measured."""
_LIMIT_S = 300
_NOBODY = 65534


@dataclass(frozen=True)
class Driver:
    """A column: the class of its operations, what is installed for it, and who counts beside it."""

    operations: str
    requirement: str
    witness: str
    is_here: bool = True
    """Whether the environment of the tests has it."""


DRIVERS = {
    "psycopg2": Driver("on_psycopg.Psycopg2", "psycopg2-binary", "postgresql"),
    "psycopg 3.2": Driver("on_psycopg.Psycopg", "psycopg[binary]>=3.2,<3.3", "postgresql", is_here=False),
    "psycopg 3.3": Driver("on_psycopg.Psycopg", "psycopg[binary]>=3.3", "postgresql"),
    "psycopg 3.3, async": Driver("on_psycopg.AwaitedPsycopg", "psycopg[binary]>=3.3", "postgresql"),
    "asyncpg": Driver("on_asyncpg.Asyncpg", "asyncpg", "postgresql"),
    "sqlite3": Driver("on_sqlite3.Sqlite", "", ""),
    "aiosqlite": Driver("on_sqlite3.Aiosqlite", "aiosqlite", ""),
    "PyMySQL": Driver("on_mariadb.PyMySql", "pymysql", "mariadb"),
    "asyncmy": Driver("on_mariadb.Asyncmy", "asyncmy", "mariadb", is_here=False),
    "DuckDB": Driver("on_duckdb.DuckDb", "duckdb", "", is_here=False),
}
NOT_RUN = {"oracledb": "there is no Oracle server here; placebench has no hooks for it, which its recordings say"}


class Servers:
    """The servers that programs use and the witnesses on them, each started when it is needed first."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    @cached_property
    def postgresql(self) -> PostgresWitness:
        """A private PostgreSQL, with a pgbouncer in transaction pooling where that is installed."""
        launched = launch_private_server(find_binaries(), SETTINGS)
        self._stack.callback(launched.supervisor.close)
        witness = PostgresWitness(launched)
        if (program := shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")) is not None:
            witness.settings["pooled"] = self._stack.enter_context(pgbouncer(program, witness))
        return witness

    @cached_property
    def mariadb(self) -> MariaDbWitness:
        """A private MariaDB."""
        return MariaDbWitness(self._stack.enter_context(temporary_mariadb()))

    def witness(self, name: str) -> Any:
        """The witness of a driver."""
        return getattr(self, name) if name else NoWitness()


@contextmanager
def pgbouncer(program: str, witness: PostgresWitness) -> Iterator[str]:
    """The URL of the first database through a pooler with two connections to the server."""
    url, port = witness.url, free_port()
    settings = (
        f"[databases]\n{url.database} = host={url.host} port={url.port} user={url.username} password={url.password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 2\nignore_startup_parameters = extra_float_digits\n"
        "log_connections = 0\nlog_disconnections = 0\nlog_stats = 0\nserver_check_query =\n"
    )
    as_nobody: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    # Its folders are the user's own: it gets its settings by an open file.
    with tempfile.TemporaryFile("w+") as file:
        file.write(settings)
        file.seek(0)
        os.fchmod(file.fileno(), 0o644)  # it is opened anew, by its number
        with subprocess.Popen(
            [program, "/dev/stdin"], stdin=file, stderr=subprocess.PIPE, text=True, cwd="/", **as_nobody
        ) as process:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            if not any(f"listening on 127.0.0.1:{port}" in line for line in lines):
                raise PlacebenchError("pgbouncer did not start")
            yield url.set(port=port).render_as_string(hide_password=False)
            process.kill()
            process.communicate()


def run_program(command: list[str], witness: Any, settings: dict[str, str]) -> dict[str, Any]:
    """What a program has counted; while it runs, its questions go to the witness. `{"not_run": why}` if it fails."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        limit = threading.Timer(_LIMIT_S, process.kill)
        limit.start()
        said = json.dumps(settings)
        try:
            while True:
                process.stdin.write(f"{said}\n")
                process.stdin.flush()
                line = next((each for each in process.stdout if each.startswith('{"')), "")
                found = json.loads(line or "{}")
                if "ask" not in found:
                    break
                said = json.dumps(getattr(witness, found.pop("ask"))(**found))
        finally:
            limit.cancel()
        process.wait()
        errors.seek(0)
        last = [text.strip() for text in errors if text.strip()][-1:]
    return found or {"not_run": last[0].lstrip("- ") if last else f"it did not end within {_LIMIT_S} s"}


@dataclass(frozen=True)
class Python:
    """An interpreter: the words that run it, such as `chroot FOLDER python3.14`, and where its packages are."""

    label: str
    command: tuple[str, ...]

    @property
    def is_default(self) -> bool:
        """Whether this is the environment of the tests, which has most packages."""
        return self.command == (sys.executable,)

    def program(self, driver: Driver, *words: str) -> list[str]:
        """The command of a program with the packages of its driver; raises PlacebenchError if they cannot be had."""
        path = []
        if driver.requirement and not (self.is_default and driver.is_here):
            try:
                path.append(self._install(driver.requirement, driver.requirement))
            except PlacebenchError:
                if (pure := re.sub(r"\[.*\]", "", driver.requirement)) == driver.requirement:
                    raise
                path.append(self._install(pure, pure))  # psycopg in pure Python, with the system's libpq
        if not self.is_default:
            all_of_it = ("greenlet", "-r", str(TOP / "pyproject.toml"))
            # Without a GIL the rest has no wheels; the profiler records without it.
            base = ("sqlalchemy", "jinja2", "rich") if self.label.endswith("t") else all_of_it
            path += [self._install("base", *base), str(TOP)]
        variables = [f"PYTHONPATH={os.pathsep.join(path)}", "PYTHONDONTWRITEBYTECODE=1"]
        return [*self.command[:-1], "env", *variables, self.command[-1], *words]

    def _install(self, name: str, *requirements: str) -> str:
        folder = ENVIRONMENTS / self.label / name
        if not folder.exists():
            command = [sys.executable, "-m", "uv", "pip", "install", "-q", "--target", str(folder), *requirements]
            command += ["--only-binary", ":all:"]
            if len(self.command) == 1:
                command += ["--python", self.command[0]]
            else:  # its packages are chosen from here
                command += ["--python", sys.executable, "--python-version", self.label]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(folder, ignore_errors=True)
                raise PlacebenchError(f"no wheel of {requirements[0]} can be installed on {self.label}")
        return str(folder)


HERE_AND_NOW = Python("default", (sys.executable,))


def measure_operations(servers: Servers, names: list[str], python: Python, mode: str) -> dict[str, Any]:
    """All operations of each driver on one Python, by driver."""
    found = {}
    for name in names:
        driver = DRIVERS[name]
        witness = servers.witness(driver.witness)
        settings = witness.settings | {"distribution": re.split(r"[\[<>=]", driver.requirement)[0]}
        try:
            command = python.program(driver, str(HERE / "program.py"), driver.operations, mode)
            found[name] = run_program(command, witness, settings)
        except PlacebenchError as error:
            found[name] = {"not_run": str(error)}
        print(f"Python {python.label}, {name}: {found[name].get('not_run', 'measured')}", flush=True)
    return found


def differing(measured: dict[str, Any], in_full: dict[str, Any]) -> dict[str, Any]:
    """The cells of a mode whose verdict is not that of mode `full`; the others are only counted."""
    if "not_run" in measured:
        return measured
    cells, known = measured["done"], in_full.get("done", {})
    judged = {name: judge(cell) for name, cell in cells.items() if "not_run" not in cell}
    as_in_full = [name for name in judged if name in known and judged[name] == judge(known[name])]
    return {
        "as_in_full": len(as_in_full),
        "exact": sum(each.is_exact for each in judged.values()),
        "operations": len(judged),
        "done": {name: cells[name] for name in judged if name not in as_in_full},
    }


def measure_models(
    servers: Servers, names: list[str], models: list[str], mode: str, found: dict[str, Any]
) -> dict[str, Any]:
    """The job of each driver in each of these ways to run it, added to what was *found* before, by driver."""
    for name in names:
        driver = DRIVERS[name]
        witness = servers.witness(driver.witness)
        settings = {key: value for key, value in witness.settings.items() if key != "pooled"}
        # They patch the whole process, or may end it.
        alone = [model for model in models if model in ("gevent", "eventlet", "sub-interpreters")]
        for together in ([model for model in models if model not in alone], *([model] for model in alone)):
            command = HERE_AND_NOW.program(driver, str(HERE / "models.py"), driver.operations, mode, *together)
            said = run_program(command, witness, settings) if together else {"done": {}}
            for model in together:
                each = said if "not_run" in said else said["done"][model]
                found.setdefault(name, {})[model] = each if "not_run" in each else sum_of_jobs(each)
                print(f"{model}, {name}: {each.get('not_run', 'measured')}", flush=True)
    return found


def sum_of_jobs(said: dict[str, Any]) -> dict[str, Any]:
    """The jobs of one way to run as one recording; their order, and that of their steps, is not known."""
    jobs = said["jobs"]
    recorded = [job["recorded"] for job in jobs]
    sums: dict[str, Any] = {key: sum(each[key] for each in recorded) for key in ("statements", "sets", "missed")}
    sums["rows"] = (
        sum(each["rows"] for each in recorded) if all(each["rows"] is not None for each in recorded) else None
    )
    for key in ("steps", "failed_hooks", "breaches", "notes"):
        sums[key] = sorted(chain.from_iterable(each[key] for each in recorded))
    counts = [job["counted"] for job in jobs] if jobs[0]["counted"] else [said["counted"]]
    counted: dict[str, Any] = {"statements": sum(each["statements"] for each in counts)}
    if "steps" in counts[0]:
        counted["steps"] = sorted(chain.from_iterable(each["steps"] for each in counts))
    counted["rows"] = counts[0]["rows"]
    alike = [each["statements"] for each in recorded]
    return {
        "recorded": sums,
        "counted": counted,
        "handed_out": sum(job["handed_out"] for job in jobs),
        "of_each": alike,
        "processes": len({job["process"] for job in jobs}),
    }


def read_python(text: str) -> Python:
    """The Python of a word of the command line."""
    label, _, command = text.partition("=")
    return Python(label, tuple(shlex.split(command)))


def pythons_here() -> Iterator[Python]:
    """The Pythons of this machine that placebench supports, other than that of the tests."""
    paths = [
        Path("/usr/bin/python3"),
        *Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin/python3"),
    ]
    program = "import platform, sys; print(platform.python_version() if sys.version_info >= (3, 11) else '')"
    for path in sorted(paths):
        done = subprocess.run([path, "-c", program], capture_output=True, text=True, check=False)
        version = done.stdout.strip()
        if version and version != platform.python_version():
            yield Python(version, (str(path),))


def main() -> None:
    """Measure the parts that were asked for, and write the raw file and the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--drivers", nargs="+", choices=DRIVERS, default=[*DRIVERS])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument(
        "--pythons",
        nargs="+",
        type=read_python,
        default=[*pythons_here()],
        metavar="LABEL=COMMAND",
        help="other Pythons, as 3.14='chroot FOLDER python3.14'; by default those of pyenv and /usr/bin/python3",
    )
    parser.add_argument("--mode", default="full", help="of the recordings")
    parser.add_argument("--out", type=Path, help="a raw file of these drivers alone; no page is written")
    parser.add_argument("--check", action="store_true", help="measure nothing")
    options = parser.parse_args()
    target = options.out or RAW
    found = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    if not options.check:
        found |= {"format_version": 1, "date": datetime.now(UTC).date().isoformat(), "not_run": NOT_RUN}
        with ExitStack() as stack:
            servers = Servers(stack)
            if "operations" in options.parts:
                found["python"] = platform.python_version()
                measured = measure_operations(servers, options.drivers, HERE_AND_NOW, options.mode)
                found["operations"] = found.get("operations", {}) | measured
            for mode in options.modes if "modes" in options.parts else ():
                measured = measure_operations(servers, options.drivers, HERE_AND_NOW, mode)
                found.setdefault("modes", {}).setdefault(mode, {}).update(
                    {name: differing(each, found["operations"].get(name, {})) for name, each in measured.items()}
                )
            if "models" in options.parts:
                found["models"] = measure_models(
                    servers, options.drivers, options.models, options.mode, found.get("models", {})
                )
            for python in options.pythons if "pythons" in options.parts else ():
                measured = measure_operations(servers, options.drivers, python, options.mode)
                found.setdefault("pythons", {}).setdefault(python.label, {}).update(measured)
        target.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if options.out is None:
            PAGE.write_text(page_of(found), encoding="utf-8")
    wrong = [*wrong_cells(found)]
    if options.out is None and PAGE.read_text(encoding="utf-8") != page_of(found):
        wrong.append(f"{PAGE.name} is not the page of {RAW.name}")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
