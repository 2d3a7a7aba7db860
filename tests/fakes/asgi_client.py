"""A request to an ASGI application in the test's own event loop."""

from typing import Any


async def asgi_messages(app: Any, path: str, *, headers: tuple[tuple[bytes, bytes], ...] = ()) -> list[Any]:
    """The messages of the response to a GET."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": "GET", "path": path, "headers": headers}, receive, send)
    return sent
