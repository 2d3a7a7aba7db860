"""A WSGI or ASGI application with a known slow-down or more statements: `application`, made from the environment.

For a service that a command starts, `begin` wraps the application that its server gets, whatever it is.

PLACEBENCH_CONTROL_APP     module:callable or module:factory(); required on import by a server
PLACEBENCH_CONTROL_KIND    "wsgi" (the default) or "asgi"
PLACEBENCH_CONTROL_CPU_S   CPU seconds that each request takes in addition; default 0
PLACEBENCH_CONTROL_WAIT_S  seconds that each request waits in addition; default 0
PLACEBENCH_CONTROL_STATEMENTS  number of statements that each request sends in addition to $DATABASE_URL; default 0

The CPU is burnt before and after the application by turns: in each request, or if it is little, for some together.
A server imports this module by name from its own folder, in any environment; it imports nothing of placebench.

Whatever is imported or made here moves the phase of the garbage collections, on which their number per request depends:
400 objects more gave a FastAPI application a full collection per 26.4 requests instead of 28.8, and 3 % more CPU.
Therefore modules are imported where they are used, and a request makes as few objects as possible.
"""

from __future__ import annotations

import os
import time
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping
    from typing import Any

_PLACES = 2
_MIN_BURN_NS = 200_000
"""Less is put off to a later request, since each burning makes the request slower by some 10 µs more: caches are cold.

A request that burns nothing reads no clock. Three parts of each request with a system call each added 13 µs to requests
of 0.7 ms, whatever they burnt (95 % CI 5 to 21, on a busy machine).
"""
_SPINS, _BATCHES, _SPUN_SHARE = 2000, 25, 0.7
"""How often the clock and a loop are timed, the length of that loop, and the share of the rest that is burnt unread."""
_INJECTED = "placebench.injected"
"""The key of a request's environ or scope that an outer layer has slowed down already."""


class AddedCpu:
    """The CPU that requests take in addition, burnt by the threads that serve them.

    All CPU of the slow-down counts as burnt. What was burnt too much or too little is set off against the next
    requests, so that the mean is the amount. The clock is read a few times per burning, since it is a system call.
    """

    def __init__(self, seconds: float, clock: Callable[[], int] = time.thread_time_ns) -> None:
        """seconds: the amount per request. clock: returns the CPU time of this thread in nanoseconds."""
        self._amount_ns = round(1e9 * seconds)
        self._clock = clock
        self._owed_ns = 0
        self._turn = 1
        """The place at which the next amount is burnt, from 1."""
        took_ns, readings_ns = [], []
        for _ in range(_BATCHES if self._amount_ns else 0):
            began_ns, read_ns = clock(), clock()
            _spin(_SPINS)
            took_ns.append(clock() - read_ns)
            readings_ns.append(read_ns - began_ns)
        self._reading_ns = sorted(readings_ns)[_BATCHES // 2] if readings_ns else 0
        self._spins_per_ns = _SPINS / max(1, min(took_ns, default=1))

    def begin_request(self) -> None:
        """Owe the amount of one more request, and burn what is due before the application."""
        self._owed_ns += self._amount_ns
        self.burn(1)

    def burn(self, place: int) -> None:
        """Burn all that is owed if it is the turn of this place of a request, 1 or 2, and enough is owed.

        The clock counts only while the thread runs, so that the amount is the same on a busy machine.
        """
        if place != self._turn or self._owed_ns < _MIN_BURN_NS:
            return
        began_ns = self._clock()
        owed_ns, self._owed_ns, self._turn = self._owed_ns, 0, place % _PLACES + 1
        spent_ns = self._reading_ns  # no difference of two readings shows all of both
        while spent_ns < owed_ns:
            _spin(1 + int(_SPUN_SHARE * (owed_ns - spent_ns) * self._spins_per_ns))
            spent_ns = self._clock() - began_ns + self._reading_ns
        self._owed_ns += owed_ns - spent_ns


def _spin(number: int) -> None:
    for _ in range(number):
        pass


class AddedStatements:
    """Sends statements to the application's database on a connection of its own, which each thread keeps."""

    def __init__(self, number: int, url: str) -> None:
        """url: the database, as the application is given it."""
        self._number = number
        import threading

        self._url = url
        self._own = threading.local()

    def send(self) -> None:
        """Send the statements and wait for their results."""
        for _ in range(self._number):
            if not hasattr(self._own, "execute"):
                self._own.execute = _connect(self._url)
            self._own.execute("SELECT 1")


def _connect(url: str) -> Callable[[str], Any]:
    """Return a function that executes a statement, with the first driver that is installed here."""
    from urllib.parse import unquote, urlsplit

    scheme, _, rest = url.partition("://")
    if scheme.startswith("sqlite"):
        import sqlite3

        return sqlite3.connect(rest.removeprefix("/").partition("?")[0], isolation_level=None).execute
    parts = urlsplit(f"postgresql://{rest}")
    host, user, password = parts.hostname, unquote(parts.username or ""), unquote(parts.password or "")
    given = {"host": host, "port": parts.port or 5432, "user": user, "password": password}
    database = unquote(parts.path.removeprefix("/"))
    for name in ("psycopg", "psycopg2", "pg8000.dbapi", "asyncpg"):
        try:
            driver: Any = import_module(name)
        except ImportError:
            continue
        if name == "asyncpg":
            import asyncio
            import threading

            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, daemon=True).start()
            connecting = asyncio.run_coroutine_threadsafe(driver.connect(database=database, **given), loop)
            opened = connecting.result()
            return lambda sql: asyncio.run_coroutine_threadsafe(opened.fetch(sql), loop).result()
        named = {"database": database} if name == "pg8000.dbapi" else {"dbname": database}
        connection = driver.connect(**given, **named)
        connection.autocommit = True
        return lambda sql: connection.cursor().execute(sql)
    raise RuntimeError(
        "--control statement needs psycopg, psycopg2, pg8000 or asyncpg in the application's environment"
    )


def with_statements(application: Callable[..., Any], kind: str, added: AddedStatements) -> Callable[..., Any]:
    """Return the *application* with these statements before each HTTP request; kind: "wsgi" or "asgi"."""
    if kind != "asgi":

        def asking(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Any:
            added.send()
            return application(environ, start_response)

        return asking

    async def asking_asgi(scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] == "http":
            added.send()
        await application(scope, receive, send)

    return asking_asgi


def slowed_wsgi(application: Callable[..., Any], cpu_s: float, wait_s: float) -> Callable[..., Any]:
    """Return the WSGI *application* with these seconds added to each request."""
    added = AddedCpu(cpu_s)

    def slowed(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Any:
        added.begin_request()
        if wait_s:
            time.sleep(wait_s)
        body = application(environ, start_response)
        added.burn(2)
        return body

    return slowed


def slowed_asgi(application: Callable[..., Any], cpu_s: float, wait_s: float) -> Callable[..., Any]:
    """Return the ASGI *application* with these seconds added to each HTTP request."""
    import asyncio

    added = AddedCpu(cpu_s)

    async def slowed(scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        added.begin_request()
        if wait_s:
            await asyncio.sleep(wait_s)
        await application(scope, receive, send)
        added.burn(2)

    return slowed


class Injection:
    """Wraps the applications that the servers in this process get; the other half of the start-up hook of a command."""

    def __init__(self, variables: Mapping[str, str], entered: str) -> None:
        """entered: the file that the first request to a wrapped application makes."""
        self._variables = variables
        self._entered = entered

    def call(
        self, function: Callable[..., Any], parameter: str | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call a function of a server with its application wrapped.

        parameter: the parameter that is the application; None if the application is what the function returns, "self"
            if it is the attribute `loaded_app` afterwards.
        """
        if parameter in (None, "self"):
            result = function(*args, **kwargs)
            if parameter is None:
                return self.wrapped(result)
            args[0].loaded_app = self.wrapped(args[0].loaded_app)
            return result
        import inspect

        bound = inspect.signature(function).bind(*args, **kwargs)
        if parameter != "item" and callable(bound.arguments.get(parameter)):  # a test runner's item is none
            bound.arguments[parameter] = self.wrapped(bound.arguments[parameter])
        return function(*bound.args, **bound.kwargs)

    def wrapped(self, application: Callable[..., Any]) -> Callable[..., Any]:
        """Return the application with the change in each request, also if several layers of a server are wrapped."""
        import inspect
        from contextlib import suppress

        wsgi, asgi = (_changed(application, kind, self._variables) for kind in ("wsgi", "asgi"))

        def chosen(request: MutableMapping[str, Any], changed: Callable[..., Any]) -> Callable[..., Any]:
            if self._entered and request.get("type", "http") == "http":
                entered, self._entered = self._entered, ""
                with suppress(OSError):
                    os.close(os.open(entered, os.O_CREAT, 0o600))
            if _INJECTED in request:
                return application
            request[_INJECTED] = True
            return changed

        async def serve_asgi(scope: MutableMapping[str, Any], *channel: Any) -> None:
            await chosen(scope, asgi)(scope, *channel)

        call = application if inspect.isroutine(application) else type(application).__call__
        if inspect.iscoroutinefunction(inspect.unwrap(call)):
            return serve_asgi

        def serve(request: MutableMapping[str, Any], *more: Any) -> Any:
            is_wsgi = len(more) == 1
            return chosen(request, wsgi)(request, *more) if is_wsgi else serve_asgi(request, *more)

        return serve


def begin(settings: Mapping[str, Any]) -> Injection:
    """Return what wraps the applications of this process; for the start-up hook of a command."""
    return Injection(os.environ, settings["entered"])


def _slowed_application(variables: Mapping[str, str]) -> Callable[..., Any]:
    module, _, name = variables["PLACEBENCH_CONTROL_APP"].partition(":")
    loaded: Any = import_module(module)
    for part in name.removesuffix("()").split("."):
        loaded = getattr(loaded, part)
    if name.endswith("()"):
        loaded = loaded()
    return _changed(loaded, variables.get("PLACEBENCH_CONTROL_KIND", "wsgi"), variables)


def _changed(application: Callable[..., Any], kind: str, variables: Mapping[str, str]) -> Callable[..., Any]:
    if number := int(variables.get("PLACEBENCH_CONTROL_STATEMENTS", 0)):
        url = variables.get("DATABASE_URL") or variables.get("PLACEBENCH_DATABASE_URL", "")
        return with_statements(application, kind, AddedStatements(number, url))
    slow = slowed_asgi if kind == "asgi" else slowed_wsgi
    cpu_s = float(variables.get("PLACEBENCH_CONTROL_CPU_S", 0))
    return slow(application, cpu_s, float(variables.get("PLACEBENCH_CONTROL_WAIT_S", 0)))


if "PLACEBENCH_CONTROL_APP" in os.environ:
    application = _slowed_application(os.environ)
