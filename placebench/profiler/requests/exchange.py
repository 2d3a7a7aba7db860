"""A request or a WebSocket connection while it is served: what knows its route, and the unit of work for each message.

The main classes are `Exchange` and `Connection`; the ASGI middleware makes them, and frameworks with their own servers.
"""

from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

from placebench.profiler.capture.later_work import current_task
from placebench.profiler.requests.middleware import ProfiledRequest

Scope = MutableMapping[str, Any]
RouteOf = Callable[[Scope, str], str | None]
"""Returns the route that a scope has got, given the path at which its application is mounted; may raise."""


class Exchange:
    """One request, and what knows its route: the applications that it goes through, outermost first."""

    def __init__(self, method: str, path: str) -> None:
        self.method = method
        self.path = path
        self._routes: list[Callable[[], str | None]] = []

    def add(self, route_of: RouteOf | None, scope: Scope) -> None:
        """Have this application name the request too."""
        if route_of is not None:
            mounted_at = scope.get("root_path", "")
            self.add_route(lambda: route_of(scope, mounted_at))

    def add_route(self, route: Callable[[], str | None]) -> None:
        """Have this function name the request, if no earlier one does; it may raise."""
        self._routes.append(route)

    def name(self, unit: ProfiledRequest) -> None:
        """Name a unit of work after the route, if there is one."""
        for each in self._routes:
            try:
                route = each()
            except Exception:  # noqa: BLE001  routes may be of the application's own class
                route = None
            if route is not None:
                unit.rename(f"{self.method} {route}", route)
                return


class Connection(Exchange):
    """A WebSocket connection: a unit of work for its handshake, and one for each message that it causes."""

    def __init__(self, path: str) -> None:
        super().__init__("WEBSOCKET", path)
        self._owner = current_task()
        self.is_accepted = False
        self._handshake: ProfiledRequest | None = None
        self._unit: ProfiledRequest | None = None

    def begin(self, handshake: ProfiledRequest) -> None:
        """Begin with *handshake*, the unit of work in which the connection is opened."""
        self._handshake = self._unit = handshake

    @property
    def is_own_task(self) -> bool:
        """Whether the task runs that takes the messages; what others receive is not recorded by message."""
        return current_task() is self._owner

    def accept(self) -> None:
        """Note that the request was a handshake; the current task is the one that will receive the messages."""
        if not self.is_accepted and self._handshake is not None and self._handshake.recording is not None:
            self._handshake.recording.kind = "websocket"
            self._handshake.rename(f"WEBSOCKET {self.path}")
            self._handshake.set_status(101)
            self._owner = current_task()
            self.is_accepted = True

    def end_message(self, error: BaseException | None = None) -> None:
        """End the work on the handshake, or on the last message."""
        unit, self._unit = self._unit, None
        if unit is not None:
            self.name(unit)
            unit.end(error)

    def begin_message(self, *, keep_empty: bool) -> None:
        """Begin the work on a message; *keep_empty*: whether it is recorded if it runs no statement."""
        self.end_message()
        if self._handshake is not None:
            self._unit = self._handshake.begin_caused(f"WEBSOCKET {self.path}", "websocket", keep_empty=keep_empty)


OPEN_CONNECTION: ContextVar[Connection | None] = ContextVar("placebench_connection", default=None)
"""The WebSocket connection that this task serves."""
