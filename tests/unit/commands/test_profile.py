"""`placebench profile` on small applications, WSGI and ASGI, as a user would call it."""

import gc
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from placebench.cli import main
from placebench.commands.profile import run
from placebench.profiler import Recording

APPLICATIONS = """
import asyncio

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


def elsewhere(environ, start_response):
    start_response("302 Found", [("Location", "/login")])
    return []


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


async def background(scope, receive, send):
    await asgi(scope, receive, send)
    if scope["type"] == "http":
        await asyncio.sleep(0)
        query(3)


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
    yield lambda *options: main(["profile", "run", *options])
    if shop := sys.modules.get("shop"):
        shop.engine.dispose()  # from Python 3.13 on an SQLite connection that nobody closes is a warning


def check(*options: str) -> int:
    """`placebench profile check` with these options."""
    return main(["profile", "check", *options])


@pytest.mark.parametrize("app", ["shop:wsgi", "shop:factory()", "shop:asgi"])
def test_a_request_becomes_a_page_and_files(
    profile: Callable[..., int], app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Page, flame, speedscope and JSON; the sums and findings are printed."""
    code = profile(app, "--request", "GET /x?6", "--requests", "2")

    printed = capsys.readouterr().out
    recording = Recording.load("profile/recording.json")
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "profile").iterdir()) == [
        ".gitignore",
        "flame.html",
        "flame.speedscope.json",
        "index.html",
        "recording.json",
        "recording.pyisession",
    ]
    assert (recording.name, recording.requests, recording.statement_count) == ("GET /x?6", 2, 12)
    assert "n+1: 6 times in one request from one line" in printed
    assert printed.splitlines()[-1].endswith("/profile/index.html")


def test_a_gate_that_does_not_hold_is_exit_code_1(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the statement and its place."""
    code = check("shop:wsgi", "--request", "GET /?3", "--mode", "full", "--gate", "statements <= 2")
    within = check("shop:wsgi", "--request", "GET /?2", "--mode", "full", "--gate", "statements <= 2")

    assert (code, within) == (1, 0)
    assert "GET /?3: 3 statements, expected <= 2" in capsys.readouterr().err


def test_the_json_is_alone_on_stdout(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Sums, findings, statuses and files."""
    code = profile("shop:wsgi", "--request", "GET /?5", "--mode", "full", "--json")

    document = json.loads(capsys.readouterr().out)
    assert (code, document["statuses"], document["summary"]["statements"]) == (0, [200], 5)
    assert [finding["kind"] for finding in document["findings"]] == ["n+1"]


def test_two_runs_can_be_compared(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """The earlier recording is named by its file; its flame lies beside it, so that frames are compared too."""
    profile("shop:wsgi", "--request", "GET /?4", "--out", "before")
    profile("shop:wsgi", "--request", "GET /?2", "--out", "after")
    capsys.readouterr()
    code = main(["profile", "diff", "before", "after/recording.json", "-o", "after"])

    told = capsys.readouterr().out
    assert code == 0
    assert "4 → 2 x" in told
    assert "frames, self time" in told
    assert told.splitlines()[-1] == Path("after/difference.html").resolve().as_uri()
    assert main(["profile", "diff", "before", "after", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["statements"]


def test_a_saved_recording_is_shown(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """What the run printed, with a page and a flame graph beside the file, or in another folder."""
    profile("shop:wsgi", "--request", "GET /?6")
    printed = capsys.readouterr().out.splitlines()
    beside = main(["profile", "show", "profile"]), capsys.readouterr().out.splitlines()
    elsewhere = main(["profile", "show", "profile/recording.json", "--json", "--out", "pages"])
    files = json.loads(capsys.readouterr().out)["files"]

    assert (0, printed[:-1]) == (beside[0], beside[1][:-1])
    assert beside[1][-1] == Path("profile/recording.html").resolve().as_uri()
    assert (elsewhere, files) == (0, {"page": "pages/recording.html", "flame": "pages/recording.flame.html"})
    assert "recording.flame.html" in Path("pages/recording.html").read_text()


def test_recordings_that_a_service_left_in_a_folder_are_merged(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The mean of all, or of those with one name: 6, 6 and 3 repeats of a statement are 5 on average, or 6."""
    for process, request in enumerate(("GET /?6", "GET /?6", "GET /?3")):
        profile("shop:wsgi", "--request", request, "--out", f"of-{process}")
        Path("left").mkdir(exist_ok=True)
        for kind in ("recording.json", "pyisession"):
            source = Path(f"of-{process}", "recording.json" if kind == "recording.json" else "recording.pyisession")
            source.rename(Path("left", f"{process}-1.{kind}"))
    capsys.readouterr()

    shown = {}
    for words in ((), ("--name", "GET /?6")):
        assert main(["profile", "show", "left", "--json", *words]) == 0
        printed = capsys.readouterr()
        shown[words] = json.loads(printed.out)
        assert "GET /?6: 2 requests, " in printed.err
    whole, named = shown.values()
    fewer = json.loads(Path("left/2-1.recording.json").read_text())["statements"]
    more = json.loads(Path("left/0-1.recording.json").read_text())["statements"]
    assert (whole["summary"]["requests"], named["summary"]["requests"]) == (3, 2)
    assert whole["summary"]["statements"] == 2 * len(more) + len(fewer)
    assert named["summary"]["statements"] == 2 * len(more)
    assert named["files"] == {"page": "left/merged.html", "flame": "left/merged.flame.html"}
    assert "Mean of 2 requests" in Path("left/merged.flame.html").read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("left", "--name", "GET /none"), "no recording in left has it: expected one of GET /?6"),
        (("profile", "--name", "GET /?6"), "profile/recording.json is one recording"),
        (("empty",), "empty has no recording: expected recording.json, or"),
    ],
)
def test_a_folder_without_the_recordings_is_refused(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    """One line says what the folder has, and what was expected."""
    profile("shop:wsgi", "--request", "GET /?6")
    for folder in ("left", "empty"):
        Path(folder).mkdir()
    Path("left/7-1.recording.json").write_bytes(Path("profile/recording.json").read_bytes())
    capsys.readouterr()

    assert main(["profile", "show", *words]) == 2
    assert expected in capsys.readouterr().err.splitlines()[-1]


def test_a_recording_is_markdown_alone_on_stdout(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a run, of a saved recording and of a difference; the address of the page is on stderr."""
    codes = [profile("shop:wsgi", "--request", "GET /?6", "--mode", "full", "--markdown")]
    printed = [capsys.readouterr().out]
    for words in (["show", "profile"], ["diff", "profile", "profile"]):
        codes.append(main(["profile", *words, "--markdown"]))
        printed.append(capsys.readouterr().out)

    assert codes == [0, 0, 0]
    assert printed[0] == printed[1]
    assert "1. **n+1** `shop.py:" in printed[0]
    assert printed[2].startswith("## GET /?6 → GET /?6, per request")


def test_a_recording_is_written_for_other_programs(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the run itself and from the saved recording; the files are named in the JSON."""
    formats = ("--format", "sarif", "--format", "otlp", "--json")
    profile("shop:wsgi", "--request", "GET /?6", "--mode", "full", *formats)
    by_run = {kind: Path(path) for kind, path in json.loads(capsys.readouterr().out)["files"].items()}
    written = [by_run[kind].read_bytes() for kind in ("sarif", "traces", "metrics")]

    assert main(["profile", "show", "profile", "-o", "again", *formats]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert [Path(files[kind]).read_bytes() for kind in ("sarif", "traces", "metrics")] == written
    assert main(["profile", "show", "profile", "--format", "speedscope"]) == 2
    assert "has no flame graph" in capsys.readouterr().err.splitlines()[-1]


def test_a_request_that_fails_is_exit_code_1(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Its page is written all the same."""
    code = profile("shop:wsgi", "--request", "POST /", "--header", "X-Status: 503")

    assert code == 1
    assert "1 of 1 responses have status 503" in capsys.readouterr().err
    assert Path("profile/index.html").is_file()


def test_several_requests_have_a_page_each(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """In their order, with their own headers and bodies; those before the first are sent with all of them."""
    requests = (
        "--header",
        "X-Status: 201",
        "--request",
        "GET /a?2",
        "--request",
        "POST /b?3 x=1",
        "--header",
        "X-Status: 202",
    )
    code = profile("shop:wsgi", *requests, "--requests", "2", "--mode", "full", "--json")

    document = json.loads(capsys.readouterr().out)
    each = [(seen["request"], seen["statuses"], seen["summary"]["statements"]) for seen in document["requests"]]
    assert (code, document["statuses"], document["summary"]["statements"]) == (0, [201, 201, 202, 202], 10)
    assert each == [("GET /a?2", [201, 201], 4), ("POST /b?3", [202, 202], 6)]
    assert Recording.load("profile/recording.json").name == "GET /a?2, POST /b?3"
    assert Recording.load("profile/2-POST-b/recording.json").name == "POST /b?3"
    assert Path("profile/1-GET-a/index.html").is_file()


def test_a_gate_is_for_each_request(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """The one that breaks it is named."""
    requests = ("shop:wsgi", "--request", "GET /a?2", "--request", "GET /b?3", "--mode", "full")

    assert check(*requests, "--gate", "statements <= 2") == 1
    assert "GET /b?3: 3 statements, expected <= 2" in capsys.readouterr().err
    assert check(*requests, "--gate", "statements <= 3") == 0


def test_a_status_that_is_not_expected_is_exit_code_1(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A page of an error is not what one wants to profile, unless one says so."""
    call = ("shop:wsgi", "--header", "X-Status: 404", "--mode", "full")
    codes = [profile(*call), profile(*call, "--expect-status", "404"), profile(*call, "--expect-status", "200")]

    said = capsys.readouterr().err
    assert codes == [1, 0, 1]
    assert "GET /: status 404" in said
    assert "1 of 1 responses have status 404, expected below 400 (or say --expect-status)" in said
    assert "1 of 1 responses have status 404, expected 200" in said


def test_an_unexpected_response_is_shown(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """The body of a failure, and where a redirect leads: mostly to a login."""
    failed = profile("shop:wsgi", "--request", 'POST / {"detail": "no size"}', "--header", "X-Status: 422")
    redirected = profile("shop:elsewhere", "--mode", "light")

    said = capsys.readouterr().err
    assert (1, 0) == (failed, redirected)
    assert 'expected below 400 (or say --expect-status): {"detail": "no size"}' in said
    assert "GET /: status 302 to /login" in said


def test_an_application_sees_its_own_command_line(profile: Callable[..., int], tmp_path: Path) -> None:
    """Some read sys.argv while they are imported."""
    (tmp_path / "reads_arguments.py").write_text("import sys\nfrom shop import wsgi\nassert len(sys.argv) == 1\n")
    before = list(sys.argv)

    assert profile("reads_arguments:wsgi", "--mode", "full") == 0
    assert sys.argv == before


def test_the_cpu_of_an_asgi_application_is_not_measured(profile: Callable[..., int]) -> None:
    """Only its event loop's thread would be in it, and not those of its thread pool."""
    profile("shop:asgi", "--mode", "full")

    assert Recording.load("profile/recording.json").cpu_s is None


def test_background_tasks_are_recorded_with_their_request(profile: Callable[..., int]) -> None:
    """What an ASGI application does after its response: it is waited for."""
    assert profile("shop:background", "--requests", "2") == 0

    recording = Recording.load("profile/recording.json")
    assert [each.request for each in recording.statements] == [1] * 4 + [2] * 4


def test_an_application_that_raises_is_recorded(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its traceback is shown, its statements are there: werkzeug's profiler loses just this request's profile."""
    code = profile("shop:raising", "--request", "GET /", "--requests", "2")

    told = capsys.readouterr()
    recording = Recording.load("profile/recording.json")
    assert (code, recording.error, recording.statement_count) == (1, "ZeroDivisionError", 4)
    assert "ZeroDivisionError: by the application" in told.err
    assert "in_process_client.py" not in told.err
    assert "2 of 2 responses have status 500, expected below 400" in told.err
    assert "; ended with ZeroDivisionError" in told.out


def test_what_an_application_logs_for_its_server_is_shown(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error: Flask writes the traceback of a 500 there."""
    profile("shop:silent", "--request", "GET /")

    assert "a line for the server's log" in capsys.readouterr().err


def test_an_interrupt_leaves_what_was_recorded(profile: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Two of five requests: their page is written; one that comes before the first leaves nothing to write."""
    code = profile("shop:interrupted", "--request", "GET /?3", "--requests", "5", "--mode", "full")
    at_once = profile("shop:interrupted", "--request", "GET /?1", "--mode", "full", "--out", "other")

    assert (code, at_once) == (130, 130)
    assert "2 of 5 requests were made" in capsys.readouterr().err
    assert Recording.load("profile/recording.json").requests == 2
    assert not Path("other/recording.json").exists()


def test_an_interrupt_before_a_program_begins_leaves_nothing(
    profile: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while the recording is prepared: one line, and no page of a program that did not run."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "record", interrupt)

    assert profile("shop.py") == 130
    assert capsys.readouterr().err == "placebench profile run: interrupted\n"
    assert not Path("profile/recording.json").exists()


def test_an_application_that_cannot_be_called_is_refused(
    profile: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """`shop:asked` is a list: no request is sent to it."""
    assert profile("shop:asked") == 2
    assert "application 'shop:asked': a list, expected WSGI or ASGI" in capsys.readouterr().err


def test_an_application_that_cannot_be_loaded_is_not_our_bug(
    profile: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its traceback, and one line."""
    (tmp_path / "wrong_shop.py").write_text("engine = 1 / 0")

    assert profile("wrong_shop:app", "--request", "GET /") == 2
    told = capsys.readouterr().err.splitlines()
    assert (
        "placebench profile run: application 'wrong_shop:app' could not be loaded: ZeroDivisionError, see above"
        == told[-1]
    )
    assert any("engine = 1 / 0" in line for line in told)


def test_a_saved_recording_is_not_run(
    profile: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names the command that shows it, for its file and for the folder that --out named."""
    path = tmp_path / "recording.json"
    path.write_text("{}")

    for shown in (path, tmp_path):
        assert profile(str(shown), "--request", "GET /") == 2
        assert f"`placebench profile show {shown}` shows a saved recording" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["shop"], "application 'shop': expected MODULE:CALLABLE"),
        (["shop:nothing"], "application 'shop:nothing': shop has no 'nothing'"),
        (["no_such_shop:app"], "there is no module 'no_such_shop'"),
        (["shop:Broken()"], "the application's startup failed: no database"),
        (["shop:wsgi", "--request", "x"], "request 'x': expected a method and a path"),
        (["shop:wsgi", "--header", "x"], "header 'x': expected 'NAME: VALUE'"),
        (["shop:wsgi", "--requests", "0"], "argument --requests: expected a whole number from 1 to "),
        (["shop:silent"], "the application returned without a response"),
        (["shop:wsgi", "--login", "x"], "request 'x': expected a method and a path"),
        (
            ["shop:raising", "--login", "POST /in"],
            "login POST /in: the application raised ZeroDivisionError, see above",
        ),
    ],
)
def test_a_mistake_is_one_line(
    profile: Callable[..., int], options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And exit code 2."""
    code = profile("--request", "GET /", *options)

    assert code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "shop:wsgi", "--request", "GET /"], "there is no --gate: expected what must hold"),
        (["check", "shop:wsgi", "--request", "GET /", "--gate", "x <= 1"], "there is no metric 'x'"),
        (
            ["check", "shop:wsgi", "--request", "GET /", "--mode", "light", "--gate", "duplicates <= 0"],
            "mode light compares no values",
        ),
        (["show", "none.json"], "none.json cannot be read as a recording: No such file or directory"),
        (["diff", "none.json", "none.json"], "none.json cannot be read as a recording"),
    ],
)
def test_a_mistake_costs_no_request(
    profile: Callable[..., int], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line, before anything is written."""
    assert main(["profile", *words]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not Path("profile").exists()


def test_an_application_that_does_not_start_leaves_no_loop_behind(profile: Callable[..., int]) -> None:
    """Nor a profiler: an event loop that nobody closes is a warning somewhere else."""
    callbacks = gc.callbacks[:]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        profile("--request", "GET /", "shop:Broken()")
        gc.collect()

    assert [str(each.message) for each in warned if each.category is ResourceWarning] == []
    assert [each for each in gc.callbacks if each not in callbacks] == []


@pytest.mark.parametrize("name", ["index.html", "recording.json", "recording.pyisession", "flame.speedscope.json"])
def test_a_file_that_is_not_ours_stays(
    profile: Callable[..., int], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named in one line before anything is recorded, and nothing is written beside it."""
    mine = tmp_path / "site" / name
    mine.parent.mkdir()
    mine.write_text("<h1>MY OWN PAGE</h1>")

    assert profile("shop:wsgi", "--out", "site") == 2
    assert f"site/{name} is there" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in mine.parent.iterdir()] == [(name, "<h1>MY OWN PAGE</h1>")]


def test_what_was_recorded_before_is_replaced(profile: Callable[..., int], tmp_path: Path) -> None:
    """Pages and recordings have a mark; the page of a difference too, and one of the user stays."""
    assert [profile("shop:wsgi"), profile("shop:wsgi", "--mode", "light")] == [0, 0]
    assert Recording.load("profile/recording.json").mode == "light"
    diff = ["profile", "diff", "profile", "profile", "--out"]
    (tmp_path / "difference.html").write_text("mine")

    assert [main([*diff, "d"]), main([*diff, "d"]), main([*diff, "."])] == [0, 0, 2]
    assert (tmp_path / "difference.html").read_text() == "mine"
