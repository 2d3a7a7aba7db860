"""What responses say of their recordings: Server-Timing and the badge, on Flask, Starlette and applications by hand."""

import asyncio
import gzip
import io
import re
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.util import FileWrapper, setup_testing_defaults
from wsgiref.validate import validator

import pytest
from asgi_client import asgi_messages

from placebench.http_session import Request
from placebench.profiler import Sampling
from placebench.profiler.integrations.in_process_client import Response, in_process_client
from placebench.profiler.integrations.process_profiler import process_profiler

PAGE = "http://127.0.0.1:9/token/"
BOTH = Sampling(server_timing=True, badge=PAGE)
HTML = b"<!doctype html><html><body><p>orders</p></body></html>"


def get(application: Any, path: str = "/", method: str = "GET") -> Response:
    """The response of the application, without a server."""
    with in_process_client(application) as client:
        return client.send(Request.parse(f"{method} {path}"))


def timing(response: Response) -> dict[str, str]:
    """The header Server-Timing, by name."""
    return dict(re.findall(r"(\w+);([^,]+)", response.header("server-timing")))


def wsgi(body: Callable[[], Any], headers: list[tuple[str, str]], query: Callable[[int], None] | None = None) -> Any:
    """An application under the profiler, with both marks."""

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        if query is not None:
            query(3)
        start_response("200 OK", headers)
        return body()

    return process_profiler().wsgi(application, sampling=BOTH)


def html_headers(content: bytes = HTML, **more: str) -> list[tuple[str, str]]:
    """Those of a whole page."""
    named = [(name.replace("_", "-"), value) for name, value in more.items()]
    return [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(content))), *named]


def assert_has_badge(response: Response, before: bytes = HTML) -> None:
    """A link to the recording, where the page was; the length is right."""
    (recording, *_) = list(process_profiler().recordings)[::-1]
    found = re.search(rb'<a href="([^"]+)" target="_blank" rel="noopener noreferrer"[^>]*>([^<]+)</a>', response.body)
    assert found[1].decode() == f"{PAGE}#i-{recording.identifier}"
    assert response.body.replace(found[0], b"") == before
    assert response.body.index(found[0]) < response.body.index(b"</body>")
    if response.header("content-length"):
        assert int(response.header("content-length")) == len(response.body)


def test_flask(query: Callable[[int], None]) -> None:
    """A page of Flask has both, JSON has the header alone; the figures are those of the recording."""
    flask = pytest.importorskip("flask")
    from placebench.profiler.integrations.flask import FlaskExtension

    app = flask.Flask("shop")
    FlaskExtension(app, sampling=BOTH)
    app.add_url_rule("/orders", view_func=lambda: (query(3), HTML.decode())[1], endpoint="orders")
    app.add_url_rule("/json", view_func=lambda: {"a": 1}, endpoint="json")
    app.add_url_rule("/parts", view_func=lambda: flask.Response(iter([HTML]), mimetype="text/html"), endpoint="parts")
    page = get(app, "/orders")

    assert_has_badge(page)
    (recording,) = process_profiler().recordings
    figures = timing(page)
    assert figures["statements"] == f'desc="{recording.statement_count}"' == 'desc="3"'
    parts = [float(figures[name].split(";")[0].removeprefix("dur=")) for name in ("sql", "python")]
    assert 0 < parts[0] <= recording.sql_s * 1000 + 0.001
    assert sum(parts) <= recording.elapsed_s * 1000 + 0.001
    assert figures["pool"].startswith("dur=")
    assert b"3 statements</a>" in page.body
    assert get(app, "/json").body == b'{"a":1}\n'
    assert "sql" in timing(get(app, "/json"))
    assert get(app, "/parts").body == HTML


def test_starlette(query: Callable[[int], None]) -> None:
    """The same under ASGI, through a middleware that passes the body on in parts; a stream stays as it is."""
    pytest.importorskip("starlette")
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse
    from starlette.routing import Route

    from placebench.profiler.integrations.starlette import StarletteMiddleware

    async def orders(request: Any) -> Any:
        query(3)
        return HTMLResponse(HTML)

    async def parts(request: Any) -> Any:
        return StreamingResponse(iter([HTML[:9], HTML[9:]]), media_type="text/html")

    async def as_json(request: Any) -> Any:
        return JSONResponse({"a": 1})

    async def passed_on(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    routes = [Route("/orders", orders), Route("/parts", parts), Route("/json", as_json)]
    middleware = [Middleware(StarletteMiddleware, sampling=BOTH), Middleware(BaseHTTPMiddleware, dispatch=passed_on)]
    app = Starlette(routes=routes, middleware=middleware)
    page = get(app, "/orders")

    assert_has_badge(page)
    assert timing(page)["statements"] == 'desc="3"'
    assert get(app, "/parts").body == HTML
    assert get(app, "/json").body == b'{"a":1}'


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (gzip.compress(HTML, mtime=0), html_headers(gzip.compress(HTML), Content_Encoding="gzip")),
        (HTML, [("Content-Type", "text/plain")]),
        (b"<p>a part for htmx</p>", html_headers(b"<p>a part for htmx</p>")),
        (HTML, html_headers(Content_Range="bytes 0-9/99")),
        (HTML, html_headers(Content_Digest="sha-256=:x:")),
        (HTML, [("Content-Type", "text/html"), ("Content-Length", str(5 * 2**20))]),
        (HTML, []),
    ],
)
def test_what_is_no_whole_page_has_no_badge(content: bytes, headers: list[tuple[str, str]]) -> None:
    """It is the same under both interfaces, byte by byte."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": 200, "headers": encoded})
        await send({"type": "http.response.body", "body": content})

    under_asgi = asyncio.run(asgi_messages(process_profiler().asgi(application, sampling=BOTH), "/"))

    assert get(wsgi(lambda: [content], headers)).body == content
    assert b"".join(each.get("body", b"") for each in under_asgi) == content


def test_a_page_without_a_length_in_one_list_has_a_badge() -> None:
    """The list is the whole body; the server counts it."""
    assert_has_badge(get(wsgi(lambda: [HTML[:20], HTML[20:]], [("Content-Type", "text/html")])))


@pytest.mark.parametrize("policy", ["Content_Security_Policy", "Content_Security_Policy_Report_Only"])
def test_a_content_security_policy_gets_no_style(policy: str) -> None:
    """A style attribute would be a violation of it, as would a script; without a policy the link lies in a corner."""
    strict = get(wsgi(lambda: [HTML], html_headers(**{policy: "default-src 'self'"})))
    free = get(wsgi(lambda: [HTML], html_headers()))

    assert_has_badge(free)
    assert b"style=" in free.body
    assert b"#i-" in strict.body
    assert b"style=" not in strict.body
    assert b"<script" not in strict.body + free.body


def test_a_policy_in_the_page_counts_too() -> None:
    """As a meta element."""
    page = b'<html><head><meta http-equiv="Content-Security-Policy" content="x"></head><body></body></html>'

    response = get(wsgi(lambda: [page], html_headers(page)))

    assert b"#i-" in response.body
    assert b"style=" not in response.body


def test_the_response_to_head_stays_as_it_is() -> None:
    """It has the length of the page without a badge, and no body."""
    response = get(wsgi(list, html_headers()), method="HEAD")

    assert response.header("content-length") == str(len(HTML))


class Closing:
    """A body that is closed once."""

    closed = 0

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = iter(parts)

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        self.closed += 1


def test_the_body_is_closed_once() -> None:
    """Whether it is read for the badge or passed on."""
    whole, stream = Closing([HTML]), Closing([HTML])
    get(wsgi(lambda: whole, html_headers()))
    get(wsgi(lambda: stream, [("Content-Type", "text/html")]))

    assert (whole.closed, stream.closed) == (1, 1)


def call(application: Any) -> tuple[list[Any], bytes, Any]:
    """What a WSGI server sees: the calls of start_response, what was written, and the body."""
    environ: dict[str, Any] = {"wsgi.file_wrapper": FileWrapper, "QUERY_STRING": ""}
    setup_testing_defaults(environ)
    started: list[Any] = []
    written: list[bytes] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        started.append((status, headers))
        return written.append

    body = application(environ, start_response)
    content = b"".join(body)
    if hasattr(body, "close"):
        body.close()
    return started, b"".join(written) + content, body


def test_an_application_that_writes_is_a_stream() -> None:
    """What it writes and what it returns come in their order, without a badge."""

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        write = start_response("200 OK", [("Content-Type", "text/html")])
        write(HTML[:10])
        write(HTML[10:])
        return [b"<!-- end -->"]

    started, content, _ = call(process_profiler().wsgi(application, sampling=BOTH))

    assert (len(started), content) == (1, HTML + b"<!-- end -->")


def test_a_generator_starts_its_response_late() -> None:
    """When the server has begun to read it: a stream."""

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", html_headers())
        yield HTML

    started, content, _ = call(process_profiler().wsgi(application, sampling=BOTH))

    assert (len(started), content) == (1, HTML)


def test_a_file_is_left_to_the_server() -> None:
    """Its own wrapper comes back as it was."""
    file = FileWrapper(io.BytesIO(HTML))

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", html_headers())
        return file

    started, content, body = call(process_profiler().wsgi(application, sampling=BOTH))

    assert (len(started), content, body) == (1, HTML, file)


def test_an_error_after_the_start_replaces_the_response() -> None:
    """WSGI allows a second start_response with exc_info until the headers are sent."""

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", html_headers())
        start_response("500 Oh", [("Content-Type", "text/plain")], (ValueError, ValueError(), None))
        return [b"broken"]

    started, content, _ = call(process_profiler().wsgi(application, sampling=BOTH))

    assert [status for status, _ in started] == ["500 Oh"]
    assert content == b"broken"


def test_it_keeps_to_wsgi() -> None:
    """Python's own validator stands on both sides."""

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", html_headers())
        return [HTML]

    marked = validator(process_profiler().wsgi(validator(application), sampling=BOTH))

    (started,), content, _ = call(marked)
    assert b"#i-" in content
    assert ("Content-Length", str(len(content))) in started[1]


@pytest.mark.parametrize("has_length", [True, False])
def test_parts_under_asgi(has_length: bool) -> None:
    """With a length they are one page; without one they are a stream, each part when it is sent."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/html")]
        headers += [(b"content-length", str(len(HTML)).encode())] if has_length else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": HTML[:9], "more_body": True})
        await send({"type": "http.response.body", "body": HTML[9:]})

    messages = asyncio.run(asgi_messages(process_profiler().asgi(application, sampling=BOTH), "/"))

    headers = dict(messages[0]["headers"])
    bodies = [each["body"] for each in messages[1:]]
    assert b"server-timing" in headers
    if has_length:
        assert len(bodies) == 1
        assert int(headers[b"content-length"]) == len(bodies[0]) > len(HTML)
    else:
        assert bodies == [HTML[:9], HTML[9:]]


def test_a_file_that_an_asgi_server_sends_by_its_path_stays(tmp_path: Any) -> None:
    """The extension http.response.pathsend: nothing is held back."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/html"), (b"content-length", b"54")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.pathsend", "path": "/orders.html"})

    messages = asyncio.run(asgi_messages(process_profiler().asgi(application, sampling=BOTH), "/"))

    assert [each["type"] for each in messages] == ["http.response.start", "http.response.pathsend"]


def test_headers_that_are_none_stay_the_servers_problem() -> None:
    """What placebench cannot read it passes on, and the recording names the failure."""

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", None)])
        return [HTML]

    started, content, _ = call(process_profiler().wsgi(application, sampling=BOTH))

    assert started[0][1][0] == ("Content-Type", None)
    assert content == HTML
    assert len(process_profiler().recordings[0].failed_hooks) == 1


def test_by_default_responses_stay_as_they_are(query: Callable[[int], None]) -> None:
    """Neither a header nor a link."""

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        query(1)
        start_response("200 OK", html_headers())
        return [HTML]

    response = get(process_profiler().wsgi(application))

    assert (response.body, response.header("server-timing")) == (HTML, "")
