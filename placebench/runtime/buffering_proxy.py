"""A proxy that hands a server only requests that have arrived completely: `buffering_proxy`.

A server with threads gives one to each connection, so clients that send or read slowly hold its threads. Here they hold
an entry of an event loop: a request is kept until it is complete, and a response until the client has read it, in
memory or, if it is long, in an unnamed file. Bytes are passed on as they are, with one response per connection; only
a body in chunks is passed on in one piece with its length, since WSGI has no way to tell a server's application where
such a body ends.

At `MAX_CONNECTIONS` the client that has been sending its request for longest is closed for a new one; if all requests
are complete, the new connection is closed. So clients that never finish keep nobody out.
"""

import asyncio
import re
import shutil
import threading
from asyncio import IncompleteReadError, LimitOverrunError, StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import IO, Final

from placebench.errors import ServerError

MAX_HEAD_BYTES: Final = 63 * 2**10
MAX_HEADERS: Final = 100
"""A request with more headers, or more bytes of them, gets 431: uWSGI would close the connection without a response."""
MAX_BODY_BYTES: Final = 2**26
"""The longest body that is kept; of a longer one the server gets the headers alone, from which it knows the length."""
MAX_CONNECTIONS: Final = 512
_MAX_ASKING: Final = 128
"""The maximum number of connections to the server: with those of clients, fewer than 1024 descriptors."""
_HEAD_S: Final = 10.0  # in which all headers must have arrived
_IDLE_S: Final = 60.0  # without a byte of the body, or without one that the client reads
_BODY_S: Final = 600.0  # in which the whole body must have arrived
_GRACE_S: Final = 5.0  # for responses that clients still read when the proxy is stopped
_PART_BYTES: Final = 2**18
_HELD_BYTES: Final = 2**18  # in memory for each connection: MAX_CONNECTIONS of them are 128 MB
_BACKLOG: Final = 1024
_HEAD: Final = re.compile(
    rb"[\w!#$%&'*+.^`|~-]+ ([^\x00-\x20\x7f?]+)(?:\?[^\x00-\x20\x7f]*)? HTTP/1\.[01]\r\n"
    rb"(?:[\w!#$%&'*+.^`|~-]+:[^\x00\r\n]*\r\n)*\r\n"
)
"""A request line, whose path is the group, and headers: what another parser may read in another way is refused."""
# WSGI has one name for Content-Length and Content_Length.
_LENGTH: Final = re.compile(rb"\r\ncontent[-_]length:[ \t]*([0-9]{1,18})[ \t]*(?=\r\n)", re.IGNORECASE)
_EXPECT: Final = re.compile(rb"\r\nexpect:[ \t]*100-continue[ \t]*\r\n", re.IGNORECASE)
_ENCODING: Final = re.compile(rb"\r\ntransfer-encoding:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n)", re.IGNORECASE)
_BODY_HEADERS: Final = re.compile(rb"\r\n(?:transfer-encoding|content[-_]length):[^\r\n]*(?=\r\n)", re.IGNORECASE)
_CHUNK_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")


class _RefusedError(Exception):
    """A request that the server does not get: the status of the response to it, and its text."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.response = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n"
            f"Content-Length: {len(text) + 1}\r\n\r\n{text}\n"
        ).encode()


@dataclass(frozen=True)
class _Proxy:
    host: str
    port: int
    """The address of the server."""
    _receiving: dict[StreamReader, None] = field(default_factory=dict)
    """The clients whose requests are not complete, in the order in which they came."""
    _may_ask: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_ASKING))

    def make_room(self) -> bool:
        """Close the connection that has been sending its request for longest; return False if there is none."""
        for reader in self._receiving:
            del self._receiving[reader]
            reader.set_exception(ConnectionAbortedError("the request was not complete when another client came"))
            return True
        return False

    async def handle(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Pass one request on and return its response; a connection that breaks or takes too long is closed."""
        try:
            with _file() as request, _file() as response:
                self._receiving[reader] = None
                try:
                    is_request = await _receive(request, reader, writer)
                except _RefusedError as error:
                    await _refuse(reader, writer, error.response)
                    return
                finally:
                    self._receiving.pop(reader, None)
                if is_request:
                    async with self._may_ask:
                        await self._ask(request, response, ends=reader.at_eof())
                    await _send(response, writer)
        except (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _ask(self, request: IO[bytes], response: IO[bytes], *, ends: bool) -> None:
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=_PART_BYTES)
        try:
            with suppress(ConnectionError):  # the server may respond to a long body before it has read it
                await _send(request, writer)
                if ends:
                    writer.write_eof()
            while part := await reader.read(_PART_BYTES):
                response.write(part)
        finally:
            writer.close()


def _file() -> SpooledTemporaryFile[bytes]:
    return SpooledTemporaryFile(_HELD_BYTES)


async def _receive(request: IO[bytes], reader: StreamReader, writer: StreamWriter) -> bool:
    """Write the request to the file; return whether there is one. A body that the client has ended early is passed on.

    Raises _RefusedError if its headers are not valid or too large, or a body in chunks is not valid or too long.
    """
    too_large = f"a request has at most {MAX_HEADERS} headers, of {MAX_HEAD_BYTES} bytes with its first line"
    head = b""
    try:
        async with asyncio.timeout(_HEAD_S):
            while not head:  # empty lines may come before a request
                head = (await reader.readuntil(b"\r\n\r\n")).lstrip(b"\r\n")
    except IncompleteReadError as error:
        head = error.partial.lstrip(b"\r\n")
        if not head:
            return False
    except LimitOverrunError as error:
        raise _RefusedError("431 Request Header Fields Too Large", too_large) from error
    if head.count(b"\n") > MAX_HEADERS + 2:  # the request line and the empty line
        raise _RefusedError("431 Request Header Fields Too Large", too_large)
    found, lengths = _HEAD.fullmatch(head), set(_LENGTH.findall(head))
    if found is None or len(lengths) > 1:
        raise _RefusedError("400 Bad Request", "the request line or a header is not valid in HTTP/1.1")
    if len(head) + len(found[1]) > MAX_HEAD_BYTES:  # uWSGI has room for the path to be there twice
        raise _RefusedError("414 URI Too Long", f"headers and twice the path have at most {MAX_HEAD_BYTES} bytes")
    encodings = [encoding.lower() for encoding in _ENCODING.findall(head)]
    length = int(lengths.pop()) if lengths and not encodings else 0
    if (encodings or 0 < length <= MAX_BODY_BYTES) and _EXPECT.search(head):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    async with asyncio.timeout(_BODY_S):
        if not encodings:
            request.write(head)
            if length <= MAX_BODY_BYTES:
                await _read_into(request, reader, length)
        elif encodings == [b"chunked"]:
            with _file() as body:
                await _read_chunks_into(body, reader)
                request.write(_BODY_HEADERS.sub(b"", head)[:-2] + b"Content-Length: %d\r\n\r\n" % body.tell())
                body.seek(0)
                shutil.copyfileobj(body, request)
        else:
            raise _RefusedError("501 Not Implemented", "a body has no transfer encoding, or that of chunks")
    return True


async def _read_into(target: IO[bytes], reader: StreamReader, length: int) -> bool:
    """Write the next *length* bytes to the file; return whether the client has sent them all."""
    while length and (part := await asyncio.wait_for(reader.read(min(length, _PART_BYTES)), _IDLE_S)):
        target.write(part)
        length -= len(part)
    return not length


async def _read_chunks_into(target: IO[bytes], reader: StreamReader) -> None:
    """Write the content of a body in chunks to the file, by RFC 9112, section 7.1; trailers are left out."""
    invalid = _RefusedError("400 Bad Request", "the chunks of the body are not valid, or the last one is missing")
    try:
        while True:
            found = _CHUNK_SIZE.fullmatch(await asyncio.wait_for(reader.readuntil(b"\r\n"), _IDLE_S))
            if found is None:
                raise invalid
            length = int(found[1], 16)
            if target.tell() + length > MAX_BODY_BYTES:
                raise _RefusedError("413 Content Too Large", f"a body in chunks has at most {MAX_BODY_BYTES} bytes")
            if not length:
                break
            if not await _read_into(target, reader, length) or await reader.readexactly(2) != b"\r\n":
                raise invalid
        for _ in range(MAX_HEADERS + 1):
            if await asyncio.wait_for(reader.readuntil(b"\r\n"), _IDLE_S) == b"\r\n":
                return
    except (IncompleteReadError, LimitOverrunError) as error:
        raise invalid from error
    raise invalid


async def _refuse(reader: StreamReader, writer: StreamWriter, response: bytes) -> None:
    """Respond, and read what else comes: a connection closed before would be reset, and the response lost."""
    writer.write(response)
    writer.write_eof()
    async with asyncio.timeout(_HEAD_S):
        while await reader.read(_PART_BYTES):
            pass


async def _send(content: IO[bytes], writer: StreamWriter) -> None:
    content.seek(0)
    writer.transport.set_write_buffer_limits(0)  # so that drain waits until everything is sent
    while part := content.read(_PART_BYTES):
        writer.write(part)
        await asyncio.wait_for(writer.drain(), _IDLE_S)


@contextmanager
def buffering_proxy(host: str, port: int, server: tuple[str, int]) -> Iterator[str]:
    """Run the proxy in a thread of this process, and yield its URL.

    When the block ends, no connection is accepted any more, and open ones have some seconds to end.

    Args:
        host: The address to listen on.
        port: The port; 0: a free one.
        server: The address and port of the server.

    Raises:
        ServerError: The address or the port cannot be used.
    """
    loop, tasks = asyncio.new_event_loop(), set[asyncio.Task[None]]()
    proxy = _Proxy(*server)

    async def handle(reader: StreamReader, writer: StreamWriter) -> None:
        if len(tasks) >= MAX_CONNECTIONS and not proxy.make_room():
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await proxy.handle(reader, writer)

    async def stop() -> None:
        listening.close()
        if tasks:
            _, late = await asyncio.wait(set(tasks), timeout=_GRACE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    try:
        listening = loop.run_until_complete(
            asyncio.start_server(handle, host, port, limit=MAX_HEAD_BYTES, backlog=_BACKLOG)
        )
    except OSError as error:
        loop.close()
        taken = f"port {port} of {host} cannot be listened on: {error.strerror or error}"
        raise ServerError(f"{taken}; stop what listens there, or choose another one with --port") from error
    thread = threading.Thread(target=loop.run_forever, name="buffering proxy", daemon=True)
    thread.start()
    try:
        chosen = listening.sockets[0].getsockname()[1]
        yield f"http://[{host}]:{chosen}" if ":" in host else f"http://{host}:{chosen}"
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
