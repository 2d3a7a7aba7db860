"""The recordings that hooks of frameworks make, and the methods of a framework that they wrap: `FrameworkHooks`."""

import functools
from collections.abc import Callable
from typing import Any

from placebench.profiler.capture.options import Options
from placebench.profiler.requests.asgi import ProfiledAsgiApplication
from placebench.profiler.requests.exchange import RouteOf
from placebench.profiler.requests.middleware import ProfiledApplication, ProfiledCalls
from placebench.profiler.requests.sampling import Keep, RequestSampler, Sampling, Store
from placebench.profiler.sql_profiler import SqlProfiler


class FrameworkHooks:
    """Records the units of work of every framework whose methods are wrapped, until `remove`.

    wsgi: serves a request by any WSGI application. calls: records what a framework calls by itself.
    """

    def __init__(self, profiler: SqlProfiler, store: Store, mode: str, sampling: Sampling | None = None) -> None:
        self.profiler = profiler
        self._store = store
        # Everything is recorded, and the store decides what stays.
        self._sampler = RequestSampler(Options(mode=mode), Keep(0, "slowest"), sampling or Sampling(attach=False))
        self.wsgi = ProfiledApplication(profiler, None, self._sampler, store)
        self.calls = ProfiledCalls(profiler, self._sampler, store)
        self._wrapped: list[tuple[Any, str, Any, Any]] = []
        self._removals: list[Callable[[], object]] = []

    def asgi(self, route_of: RouteOf | None = None) -> ProfiledAsgiApplication:
        """Return what serves a request by any ASGI application that finds its routes this way."""
        return ProfiledAsgiApplication(self.profiler, None, self._sampler, self._store, route_of)

    def wrap(self, owner: Any, name: str) -> Callable[[Callable[..., Any]], Any]:
        """Return a decorator that puts its function around one of a class or module, which is then its `__wrapped__`.

        Raises AttributeError if there is no such function.
        """
        before = vars(owner).get(name) or getattr(owner, name)

        def put_around(wrapper: Callable[..., Any]) -> Any:
            self.replace(owner, name, functools.update_wrapper(wrapper, before))
            return wrapper

        return put_around

    def replace(self, owner: Any, name: str, function: Any) -> None:
        """Put a function in place of that of a class or module."""
        self._wrapped.append((owner, name, function, vars(owner).get(name)))
        setattr(owner, name, function)

    def on_removal(self, call: Callable[[], object]) -> None:
        """Have *call* called when the hooks are removed."""
        self._removals.append(call)

    def remove(self) -> None:
        """Give the frameworks their own functions back, unless something else wraps them now; idempotent."""
        while self._wrapped:
            owner, name, wrapper, before = self._wrapped.pop()
            if vars(owner).get(name) is wrapper and before is None:  # it was inherited
                delattr(owner, name)
            elif vars(owner).get(name) is wrapper:
                setattr(owner, name, before)
        while self._removals:
            self._removals.pop()()
