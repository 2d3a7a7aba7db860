"""Scripts and modules as programs, as Python itself runs them."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from placebench.profiler import Recording

SCRIPT = """
import sys
import threading

from helper import NAME
from sqlalchemy import create_engine, text


def main():
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        for number in range(6):
            connection.execute(text("select :n"), {"n": number}).all()
    engine.dispose()
    print(__name__, NAME, sys.argv)
    threading.Thread(target=lambda: print("a thread ends")).start()
    sys.exit(int(sys.argv[-1]))


if __name__ == "__main__":
    main()
"""


FORKS = """
import os
import sys

child = os.fork()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 6)
"""


THREADS = """
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

from sqlalchemy import create_engine, text

engine = create_engine("sqlite:///shop.db")


def query(number):
    with engine.connect() as connection:
        connection.execute(text("select :n"), {"n": number}).all()


threads = [Thread(target=query, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
with ThreadPoolExecutor(2) as pool:
    list(pool.map(query, range(4)))
for thread in threads:
    thread.join()
engine.dispose()
"""


POOLS = """
import multiprocessing


def double(number):
    return number * 2


if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(pool.map(double, [1, 2]), flush=True)
"""


BY_HAND = """
import sqlite3

connection = sqlite3.connect(":memory:")
connection.execute("create table orders (id integer)")
for number in (1, 2, 3, 4, 5, 5):
    connection.execute("select id from orders where id = ?", (number,)).fetchall()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a script beside its helper, and the same as a package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    for name, text in {
        "jobs/report.py": SCRIPT,
        "jobs/helper.py": "NAME = 'helper'",
        "package/__init__.py": "",
        "package/__main__.py": SCRIPT.replace("helper", "package.helper"),
        "package/helper.py": "NAME = 'helper'",
        "raises.py": "def main():\n    raise ValueError('by the program')\n\n\nmain()\n",
        "says.py": "import sys\nsys.exit('a text')\n",
        "missing.py": "import no_such_package\n",
        "broken.py": "def :\n",
        "by_hand.py": BY_HAND,
        "forks.py": FORKS,
        "pools.py": POOLS,
        "threads.py": THREADS,
        "waits.py": "import time\nprint('waiting', flush=True)\ntime.sleep(60)\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(*words: str, command: str = "run", **environment: str) -> "subprocess.CompletedProcess[str]":
    """`placebench profile run --mode full` with these words."""
    called = [sys.executable, "-m", "placebench", "profile", command, "--mode", "full", *words]
    variables = {**os.environ, **environment}
    return subprocess.run(called, capture_output=True, text=True, check=False, env=variables)


@pytest.mark.parametrize(
    ("words", "arguments", "name"),
    [
        (["jobs/report.py", "--mode", "3"], ["jobs/report.py", "--mode", "3"], "report.py"),
        (["jobs/report.py", "--", "--json", "3"], ["jobs/report.py", "--json", "3"], "report.py"),
        (["--", "jobs/report.py", "--", "3"], ["jobs/report.py", "--", "3"], "report.py"),
        (["-m", "package", "--mode", "3"], ["package/__main__.py", "--mode", "3"], "-m package"),
        (["-m", "package", "--", "-m", "3"], ["package/__main__.py", "-m", "3"], "-m package"),
    ],
)
def test_a_program_is_recorded_with_its_own_arguments(words: list[str], arguments: list[str], name: str) -> None:
    """All that follows its name belongs to it; its exit code is kept, and its threads have ended."""
    ran = run(*words)

    said = ran.stdout.replace(f"{Path.cwd()}/", "").splitlines()
    assert 3 == ran.returncode, ran.stderr
    assert f"__main__ helper {arguments}" in said[:2]
    assert "a thread ends" in said[:2]
    assert said[2].startswith(f"{name}: ")
    assert any(line.startswith("n+1: 6 times") for line in said)


def test_json_is_alone_on_stdout() -> None:
    """What the program writes goes to stderr."""
    ran = run("--json", "jobs/report.py", "4")

    document = json.loads(ran.stdout)
    assert (4, 6) == (document["exit_code"], document["summary"]["statements"])
    assert "__main__ helper" in ran.stderr


def test_a_file_with_an_application_is_run_and_named_as_one() -> None:
    """As `fastapi run main.py` serves it."""
    Path("main.py").write_text("app = dict()\n")

    ran = run("main.py")

    assert 0 == ran.returncode
    assert "`placebench profile run main.py:app` sends requests to it" in ran.stderr


def test_a_program_that_raises_shows_its_own_frames_and_a_page() -> None:
    """As Python does, with exit code 1."""
    own = subprocess.run([sys.executable, "raises.py"], capture_output=True, text=True, check=False)
    ran = run("raises.py")

    assert 1 == ran.returncode
    assert own.stderr.replace(f"{Path.cwd()}/", "") == ran.stderr.replace(f"{Path.cwd()}/", "")
    assert "ended with ValueError" in ran.stdout
    assert Path("profile/index.html").is_file()


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["says.py"], 1, "a text"),
        (["broken.py"], 1, "SyntaxError: invalid syntax"),
        (["missing.py"], 1, "run placebench in the application's environment, or add the package"),
        (["none.py"], 2, "there is no file 'none.py'"),
        (["-m"], 2, "expected one program"),
        (["shop", "says.py"], 2, "'shop' is not a script, but 'says.py' follows it: expected one application"),
        (["sh", "says.py"], 2, "'sh' is a command: expected `placebench profile run -- sh …`"),
        (["--request", "GET /", "says.py"], 2, "requests are sent to an application only"),
    ],
)
def test_what_is_wrong_is_the_last_line(words: list[str], code: int, line: str) -> None:
    """The program's own errors have its exit code; ours have 2, and leave no folder."""
    ran = run(*words)

    assert code == ran.returncode
    assert (code == 1) == Path("profile").exists()
    assert line in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("mode", ["light", "flame"])
def test_the_threads_of_a_program_are_recorded(mode: str) -> None:
    """Those that it starts itself, and those of its pools."""
    ran = run("--mode", mode, "threads.py")

    assert 0 == ran.returncode, ran.stderr
    assert " statements 7 " in ran.stdout
    assert "no recording saw them" not in ran.stdout


@pytest.mark.parametrize("words", [(), ("--drivers", "sqlite3")])
def test_a_program_without_sqlalchemy_is_recorded(words: tuple[str, ...]) -> None:
    """With call sites, n+1 and the statement that ran with the same value."""
    ran = run(*words, "by_hand.py")

    assert 0 == ran.returncode, ran.stderr
    assert " statements 7 " in ran.stdout
    assert ["duplicate", "n+1"] == sorted(re.findall(r"^(n\+1|duplicate): ", ran.stdout, re.MULTILINE))
    assert 2 == ran.stdout.count("by_hand.py:7 <module>")


INSTALLED = """
import sqlite3


def load():
    connection = sqlite3.connect(":memory:")
    connection.execute("select 1").fetchall()


def app(environ, start_response):
    load()
    start_response("200 OK", [])
    return [b""]


if __name__ == "__main__":
    load()
"""


@pytest.mark.parametrize("words", [("shopd:app",), ("-m", "shopd")])
def test_an_installed_program_is_the_application(folder: Path, words: tuple[str, ...]) -> None:
    """Its own lines ran the statements, and none of the command line's."""
    package = folder / "lib" / "site-packages" / "shopd"
    package.mkdir(parents=True)
    for name in ("__init__.py", "__main__.py"):
        (package / name).write_text(INSTALLED)

    ran = run("--json", *words, PYTHONPATH=str(package.parent))

    assert 0 == ran.returncode, ran.stderr
    (statement,) = Recording.load(folder / "profile" / "recording.json").statements
    places = [(Path(each.file).parent.name, each.line) for each in (statement.caller, statement.outer_caller) if each]
    assert ("shopd", 7) == places[0]
    assert {"shopd"} == {name for name, _ in places}


def test_a_program_without_statements_says_what_was_looked_for() -> None:
    """In one line of the report and of the recording; drivers that are named are the only ones."""
    other, silent = run("--drivers", "sqlite3", "says.py"), run("--json", "forks.py")

    assert ["the drivers sqlite3" in line for line in other.stdout.splitlines() if "was seen" in line] == [True]
    _, note = json.loads(silent.stdout)["notes"]  # the first one names its child process
    assert ("SQLAlchemy" in note, "psycopg2" in note) == (True, True)


def test_an_unknown_driver_is_a_usage_error() -> None:
    """With the names that there are."""
    ran = run("--drivers", "sqlite3,oracle", "by_hand.py")

    assert 2 == ran.returncode
    assert "'oracle'" in ran.stderr
    assert "psycopg2" in ran.stderr


def test_a_forked_child_writes_no_recording() -> None:
    """It ends with its own exit code; the summary is printed once."""
    ran = run("forks.py")

    assert 6 == ran.returncode, ran.stderr
    assert 1 == ran.stdout.count("forks.py: ")


def test_the_processes_of_a_pool_end_as_usual() -> None:
    """They are terminated by a signal, which the command has a handler for."""
    ran = run("pools.py")

    assert (0, "") == (ran.returncode, ran.stderr)
    assert ["[2, 4]", "[2, 4]"] == ran.stdout.splitlines()[:2]


def test_an_interrupted_program_is_recorded_until_then() -> None:
    """Its process ends by the signal, as Python's does."""
    called = [sys.executable, "-m", "placebench", "profile", "run", "--mode", "full", "waits.py"]
    with subprocess.Popen(called, stdout=subprocess.PIPE, text=True) as process:
        assert "waiting\n" == process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said = process.communicate()[0]

    assert -signal.SIGINT == process.returncode
    assert "ended with KeyboardInterrupt" in said
    assert Path("profile/index.html").is_file()


def test_a_gate_of_a_program_is_exit_code_1() -> None:
    """Unless the program failed by itself."""
    gate = ("--gate", "statements <= 5", "jobs/report.py")

    assert [1, 7] == [run(*gate, code, command="check").returncode for code in ("0", "7")]
