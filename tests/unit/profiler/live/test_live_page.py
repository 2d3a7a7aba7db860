"""The live page's server: who may read it, what it serves, and that nobody who goes away makes it hang."""

import http.client
import json
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from flame_graphs import session_of

from placebench.errors import ProfilerError
from placebench.profiler import Recording, Statement
from placebench.profiler.capture.stack import leaf
from placebench.profiler.live.journal import Journal
from placebench.profiler.live.server import LivePage

HOSTILE = "select '</script><script>alert(1)</script>\u2028<img src=x onerror=alert(1)>'"


class Response(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str


class Live(NamedTuple):
    """A page with its journal."""

    page: LivePage
    journal: Journal

    @property
    def port(self) -> int:
        """On 127.0.0.1."""
        return urlsplit(self.page.address).port

    def get(self, path: str = "", *, method: str = "GET", whole: str | None = None, **headers: str) -> Response:
        """Send a request for a path behind the token, or for the *whole* path."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, whole or urlsplit(self.page.address).path + path, headers=named)
            response = connection.getresponse()
            return Response(response.status, dict(response.getheaders()), response.read().decode())
        finally:
            connection.close()

    def stream(self, query: str = "") -> socket.socket:
        """Open the stream of recordings."""
        opened = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        path = urlsplit(self.page.address).path
        opened.sendall(f"GET {path}events{query} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
        return opened


def recording(name: str = "GET /orders", sql: str = "select 1") -> Recording:
    """One with a statement and a flame graph."""
    made = Recording(name, "sampled", statements=[Statement(sql, sql, 0.0, execute_s=0.1)], elapsed_s=0.2, sql_s=0.1)
    view = "view\x00/shop/views.py\x001"
    made.session = session_of([([view], 0.1), ([view, leaf(sql, "sql")], 0.1)], start_call_stack=[view])
    return made


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A page with two recordings of a route and one whose name and statement are hostile."""
    journal = Journal(folder=tmp_path_factory.mktemp("kept"))
    for name, sql in (("GET /orders", "select 1"), ("GET /orders", "select 2"), (HOSTILE, HOSTILE)):
        journal.add(7, recording(name, sql))
    with LivePage(journal) as page:
        yield Live(page, journal)
    journal.close()


def events(stream: socket.socket, count: int) -> list[tuple[str, Any]]:
    """The next events of a stream."""
    with stream.makefile("r", encoding="utf-8", newline="\n") as file:
        found: list[tuple[str, Any]] = []
        name = ""
        for line in file:
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                found.append((name, json.loads(line[6:])))
                if len(found) == count:
                    break
        return found


def test_the_page_is_small_and_asks_nobody_else(live: Live) -> None:
    """At most 60 kB, all of it in one file; the policy lets only its own script and style run."""
    page = live.get()

    assert page.status == 200
    assert len(page.text.encode()) <= 60_000
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page.text) == []
    policy = page.headers["Content-Security-Policy"]
    assert re.fullmatch(
        r"default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'; connect-src 'self'; frame-src "
        r"'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        policy,
    )


@pytest.mark.parametrize(
    ("whole", "headers", "expected"),
    [
        ("/", {}, "wrong token"),
        ("/wrong/", {}, "wrong token"),
        ("/wrong/events", {}, "wrong token"),
        ("/%00/recordings/1", {}, "wrong token"),
        (None, {"Host": "evil.example"}, "evil.example"),
        (None, {"Host": "127.0.0.1.evil.example:80"}, "evil.example"),
        (None, {"Host": ""}, "host ''"),
        (None, {"Origin": "http://evil.example"}, "evil.example"),
        (None, {"Origin": "null"}, "null"),
        (None, {"Origin": "http://127.0.0.1:1"}, "127.0.0.1:1"),
        (None, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, "another site"),
        (None, {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"}, "another site"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_not_the_pages_own_is_refused_in_one_line(
    live: Live, method: str, whole: str | None, headers: dict[str, str], expected: str
) -> None:
    """Without the token, by another name of this machine, or from a page of another origin; nothing is shown."""
    response = live.get(method=method, whole=whole, **headers)

    assert (response.status, response.text.count("\n")) == (403, 1)
    assert expected in response.text
    assert live.page.token not in response.text


def test_a_link_from_elsewhere_may_open_the_page(live: Live) -> None:
    """Such as the badge in a page of the application; localhost is this machine too."""
    linked = live.get(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    local = live.get(Host=f"localhost:{live.port}", Origin=f"http://localhost:{live.port}")

    assert (linked.status, local.status) == (200, 200)


def test_tokens_are_random() -> None:
    """Two pages have different ones, of 24 characters."""
    journal = Journal()
    with LivePage(journal) as first, LivePage(journal) as second:
        assert first.token != second.token
        assert len(first.token) == 24
    journal.close()


def test_a_recording_has_its_page_its_flame_graph_and_its_file(live: Live) -> None:
    """The page and the file run no script; the flame graph's runs in an origin of its own."""
    page, file, flame = (live.get(f"recordings/1{form}") for form in ("", "/file", "/flame"))

    assert [each.status for each in (page, file, flame)] == [200, 200, 200]
    assert 'href="1/flame"' in page.text
    assert 'href="1/flame"' not in file.text
    assert "<svg" in file.text
    assert file.headers["Content-Disposition"] == 'attachment; filename="GET-orders.html"'
    assert "script-src" not in page.headers["Content-Security-Policy"]
    assert flame.headers["Content-Security-Policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert 'href="../1"' in flame.text


def test_hostile_names_become_text(live: Live) -> None:
    """In the recording's page, in its file, whose name is harmless, and in the rows."""
    page, file = live.get("recordings/3"), live.get("recordings/3/file")
    with live.stream() as stream:
        ((_, update),) = events(stream, 1)

    assert "<script>alert" not in page.text + file.text
    assert "<img src=x" not in page.text + file.text
    assert re.fullmatch(r'attachment; filename="[A-Za-z0-9-]+\.html"', file.headers["Content-Disposition"])
    assert update["rows"][2][3] == HOSTILE.replace("\u2028", "\\u2028")


def test_two_requests_are_compared(live: Live) -> None:
    """The page of `RecordingDifference`."""
    page = live.get("difference?before=1&after=2")

    assert page.status == 200
    assert "select 2" in page.text


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        ("recordings/99", 404, "recording 99 is not here"),
        ("recordings/0", 404, "recording 0 is not here"),
        ("recordings/x", 404, "nothing at this address"),
        ("../secret", 404, "nothing at this address"),
        ("difference?before=1&after=x", 400, "after is 'x': expected the number of a recording"),
        ("difference?before=1", 404, "recording 0 is not here"),
        ("events?after=-1", 400, "after is '-1'"),
        ("clear", 404, "nothing at this address"),
    ],
)
def test_bad_input_is_one_line(live: Live, path: str, status: int, expected: str) -> None:
    """With what was seen and what was expected."""
    response = live.get(path)

    assert (response.status, response.text.count("\n")) == (status, 1)
    assert expected in response.text


def test_the_stream_goes_on_where_a_browser_was(live: Live) -> None:
    """Two browsers each see each recording once; one that connects again gets what it has not seen."""
    with live.stream() as first, live.stream("?after=2&clears=0") as second:
        ((_, all_rows),), ((_, later),) = events(first, 1), events(second, 1)

    assert [row[0] for row in all_rows["rows"]] == [1, 2, 3]
    assert [row[0] for row in later["rows"]] == [3]
    assert {number for number, _ in later["statements"]} == {0, 1, 2}


def test_new_recordings_a_kept_one_and_a_clear_come_by_themselves() -> None:
    """Each as it happens, to each browser."""
    journal = Journal()
    with LivePage(journal) as page:
        live = Live(page, journal)
        with live.stream() as stream, stream.makefile("r", encoding="utf-8", newline="\n") as file:
            names = iter(line.strip() for line in file if line.startswith(("event: ", "data: ")))
            assert next(names) == "event: rows"
            assert json.loads(next(names)[6:])["rows"] == []
            journal.add(1, recording())
            assert next(names) == "event: rows"
            assert [row[0] for row in json.loads(next(names)[6:])["rows"]] == [1]
            assert live.get("clear", method="POST").status == 200
            assert next(names) == "event: clear"
    assert journal.routes() == []
    journal.close()


def test_keep_saves_the_recording(live: Live) -> None:
    """Where the response says; it can be loaded there."""
    response = live.get("recordings/2/keep", method="POST")

    assert Recording.load(Path(json.loads(response.text)["path"])).statements[0].sql == "select 2"


def test_a_browser_that_goes_away_frees_its_stream(live: Live) -> None:
    """All 32 streams are taken; the next is refused in one line; those that closed and those that reset are freed."""
    streams = [live.stream() for _ in range(32)]
    assert [events(stream, 1)[0][0] for stream in streams] == ["rows"] * 32
    refused = live.get("events")
    for stream in streams[::2]:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for stream in streams:
        stream.close()
    freed = [live.page._server.streams.acquire(timeout=60) for _ in streams]
    for _ in freed:
        live.page._server.streams.release()

    assert (refused.status, refused.text) == (503, "32 pages are open: close one\n")
    assert freed == [True] * 32


def test_closing_ends_the_streams_and_frees_the_port() -> None:
    """A browser sees the end of its stream at once, and the next page can have the port."""
    journal = Journal()
    page = LivePage(journal)
    live = Live(page, journal)
    stream = live.stream()
    events(stream, 1)

    page.close()
    page.close()

    assert events(stream, 1) == []
    stream.close()
    assert not page._thread.is_alive()
    with LivePage(journal, port=live.port) as again:
        assert Live(again, journal).get().status == 200
    journal.close()


def test_a_port_that_is_taken_is_one_line(live: Live) -> None:
    """With the port, and what to do."""
    with pytest.raises(ProfilerError, match=f"cannot use port {live.port}.*0 for a free one"):
        LivePage(live.journal, port=live.port)


def test_it_listens_on_this_machine_alone(live: Live) -> None:
    """On 127.0.0.1, and not on the address of a network card."""
    assert live.page._server.server_address[0] == "127.0.0.1"
