"""A proxy that hands a server only requests that have arrived completely: `buffering_proxy`.

A server with threads gives one to each connection, so clients that send or read slowly hold its threads. Here they hold
an entry of an event loop: a request is kept until it is complete, and a response until the client has read it, in
memory or, if it is long, in an unnamed file. Bytes are passed on as they are, with one response per connection.

At `MAX_CONNECTIONS` the client that has been sending its request for longest is closed for a new one; if all requests
are complete, the new connection is closed. So clients that never finish keep nobody out.
"""

import asyncio
import re
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
_HELD_BYTES: Final = 2**22
_BACKLOG: Final = 1024
_TOO_LARGE: Final = (
    f"a request has at most {MAX_HEADERS} headers, of {MAX_HEAD_BYTES} bytes with its first line\n".encode()
)
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_EXPECT: Final = re.compile(rb"\r\nexpect:[ \t]*100-continue[ \t]*\r\n", re.IGNORECASE)


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
    """Write the request to the file; return whether there is one. One that the client has ended early is passed on."""
    try:
        async with asyncio.timeout(_HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        is_too_large = head.count(b"\n") > MAX_HEADERS + 2  # the request line and the empty line
    except IncompleteReadError as error:
        request.write(error.partial)
        return bool(error.partial)
    except LimitOverrunError:
        is_too_large = True
    if is_too_large:
        await _refuse(reader, writer)
        return False
    request.write(head)
    length = int(found[1]) if (found := _LENGTH.search(head)) else 0
    if length <= MAX_BODY_BYTES:
        if length and _EXPECT.search(head):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(_BODY_S):
            while length and (part := await asyncio.wait_for(reader.read(min(length, _PART_BYTES)), _IDLE_S)):
                request.write(part)
                length -= len(part)
    return True


async def _refuse(reader: StreamReader, writer: StreamWriter) -> None:
    """Respond with 431, and read what else comes: a connection closed before would be reset, and the response lost."""
    writer.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain\r\nConnection: close\r\n")
    writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE))
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
