"""What the response to a recorded request says about it: the header Server-Timing, and a link in HTML pages (a badge).

The main functions are `server_timing` and `with_badge`. `WsgiResponse` and `marked_send` put both into responses.
"""

import html
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple, cast

from placebench import units
from placebench.profiler.capture.active_recording import ActiveRecording
from placebench.profiler.requests.sampling import Sampling

_Headers = list[tuple[str, str]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_MAX_BYTES = 4 * 2**20
_STYLE = (
    ' style="position:fixed;right:8px;bottom:8px;z-index:2147483647;padding:3px 9px;border-radius:4px;'
    'background:#1d2126;color:#fcfbf8;font:12px sans-serif;text-decoration:none"'
)


class _Figures(NamedTuple):
    """The figures of a request until now: seconds, and the number of its statements."""

    elapsed_s: float
    sql_s: float
    pool_wait_s: float
    statements: int


def _figures(recording: ActiveRecording) -> _Figures:
    statements = [each for each in list(recording.statements) if not each.step]
    elapsed_s = recording.clock() - recording.started
    waits = sum(each.pool_wait_s or 0.0 for each in statements)
    return _Figures(elapsed_s, recording.sql_s(), waits, len(statements) + recording.unkept.statements)


def server_timing(recording: ActiveRecording) -> str:
    """Return the value of the header Server-Timing, in milliseconds: what was measured until the response began.

    Python's time is left out if statements overlapped, so that the parts do not add up.
    """
    elapsed_s, sql_s, pool_wait_s, statements = _figures(recording)
    parts = [f'sql;dur={sql_s * 1e3:.3f};desc="SQL"']
    if sql_s <= elapsed_s:
        parts.append(f'python;dur={(elapsed_s - sql_s) * 1e3:.3f};desc="Python"')
    parts.append(f'pool;dur={pool_wait_s * 1e3:.3f};desc="connection-pool wait"')
    return ", ".join([*parts, f'statements;desc="{statements}"'])


def takes_badge(method: str, headers: Iterable[tuple[str, str]]) -> bool:
    """Return whether a response may be a whole HTML page that can get a badge: not compressed, no part, no checksum."""
    named = {name.lower(): value.strip().lower() for name, value in headers}
    length = named.get("content-length", "0")
    return (
        method != "HEAD"
        and named.get("content-type", "").startswith("text/html")
        and named.get("content-encoding", "identity") == "identity"
        and not named.keys() & {"content-range", "content-md5", "digest", "content-digest", "repr-digest"}
        and length.isdecimal()
        and int(length) <= _MAX_BYTES
    )


def with_badge(content: bytes, headers: Iterable[tuple[str, str]], recording: ActiveRecording, page: str) -> bytes:
    """Return an HTML page with a link to its recording before </body>; unchanged if it has no </body>.

    The link has no script, and no style if the page has a content security policy.
    page: the URL of the live page.
    """
    lower = content.lower()
    at = lower.rfind(b"</body")
    if at < 0 or not recording.identifier:
        return content
    has_policy = b"content-security-policy" in lower or any(
        name.lower().startswith("content-security-policy") for name, _ in headers
    )
    figures = _figures(recording)
    text = f"placebench: {units.duration(figures.elapsed_s)}, {units.numbered(figures.statements, 'statement')}"
    link = f"{html.escape(page)}#i-{recording.identifier}"
    badge = (
        f'<a href="{link}" target="_blank" rel="noopener noreferrer"{"" if has_policy else _STYLE}>'
        f"{html.escape(text)}</a>"
    )
    return content[:at] + badge.encode("ascii", "xmlcharrefreplace") + content[at:]


class WsgiResponse:
    """The response to one request under WSGI; a page that may get a badge is held until its body is there.

    recording: returns the request's recording; None once it has ended.
    """

    def __init__(
        self,
        recording: Callable[[], ActiveRecording | None],
        sampling: Sampling,
        method: str,
        start_response: Callable[..., Any],
    ) -> None:
        self._recording = recording
        self._sampling = sampling
        self._method = method
        self._start_response = start_response
        self._held: tuple[str, _Headers, tuple[Any, ...]] | None = None
        self._may_hold = sampling.badge is not None

    def start(self, status: str, headers: _Headers, *rest: Any) -> Callable[[bytes], object]:
        """Take the application's call of start_response."""
        recording, self._held = self._recording(), None
        if recording is not None:
            try:
                if self._sampling.server_timing:
                    headers = [*headers, ("Server-Timing", server_timing(recording))]
                if self._may_hold and takes_badge(self._method, headers):
                    self._held = status, headers, rest
                    return self._write
            except Exception as error:  # noqa: BLE001  it must not become the application's
                recording.report_failure(error)
        write: Callable[[bytes], object] = self._start_response(status, headers, *rest)
        return write

    def finish(self, body: Iterable[bytes], run: Callable[..., Any], file_wrapper: object) -> Iterable[bytes]:
        """Return the application's body, or the page with its badge; a held response starts now.

        run: calls code of the application. file_wrapper: the server's class for files, which it sends by itself.
        """
        self._may_hold = False
        if self._held is None:
            return body
        status, headers, rest = self._held
        is_file = isinstance(file_wrapper, type) and isinstance(body, file_wrapper)
        is_whole = isinstance(body, (list, tuple)) or any(name.lower() == "content-length" for name, _ in headers)
        recording = self._recording()
        if is_file or not is_whole or recording is None or self._sampling.badge is None:
            self._release()
            return body
        try:
            content = run(b"".join, body)
        finally:
            if (close := getattr(body, "close", None)) is not None:
                run(close)
        content = with_badge(content, headers, recording, self._sampling.badge)
        self._start_response(status, _with_length(headers, len(content)), *rest)
        return [content]

    def _release(self) -> Callable[[bytes], object]:
        status, headers, rest = cast(Any, self._held)
        self._held = None
        write: Callable[[bytes], object] = self._start_response(status, headers, *rest)
        return write

    def _write(self, data: bytes) -> object:
        """Write a part of a body in the way of WSGI's oldest applications; the response is a stream then."""
        if self._held is not None:
            self._server_write = self._release()
        return self._server_write(data)


def marked_send(recording: Callable[[], ActiveRecording | None], sampling: Sampling, method: str, send: _Send) -> _Send:
    """Return what sends the messages of a response under ASGI; a page that may get a badge waits for its last part."""
    held: MutableMapping[str, Any] | None = None
    parts: list[bytes] = []

    async def send_marked(message: MutableMapping[str, Any]) -> None:
        nonlocal held
        running, kind = recording(), message["type"]
        if kind == "http.response.start" and running is not None:
            try:
                headers = _decoded(message.get("headers", ()))
                if sampling.server_timing:
                    timing = (b"server-timing", server_timing(running).encode("latin-1"))
                    message = {**message, "headers": [*message.get("headers", ()), timing]}
                if sampling.badge is not None and takes_badge(method, headers):
                    held = message
                    return
            except Exception as error:  # noqa: BLE001  it must not become the application's
                running.report_failure(error)
        elif held is not None:
            headers = _decoded(held.get("headers", ()))
            is_whole = kind == "http.response.body" and not message.get("more_body", False)
            has_length = any(name.lower() == "content-length" for name, _ in headers)
            if kind == "http.response.body" and (is_whole or has_length) and running is not None:
                parts.append(message.get("body", b""))
                if not is_whole:
                    return
                content = b"".join(parts)
                if sampling.badge is not None:
                    content = with_badge(content, headers, running, sampling.badge)
                lengthened = _with_length(headers, len(content))
                encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lengthened]
                start: MutableMapping[str, Any] = {**held, "headers": encoded}
                held, message = None, {**message, "body": content}
                await send(start)
            else:
                start, held = held, None
                await send(start)
                for part in parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        await send(message)

    return send_marked


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> _Headers:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _with_length(headers: _Headers, length: int) -> _Headers:
    """Return the headers with this Content-Length, if they have one."""
    return [(name, str(length) if name.lower() == "content-length" else value) for name, value in headers]
