"""Clients that send or read slowly keep nobody else from a server with one thread."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import pytest

from placebench.errors import ServerError
from placebench.runtime import buffering_proxy as module
from placebench.runtime.buffering_proxy import buffering_proxy

LONG = 8_000_000
HALF_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"

Connect = Callable[[], socket.socket]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = b"x" * (LONG if self.path == "/long" else 2)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        is_kept = length <= module.MAX_BODY_BYTES
        content = self.rfile.read(length) if is_kept else b""
        self.send_response(200 if len(content) == length else 400 if is_kept else 413)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects to the proxy before a server that has one thread."""
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    with connections_to_proxy(server.server_port) as connecting:
        yield connecting
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def connections_to_proxy(port: int) -> Iterator[Connect]:
    with buffering_proxy("127.0.0.1", 0, ("127.0.0.1", port)) as url, ExitStack() as stack:
        where = "127.0.0.1", urlsplit(url).port or 0
        yield lambda: stack.enter_context(socket.create_connection(where, timeout=60))


def response(connection: socket.socket, sent: bytes = b"") -> bytes:
    """All that is received until the server closes the connection."""
    if sent:
        connection.sendall(sent)
    return b"".join(iter(lambda: connection.recv(2**20), b""))


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\nHos", HALF_BODY, b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["head", "body", "reads"],
)
def test_slow_clients_keep_nobody_waiting(connect: Connect, sent: bytes) -> None:
    """Twelve send half of their headers or half of a body, or do not read."""
    for _ in range(12):
        connect().sendall(sent)

    assert response(connect(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").endswith(b"\r\n\r\nxx")


def test_bytes_may_come_one_by_one(connect: Connect) -> None:
    """The rest of a body that the client sends slowly is waited for."""
    connection = connect()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in range(len(HALF_BODY)):
        connection.sendall(HALF_BODY[number : number + 1])

    assert response(connection, b"x" * 99).startswith(b"HTTP/1.0 200")


def test_what_a_client_ends_early_is_passed_on(connect: Connect) -> None:
    """The server sees the end of a truncated body, and a complete request of a half-closed connection."""
    responses = []
    for sent in (HALF_BODY, b"GET / HTTP/1.0\r\n\r\n"):
        connection = connect()
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        responses.append(response(connection)[9:12])

    assert responses == [b"400", b"200"]


def test_a_body_that_is_too_long_is_not_kept(connect: Connect) -> None:
    """The server decides by the headers."""
    length = module.MAX_BODY_BYTES + 1

    assert response(connect(), b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length).startswith(b"HTTP/1.0 413")


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\nContent-Length: 3\r\n\r\n"


def test_a_body_in_chunks_is_passed_on_with_its_length(connect: Connect) -> None:
    """By either case of the digits, with an extension and a trailer; a length beside them counts for nothing."""
    chunks = b"A;name=value\r\n0123456789\r\n0b\r\n\r\nand more\n\r\n000\r\nX-Trailer: x\r\n\r\n"

    answered = response(connect(), CHUNKED + chunks)

    assert answered.startswith(b"HTTP/1.0 200 ")
    assert answered.partition(b"\r\n\r\n")[2] == b"0123456789\r\nand more\n"


def test_chunks_may_come_one_by_one_from_a_client_that_ends(connect: Connect) -> None:
    """A half-closed connection after the last chunk is a complete request; the client is told to send its body."""
    connection = connect()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(CHUNKED[:-2] + b"Expect: 100-continue\r\n\r\n")
    told = connection.recv(100)
    for byte in b"2\r\n{}\r\n0\r\n\r\n":
        connection.sendall(bytes([byte]))
    connection.shutdown(socket.SHUT_WR)

    assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert response(connection).endswith(b"\r\n\r\n{}")


@pytest.mark.parametrize(
    "chunks",
    [
        b"x\r\n",
        b"0x1\r\nx\r\n0\r\n\r\n",
        b"-1\r\n",
        b"1\r\nxx\r\n0\r\n\r\n",
        b"\r\n",
        b"1" * 9,
        b"2\r\n{}\r\n",
        b"0\r\nX: x\r\n",
    ],
)
def test_chunks_that_are_not_valid_get_400(connect: Connect, chunks: bytes) -> None:
    """A half-closed connection whose last chunk is missing reads the response too."""
    connection = connect()
    connection.sendall(CHUNKED + chunks)
    connection.shutdown(socket.SHUT_WR)

    assert response(connection).startswith(b"HTTP/1.1 400 ")


def test_chunks_that_are_too_long_get_413(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    """Together: of the longest body each of its bytes may come by itself."""
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 2)
    whole, more = (b"1\r\nx\r\n" * times + b"0\r\n\r\n" for times in (2, 3))

    assert response(connect(), CHUNKED + whole).startswith(b"HTTP/1.0 200 ")
    assert response(connect(), CHUNKED + more).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("encodings", [b"gzip, chunked", b"gzip\r\nTransfer-Encoding: chunked", b"", b"identity"])
def test_other_transfer_encodings_get_501(connect: Connect, encodings: bytes) -> None:
    """Neither the proxy nor uWSGI decodes them."""
    sent = b"POST / HTTP/1.1\r\nTransfer-Encoding: %b\r\n\r\n0\r\n\r\n" % encodings

    assert response(connect(), sent).startswith(b"HTTP/1.1 501 ")


def test_a_client_is_told_to_send_its_body(connect: Connect) -> None:
    """A client that sends Expect: 100-continue gets that response before it sends the body."""
    connection = connect()
    connection.sendall(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    told = connection.recv(100)

    assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert response(connection, b"{}").startswith(b"HTTP/1.0 200")


def test_clients_that_never_end_are_closed(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    """Headers, and bodies without another byte, have some seconds."""
    monkeypatch.setattr(module, "_HEAD_S", 0.01)
    monkeypatch.setattr(module, "_IDLE_S", 0.01)

    assert [response(connect(), sent) for sent in (b"GET / HTTP/1.1\r\nHos", HALF_BODY)] == [b"", b""]


def test_a_new_client_ends_the_oldest_incomplete_request(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    """At the maximum of connections the first that is still sending is closed, and the new one is served."""
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 2)
    first, second = connect(), connect()
    first.sendall(HALF_BODY)
    second.sendall(HALF_BODY)

    assert response(connect(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").endswith(b"\r\n\r\nxx")
    assert response(first) == b""
    assert response(second, b"x" * 99).startswith(b"HTTP/1.0 200")


def test_one_too_many_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the maximum of connections with complete requests, which the server has, a new one is closed."""
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 2)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        connections_to_proxy(server.getsockname()[1]) as connecting,
        ExitStack() as accepted,
    ):
        for _ in range(2):
            connecting().sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            accepted.enter_context(server.accept()[0])

        assert response(connecting()) == b""
        accepted.close()


def test_a_long_response_is_complete(connect: Connect) -> None:
    """Longer than what is held in memory."""
    assert len(response(connect(), b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")[2]) == LONG


def test_no_server_and_no_port() -> None:
    """Without a server the connection is closed; a port that is taken is refused."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port} of"), buffering_proxy("127.0.0.1", port, ("", 0)):
            pass
    with connections_to_proxy(port) as connecting:
        assert response(connecting(), b"GET / HTTP/1.0\r\n\r\n") == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET / x HTTP/1.1\r\n\r\n",
        b"GET /\0 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHos",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length : 2\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nContent-Length:\r\n 2\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nX: x\rContent-Length: 2\r\n\r\n{}",
        b"\x16\x03\x01\x00\xc8\x01",
    ],
)
def test_what_is_not_a_request_gets_400(connect: Connect, sent: bytes) -> None:
    """The server does not get it: it could read it in another way than the proxy, or close without a response."""
    connection = connect()
    connection.sendall(sent)
    connection.shutdown(socket.SHUT_WR)

    assert response(connection).startswith(b"HTTP/1.1 400 ")


def test_empty_lines_before_a_request_are_skipped(connect: Connect) -> None:
    """RFC 9112, section 2.2: some old clients send one after a body."""
    assert response(connect(), b"\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n").endswith(b"\r\n\r\nxx")


def test_a_length_with_an_underscore_is_waited_for(connect: Connect) -> None:
    """For a WSGI application it is the length, so a server would wait for the body that the proxy kept."""
    connection = connect()
    connection.sendall(b"POST / HTTP/1.1\r\nContent_Length: 2\r\nContent-Length: 2\r\n\r\n")

    assert response(connection, b"{}").endswith(b"\r\n\r\n{}")


def test_a_path_of_which_two_do_not_fit_gets_414(connect: Connect) -> None:
    """uWSGI would close the connection without a response; a query of that length is the application's."""
    long = b"x" * (module.MAX_HEAD_BYTES // 2)

    assert response(connect(), b"GET /%b HTTP/1.1\r\n\r\n" % long).startswith(b"HTTP/1.1 414 ")
    assert response(connect(), b"GET /?%b HTTP/1.1\r\n\r\n" % long).startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize(
    "headers",
    [b"X-Long: " + b"x" * 300_000, b"\r\n".join([b"X-Many: x"] * (module.MAX_HEADERS + 1))],
    ids=["long", "many"],
)
def test_headers_that_are_too_large_get_431(connect: Connect, headers: bytes) -> None:
    """uWSGI would close the connection without a response; the client reads one, though it sent more than was read."""
    assert response(connect(), b"GET / HTTP/1.1\r\n" + headers + b"\r\n\r\n").startswith(b"HTTP/1.1 431 ")


def test_a_hundred_headers_are_passed_on(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    """The server of this test would take 99."""
    monkeypatch.setattr("http.client._MAXHEADERS", 101)
    headers = b"".join([b"X-Many: x\r\n"] * module.MAX_HEADERS)

    assert response(connect(), b"GET / HTTP/1.1\r\n" + headers + b"\r\n").startswith(b"HTTP/1.0 200 ")
