"""What runs on Windows and macOS: real programs in a Python from which all that only Linux has was taken away."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_run import FakeRun, write_run

_FAKES = Path(__file__).parents[1] / "fakes"
_NAMES = {"win32": "Windows", "darwin": "macOS"}
_SYSTEMS = [*_NAMES] if sys.platform == "linux" else [""]
"""The systems that this one is made to look like; "" for this one as it is."""
_WINDOWS = _SYSTEMS[0]
SHOP = """
import sqlite3
import threading

from sqlalchemy import create_engine, text

engine = create_engine("sqlite:///shop.db")
with engine.begin() as connection:
    connection.execute(text("drop table if exists item"))
    connection.execute(text("create table item (id integer primary key, name text)"))
    connection.execute(text("insert into item (name) values (:name)"), [{"name": f"n{n}"} for n in range(20)])


def find(number):
    with engine.connect() as connection:
        return connection.execute(text("select name from item where id = :id"), {"id": number}).scalar_one()


def page():
    return [find(number) for number in range(1, 13)]


def application(environ, start_response):
    body = ",".join(page()).encode()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body]


if __name__ == "__main__":
    page()
    thread = threading.Thread(target=page)
    thread.start()
    thread.join()
    own = sqlite3.connect("shop.db")
    print(len(own.execute("select * from item").fetchall()))
    own.close()
"""
TESTS = """
import shop


def test_page():
    assert len(shop.page()) == 12
"""
SERVICE = """
import shop
from placebench.profiler import Sampling, SqlProfiler

profiler = SqlProfiler(shop.engine)
watched = profiler.wsgi(shop.application, folder="kept", sampling=Sampling(attach=True))
for _ in range(2):
    list(watched({"REQUEST_METHOD": "GET", "PATH_INFO": "/items"}, lambda status, headers: None))
"""
IMPORTS = """
import importlib, pkgutil, sys
import placebench
from placebench.cli import parser

parser()
optional = {"celery", "django", "flask", "mcp", "pandas", "starlette"}
optional.add("msvcrt")  # which click and mcp ask for on Windows
for folder in ("profiler", "commands", "report", "history", "stats", "page"):
    package = importlib.import_module(f"placebench.{folder}")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if found.name.endswith("integrations.wsgi_entry"):  # asks for its application at once
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if error.name.partition(".")[0] not in optional:
                raise

# Linux reports the bytes of a TCP connection, by a structure that is its own.
import socket
from placebench.profiler.capture.connection_state import socket_meter

with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    print("bytes:", socket_meter(client.fileno(), encrypted=False))
for name in ("fcntl", "resource", "pwd", "termios"):
    try:
        importlib.import_module(name)
    except ImportError:
        print(name, "is missing")
"""
REFUSED = """
import contextlib, io, json, sys
from placebench.cli import main
from placebench.commands import COMMANDS

said = {}
for name in COMMANDS.own:
    module = COMMANDS.own[name].module
    if module and __import__("importlib").import_module(module).COMMANDS[name].needs_linux:
        words = {"compare": ["a", "b"], "profile attach": ["1"], "load": ["http://127.0.0.1:1"]}.get(name, [])
        words = words or {"report reproduce": ["figures.json"], "history backfill": ["HEAD~1..HEAD"]}.get(name, [])
        words = words or {"study matrix": ["--axis", "a=1,2", "true", "{a}"], "study workers": ["true"]}.get(name, [])
        words = words or {"study saturation": ["--users", "1"]}.get(name, [])
        words = words or {"study network": ["--link", "127.0.0.1:1", "true"]}.get(name, [])
        stderr = io.StringIO()
        with contextlib.redirect_stderr(stderr):
            code = main([*name.split(), *words])
        said[name] = code, stderr.getvalue()
print(json.dumps(said))
"""


def _run(folder: Path, system: str, *words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """Run this Python with *words* in *folder* on another system, or on this one for ""; check its exit code."""
    environment = dict(os.environ)
    environment.pop("PYTHONSAFEPATH", None)
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # those of other packages may not load on the other system
    if system:
        environment |= {"OTHER_SYSTEM": system, "PYTHONPATH": str(_FAKES / "other_system")}
        environment["PYTHONWARNINGS"] = "error::EncodingWarning"  # no text is in the encoding of the system
    run = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == code, run.stderr
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("other systems")
    (made / "shop.py").write_text(SHOP, encoding="utf-8")
    (made / "test_shop.py").write_text(TESTS, encoding="utf-8")
    (made / "service.py").write_text(SERVICE, encoding="utf-8")
    (made / "imports.py").write_text(IMPORTS, encoding="utf-8")
    (made / "refused.py").write_text(REFUSED, encoding="utf-8")
    _record(made, "", "full")
    return made


def _record(folder: Path, system: str, mode: str) -> dict[str, Any]:
    out = f"{system or 'here'}-{mode}"
    run = _run(folder, system, "-m", "placebench", "profile", "run", "--mode", mode, "--json", "-o", out, "shop.py")
    document: dict[str, Any] = json.loads(run.stdout)
    return document


def _seen(folder: Path, out: str) -> Sequence[object]:
    """The facts of a recording that no time is part of."""
    document = json.loads((folder / out / "recording.json").read_text(encoding="utf-8"))
    statements = [
        (each["sql"], each["row_count"], each["caller"], each["round_trips"]) for each in document["statements"]
    ]
    return [statements, [each["kind"] for each in document["transactions"]]]


@pytest.mark.parametrize(("system", "mode"), [(_WINDOWS, "full"), (_WINDOWS, "external"), (_SYSTEMS[-1], "flame")])
def test_a_program_is_recorded_as_it_is_here(folder: Path, system: str, mode: str) -> None:
    """Statements, rows, call sites and transactions are those of Linux, and there is a page."""
    document = _record(folder, system, mode)

    assert _seen(folder, f"{system}-{mode}") == _seen(folder, "here-full")
    assert (folder / f"{system}-{mode}" / "index.html").is_file()
    assert document["summary"]["statements"] == 28
    if mode == "external":
        assert any("only on Linux" in note for note in document["notes"])


def test_requests_are_gated_shown_and_compared(folder: Path) -> None:
    """`profile check` has its exit codes, `show` reads what it wrote, and `diff` finds no statement more or less."""
    system = _WINDOWS
    placebench_command = ("-m", "placebench", "profile")
    out = f"{system}-check"
    _run(folder, system, *placebench_command, "check", "-o", out, "--gate", "statements <= 12", "shop:application")
    failed = _run(
        folder,
        system,
        *(*placebench_command, "check", "-o", f"{out}-2", "--gate", "statements <= 11", "shop:application"),
        code=1,
    )
    shown = _run(folder, system, *placebench_command, "show", f"{out}/recording.json")
    compared = _run(
        folder, system, *placebench_command, "diff", "-o", out, f"{out}/recording.json", f"{out}-2/recording.json"
    )

    assert "statements" in failed.stderr.splitlines()[-1]
    assert "n+1" in shown.stdout
    assert "12" in compared.stdout
    assert (folder / out / "difference.html").is_file()


@pytest.mark.parametrize("system", _SYSTEMS)
def test_a_command_is_recorded(folder: Path, system: str) -> None:
    """`profile run --` sees the Python that a command starts; `profile live` of a PID needs Linux."""
    out = f"{system}-command"
    words = ("profile", "run", "--mode", "full", "--json", "-o", out, "--", sys.executable, "shop.py")
    run = _run(folder, system, "-m", "placebench", *words)
    refused = _run(folder, system, "-m", "placebench", "profile", "live", "1", code=2)

    assert "20" in run.stderr.splitlines()
    assert json.loads(run.stdout)["summary"]["statements"] == 28
    assert refused.stderr.startswith("placebench profile live: needs Linux, and this is ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("system", _SYSTEMS)
def test_a_suite_is_recorded(folder: Path, system: str) -> None:
    """`pytest --sql` counts the statements of a test."""
    words = ("-p", "no:cacheprovider", "-p", "placebench.pytest_plugin", "--sql", "test_shop.py")
    run = _run(folder, system, "-m", "pytest", "-q", *words)

    assert "1 passed" in run.stdout
    assert "12 statements" in run.stdout


@pytest.mark.parametrize("system", _SYSTEMS)
def test_a_service_keeps_its_requests(folder: Path, system: str, tmp_path: Path) -> None:
    """The middleware writes its recordings, also where no command can attach."""
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    _run(tmp_path, system, str(folder / "service.py"))

    kept = [json.loads(each.read_bytes()) for each in sorted((tmp_path / "kept").glob("*.recording.json"))]
    assert [len(each["statements"]) for each in kept] == [12, 12]


@pytest.mark.parametrize("system", _SYSTEMS)
def test_every_module_that_should_can_be_imported(folder: Path, system: str) -> None:
    """The profiler, the commands with their options, the reports, and the history; bytes are not measured there."""
    run = _run(folder, system, "imports.py")

    missing = ["fcntl", "resource", "pwd", "termios"] if (system or sys.platform) == "win32" else []
    assert run.stdout.splitlines() == ["bytes: None", *(f"{name} is missing" for name in missing)]


@pytest.mark.parametrize("system", _SYSTEMS)
def test_a_command_that_needs_linux_says_so(folder: Path, system: str) -> None:
    """In one line, with exit code 2, before it does anything."""
    said = json.loads(_run(folder, system, "refused.py").stdout)

    assert {"compare", "load", "profile attach", "db start", "lab perfload"} <= said.keys()
    assert not {"profile run", "profile diff", "report open", "history show", "doctor"} & said.keys()
    for name, (code, lines) in said.items():
        assert code == 2
        assert lines.startswith(f"placebench {name}: needs Linux, and this is {_NAMES[system or sys.platform]}: it ")
        assert lines.count("\n") == 1


def test_runs_made_elsewhere_are_shown(tmp_path: Path) -> None:
    """`report open` builds the page of a run that Linux made; `doctor` names what is missing for others."""
    write_run(tmp_path / "profiles" / "run", FakeRun())
    opened = _run(tmp_path, _WINDOWS, "-m", "placebench", "report", "open", "profiles/run")
    examined = _run(tmp_path, _WINDOWS, "-m", "placebench", "doctor", code=2)

    assert opened.stdout.splitlines()[-1].endswith("/index.html")
    assert "all else needs Linux" in examined.stdout
