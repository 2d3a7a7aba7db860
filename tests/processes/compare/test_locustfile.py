"""`placebench load --locustfile` with locustfiles as locust's documentation has them."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.compare.keep.records import LoadResult
from placebench.compare.what.http_request import get
from placebench.runtime.running_server import RunningServer

Served = Callable[..., RunningServer]

SHAPES_OF_USERS = """
from pathlib import Path

from locust import FastHttpUser, HttpUser, constant, events, task

names = []


@events.init_command_line_parser.add_listener
def own_options(parser):
    parser.add_argument("--rate", default="of the file")
    parser.add_argument("--requests", default="of the file")


@events.request.add_listener
def note(name, **_):
    names.append(name)


@events.test_stop.add_listener
def write(environment, **_):
    Path("seen.txt").write_text("\\n".join([environment.parsed_options.rate, *names]))


class Reader(HttpUser):
    host = "http://127.0.0.1:1"
    weight = 3
    wait_time = constant(0.01)

    def on_start(self):
        self.client.post("/orders", data="login", headers={"Content-Type": "text/plain", "X-Key": "k"})

    @task(2)
    def read(self):
        self.client.get("/work?size=10", name="read")

    @task
    def refuse(self):
        with self.client.get("/work?size=20", name="refused", catch_response=True) as response:
            response.failure("not what was expected")


class Writer(FastHttpUser):
    weight = 1
    wait_time = constant(0.01)

    @task
    def write(self):
        self.client.post("/orders", data="order", headers={"Content-Type": "text/plain", "X-Key": "k"}, name="write")
"""

TAGGED = """
from locust import FastHttpUser, constant, tag, task


class User(FastHttpUser):
    wait_time = constant(0.01)

    @tag("read")
    @task
    def read(self):
        self.client.get("/work")

    @tag("slow")
    @task
    def slow(self):
        self.client.get("/slow-and-not-there")
"""

LOAD_SHAPE = """
from locust import FastHttpUser, LoadTestShape, constant, task


class User(FastHttpUser):
    wait_time = constant(0.01)

    @task
    def read(self):
        self.client.get("/work")


class Steps(LoadTestShape):
    def tick(self):
        seconds = self.get_run_time()
        return (1, 10) if seconds < 1 else (3, 10) if seconds < 3 else None
"""


@pytest.mark.long
def test_an_ordinary_locustfile_runs_as_under_locust(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two user classes with weights, both clients, a login in on_start, listeners, options named as ours, and a host.

    locust's own events and the service count what the samples count.
    """
    monkeypatch.chdir(tmp_path)
    Path("users.py").write_text(SHAPES_OF_USERS)
    server = served(threads=4)
    options = ["--users", "4", "--time", "2", "--out", "out", "--json"]
    exit_code = main(["load", server.url, "--locustfile", "users.py", *options])

    document, result = json.loads(capsys.readouterr().out), LoadResult.load(Path("out/load.json"))
    rate, *names = Path("seen.txt").read_text().splitlines()
    orders = get(server.url, "/orders").body.decode().splitlines()
    assert exit_code == 1
    assert rate == "of the file"
    assert document["requests"] == result.requests == len(names) > 20
    assert (document["users"], document["rate_per_s"]) == (4, None)
    assert document["failures"] == len(result.failed_latency_s) == names.count("refused") > 0
    assert result.failure_messages == ["status 200: CatchResponseError: not what was expected"]
    assert orders.count("text/plain k login") == 3
    assert orders.count("text/plain k order") == names.count("write") == result.body_bytes.count(0) - 3
    assert int(get(server.url, "/counts").body.split()[0]) == names.count("read") + names.count("refused")


@pytest.mark.long
@pytest.mark.parametrize(("name", "tags"), [("LOCUST_TAGS", "read"), ("LOCUST_EXCLUDE_TAGS", "[slow, other]")])
def test_tags_choose_the_tasks(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, tags: str
) -> None:
    """The variables of locust for tags have an effect; that for the number of users has none."""
    (tmp_path / "tagged.py").write_text(TAGGED)
    monkeypatch.setenv(name, tags)
    monkeypatch.setenv("LOCUST_USERS", "50")
    out = tmp_path / "out"
    options = ["--users", "2", "--time", "1", "--out", str(out)]

    assert 0 == main(["load", served(threads=4).url, "--locustfile", str(tmp_path / "tagged.py"), *options])

    result = LoadResult.load(out / "load.json")
    assert (2, {"200"}) == (result.users, set(result.statuses))


@pytest.mark.long
def test_a_load_shape_says_how_many_users_and_how_long(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its steps are made and its end is the end; the result has the highest number of users."""
    (tmp_path / "shape.py").write_text(LOAD_SHAPE)
    exit_code = main(["load", served(threads=4).url, "--locustfile", str(tmp_path / "shape.py"), "--json"])

    document = json.loads(capsys.readouterr().out)
    assert (exit_code, document["failures"], document["users"]) == (0, 0, 3)
    assert document["elapsed_s"] > 1.5


@pytest.mark.long
def test_workers_share_an_ordinary_locustfile(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two processes, whose samples are put together."""
    (tmp_path / "users.py").write_text(LOAD_SHAPE.partition("class Steps")[0])
    options = ["--users", "2", "--time", "2", "--processes", "2", "--json"]
    exit_code = main(["load", served(threads=4).url, "--locustfile", str(tmp_path / "users.py"), *options])

    document = json.loads(capsys.readouterr().out)
    assert (exit_code, document["failures"]) == (0, 0)
    assert [each["requests"] > 0 for each in document["workers"]] == [True, True]
    assert document["requests"] == sum(each["requests"] for each in document["workers"])


_END_AFTER_AN_ORDER = """

import gevent


@events.init.add_listener
def end_after_an_order(environment, **_):
    def end(name, exception, **_):
        if name == "new order" and exception is None:
            gevent.spawn(environment.runner.quit)

    environment.events.request.add_listener(end)
"""


@pytest.mark.parametrize(("limit_ms", "expected"), [(60_000, 0), (-1, 1)])
def test_the_page_on_ci_runs_as_it_stands(served: Served, tmp_path: Path, limit_ms: int, expected: int) -> None:
    """Its locustfile under locust alone, with its options, leaves the tables and the page that it names; a percentile
    above the limit of its listener decides the exit code.

    It ends itself after the first order, which takes its users any time on a busy machine. A signal would not do: an
    interrupt is raised in whichever greenlet runs, and after SIGTERM locust writes no page.
    """
    page = (Path(__file__).parents[3] / "docs" / "howto" / "locust-in-ci.md").read_text(encoding="utf-8")
    locustfile, listener = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    command = next(each for each in re.findall(r"^locust .*\\\n.*$", page, re.MULTILINE))
    listener = listener.replace("> 500", f"> {limit_ms}")
    (tmp_path / "locustfile.py").write_text(locustfile + listener + _END_AFTER_AN_ORDER)
    (tmp_path / "load").mkdir()
    url = served(threads=4).url
    words = [*shlex.split(command.replace("\\\n", ""))[1:], "--host", url, "--run-time", "60s"]
    ended = subprocess.run(
        [sys.executable, "-m", "locust", *words], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )

    assert ended.returncode == expected, ended.stderr
    assert get(url, "/orders").body != b""
    assert set(re.findall(r"`(locust_\w+\.csv)`", page)) == {path.name for path in (tmp_path / "load").glob("*.csv")}
    assert (tmp_path / "load" / "locust.html").is_file()


@pytest.mark.parametrize(
    ("option", "name"), [(["--rate", "5"], "rate"), (["--request", "/x"], "request"), (["--requests", "3"], "requests")]
)
def test_what_a_locustfile_says_itself_is_refused(
    option: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that says who decides it."""
    (tmp_path / "users.py").touch()
    exit_code = main(["load", "http://127.0.0.1:1", "--locustfile", str(tmp_path / "users.py"), *option])

    assert exit_code == 2
    assert f"--{name} with --locustfile: the locustfile says what is sent" in capsys.readouterr().err
