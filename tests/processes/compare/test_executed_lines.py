"""`placebench compare` of two commits says whether a request executed a changed line, and what follows from it."""

import json
import subprocess
from pathlib import Path

import pytest

from placebench import results
from placebench.cli import main

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
server = "gunicorn"
"""


def git(folder: Path, *words: str) -> None:
    """Run git with an author."""
    author = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "-C", str(folder), *author, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the service, of one commit."""
    folder = tmp_path / "service"
    folder.mkdir()
    (folder / "service.py").write_text(APP)
    (folder / "README.md").write_text("A service.\n")
    (folder / "plan.toml").write_text(PLAN)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Serve")
    return folder


def compare(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, object], str]:
    """Commit what changed, compare it with the commit before, and return the exit code, the document and the errors."""
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Change")
    words = ["compare", "HEAD~1", "HEAD", "--plan", str(folder / "plan.toml"), "--rounds", "1", "--json", "-q"]
    code = main([*words, "-o", str(folder.parent / "run"), *options])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("README.md", {"A service": "The service"}),
        (
            "service.py",
            {
                "# all of them": "# every one of them,\n    # in order",
                '"""Return some numbers."""': '"""Return a few numbers."""',
            },
        ),
    ],
)
def test_documentation_is_decided_without_times(
    repository: Path, capsys: pytest.CaptureFixture[str], file: str, changes: dict[str, str]
) -> None:
    """No replicate is made, a gate on the ratio of a time passes, and the control of the preset is not needed."""
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


@pytest.mark.parametrize("server", ["uvicorn", "hypercorn"])
def test_a_line_of_a_coroutine_is_seen_behind_asgi_servers(
    server: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They look at the parameters of an application to find out what it is, so the one that watches has ASGI's."""
    (repository / "service.py").write_text(ASGI)
    (repository / "plan.toml").write_text(PLAN.replace("wsgi", "asgi").replace("gunicorn", server))
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "Serve by ASGI")
    (repository / "service.py").write_text(ASGI.replace("number = 1", "number = 1 + 1"))

    compare(repository, capsys, "-n", "1")

    (change,) = results.load(repository.parent / "run").executed
    assert ["service.py:5"] == change.executed


def test_a_watched_request_that_fails_shows_nothing(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it would have executed is not known: the part fails, and times are judged as without it."""
    fails = 'if os.environ.get("PLACEBENCH_EXECUTED_APP"):\n        raise LookupError("watched")\n    '
    text = APP.replace("LIMIT = 3", "import os\n\nLIMIT = 3").replace("start_response(", fails + "start_response(", 1)
    (repository / "service.py").write_text(text)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "Fail")
    (repository / "service.py").write_text(text.replace("number + 1", "number + 2"))

    _, document, _ = compare(repository, capsys, "-n", "1")

    assert [] == document["changed_source"]
    assert "The executed lines failed: " in str(document["conclusion"])
