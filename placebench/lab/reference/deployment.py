"""Makes the application that environment variables describe, ready to be forked: `make_application`.

The docstring of `wsgi.py` lists the variables.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from wsgiref.types import WSGIApplication

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

import placebench
from placebench.errors import DatabaseError, MissingExtraError, PlacebenchError, ProfilerError, ServerError
from placebench.lab.reference.api.compression import chunk_responses, compress_responses
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.domain.settings import read_choice, read_settings
from placebench.lab.reference.variants import Interface, ReferenceVariant, default_variant, variant
from placebench.telemetry import Telemeter

_DEFAULT_POOL_SIZE: Final = "10"
_RENEWED_EVERY_S: Final = 10


def load_application(interface: Interface) -> tuple[WSGIApplication, Engine]:
    """Return the application that `os.environ` describes and its engine, for a server of this interface.

    If the environment has an error, exit with one line on stderr.
    """
    try:
        chosen = _variant(os.environ)
        if chosen.interface != interface:
            served = chosen.serving["module"]
            raise ServerError(f"the variant {chosen.name} is for {chosen.interface.upper()}: serve {served}")
        engine = make_engine(os.environ)
        return make_application(os.environ, engine), engine
    except PlacebenchError as error:
        sys.exit(f"placebench: {error}")


def make_application(environment: Mapping[str, str], engine: Engine | None = None) -> WSGIApplication:
    """Return the application that these variables describe, on *engine* or else on a new one from `make_engine`.

    Raises a PlacebenchError for the first variable that cannot be used.
    """
    chosen, engine, readers = _variant(environment), engine or make_engine(environment), None
    if url := environment.get("PLACEBENCH_READER_URL"):
        # Connections to replicas are renewed, so that a replica that was down is used again.
        reading = {**environment, "PLACEBENCH_DATABASE_URL": url}
        readers = make_engine(reading, pool_recycle=_RENEWED_EVERY_S)
    folder = environment.get("PLACEBENCH_TELEMETRY")
    telemeter = Telemeter(folder, engine=engine) if folder else None
    settings = read_settings(environment)
    if chosen.cache_server:
        from placebench.lab.reference.candidates.shared_responses import CacheService

        try:
            CacheService(settings.cache_url)
        except ValueError as error:
            raise ServerError("PLACEBENCH_CACHE_URL: expected redis://HOST:PORT of a Redis or Valkey") from error
    served = make_app(engine, chosen.name, settings, readers=readers)
    app = _with_profiler(served, engine, environment, telemeter)
    if read_choice(environment, "PLACEBENCH_COMPRESS", ("0", "1")) == "1":
        app = compress_responses(app)
    if _renew_after_fork([engine, *filter(None, [readers])], telemeter):
        app = chunk_responses(app)
    chosen.implementations.collector()
    chosen.worker.heap()
    chosen.worker.gc_frequency()
    return app if telemeter is None else telemeter.wsgi(app)


def _variant(environment: Mapping[str, str]) -> ReferenceVariant:
    name = environment.get("PLACEBENCH_VARIANT")
    if not name:
        name = default_variant(_url(environment.get("PLACEBENCH_DATABASE_URL", "")).get_backend_name())
    return variant(name)


def make_engine(environment: Mapping[str, str], **more: Any) -> Engine:
    """Return an engine with the variant's driver and pool; connect nowhere yet.

    more: further arguments of `create_engine`.
    """
    text = environment.get("PLACEBENCH_POOL_SIZE") or _DEFAULT_POOL_SIZE
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ServerError(f"PLACEBENCH_POOL_SIZE: expected a number from 1, got {text!r}")
    worker = _variant(environment).worker
    url = worker.driver(_url(environment.get("PLACEBENCH_DATABASE_URL", "")))
    try:
        if _variant(environment).interface == "asgi":
            from sqlalchemy.ext.asyncio import create_async_engine  # takes 2 MB, which WSGI does not need

            return create_async_engine(url, pool_pre_ping=worker.ping, **worker.pool(int(text)), **more).sync_engine
        return create_engine(url, pool_pre_ping=worker.ping, **worker.pool(int(text)), **more)
    except NoSuchModuleError as error:
        raise DatabaseError(
            f"PLACEBENCH_DATABASE_URL: there is no driver {url.drivername!r}: expected postgresql://…"
        ) from error
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error}: it comes with pip install 'placebench[bench]'") from error


def _url(text: str) -> URL:
    if not text:
        raise DatabaseError("PLACEBENCH_DATABASE_URL is not set: expected postgresql://USER@HOST/DATABASE")
    try:
        return make_url(text)
    except ArgumentError as error:
        raise DatabaseError("PLACEBENCH_DATABASE_URL: expected postgresql://USER@HOST/DATABASE") from error


def _with_profiler(
    app: WSGIApplication, engine: Engine, environment: Mapping[str, str], telemeter: Telemeter | None
) -> WSGIApplication:
    """Return the app, with every request profiled if PLACEBENCH_PROFILE is set.

    Profiles go to files in PLACEBENCH_PROFILE_DIR; if there is a *telemeter*, it gets every statement.
    """
    mode, folder = environment.get("PLACEBENCH_PROFILE", ""), environment.get("PLACEBENCH_PROFILE_DIR", "")
    if not mode:
        return app
    if not folder and telemeter is None:
        raise ServerError(f"PLACEBENCH_PROFILE_DIR is not set: PLACEBENCH_PROFILE={mode} needs a folder to write to")
    # By attribute: the package loads the profiler on first use, so only an app that is profiled pays for it.
    profiler = placebench.SqlProfiler(engine, application=["placebench/lab/reference"])
    if telemeter is not None:
        profiler.listen(telemeter)
    try:
        profiled: WSGIApplication = profiler.wsgi(app, folder=Path(folder) if folder else None, mode=mode)
    except ProfilerError as error:
        raise ServerError(f"PLACEBENCH_PROFILE: {error}") from error
    return profiled


def _renew_after_fork(engines: Sequence[Engine], telemeter: Telemeter | None) -> bool:
    """Return whether uWSGI runs this process; if so, register a hook that runs in each worker after the fork.

    The hook gives the worker an empty pool, without closing the master's connections, and starts its telemetry, since
    threads of the master do not survive a fork.
    """
    try:
        import uwsgi
    except ImportError:
        return False

    def renew() -> None:
        for engine in engines:
            engine.dispose(close=False)
        if telemeter is not None:
            telemeter.begin()

    uwsgi.post_fork_hook = renew
    return True
