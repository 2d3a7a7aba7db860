"""A request and what the steps of the pipeline have read from it: `Call`, the argument of each handler."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl
from uuid import uuid4

import orjson
from werkzeug import Request, Response
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from placebench.lab.reference.api.microversion import Microversion
from placebench.lab.reference.domain.problems import BadRequest, ContentTooLarge, UnsupportedMediaType
from placebench.lab.reference.domain.settings import ServiceSettings
from placebench.lab.reference.store.database import Database
from placebench.lab.reference.variants import ReferenceVariant

JSON: Final = "application/json"
BODY_LIMIT: Final = 64 * 1024 * 1024

Handler = Callable[..., Response]


@dataclass(slots=True)
class Call:
    """A request, with the database, variant and settings to serve it; steps of the pipeline set the other fields."""

    request: Request
    database: Database
    variant: ReferenceVariant
    settings: ServiceSettings
    request_id: str = field(default_factory=lambda: f"req-{uuid4()}")
    version: Microversion | None = None
    handler: Handler | None = None
    names: dict[str, str] = field(default_factory=dict)
    roles: frozenset[str] = frozenset()  # roles of which the route requires one
    held_roles: Sequence[str] = ()
    dated: bool = False  # whether even a response without a document has a date

    @property
    def minor(self) -> int:
        """The minor part of the requested microversion: 39 for 1.39."""
        assert self.version is not None, "the microversion is read before the handler is called"
        return self.version.minor

    @property
    def prefix(self) -> str:
        """The path at which the application is mounted, with which the links in documents begin."""
        return self.request.root_path.rstrip("/")

    def body(self) -> Any:
        """Return the JSON value in the body.

        Raises UnsupportedMediaType if the content type is not JSON, ContentTooLarge for a body over `BODY_LIMIT`, and
        BadRequest if the body is truncated or not valid JSON.
        """
        if self.request.mimetype != JSON:
            raise UnsupportedMediaType(f"content-type: expected {JSON}, got {self.request.mimetype or 'none'}")
        try:
            return orjson.loads(self.request.get_data(cache=False))
        except RequestEntityTooLarge as error:
            raise ContentTooLarge(f"the body may have {BODY_LIMIT} bytes at most") from error
        except (ClientDisconnected, OSError) as error:  # uWSGI raises the latter
            length = self.request.content_length
            raise BadRequest(f"the body breaks off: expected the {length} bytes of content-length") from error
        except orjson.JSONDecodeError as error:
            raise BadRequest(f"the body is not JSON: {error}") from error

    def parameters(self, allowed: Collection[str]) -> dict[str, list[str]]:
        """Return the values of each query parameter, in their order.

        Raises BadRequest for a parameter that is not *allowed*, for a NUL, and if the query string is not UTF-8.
        """
        try:
            # A semicolon also separates parameters, as in WebOb, which Placement uses.
            text = self.request.query_string.decode().replace(";", "&")
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
        except ValueError as error:
            raise BadRequest(f"the query string is not UTF-8 in percent-encoding: {error}") from error
        found: dict[str, list[str]] = {}
        for name, value in pairs:
            if name not in allowed:
                raise BadRequest(f"unknown query parameter {name!r}: expected one of {', '.join(sorted(allowed))}")
            if "\0" in value:
                raise BadRequest(f"query parameter {name}: a NUL character is in it")
            found.setdefault(name, []).append(value)
        return found
