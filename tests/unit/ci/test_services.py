"""What GitHub and GitLab get: workflow commands, a code quality report, and one comment, over HTTP."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from placebench.ci.annotations import Annotation
from placebench.ci.services import Comments, code_quality, github_lines
from placebench.cli import main
from placebench.errors import PlacebenchError

FAILED = Annotation("error", "rows <= 1x", "main: +50 %\nof 2")
SLOWER = Annotation("warning", "slower below this line", "SELECT 1 +3 ms", "shop/a,b.py", 34)


class CommentApi(ThreadingHTTPServer):
    """The comments of one request as both services keep them; `status` refuses everything."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments: dict[int, str] = {}
        self.calls: list[str] = []
        self.headers: dict[str, str] = {}
        self.status = 200

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: CommentApi

    def _reply(self, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _call(self) -> None:
        api = self.server
        path, _, query = self.path.partition("?")
        api.calls.append(f"{self.command} {path}")
        api.headers = {name.lower(): value for name, value in self.headers.items()}
        if self.command == "GET":
            size, page = (int(each.partition("=")[2]) for each in query.split("&"))
            known = [{"id": key, "body": text} for key, text in api.comments.items()]
            return self._reply(known[(page - 1) * size : page * size])
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        last = path.rpartition("/")[2]
        if api.status == 200:
            api.comments[len(api.comments) + 1 if self.command == "POST" else int(last)] = body
        return self._reply({})

    do_GET = do_POST = do_PATCH = do_PUT = _call  # noqa: N815

    def log_message(self, *args: object) -> None:
        """Nothing: a test has no log."""


@pytest.fixture
def api() -> Iterator[CommentApi]:
    with CommentApi() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def github_job(api: CommentApi, folder: Path) -> dict[str, str]:
    event = folder / "event.json"
    event.write_text('{"pull_request": {"number": 7}}')
    return {
        "GITHUB_TOKEN": "secret",
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_API_URL": api.url,
        "GITHUB_REPOSITORY": "team/shop",
    }


def test_github_reads_a_line_per_annotation() -> None:
    """Line ends, percent signs, and the commas and colons of properties are escaped, as its commands want them."""
    assert github_lines([FAILED, SLOWER]) == [
        "::error title=placebench%3A rows <= 1x::main: +50 %25%0Aof 2",
        "::warning file=shop/a%2Cb.py,line=34,title=placebench%3A slower below this line::SELECT 1 +3 ms",
    ]


def test_gitlab_reads_the_annotations_that_have_a_line() -> None:
    """An entry has its place; its fingerprint is the same in the next run, and another one on another line."""
    first, again = (json.loads(code_quality([FAILED, SLOWER])) for _ in range(2))
    (moved,) = json.loads(code_quality([Annotation("warning", SLOWER.title, "", SLOWER.file, 35)]))

    assert first == again
    assert [each["location"] for each in first] == [{"path": "shop/a,b.py", "lines": {"begin": 34}}]
    assert moved["fingerprint"] != first[0]["fingerprint"]


def test_one_comment_of_github_is_kept_up_to_date(api: CommentApi, tmp_path: Path) -> None:
    """It is found among 150 others by its mark and name, and another name has another comment."""
    api.comments = dict.fromkeys(range(1, 151), "a word")
    comments = Comments.of_job(github_job(api, tmp_path))
    assert comments is not None

    assert [comments.write("first\n", name="a"), comments.write("second\n", name="a")] == [True, False]
    assert comments.write("third\n", name="b")
    assert [api.comments[151], api.comments[152]] == [
        "<!-- placebench a -->\nsecond\n",
        "<!-- placebench b -->\nthird\n",
    ]
    assert "PATCH /repos/team/shop/issues/comments/151" in api.calls
    assert api.headers["authorization"] == "Bearer secret"


def test_a_comment_says_that_nothing_was_compared(
    api: CommentApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of an earlier push would pass for that of this one, which ended before it compared anything."""
    api.comments = {1: "<!-- placebench compare -->\nfaster"}
    for name, value in github_job(api, tmp_path).items():
        monkeypatch.setenv(name, value)

    assert 2 == main(["ci", "report", str(tmp_path), "--comment"])
    assert api.comments == {
        1: "<!-- placebench compare -->\nNothing was compared: the log of the job says why.\n",
    }


def test_one_note_of_gitlab_is_kept_up_to_date(api: CommentApi) -> None:
    """The same with its paths, its method and its header."""
    job = {"PLACEBENCH_GITLAB_TOKEN": "t", "CI_MERGE_REQUEST_IID": "3", "CI_API_V4_URL": api.url, "CI_PROJECT_ID": "9"}
    comments = Comments.of_job(job)
    assert comments is not None

    assert [comments.write("first", name="a"), comments.write("second", name="a")] == [True, False]
    assert api.comments == {1: "<!-- placebench a -->\nsecond"}
    notes = "/projects/9/merge_requests/3/notes"
    assert api.calls == [f"GET {notes}", f"POST {notes}", f"GET {notes}", f"PUT {notes}/1"]
    assert api.headers["private-token"] == "t"


def test_a_comment_is_cut_to_what_a_service_takes(api: CommentApi, tmp_path: Path) -> None:
    """At the end of a line, and it says so."""
    comments = Comments.of_job(github_job(api, tmp_path))
    assert comments is not None
    comments.write("a line of a table\n" * 5000, name="a")

    assert len(api.comments[1]) < 60_100
    assert api.comments[1].endswith("a line of a table\n\n… the rest is in the artifact.\n")


def test_a_refusal_names_the_permission(api: CommentApi, tmp_path: Path) -> None:
    """The token of a pull request from a fork may only read."""
    api.status = 403
    comments = Comments.of_job(github_job(api, tmp_path))
    assert comments is not None

    with pytest.raises(PlacebenchError, match=r"403 .*pull-requests: write"):
        comments.write("first", name="a")
    assert "secret" not in api.url


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"GITHUB_TOKEN": "t"},
        {"GITHUB_TOKEN": "t", "GITHUB_EVENT_PATH": "/dev/null"},
        {"CI_MERGE_REQUEST_IID": "3"},
        {"PLACEBENCH_GITLAB_TOKEN": "t"},
    ],
)
def test_a_job_of_no_request_has_no_comments(job: dict[str, str]) -> None:
    """Neither has one without a token."""
    assert Comments.of_job(job) is None
