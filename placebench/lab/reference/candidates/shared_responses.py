"""Responses in a cache service, Redis or Valkey, for all workers of one database: `respond_from_redis`.

The key of a response is made of the request, the variant and the revision of the data, which each request reads in its
own snapshot. The response to a key never changes, so nothing is invalidated: the service evicts the oldest responses.
If there is no revision or the service does not respond, the response is computed.
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
"""The time after which a response expires in the cache service."""


def respond_from_redis(compute: Callable[[], Body], connection: Connection, key: Any, cache_url: str) -> Body:
    """Return the body that the service at *cache_url* has for the connection's snapshot, or compute and store it.

    One round trip to the database.
    key: all on which the body depends except the data, of types that msgspec can encode.
    """
    engine = connection.engine
    shared = _RESPONSES.of(engine, lambda: SharedResponses(engine.url, CacheService(cache_url)))
    return shared.respond(compute, connection, key)


class CacheService:
    """A client of a Redis or Valkey; after an error, which is logged once, it sends nothing for 5 s."""

    def __init__(self, url: str, clock: Callable[[], float] = monotonic) -> None:
        """url: redis://:PASSWORD@HOST:PORT; the first command connects. Raises ValueError for an invalid URL."""
        # One retry without a pause, since a pooled connection may be older than a restart of the service.
        once_more = Retry(NoBackoff(), 1)
        self._client = Redis.from_url(
            url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, retry=once_more, protocol=2
        )
        self._clock = clock
        self._failed_at: float | None = None

    @property
    def is_up(self) -> bool:
        """Whether the service should be used: it has not failed within the last 5 s."""
        return self._failed_at is None or self._clock() >= self._failed_at + _DOWN_FOR_S

    def get(self, key: str) -> bytes | None:
        """Return the value of *key*; None if there is none or the service fails."""
        found: bytes | None = self._run(self._client.get, key)
        return found

    def keep(self, key: str, value: bytes) -> None:
        """Store *value* under *key* for `_LIFETIME_S`; do nothing if the service fails."""
        self._run(self._client.set, key, value, ex=_LIFETIME_S)

    def agree(self, key: str, value: bytes) -> bytes:
        """Store *value* unless *key* has a value, and return the stored one; return *value* if the service fails."""
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
    """An entry of the change log that all users of a cache service share: the service stores the entry's id.

    The key of the first entry is made of the database's URL, that of each further entry of the id of the entry that it
    replaces.
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
        connection.execute(text("SELECT placebench_revision(NULL)"))  # fails on a log that is too old for revisions
        own = super()._register(connection)
        return own and self._service.agree(name, own.encode()).decode()


class SharedResponses:
    """The responses of one database in a cache service; all threads of a process share this object."""

    def __init__(self, url: URL, service: CacheService, clock: Callable[[], float] = monotonic) -> None:
        """url: the URL of the database; no connection is opened before the first response."""
        self._service = service
        self._lease = _SharedLease(url, service, clock)
        self._lock = Lock()  # protects the lease
        self._seen: PgSnapshot | None = None

    def respond(self, compute: Callable[[], Body], connection: Connection, key: Any) -> Body:
        """Return the body that is stored for *key* and the connection's snapshot, or compute and store it."""
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
        """Return the key of the response in the service; None if the response cannot be stored there."""
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
