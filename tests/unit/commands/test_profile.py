"""`placebench profile` on small applications, WSGI and ASGI, as a user would call it."""

import gc
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.profiler import Recording

APPLICATIONS = """
from sqlalchemy import create_engine, text

engine = create_engine("sqlite://")
began = []


def query(times):
    with engine.connect() as connection:
        for number in range(times):
            connection.execute(text("select :n"), {"n": number}).all()


def wsgi(environ, start_response):
    query(int(environ["QUERY_STRING"] or 1))
    start_response(f"{environ.get('HTTP_X_STATUS', '200')} OK", [])
    yield environ["wsgi.input"].read()


def factory():
    return wsgi


def raising(environ, start_response):
    query(2)
    raise ZeroDivisionError("by the application")


def silent(environ, start_response):
    environ["wsgi.errors"].write("a line for the server's log")
    return []


asked = []


def interrupted(environ, start_response):
    asked.append(environ)
    if len(asked) > int(environ["QUERY_STRING"]):
        raise KeyboardInterrupt
    return wsgi(environ, start_response)


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        began.append(await receive())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    query(int(scope["query_string"] or 1))
    await send({"type": "http.response.start", "status": 200 if began else 500, "headers": []})
    await send({"type": "http.response.body", "body": (await receive())["body"]})


class Broken:
    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.failed", "message": "no database"})
"""


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """The command in a folder with the module `shop`."""
    (tmp_path / "shop.py").write_text(APPLICATIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda *options: main(["profile", *options])
    if shop := sys.modules.pop("shop", None):
        shop.engine.dispose()  # from Python 3.13 on an SQLite connection that nobody closes is a warning


@pytest.mark.parametrize("app", ["shop:wsgi", "shop:factory()", "shop:asgi"])
def test_a_request_becomes_a_page_and_files(
    profile: Callable[..., int], app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Page, flame, speedscope and JSON; the sums and findings are printed."""
    code = profile("--app", app, "--request", "GET /x?6", "--repeat", "2")

    printed = capsys.readouterr().out
    recording = Recording.load("profile/recording.json")
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "profile").iterdir()) == [
        "flame.html",
        "flame.speedscope.json",
        "index.html",
        "recording.json",
        "recording.pyisession",
    ]
    assert (recording.name, recording.requests, recording.statement_count) == ("GET /x", 2, 12)
    assert "n+1: 6 times in one request from one line" in printed
    assert printed.splitlines()[-1].endswith("/profile/index.html")


def test_a_broken_budget_is_exit_code_1(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """With the statement and its place."""
    code = profile("--app", "shop:wsgi", "--request", "GET /?3", "--mode", "full", "--budget", "statements=2")

    assert code == 1
    assert "GET /: 3 statements, 2 allowed" in capsys.readouterr().err


def test_the_json_is_alone_on_stdout(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Sums, findings, statuses and files."""
    code = profile("--app", "shop:wsgi", "--request", "GET /?5", "--mode", "full", "--json")

    document = json.loads(capsys.readouterr().out)
    assert (code, document["statuses"], document["summary"]["statements"]) == (0, [200], 5)
    assert [finding["kind"] for finding in document["findings"]] == ["n+1"]


def test_two_runs_can_be_compared(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """The earlier recording is named by its file; its flame lies beside it, so that frames are compared too."""
    profile("--app", "shop:wsgi", "--request", "GET /?4", "--out", "before")
    code = profile("--app", "shop:wsgi", "--request", "GET /?2", "--out", "after", "--against", "before/recording.json")

    told = capsys.readouterr().err
    assert code == 0
    assert "4 → 2 x" in told
    assert "frames, self time" in told
    assert Path("after/difference.html").is_file()


def test_a_request_that_fails_is_exit_code_1(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Its page is written all the same."""
    code = profile("--app", "shop:wsgi", "--request", "POST /", "--header", "X-Status: 503")

    assert code == 1
    assert "1 of 1 requests were answered with status 503" in capsys.readouterr().err
    assert Path("profile/index.html").is_file()


def test_an_application_that_raises_is_recorded(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its traceback is shown, its statements are there: werkzeug's profiler loses just this request's profile."""
    code = profile("--app", "shop:raising", "--request", "GET /", "--repeat", "2")

    told = capsys.readouterr()
    recording = Recording.load("profile/recording.json")
    assert (code, recording.error, recording.statement_count) == (1, "ZeroDivisionError", 4)
    assert "ZeroDivisionError: by the application" in told.err
    assert "2 of 2 requests were answered with status 500, expected below 500" in told.err
    assert "; ended with ZeroDivisionError" in told.out


def test_what_an_application_logs_for_its_server_is_shown(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error: Flask writes the traceback of a 500 there."""
    profile("--app", "shop:silent", "--request", "GET /")

    assert "a line for the server's log" in capsys.readouterr().err


def test_an_interrupt_leaves_what_was_recorded(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Two of five requests: their page is written; one that comes before the first leaves nothing to write."""
    code = profile("--app", "shop:interrupted", "--request", "GET /?3", "--repeat", "5", "--mode", "full")
    at_once = profile("--app", "shop:interrupted", "--request", "GET /?1", "--mode", "full", "--out", "other")

    assert (code, at_once) == (130, 130)
    assert "2 of 5 requests were made" in capsys.readouterr().err
    assert Recording.load("profile/recording.json").requests == 2
    assert not Path("other/recording.json").exists()


def test_an_application_that_cannot_be_loaded_is_not_our_bug(
    profile: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its traceback, and one line."""
    (tmp_path / "wrong_shop.py").write_text("engine = 1 / 0")

    assert profile("--app", "wrong_shop:app", "--request", "GET /") == 2
    told = capsys.readouterr().err.splitlines()
    assert (
        "placebench profile: application 'wrong_shop:app' could not be loaded: ZeroDivisionError, see above" == told[-1]
    )
    assert any("engine = 1 / 0" in line for line in told)


def test_an_earlier_recording_that_is_none_costs_no_requests(profile: Callable[..., int]) -> None:
    """It is read before the application is asked, or even loaded."""
    assert profile("--app", "no_such_shop:app", "--request", "GET /", "--against", "none.json") == 2
    assert not Path("profile").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--app", "shop"], "application 'shop': expected MODULE:CALLABLE"),
        (["--app", "shop:nothing"], "application 'shop:nothing': shop has no 'nothing'"),
        (["--app", "no_such_shop:app"], "there is no module 'no_such_shop'"),
        (["--app", "shop:Broken()"], "the application's startup failed: no database"),
        (["--app", "shop:wsgi", "--request", "x"], "request 'x': expected a method and a path"),
        (["--app", "shop:wsgi", "--header", "x"], "header 'x': expected 'NAME: VALUE'"),
        (["--app", "shop:wsgi", "--repeat", "0"], "argument --repeat: expected a whole number from 1 to "),
        (["--app", "shop:wsgi", "--budget", "x=1"], "budget 'x=1': expected NAME=NUMBER"),
        (["--app", "shop:wsgi", "--mode", "light", "--budget", "duplicates=0"], "mode light compares no values"),
        (["--app", "shop:silent"], "the application returned without a response"),
        (["--app", "shop:wsgi", "--against", "none.json"], "none.json cannot be read as a recording"),
    ],
)
def test_a_mistake_is_one_line(
    profile: Callable[..., int], options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And exit code 2."""
    code = profile("--request", "GET /", *options)

    assert code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_an_application_that_does_not_start_leaves_no_loop_behind(profile: Callable[..., int]) -> None:
    """Nor a profiler: an event loop that nobody closes is a warning somewhere else."""
    callbacks = len(gc.callbacks)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        profile("--request", "GET /", "--app", "shop:Broken()")
        gc.collect()

    assert [str(each.message) for each in warned if each.category is ResourceWarning] == []
    assert len(gc.callbacks) == callbacks
