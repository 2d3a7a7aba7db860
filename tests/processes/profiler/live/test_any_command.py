"""Servers, workers and test runners below `placebench profile run -- COMMAND`, with small applications on SQLite.

Each application counts its statements by SQLite's own trace, and responds with the count.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from placebench.runtime.ports import free_port

PLAIN = """
import sqlite3
from pathlib import Path


def work(count):
    connection = sqlite3.connect(Path(__file__).with_name("shop.db"))
    traced = []
    connection.set_trace_callback(traced.append)
    for number in range(count):
        connection.execute("select ?", (number,)).fetchall()
    connection.close()
    return str(len(traced)).encode()


def application(environ, start_response):
    body = work(int(environ["PATH_INFO"].strip("/")))
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        return await send({"type": "lifespan.shutdown.complete"})
    body = work(int(scope["path"].strip("/")))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
"""

FLASK = """
from flask import Flask
from plain import work

app = Flask(__name__)


@app.get("/<int:count>")
def read(count):
    return work(count)
"""

FASTAPI = """
from fastapi import FastAPI, Response
from plain import work

app = FastAPI()


@app.get("/{count}")
def read(count: int):
    return Response(work(count))
"""

DJANGO = """
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpResponse
from django.urls import path
from plain import work

settings.configure(DEBUG=True, SECRET_KEY="x", ROOT_URLCONF=__name__, USE_TZ=True)
urlpatterns = [path("<int:count>", lambda request, count: HttpResponse(work(count)))]
if __name__ == "__main__":
    execute_from_command_line(sys.argv)
"""

CELERY = """
import os
import signal

from celery import Celery, signals
from plain import work

app = Celery("tasks", broker="memory://")
app.conf.worker_hijack_root_logger = False


@app.task(name="shop.bill")
def bill(count):
    work(count)
    os.kill(MASTER, signal.SIGTERM)


@signals.worker_ready.connect
def send(**_):
    bill.delay(4)


MASTER = os.getpid()
"""

WORKER = """
import multiprocessing

from plain import work

if __name__ == "__main__":
    work(2)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [3]), flush=True)
        pool.close()
        pool.join()
    raise SystemExit(5)
"""

TESTS = """
import sqlite3
from plain import work


def test_two():
    assert work(2) == b"2"


def test_five():
    assert work(5) == b"5"
"""

FILES = {
    "plain.py": PLAIN,
    "with_flask.py": FLASK,
    "with_fastapi.py": FASTAPI,
    "manage.py": DJANGO,
    "tasks.py": CELERY,
    "worker.py": WORKER,
    "test_shop.py": TESTS,
}


class Ran(NamedTuple):
    """The end of a command: its exit code, the JSON document, and the texts that it and placebench have written."""

    code: int
    document: dict[str, Any]
    written: str
    bodies: list[str]

    def statements(self, kind: str = "request") -> dict[str, tuple[int, int]]:
        """The number of recordings of each route, and of their statements."""
        routes = (each for each in self.document["routes"] if each["kind"] == kind)
        return {each["name"]: (each["count"], round(each["count"] * each["statements"])) for each in routes}


BY_PATH = {"GET /2": (1, 2), "GET /3": (2, 6)}
SERVERS: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {
    "gunicorn sync": ("gunicorn -w 2 -b 127.0.0.1:PORT plain:application", BY_PATH),
    "gunicorn gthread": ("gunicorn -w 2 --threads 2 --preload -b 127.0.0.1:PORT plain:application", BY_PATH),
    "gunicorn gevent": ("gunicorn -k gevent -b 127.0.0.1:PORT plain:application", BY_PATH),
    "gunicorn uvicorn": ("gunicorn -k uvicorn_worker.UvicornWorker -b 127.0.0.1:PORT plain:asgi", BY_PATH),
    "uvicorn reload": ("uvicorn --reload --port PORT plain:asgi", BY_PATH),
    "uvicorn workers": ("uvicorn --workers 2 --port PORT with_fastapi:app", {"GET /{count}": (3, 8)}),
    "hypercorn": ("hypercorn -b 127.0.0.1:PORT plain:asgi", BY_PATH),
    "granian asgi": ("granian --interface asgi --port PORT plain:asgi", BY_PATH),
    "granian wsgi": ("granian --interface wsgi --blocking-threads 1 --port PORT plain:application", BY_PATH),
    "uwsgi": ("uwsgi --http-socket 127.0.0.1:PORT --master --die-on-term --module plain:application", BY_PATH),
    "uwsgi lazy": (
        "uwsgi --http-socket 127.0.0.1:PORT --master --die-on-term --lazy-apps --enable-threads --wsgi-file plain.py",
        BY_PATH,
    ),
    "flask": ("flask --app with_flask run --debug --port PORT", {"GET /<int:count>": (3, 8)}),
    "fastapi": ("fastapi dev --port PORT with_fastapi.py", {"GET /{count}": (3, 8)}),
    "django": ("python manage.py runserver PORT", {"GET /<int:count>": (3, 8)}),
}
PACKAGES = {"gunicorn uvicorn": "uvicorn_worker", "gunicorn gevent": "gevent", "fastapi": "fastapi_cli"}
MAX_S = 60.0


def start(folder: Path, words: list[str], out: str, *options: str, **environment: str) -> "subprocess.Popen[str]":
    """`placebench profile run --json -- WORDS` in this folder, with the commands of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        [sys.executable, "-m", "placebench", "profile", "run", "--json", "-o", out, *options, "--", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": path, "PYTHONSAFEPATH": "", **environment},  # empty: modules of the folder are found
    )


def ended(process: "subprocess.Popen[str]", bodies: list[str] | None = None) -> Ran:
    """Wait for the end."""
    result, written = process.communicate(timeout=MAX_S)
    return Ran(process.returncode, json.loads(result) if result else {}, written, bodies or [])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the applications."""
    folder = tmp_path_factory.mktemp("shop")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[dict[str, Ran]]:
    """What each server has recorded of three requests; all of them start at once, and are interrupted at the end."""
    running = {}
    for name, (line, _) in SERVERS.items():
        if find_spec(PACKAGES.get(name, "gunicorn")) is not None:
            port = free_port()
            running[name] = port, start(folder, line.replace("PORT", str(port)).split(), name, "--mode", "full")
    try:
        bodies = {name: [get(port, path) for path in ("2", "3", "3")] for name, (port, _) in running.items()}
        for name, (_, process) in running.items():
            wait_for_recordings(process, len(bodies[name]))
            process.send_signal(signal.SIGINT)
        yield {name: ended(process, bodies[name]) for name, (_, process) in running.items()}
    finally:
        for _, process in running.values():
            if process.returncode is None:
                process.kill()
                process.communicate()


def wait_for_recordings(process: "subprocess.Popen[str]", count: int) -> None:
    """Wait until the live page has this many requests: a reloader kills its server at once."""
    assert process.stderr is not None
    line = next(line for line in process.stderr if line.startswith("requests as they come"))
    until = time.monotonic() + MAX_S
    while time.monotonic() < until:
        with urllib.request.urlopen(f"{line.split()[-1]}routes", timeout=MAX_S) as response:
            if sum(each["count"] for each in json.load(response) if each["kind"] == "request") >= count:
                return
        time.sleep(0.05)


def get(port: int, path: str) -> str:
    """The response of a server that may not listen yet."""
    until = time.monotonic() + MAX_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=MAX_S) as response:
                return response.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
def test_each_request_to_a_server_is_recorded_once(name: str, served: dict[str, Ran]) -> None:
    """In whatever process serves it, with the statements that SQLite has traced, and named after its route."""
    if name not in served:
        pytest.skip(f"no {name} in this environment")
    ran = served[name]

    assert ["2", "3", "3"] == ran.bodies
    assert SERVERS[name][1] == ran.statements(), ran.written
    assert 0 == ran.code == ran.document["exit_code"], ran.written
    assert [] == [note for note in ran.document["notes"] if "account" in note]


def run(folder: Path, words: list[str], *options: str, **environment: str) -> Ran:
    """Run a command to its end."""
    return ended(start(folder, words, f"ran-{free_port()}", "--no-live", *options, **environment))


def test_a_worker_its_spawned_process_and_its_exit_code(folder: Path) -> None:
    """What a program does by itself is a recording of each process; the exit code is its own."""
    ran = run(folder, ["python", "-m", "worker"])

    assert (5, 5) == (ran.code, ran.document["exit_code"]), ran.written
    assert {"worker.py outside of requests": (2, 5)} == ran.statements("program")
    assert "[b'3']" in ran.written


def test_sub_interpreters_record_themselves(folder: Path) -> None:
    """Their statements are in the recording, and no note says that they are missing."""
    interpreters = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    program = (
        f"import {interpreters} as interpreters\n"
        "from plain import work\n"
        "work(2)\n"
        "made = interpreters.create()\n"
        "interpreters.run_string(made, 'import sys; sys.path.insert(0, \"\"); from plain import work; work(3)')\n"
        "interpreters.destroy(made)"
    )
    ran = run(folder, ["python", "-c", program], "--mode", "light")

    assert {"-c outside of requests": (2, 5)} == ran.statements("program"), ran.written
    assert [] == ran.document["notes"]


def test_the_engines_of_a_program_are_recorded(folder: Path) -> None:
    """SQLAlchemy is what it imports first: its statements have what only SQLAlchemy knows."""
    program = (
        "from sqlalchemy import create_engine, text\n"
        "with create_engine('sqlite://').connect() as connection:\n"
        "    for number in range(4): connection.execute(text('select :number'), {'number': number}).all()"
    )
    ran = run(folder, ["python", "-c", program])

    assert {"-c outside of requests": (1, 4)} == ran.statements("program"), ran.written
    assert ran.document["summary"]["compile_s"] > 0


def test_an_application_that_comments_its_statements_is_recorded(folder: Path) -> None:
    """Its extension asks for comments before anything has imported SQLAlchemy."""
    program = (
        "import sqlite3\n"
        "from flask import Flask\n"
        "from placebench.profiler.integrations.flask import FlaskExtension\n"
        "FlaskExtension(Flask('shop'), comments=True)\n"
        "from sqlalchemy import create_engine, text\n"
        "with create_engine('sqlite://').connect() as connection: connection.execute(text('select 1')).all()"
    )
    ran = run(folder, ["python", "-c", program])

    assert 0 == ran.code, ran.written
    assert {"-c outside of requests": (1, 1)} == ran.statements("program"), ran.written


def test_the_tests_of_pytest_are_units_of_work(folder: Path) -> None:
    """Each with its own statements."""
    ran = run(folder, ["pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"], PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")

    assert 0 == ran.code, ran.written
    assert {"test_shop.py::test_two": (1, 2), "test_shop.py::test_five": (1, 5)} == ran.statements("program")


@pytest.mark.long
def test_a_task_of_celery_is_recorded(folder: Path) -> None:
    """In the process that its worker forks."""
    ran = run(folder, ["celery", "-A", "tasks", "worker", "-c", "1", "--without-mingle"])

    assert {"shop.bill": (1, 4)} == ran.statements("task"), ran.written


@pytest.mark.parametrize("python", ["/usr/bin/python3"])
def test_a_python_without_the_packages_of_placebench_is_recorded(python: str, folder: Path) -> None:
    """It loads placebench alone from the folder of the command."""
    if not Path(python).exists() or "3.11" > subprocess.check_output([python, "-V"], text=True).split()[1]:
        pytest.skip(f"no {python} of 3.11 or later")
    program = "from plain import work; work(3); import sys; print({'sqlalchemy', 'msgspec'} & {*sys.modules})"
    ran = run(folder, [python, "-c", program])

    assert {"-c outside of requests": (1, 3)} == ran.statements("program"), ran.written
    assert "set()" in ran.written


def test_the_sitecustomize_of_the_project_runs(folder: Path) -> None:
    """With the path as the project has set it, and ours is not on it."""
    own = folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("OWN = True\n")
    program = "import sitecustomize, sys; print(sitecustomize.OWN, [each for each in sys.path if 'startup' in each])"
    ran = run(folder, ["python", "-c", program], PYTHONPATH=str(own))

    assert "True []" in ran.written
    assert "nothing was recorded: no Python process below it has loaded" in ran.written


@pytest.mark.parametrize(
    ("word", "code", "line"),
    [("no-such-command", 127, "was not found"), ("./plain.txt", 126, "cannot be executed")],
)
def test_a_command_that_cannot_run_is_one_line(word: str, code: int, line: str, folder: Path) -> None:
    """With the exit code of a shell, and no folder is left."""
    (folder / "plain.txt").write_text("nothing")
    process = start(folder, [word], "none")
    _, written = process.communicate(timeout=MAX_S)

    assert (code, 1) == (process.returncode, len(written.splitlines()))
    assert line in written
    assert not (folder / "none").exists()


def test_a_signal_that_ends_the_command_ends_placebench(folder: Path) -> None:
    """With what was recorded until then."""
    ran = run(folder, ["python", "-c", "from plain import work; import os, signal; work(2); os.kill(os.getpid(), 15)"])

    assert -signal.SIGTERM == ran.code
    assert 143 == ran.document["exit_code"]


TERMINAL = """
import os, signal, sys
received = []
arrivals, to_arrivals = os.pipe()
os.set_blocking(to_arrivals, False)
signal.set_wakeup_fd(to_arrivals)
signal.signal(signal.SIGINT, lambda *_: received.append(1))
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"interrupted %d\\n" % len(received)) and os._exit(3))
print("ready", sys.stdin.isatty(), sys.stdout.isatty(), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
while True:
    os.read(arrivals, 1)  # a signal that comes before it is waited for is not missed
"""


def test_the_terminal_is_that_of_the_command(folder: Path) -> None:
    """Ctrl-C reaches the command once, and the exit code is that which the command then chooses."""
    pty, fcntl, termios = pytest.importorskip("pty"), pytest.importorskip("fcntl"), pytest.importorskip("termios")
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    words = ["profile", "run", "--no-live", "-o", "terminal", "--", sys.executable, "-c", TERMINAL]
    process = subprocess.Popen(
        [sys.executable, "-m", "placebench", *words],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=take_terminal,
    )
    os.close(theirs)
    written = b""
    while b"ready" not in written or not written.endswith(b"\n"):
        written += os.read(ours, 1000)
    os.write(ours, b"\x03")
    while b"^C" not in written:
        written += os.read(ours, 1000)
    fcntl.ioctl(ours, termios.TIOCSWINSZ, b"\x10\x00\x20\x00\x00\x00\x00\x00")
    with suppress(OSError):  # the terminal is closed by its last process
        while True:
            written += os.read(ours, 1000)

    assert b"ready True True True" in written
    assert b"interrupted 1" in written
    assert 3 == process.wait(MAX_S)
    os.close(ours)


def test_nothing_is_left_when_placebench_is_killed(
    folder: Path, runs: Callable[[int], bool], eventually: Callable[[Callable[[], bool]], bool]
) -> None:
    """The command and what it has started end, even what ignores SIGTERM."""
    program = (
        "import os, signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], start_new_session=True)\n"
        "print('pids', os.getpid(), inner.pid, flush=True); signal.pause()"
    )
    process = start(folder, ["python", "-c", program], "killed", "--no-live")
    assert process.stderr is not None
    line = next(line for line in process.stderr if line.startswith("pids"))
    pids = [int(word) for word in line.split()[1:]]
    process.kill()
    process.communicate(timeout=MAX_S)

    assert eventually(lambda: not any(runs(pid) for pid in pids))
