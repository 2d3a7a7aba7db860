"""The live page's server on 127.0.0.1: `LivePage`.

Everything is below a path that begins with a random token. A request is refused without it, and also if it names
another host (DNS rebinding), or if a page of another origin sends it.
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from placebench.errors import PlacebenchError, ProfilerError
from placebench.profiler.live.journal import MAX_ROWS, Journal

_PAGE = Path(__file__).parent / "templates" / "live.html"
_LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
_MAX_STREAMS = 32
_BATCH_S = 0.2
_BEAT_S = 10.0
_IDLE_S = 30.0
_NO_SCRIPT = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
# pyinstrument's page runs a script: in an origin of its own, it cannot read anything here.
_FLAME_GRAPH = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "font-src data:; frame-ancestors 'self'"
)


class LivePage:
    """Serves a journal to browsers on this machine, from a thread, until `close`; for `with`.

    port: the port on 127.0.0.1; 0 takes a free one. Raises ProfilerError if the port is taken.
    address: the URL of the page, which holds the token: who knows it can read the recordings.
    """

    def __init__(self, journal: Journal, *, port: int = 0) -> None:
        self.token: str = secrets.token_urlsafe(18)
        try:
            self._server = _Server(("127.0.0.1", port), partial(_Request, journal, self.token))
        except OSError as error:
            raise ProfilerError(
                f"the live page cannot use port {port}: {error.strerror}; name another one, or 0 for a free one"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="live page", daemon=True)
        self._thread.start()
        self.address: str = f"http://127.0.0.1:{self._server.server_address[1]}/{self.token}/"

    def close(self) -> None:
        """Stop serving, and end the connections; idempotent."""
        self._server.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingTCPServer):
    """A thread for each connection; none of them keeps the process alive."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.ended = threading.Event()
        self.streams = threading.Semaphore(_MAX_STREAMS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that closed its connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _RefusedError(PlacebenchError):
    """A request that is refused, with the status and one line."""

    def __init__(self, status: HTTPStatus, line: str) -> None:
        super().__init__(line)
        self.status = status


class _Request(BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    server: _Server

    def __init__(self, journal: Journal, token: str, request: socket.socket, client: Any, server: _Server) -> None:
        self._journal = journal
        self._token = token
        super().__init__(request, client, server)

    def do_GET(self) -> None:
        """Serve the page, the stream of recordings, the sums, a recording, or a difference of two."""
        self._serve()

    def do_POST(self) -> None:
        """Keep a recording, or clear the journal."""
        self.close_connection = True  # a body is not read
        self._serve()

    def _serve(self) -> None:
        try:
            path, query = self._checked()
            self._respond(path, query)
        except _RefusedError as refusal:
            self.close_connection = True
            self._send(f"{refusal}\n", "text/plain", status=refusal.status)
        except PlacebenchError as error:
            self._send(f"{error}\n", "text/plain", status=HTTPStatus.NOT_FOUND)

    def _checked(self) -> tuple[str, dict[str, list[str]]]:
        """Return the path behind the token, and the query. Raises _RefusedError if the page did not send it."""
        host = self.headers.get("Host", "")
        name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
        if name.lower() not in _LOCAL_HOSTS:
            raise _RefusedError(HTTPStatus.FORBIDDEN, f"refused: host {host[:80]!r}, expected 127.0.0.1 or localhost")
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            raise _RefusedError(HTTPStatus.FORBIDDEN, f"refused: a page of {origin[:80]!r} sent this request")
        is_elsewhere = self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        if is_elsewhere and (self.headers.get("Sec-Fetch-Mode") != "navigate" or self.command != "GET"):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "refused: a page of another site sent this request")
        parts = urlsplit(self.path)
        token, slash, path = parts.path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self._token.encode()):
            line = "refused: wrong token; open the address that placebench has printed, with all that follows the port"
            raise _RefusedError(HTTPStatus.FORBIDDEN, line)
        return path, parse_qs(parts.query)

    def _respond(self, path: str, query: dict[str, list[str]]) -> None:
        journal = self._journal
        if self.command == "POST":
            if path == "clear":
                journal.clear()
                self._send_json({})
            elif (found := re.fullmatch(r"recordings/(\d{1,15})/keep", path)) is not None:
                self._send_json({"path": str(journal.keep(int(found[1])))})
            else:
                raise _RefusedError(HTTPStatus.NOT_FOUND, "there is nothing at this address")
        elif path == "":
            text, policy = _page()
            self._send(text, "text/html", policy=policy)
        elif path == "events":
            last = self.headers.get("Last-Event-ID", "")  # sent by a browser that connects again by itself
            after = int(last) if re.fullmatch(r"\d{1,15}", last) else _number(query, "after")
            self._stream(after, _number(query, "clears") if "clears" in query else -1)
        elif path == "routes":
            self._send_json(journal.routes())
        elif path == "statements":
            self._send_json(journal.statements())
        elif path == "difference":
            from placebench.profiler.output.pages import difference_page

            before, later = (journal.load(_number(query, name)) for name in ("before", "after"))
            self._send(difference_page(before.diff(later)), "text/html")
        elif (found := re.fullmatch(r"recordings/(\d{1,15})(/file|/flame)?", path)) is not None:
            self._send_recording(int(found[1]), found[2])
        else:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "there is nothing at this address")

    def _send_recording(self, number: int, form: str | None) -> None:
        """Send the page of a recording: to be looked at, as a file to be shared, or its flame graph's own page."""
        # Loaded with the first page: the templates' engine takes longer than most commands to start.
        from placebench.profiler.output.pages import recording_page, write_flame_page

        recording = self._journal.load(number)
        if form == "/flame":
            if recording.session is None:
                raise ProfilerError(f"recording {number} has no flame graph: record in mode sampled")
            with tempfile.TemporaryDirectory(prefix="placebench-live-") as folder:
                path = Path(folder) / "flame.html"
                title, back = recording.name, f"../{number}"
                write_flame_page(recording.session, path, title=title, notes=recording.notes, back=back)
                self._send(path.read_text(encoding="utf-8"), "text/html", policy=_FLAME_GRAPH)
            return
        if form == "/file":
            words = re.sub(r"[^A-Za-z0-9]+", "-", recording.name).strip("-")[:60] or "recording"
            self._send(recording_page(recording), "text/html", disposition=f'attachment; filename="{words}.html"')
            return
        link = None if recording.session is None else f"{number}/flame"
        self._send(recording_page(recording, flame_page=link), "text/html")

    def _stream(self, after: int, clears: int) -> None:
        """Send rows as server-sent events until the browser or the page's server goes away.

        after: the last row that the browser has. clears: how often the journal was cleared before; -1 if unknown.
        """
        if not self.server.streams.acquire(blocking=False):
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"{_MAX_STREAMS} pages are open: close one")
        with ExitStack() as stack:
            stack.callback(self.server.streams.release)
            self.close_connection = True
            self._send_head("text/event-stream", None, HTTPStatus.OK, {})
            statements, kept, written = 0, -1, time.monotonic()
            browser = stack.enter_context(selectors.DefaultSelector())
            browser.register(self.connection, selectors.EVENT_READ)
            while not self.server.ended.is_set():
                update = self._journal.since(after, statements)
                if clears not in (-1, update.clears):
                    self._send_event("clear", "{}")
                    after, statements, clears, kept, written = 0, 0, update.clears, -1, time.monotonic()
                    continue
                clears = update.clears
                if update.rows or kept != len(update.kept):
                    facts = {
                        "oldest": update.oldest,
                        "kept": update.kept,
                        "clears": update.clears,
                        "limit": self._journal.count,
                        "statements": update.statements,
                    }
                    rows = ",".join(update.rows)
                    self._send_event("rows", f'{json.dumps(facts)[:-1]},"rows":[{rows}]}}', update.last)
                    after, statements = update.last, statements + len(update.statements)
                    kept, written = len(update.kept), time.monotonic()
                elif time.monotonic() - written > _BEAT_S:
                    self.wfile.write(b": still here\n\n")
                    written = time.monotonic()
                # A thousand recordings per second are five events per second. A browser sends nothing but its end.
                if len(update.rows) < MAX_ROWS and browser.select(_BATCH_S):
                    break

    def _send_event(self, name: str, data: str, number: int | None = None) -> None:
        identifier = "" if number is None else f"id: {number}\n"
        self.wfile.write(f"event: {name}\n{identifier}data: {data}\n\n".encode())

    def _send_json(self, document: Any) -> None:
        self._send(json.dumps(document), "application/json")

    def _send(
        self,
        text: str,
        kind: str,
        *,
        policy: str = _NO_SCRIPT,
        status: HTTPStatus = HTTPStatus.OK,
        disposition: str = "inline",
    ) -> None:
        content = text.encode("utf-8", "backslashreplace")
        length = {"Content-Length": str(len(content)), "Content-Disposition": disposition}
        self._send_head(kind, policy, status, length)
        self.wfile.write(content)

    def _send_head(self, kind: str, policy: str | None, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        always = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        if policy is not None:
            always["Content-Security-Policy"] = policy
        for name, value in {**always, **headers}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def version_string(self) -> str:
        return "placebench"

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Log no requests, because the terminal belongs to the profiled program."""


def _number(query: dict[str, list[str]], name: str) -> int:
    """Return a number of the query, 0 if it is not there. Raises _RefusedError for anything else."""
    text = query.get(name, ["0"])[0]
    if not re.fullmatch(r"\d{1,15}", text):
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"{name} is {text[:80]!r}: expected the number of a recording")
    return int(text)


@cache
def _page() -> tuple[str, str]:
    """Return the page, and the content security policy by which its own script and style run, and nothing else."""
    text = _PAGE.read_text(encoding="utf-8")
    sources = {}
    for element in ("script", "style"):
        content = text.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        sources[element] = f"{element}-src 'sha256-{digest}'"
    policy = f"default-src 'none'; {sources['script']}; {sources['style']}; connect-src 'self'; frame-src 'self'"
    return text, f"{policy}; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
