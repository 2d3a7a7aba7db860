"""The reference service as a WSGI application. The key piece is `make_app`."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from sqlalchemy import Engine
from werkzeug import Request

from placebench.errors import VariantError
from placebench.reference.call import BODY_LIMIT, Call
from placebench.reference.database import Database
from placebench.reference.journey import travel
from placebench.reference.settings import DEFAULTS, Settings
from placebench.reference.variants import variant


def make_app(engine: Engine, variant_name: str, settings: Settings = DEFAULTS) -> WSGIApplication:
    """The service over this engine's database, answering candidates in the named variant; makes no connection.

    Raises VariantError with the names that exist, and for a variant that this database cannot have; MissingExtraError
    for one that needs a package.
    """
    chosen = variant(variant_name)
    if chosen.postgresql_only and engine.dialect.name != "postgresql":
        raise VariantError(
            f"the variant {variant_name} is for PostgreSQL, but the database is of {engine.dialect.name}"
        )
    database = Database(engine, chosen.ways.transaction)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        request.max_content_length = BODY_LIMIT
        return travel(Call(request, database, chosen, settings))(environ, start_response)

    return app
