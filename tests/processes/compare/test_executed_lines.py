"""`placebench compare` of two commits says whether a request executed a changed line, and what follows from it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from git_repository import commit_all

from placebench import results
from placebench.cli import main
from placebench.runtime.application_servers import STANDALONE

pytestmark = pytest.mark.usefixtures("without_profiles")

APP = '''"""A service."""

LIMIT = 3


def unused(number):
    """Return what no request asks for."""
    return number + 1


def numbers():
    """Return some numbers."""
    # all of them
    found = [number for number in range(LIMIT)]
    if len(found) > 100:
        return found[:100]
    return found


def wsgi(environ, start_response):
    __import__("time").sleep(0.005)  # at once would be faster than one client sends
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [repr(numbers()).encode()]
'''
ASGI = """
async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    number = 1
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"one"})
"""
PLAN = """
database = "none"
request = "/"

[app]
app = "service:wsgi"
server = "uwsgi"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the service, of one commit."""
    folder = tmp_path / "service"
    folder.mkdir()
    (folder / "service.py").write_text(APP)
    (folder / "README.md").write_text("A service.\n")
    (folder / "plan.toml").write_text(PLAN)
    commit_all(folder, "Serve")
    return folder


def compare(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, object], str]:
    """Commit what changed, compare it with the commit before, and return the exit code, the document and the errors."""
    commit_all(folder, "Change")
    words = ["compare", "HEAD~1", "HEAD", "--plan", str(folder / "plan.toml"), "--rounds", "1", "--json", "-q"]
    code = main([*words, "-o", str(folder.parent / "run"), *options])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


@pytest.mark.parametrize(
    ("server", "file", "changes"),
    [
        ("gunicorn", "README.md", {"A service": "The service"}),
        (
            "uwsgi",
            "service.py",
            {
                "# all of them": "# every one of them,\n    # in order",
                '"""Return some numbers."""': '"""Return a few numbers."""',
                '"""A service."""': '"""A service with numbers."""',
            },
        ),
    ],
)
def test_documentation_is_decided_without_times(
    repository: Path, capsys: pytest.CaptureFixture[str], server: str, file: str, changes: dict[str, str]
) -> None:
    """No replicate is made, a gate on the ratio of a time passes, and the control of the preset is not needed."""
    (repository / "plan.toml").write_text(PLAN.replace("uwsgi", server))
    commit_all(repository, "Choose a server")
    path = repository / file
    for old, new in changes.items():
        path.write_text(path.read_text().replace(old, new))

    code, document, _ = compare(repository, capsys, "--preset", "quick", "--gate", "cpu_s < +3%")

    (change,) = document["changed_source"]  # type: ignore[misc]
    assert (0, 0, None) == (code, document["replicates"], document["control"])
    assert ([file], [], False) == (change["files"], change["executed"], change["is_read"])
    assert change["requests"] >= 12
    assert "no time was measured" in str(document["conclusion"])
    assert "complete" == document["status"]


@pytest.mark.long
def test_a_line_that_no_request_executes_makes_no_gate_fail(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times are measured, and a difference is one of the machine: the gate passes whatever they say."""
    text = APP.replace("return number + 1", "return number + 2").replace("return found[:100]", "return found[:99]")
    (repository / "service.py").write_text(text)

    code, document, _ = compare(repository, capsys, "-n", "6", "--gate", "cpu_s < 0.5x")

    (change,) = document["changed_source"]  # type: ignore[misc]
    assert (0, 6) == (code, document["replicates"])
    assert ([], True) == (change["executed"], change["is_read"])
    assert "No request executed a changed line" in str(document["conclusion"])
    assert "No speed-up may be claimed." in str(document["conclusion"])


@pytest.mark.long
def test_each_line_that_is_executed_is_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At start or by a request, in a body or in the head of a function that is called: then gates stay as they are."""
    changes = {
        "LIMIT = 3": "LIMIT = 1 + 2",
        "def numbers():": "def numbers(unused=None):",
        "range(LIMIT)]": "range(0, LIMIT)]",
        "if len(found) > 100:": "if len(found) > 99:",
    }
    text = APP
    for old, new in changes.items():
        text = text.replace(old, new)
    (repository / "service.py").write_text(text)

    code, _, _ = compare(repository, capsys, "-n", "1", "--gate", "cpu_s < 2x")

    (change,) = results.load(repository.parent / "run").executed
    assert 3 == code
    assert ["service.py:3", "service.py:11", "service.py:14", "service.py:15"] == change.executed


@pytest.mark.long
@pytest.mark.parametrize("server", ["uvicorn", "hypercorn"])
def test_a_line_of_a_coroutine_is_seen_behind_asgi_servers(
    server: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They look at the parameters of an application to find out what it is, so the one that watches has ASGI's."""
    (repository / "service.py").write_text(ASGI)
    (repository / "plan.toml").write_text(PLAN.replace("uwsgi", server).replace("wsgi", "asgi"))
    commit_all(repository, "Serve by ASGI")
    (repository / "service.py").write_text(ASGI.replace("number = 1", "number = 1 + 1"))

    compare(repository, capsys, "-n", "1")

    (change,) = results.load(repository.parent / "run").executed
    assert ["service.py:5"] == change.executed


@pytest.mark.long
def test_a_watched_request_that_fails_shows_nothing(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it would have executed is not known: the part fails, and times are judged as without it."""
    fails = 'if os.environ.get("PLACEBENCH_EXECUTED_APP"):\n        raise LookupError("watched")\n    '
    text = APP.replace("LIMIT = 3", "import os\n\nLIMIT = 3").replace("start_response(", fails + "start_response(", 1)
    (repository / "service.py").write_text(text)
    commit_all(repository, "Fail")
    (repository / "service.py").write_text(text.replace("number + 1", "number + 2"))

    _, document, _ = compare(repository, capsys, "-n", "1")

    assert [] == document["changed_source"]
    assert "The executed lines failed: " in str(document["conclusion"])


USES = """
import glob, importlib.resources, inspect, mmap, os, pkgutil, pathlib, sqlite3
import shown, service_data
from contextlib import closing

HERE = os.path.dirname(os.path.abspath(__file__))


def use():
    open(f"{HERE}/opened").close()
    open(f"{HERE}/data/link").close()
    closing(sqlite3.connect(f"{HERE}/by_sqlite")).thing.execute("SELECT 1 FROM sqlite_master")
    closing(sqlite3.connect(f"file:{HERE}/by_uri?mode=ro", uri=True)).thing.execute("SELECT 1 FROM sqlite_master")
    folder = os.open(HERE, os.O_RDONLY)
    os.close(os.open("by_folder", os.O_RDONLY, dir_fd=folder))
    os.close(folder)
    with open(f"{HERE}/mapped", "rb") as file:
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).close()
    os.stat(f"{HERE}/stat")
    os.path.getsize(f"{HERE}/size")
    os.access(f"{HERE}/access", os.R_OK)
    pathlib.Path(HERE, "is_file").is_file()
    os.rename(f"{HERE}/renamed", f"{HERE}/renamed")
    os.path.exists(f"{HERE}/added")
    os.path.exists(f"{HERE}/new/folder/added")
    try:
        open(f"{HERE}/data/../missing").close()
    except FileNotFoundError:
        pass
    os.listdir(f"{HERE}/listed")
    glob.glob(f"{HERE}/globbed/*")
    (importlib.resources.files(service_data) / "resource").read_bytes()
    pkgutil.get_data("service_data", "got")
    inspect.getsource(shown)
"""
USED = [
    "opened", "linked", "by_sqlite", "by_uri", "by_folder", "mapped", "stat", "size", "access", "is_file", "renamed",
    "added", "new/folder/added", "missing", "listed/one", "globbed/one", "service_data/resource", "service_data/got",
    "shown.py",
]  # fmt: skip
UNUSED = ["README.md", "docs/index.md", "tree/one", "imported.py"]


@pytest.mark.long
@pytest.mark.parametrize("is_removed", [False, True])
def test_a_file_is_used_whatever_way_and_name_it_is_used_by(
    repository: Path, capsys: pytest.CaptureFixture[str], is_removed: bool
) -> None:
    """Opened by a link or by C code, asked for without opening it, listed or missing: it counts, and no other file."""
    text = APP.replace("LIMIT = 3", f"{USES}\nimport imported\nLIMIT = 3").replace("    # all", "    use()\n    # all")
    (repository / "service.py").write_text(text)
    for folder in ("data", "listed", "globbed", "service_data", "docs", "tree"):
        (repository / folder).mkdir()
    (repository / "service_data/__init__.py").write_text("")
    (repository / "data/link").symlink_to("../linked")
    added = [] if is_removed else ["added", "new/folder/added", "missing"]
    for name in {*USED, *UNUSED} - set(added):
        (repository / name).parent.mkdir(exist_ok=True, parents=True)
        (repository / name).write_text("" if name.startswith("by_") else "# one\n")
    commit_all(repository, "Use files")
    for name in {*USED, *UNUSED} - {"by_sqlite", "by_uri"}:
        (repository / name).parent.mkdir(exist_ok=True, parents=True)
        (repository / name).write_text("# two\n")
    for name in ("by_sqlite", "by_uri"):
        (repository / name).chmod(0o755)
    for name in ["added", "new/folder/added", "missing"] if is_removed else []:
        (repository / name).unlink()

    compare(repository, capsys, "-n", "1", "--gate", "cpu_s < +3%")

    (change,) = results.load(repository.parent / "run").executed
    assert sorted([*USED, "imported.py"]) == sorted(change.read)
    assert sorted(USED) == sorted(change.executed)
    assert ([], True) == (change.unseen, change.is_read)


PROGRAMS = {
    "popen": "import subprocess; subprocess.run(['true'])",
    "system": "import os; os.system('true')",
    "posix_spawn": "import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
    "exec": "import os; os.fork() or os.execv('/bin/true', ['true']); os.wait()",
    "multiprocessing": "import multiprocessing as m; p = m.get_context('spawn').Process(); p.start(); p.join()",
    "ctypes": "import ctypes; ctypes.CDLL('libc.so.6')",
    "ctypes of the process": "import ctypes; ctypes.CDLL(None).system(b'true')",
    "uvloop": """
import asyncio, uvloop
async def start():
    await (await asyncio.create_subprocess_exec("true")).wait()
uvloop.run(start())
""",
    "interpreter": "import _interpreters" if sys.version_info >= (3, 13) else "import _xxsubinterpreters",
    "trace": "import sys; sys.settrace(None)",
}
HARMLESS = {
    "fork": "import os; os.fork() or os._exit(0); os.wait()",
    "thread": "import threading; t = threading.Thread(target=len, args=['']); t.start(); t.join()",
    "imports": "import ctypes, importlib.metadata, json.tool; importlib.metadata.version('pytest')",
    "missing": "import os; os.path.exists('/nowhere/at/all'); os.path.exists('nowhere'); os.path.exists(b'\\0')",
}


@pytest.mark.parametrize("name", [*PROGRAMS, *HARMLESS])
def test_nothing_is_concluded_once_other_code_may_use_files(tmp_path: Path, name: str) -> None:
    """Another program, a library without audit events and a trace function are unknown; a fork is watched too."""
    if name == "uvloop":
        pytest.importorskip("uvloop")
    (tmp_path / "app.py").write_text({**PROGRAMS, **HARMLESS}[name] + "\ndef wsgi(environ, start_response): ...\n")
    (tmp_path / "files").write_text(f"{tmp_path}/README.md\n{tmp_path}/added\n")
    (tmp_path / "README.md").write_text("")
    (tmp_path / "out").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{STANDALONE / 'executed'}",
        "PLACEBENCH_EXECUTED_APP": "app:wsgi",
        "PLACEBENCH_EXECUTED_FILES": str(tmp_path / "files"),
        "PLACEBENCH_EXECUTED_OUT": str(tmp_path / "out"),
    }
    code = "from placebench_executed import application; application({}, None)"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd="/")

    written = "".join(each.read_text() for each in (tmp_path / "out").iterdir())
    assert (name in PROGRAMS) == written.startswith("unknown\t")
    assert name in PROGRAMS or written == ""


@pytest.mark.long
def test_a_gate_does_not_pass_because_a_program_used_files_unseen(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Variants of which another program may have read what changed are timed, and their gates are judged by that."""
    starts = "import subprocess\n\nLIMIT = len(subprocess.run(['cat', '/dev/null']).args) + 1"
    (repository / "service.py").write_text(APP.replace("LIMIT = 3", starts))
    commit_all(repository, "Start a program")
    (repository / "README.md").write_text("Another service.\n")

    code, document, _ = compare(repository, capsys, "-n", "1", "--gate", "cpu_s < 0.1x")

    (change,) = document["changed_source"]  # type: ignore[misc]
    assert ([], ["starts another program"], True) == (change["read"], change["unseen"], change["is_read"])
    assert (3, 1) == (code, document["replicates"])


def test_commits_with_the_same_files_are_not_timed(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Git alone decides, whatever serves the application; the counts are there."""
    commit_all(repository, "Nothing")

    code = main(
        [
            "compare",
            "HEAD~1",
            "HEAD",
            "--plan",
            str(repository / "plan.toml"),
            "--preset",
            "quick",
            "--json",
            "-q",
            "-o",
            str(repository.parent / "run"),
            "--gate",
            "cpu_s < +3%",
        ]
    )

    document = json.loads(capsys.readouterr().out)
    (change,) = document["changed_source"]
    assert (0, 0, []) == (code, document["replicates"], change["files"])
    assert "HEAD has the same files as HEAD~1: no time was measured." in document["conclusion"]
