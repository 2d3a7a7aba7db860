"""Requests to applications in this process: bodies, cookies, logins, streams and the life of the application."""

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from placebench.errors import ProfilerError
from placebench.http_session import Request
from placebench.profiler.integrations.in_process_client import in_process_client


def echo(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The headers and the body of each request; /set?name=value sets a cookie, /token gives a token."""
    seen = {key: value for key, value in environ.items() if key.startswith(("HTTP_", "CONTENT_TYPE"))}
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    headers = [("Set-Cookie", f"{each}; Path=/; HttpOnly") for each in query.split("&")] if path == "/set" else []
    start_response("403 No" if path == "/no" else "200 OK", headers)
    if path == "/token":
        return [b'{"access_token": "abc", "token_type": "bearer"}']
    return [json.dumps({**seen, "body": environ["wsgi.input"].read().decode()}).encode()]


def sent(*texts: str, login: str | None = None) -> dict[str, str]:
    """What the application saw of the last of these requests."""
    with in_process_client(echo) as client:
        if login is not None:
            client.log_in(Request.parse(login))
        responses = [client.send(Request.parse(text)) for text in texts]
    seen: dict[str, str] = json.loads(responses[-1].body)
    return seen


@pytest.mark.parametrize(
    ("text", "kind", "body"),
    [
        ('POST /x {"a": [1, 2]}', "application/json", '{"a": [1, 2]}'),
        ("POST /x a=1&b=two words", "application/x-www-form-urlencoded", "a=1&b=two words"),
        ("PUT /x plain text", None, "plain text"),
        ("PUT /x @body.json", "application/json", "[1]"),
        ("GET /x?a=1", None, ""),
    ],
)
def test_a_body_is_sent_as_what_it_is(
    text: str, kind: str | None, body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON and forms have their type; "@" names a file."""
    monkeypatch.chdir(tmp_path)
    Path("body.json").write_text("[1]")

    seen = sent(text)

    assert (kind, body) == (seen.get("CONTENT_TYPE"), seen["body"])


def test_cookies_are_kept_until_they_are_deleted() -> None:
    """Each response may set several."""
    assert "a=1; b=2" == sent("GET /set?a=1&b=2", "GET /x")["HTTP_COOKIE"]
    assert "b=2" == sent("GET /set?a=1&b=2", "GET /set?a=;Max-Age=0", "GET /x")["HTTP_COOKIE"]


def test_the_cookie_of_a_csrf_protection_is_a_header_too() -> None:
    """Where a request may change something."""
    read, changed = (sent("GET /set?csrftoken=t", f"{method} /x") for method in ("GET", "POST"))

    assert (None, "t") == (read.get("HTTP_X_CSRFTOKEN"), changed.get("HTTP_X_CSRFTOKEN"))


def test_the_token_of_a_login_is_sent_after_it() -> None:
    """As OAuth2 has it."""
    assert "Bearer abc" == sent("GET /x", login="POST /token user=me&password=secret")["HTTP_AUTHORIZATION"]


def test_a_login_that_fails_is_an_error_without_its_secrets() -> None:
    """Nothing would be as the user believes."""
    with pytest.raises(ProfilerError, match="login POST /no: status 403") as raised:
        sent("GET /x", login="POST /no?key=secret password=secret")

    assert "secret" not in str(raised.value)


def test_an_asgi_application_streams_to_the_end_and_has_its_state() -> None:
    """The client is there until the last part; each request has the state of the application's startup."""
    starlette = pytest.importorskip("starlette.applications")
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        yield {"name": "state"}

    async def stream(request: Any) -> StreamingResponse:
        async def parts() -> Any:
            for _ in range(3):
                await asyncio.sleep(0.001)
                yield request.state.name

        return StreamingResponse(parts())

    app = starlette.Starlette(routes=[Route("/", stream)], lifespan=lifespan)
    with in_process_client(app) as client:
        bodies = [client.send(Request("GET", "/")).body for _ in range(2)]

    assert [b"statestatestate"] * 2 == bodies
