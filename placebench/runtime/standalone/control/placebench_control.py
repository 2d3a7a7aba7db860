"""A WSGI or ASGI application with a known slow-down or more statements: `application`, made from the environment.

For a service that a command starts, `begin` wraps the application that its server gets, whatever it is.

PLACEBENCH_CONTROL_APP     module:callable or module:factory(); required on import by a server
PLACEBENCH_CONTROL_KIND    "wsgi" (the default) or "asgi"
PLACEBENCH_CONTROL_CPU_S   CPU seconds that each request takes in addition; default 0
PLACEBENCH_CONTROL_WAIT_S  seconds that each request waits in addition; default 0
PLACEBENCH_CONTROL_STATEMENTS  number of statements that each request sends in addition to $DATABASE_URL; default 0

The CPU is burnt in three parts: before the application, when its response begins, and when its response ends. A server
imports this module by name from its own folder, in any environment; it imports nothing of placebench.
"""

import asyncio
import importlib
import inspect
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_PARTS = 3
_BATCHES, _READINGS = 51, 10
"""How often the cost of a reading of the clock is measured, and with how many readings."""
_INJECTED = "placebench.injected"
"""The key of a request's environ or scope that an outer layer has slowed down already."""


class AddedCpu:
    """The CPU that one request takes in addition, burnt in parts by the thread that serves the request.

    All CPU of the slow-down counts as burnt: that of the code around the loop, from the creation of this object, and
    the part of a clock reading that lies outside of what two readings show. Otherwise each request would get
    several microseconds more than the amount.
    """

    def __init__(self, seconds: float, clock: Callable[[], int] = time.thread_time_ns, uncounted_ns: int = 0) -> None:
        """clock: returns the CPU time of this thread in nanoseconds. uncounted_ns: CPU of each part that it misses."""
        self._began_ns: int | None = clock()
        self._whole_ns = round(1e9 * seconds)
        self._clock = clock
        self._uncounted_ns = uncounted_ns
        self._burnt_ns = 0

    def burn(self, part: int) -> None:
        """Burn until *part* of the three parts are done; a part that has burnt too much shortens the next one.

        The clock counts only while the thread runs, so that the amount is the same on a busy machine.
        """
        missing_ns = self._whole_ns * part // _PARTS - self._burnt_ns - self._uncounted_ns
        if not self._whole_ns or (missing_ns <= 0 and self._began_ns is None):
            return
        began_ns = self._clock() if self._began_ns is None else self._began_ns
        self._began_ns = None
        spent_ns = self._clock() - began_ns
        while spent_ns < missing_ns:
            spent_ns = self._clock() - began_ns
        self._burnt_ns += spent_ns + self._uncounted_ns


def uncounted_cpu_ns(clock: Callable[[], int] = time.thread_time_ns) -> int:
    """Return the CPU of a part that its own readings of the clock do not show, which is that of one reading."""
    took_ns = []
    for _ in range(_BATCHES):
        began_ns = clock()
        for _ in range(_READINGS):
            ended_ns = clock()
        took_ns.append((ended_ns - began_ns) // _READINGS)
    return sorted(took_ns)[_BATCHES // 2]


class AddedStatements:
    """Sends statements to the application's database on a connection of its own, which each thread keeps."""

    def __init__(self, number: int, url: str) -> None:
        """url: the database, as the application is given it."""
        self._number = number
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
    scheme, _, rest = url.partition("://")
    if scheme.startswith("sqlite"):
        return sqlite3.connect(rest.removeprefix("/").partition("?")[0], isolation_level=None).execute
    parts = urlsplit(f"postgresql://{rest}")
    host, user, password = parts.hostname, unquote(parts.username or ""), unquote(parts.password or "")
    given = {"host": host, "port": parts.port or 5432, "user": user, "password": password}
    database = unquote(parts.path.removeprefix("/"))
    for name in ("psycopg", "psycopg2", "pg8000.dbapi", "asyncpg"):
        try:
            driver: Any = importlib.import_module(name)
        except ImportError:
            continue
        if name == "asyncpg":
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
    uncounted_ns = uncounted_cpu_ns()

    def slowed(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Any:
        added = AddedCpu(cpu_s, uncounted_ns=uncounted_ns)
        added.burn(1)
        if wait_s:
            time.sleep(wait_s)

        def begin(*response: Any) -> Any:
            added.burn(2)
            return start_response(*response)

        body = application(environ, begin)
        added.burn(3)
        return body

    return slowed


def slowed_asgi(application: Callable[..., Any], cpu_s: float, wait_s: float) -> Callable[..., Any]:
    """Return the ASGI *application* with these seconds added to each HTTP request."""
    uncounted_ns = uncounted_cpu_ns()

    async def slowed(scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        added = AddedCpu(cpu_s, uncounted_ns=uncounted_ns)
        added.burn(1)
        if wait_s:
            await asyncio.sleep(wait_s)

        async def burn_and_send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                added.burn(2)
            elif not message.get("more_body"):
                added.burn(3)
            await send(message)

        await application(scope, receive, burn_and_send)

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
        bound = inspect.signature(function).bind(*args, **kwargs)
        if parameter != "item" and callable(bound.arguments.get(parameter)):  # a test runner's item is none
            bound.arguments[parameter] = self.wrapped(bound.arguments[parameter])
        return function(*bound.args, **bound.kwargs)

    def wrapped(self, application: Callable[..., Any]) -> Callable[..., Any]:
        """Return the application with the change in each request, also if several layers of a server are wrapped."""
        wsgi, asgi = (_changed(application, kind, self._variables) for kind in ("wsgi", "asgi"))

        def chosen(request: MutableMapping[str, Any], changed: Callable[..., Any]) -> Callable[..., Any]:
            if self._entered and request.get("type", "http") == "http":
                with suppress(OSError):
                    Path(self._entered).touch()
                self._entered = ""
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
    loaded: Any = importlib.import_module(module)
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
