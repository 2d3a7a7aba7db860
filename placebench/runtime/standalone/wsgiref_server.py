"""Serves a WSGI application with the standard library alone: wsgiref, and a pool of threads.

    PYTHON -P wsgiref_server.py MODULE:CALLABLE THREADS

Run by path, in any environment; imports nothing of placebench. Prints `listening at http://…` once it listens. On
SIGTERM it ends when the requests in flight are served.
"""

import importlib
import signal
import socketserver
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

_HOST = "127.0.0.1"


class _ThreadedServer(WSGIServer):
    """wsgiref's server, which hands each connection to one of its threads."""

    request_queue_size = 1024

    def __init__(self, threads: int) -> None:
        super().__init__((_HOST, 0), _QuietHandler)
        self._pool = ThreadPoolExecutor(threads)

    def server_bind(self) -> None:
        """Bind without the reverse lookup of the host's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _HOST, self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Queue the request for the next free thread."""
        self._pool.submit(self._serve, request, client_address)

    def server_close(self) -> None:
        """Serve the accepted requests, then close."""
        self._pool.shutdown()
        super().server_close()

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:  # noqa: BLE001  as socketserver does in its own threads: reported, and the next one is served
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)


class _QuietHandler(WSGIRequestHandler):
    """A handler that, like the other servers, logs no requests."""

    def log_message(self, *_: object) -> None:
        """Log nothing for a request."""


def _main() -> None:
    """Serve until SIGTERM."""
    module, _, name = sys.argv[1].partition(":")
    with _ThreadedServer(int(sys.argv[2])) as server:
        server.set_app(getattr(importlib.import_module(module), name))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print(f"listening at http://{_HOST}:{server.server_port}", flush=True)  # noqa: T201  its parent reads it
        server.serve_forever(poll_interval=60)


if __name__ == "__main__":
    _main()
