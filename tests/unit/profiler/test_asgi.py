"""ASGI: which requests are recorded, and when they end; a real driver under asyncio is in tests/postgres."""

import asyncio
from typing import Any

import pytest

from placebench.profiler import Sampling, SqlProfiler


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers in two pieces."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})
    await send({"type": "http.response.body", "body": b"b"})


async def get(app: Any, path: str, *, headers: tuple[tuple[bytes, bytes], ...] = ()) -> list[Any]:
    """The messages that a request is answered with."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": "GET", "path": path, "headers": headers}, receive, send)
    return sent


def test_a_request_that_raises_is_recorded(profiler: SqlProfiler) -> None:
    """With the class of its error."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(get(profiler.asgi(broken), "/"))

    assert [recording.error for recording in profiler.recordings] == ["ZeroDivisionError"]


def test_what_is_no_http_goes_through(profiler: SqlProfiler) -> None:
    """Lifespan and websockets."""
    seen = []

    async def lifespan(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    asyncio.run(profiler.asgi(lifespan)({"type": "lifespan"}, None, None))

    assert (seen, list(profiler.recordings)) == (["lifespan"], [])


def test_a_token_in_the_header_asks_for_a_recording(profiler: SqlProfiler) -> None:
    """And for a mode; without it, or with a wrong one, nothing is recorded."""
    profiled = profiler.asgi(application, sampling=Sampling(rate=0.0, token="geheim"))

    async def three() -> None:
        await get(profiled, "/1")
        await get(profiled, "/1", headers=((b"x-placebench-profile", b"falsch"),))
        await get(profiled, "/1", headers=((b"x-placebench-profile", b"geheim full"),))

    asyncio.run(three())

    assert [recording.mode for recording in profiler.recordings] == ["full"]
