"""Responses in a cache service, Redis or Valkey, for all workers of one database: `respond_from_redis`.

A response is kept under its request, the variant and the revision of the data, which each request reads in its own
snapshot. A key is never given another response, so nothing is invalidated: the oldest responses are evicted. Where
there is no revision, or the service does not respond, the response is computed.
"""

import hashlib
import logging
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Any, Final

import msgspec
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from sqlalchemy import URL, Connection, text

import placebench
from placebench.lab.reference.candidates.memo import PerPool
from placebench.lab.reference.candidates.results import Body
from placebench.lab.reference.store.change_log import PgSnapshot, ReaderLease, read_revision

log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 1.0
_DOWN_FOR_S: Final = 5.0
_LIFETIME_S: Final = 3600
"""A response that nobody evicts is kept for this long."""


def respond_from_redis(compute: Callable[[], Body], connection: Connection, key: Any, cache_url: str) -> Body:
    """Return the body of the service at *cache_url* for the state that the connection sees, or compute and keep it.

    key: what the body depends on beside the data, of types that msgspec encodes. 1 round trip to the database.
    """
    engine = connection.engine
    shared = _RESPONSES.of(engine, lambda: SharedResponses(engine.url, CacheService(cache_url)))
    return shared.respond(compute, connection, key)


class CacheService:
    """A Redis or Valkey; one that failed is left alone for 5 s, and the log says so once."""

    def __init__(self, url: str, clock: Callable[[], float] = monotonic) -> None:
        """url: redis://:PASSWORD@HOST:PORT, connected to at the first command; ValueError where it is none."""
        # Once more without a pause: a connection of the pool may be from before a restart.
        once_more = Retry(NoBackoff(), 1)
        self._client = Redis.from_url(
            url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, retry=once_more, protocol=2
        )
        self._clock = clock
        self._failed_at: float | None = None

    @property
    def is_up(self) -> bool:
        """Whether it should be used now."""
        return self._failed_at is None or self._clock() >= self._failed_at + _DOWN_FOR_S

    def get(self, key: str) -> bytes | None:
        """Return what is kept under *key*; None where nothing is, or the service fails."""
        found: bytes | None = self._run(self._client.get, key)
        return found

    def keep(self, key: str, value: bytes) -> None:
        """Keep *value*, unless the service fails."""
        self._run(self._client.set, key, value, ex=_LIFETIME_S)

    def agree(self, key: str, value: bytes) -> bytes:
        """Keep *value* if nothing is there, and return what is there then; *value* where the service fails."""
        self._run(self._client.set, key, value, nx=True)
        return self.get(key) or value

    def _run(self, command: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if not self.is_up:
            return None
        try:
            made = command(*arguments, **options)
        except RedisError as error:
            if self._failed_at is None:
                log.warning("the cache service fails, and responses are computed: %s", " ".join(str(error).split()))
            self._failed_at = self._clock()
            return None
        if self._failed_at is not None:
            log.warning("the cache service responds again")
            self._failed_at = None
        return made


class _SharedLease(ReaderLease):
    """An entry of the change log that all users of a cache service share: its id is kept there.

    The first one is found under the URL of the database, each further one under that which is of no use any more.
    """

    _without = "no response is kept in the cache service"

    def __init__(self, url: URL, service: CacheService, clock: Callable[[], float]) -> None:
        super().__init__(url, clock)
        self._service = service
        self._before = hashlib.sha256(url.render_as_string(hide_password=True).encode()).hexdigest()

    def forget(self) -> None:
        self._before = self.reader or self._before
        super().forget()

    def _register(self, connection: Connection) -> str | None:
        name = f"placebench:reader:{self._before}"
        if (shared := self._service.get(name)) is not None:
            return shared.decode()
        connection.execute(text("SELECT placebench_revision(NULL)"))  # an older log has none
        own = super()._register(connection)
        return own and self._service.agree(name, own.encode()).decode()


class SharedResponses:
    """The responses of one database in a cache service, for all threads of a process."""

    def __init__(self, url: URL, service: CacheService, clock: Callable[[], float] = monotonic) -> None:
        """url: of the database; nothing is connected to before the first response."""
        self._service = service
        self._lease = _SharedLease(url, service, clock)
        self._lock = Lock()  # of the lease
        self._seen: PgSnapshot | None = None

    def respond(self, compute: Callable[[], Body], connection: Connection, key: Any) -> Body:
        """Return the body that is kept under *key* for the connection's state, or what *compute* returns."""
        name = self._name(connection, key)
        if name is None:
            return compute()
        body: Body | None = self._service.get(name)
        if body is None:
            body = compute()
            if isinstance(body, bytes):
                self._service.keep(name, body)
        return body

    def _name(self, connection: Connection, key: Any) -> str | None:
        """Return the key of the response in the service; None if it cannot be kept there."""
        if not self._service.is_up:
            return None
        with self._lock:
            self._lease.renew(self._seen)
            reader = self._lease.reader
        if reader is None:
            return None
        found = read_revision(connection, reader)
        if not found.registered:
            with self._lock:
                if self._lease.reader == reader:
                    self._lease.forget()
            return None
        self._seen = found.snapshot
        if not found.holds:
            return None
        content = msgspec.json.encode((placebench.__version__, reader, found.revision, key), order="deterministic")
        return f"placebench:response:{hashlib.sha256(content).hexdigest()}"


_RESPONSES: Final = PerPool[SharedResponses]()
