"""CPU and counts of one request that a tool watches. `tooled_requests.py STACK TOOL` prints JSON for a line of input.

STACK is "sqlalchemy" or "django". The request reads 50 orders and the customer of each: 51 statements, which SQLite's
trace counts too. TOOL is "none" or a name of `TOOLS`.
"""

import atexit
import json
import logging
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from wsgiref.util import setup_testing_defaults

ORDERS = 50

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
Tool = Callable[[], AbstractContextManager[Callable[[], int | None]]]
"""Watches the block; what it yields says afterwards how many statements the tool has counted, if it counts any."""

traced: list[str] = []


def main(stack: str, tool: str) -> None:
    """Make as many requests as each line of standard input says, and print what these took and what was counted."""
    logging.disable(logging.CRITICAL)
    application = STACKS[stack](tool)
    watched = TOOLS[stack][tool]
    for line in sys.stdin:
        taken = []
        for _ in range(int(line)):
            del traced[:]
            environ: dict[str, Any] = {"REMOTE_ADDR": "127.0.0.1", "HTTP_ACCEPT": "text/html"}
            setup_testing_defaults(environ)
            began = time.process_time()
            with watched() as count:
                body = b"".join(application(environ, lambda *_: None))
            taken.append(time.process_time() - began)
            assert b"customer 49" in body
        seen = len([text for text in traced if re.match("SELECT .*(sold|customer)", text, re.DOTALL)])
        print(json.dumps({"cpu_s": statistics.median(taken), "statements": count(), "traced": seen}), flush=True)
    end_of_py_spy()


# --- the two stacks


def sqlalchemy(tool: str) -> Application:
    """A WSGI function with the ORM, as an application of SQLAlchemy is written."""
    from sqlalchemy import ForeignKey, create_engine, event, select
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
    from sqlalchemy.pool import StaticPool

    class Base(DeclarativeBase):
        pass

    class Customer(Base):
        __tablename__ = "customer"
        id: Mapped[int] = mapped_column(primary_key=True)
        name: Mapped[str]

    class Sold(Base):
        __tablename__ = "sold"
        id: Mapped[int] = mapped_column(primary_key=True)
        customer_id: Mapped[int] = mapped_column(ForeignKey("customer.id"))
        customer: Mapped[Customer] = relationship()

    global engine
    engine = create_engine("sqlite://", poolclass=StaticPool)
    event.listen(engine, "connect", lambda connection, _: connection.set_trace_callback(traced.append))
    if tool in PREPARED:
        PREPARED[tool]()
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(Sold(customer=Customer(name=f"customer {number}")) for number in range(ORDERS))
        session.commit()

    def application(_environ: dict[str, Any], start_response: Any) -> list[bytes]:
        with Session(engine) as session:
            names = [sold.customer.name for sold in session.scalars(select(Sold).order_by(Sold.id))]
        start_response("200 OK", [("Content-Type", "text/html")])
        return [f"<html><body>{', '.join(names)}</body></html>".encode()]

    return application


engine: Any = None
_MIDDLEWARE = {
    "debug toolbar": "debug_toolbar.middleware.DebugToolbarMiddleware",
    "silk": "silk.middleware.SilkyMiddleware",
}
_APPS = {"debug toolbar": ["django.contrib.staticfiles", "debug_toolbar"], "silk": ["silk"]}


def django(tool: str) -> Application:
    """A project of one file, with the tool as its documentation says."""
    import django as package
    from django.conf import settings
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application
    from django.db import connection, models
    from django.http import HttpResponse
    from django.urls import include, path

    folder = tempfile.mkdtemp(prefix="tooled-")
    atexit.register(shutil.rmtree, folder)
    settings.configure(
        DEBUG=tool == "debug toolbar",
        SECRET_KEY="none",
        ALLOWED_HOSTS=["*"],
        INTERNAL_IPS=["127.0.0.1"],
        ROOT_URLCONF=__name__,
        STATIC_URL="/static/",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/data.db"}},
        MIDDLEWARE=[_MIDDLEWARE[tool]] if tool in _MIDDLEWARE else [],
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
        INSTALLED_APPS=[
            "django.contrib.contenttypes",
            "django.contrib.auth",
            "django.contrib.sessions",
            *_APPS.get(tool, []),
        ],
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    )
    package.setup()
    if tool in PREPARED:
        PREPARED[tool]()
    call_command("migrate", verbosity=0)

    class Customer(models.Model):  # type: ignore[misc]
        name = models.CharField(max_length=99)

        class Meta:
            app_label, db_table = "auth", "customer"

    class Sold(models.Model):  # type: ignore[misc]
        customer = models.ForeignKey(Customer, on_delete=models.CASCADE)

        class Meta:
            app_label, db_table = "auth", "sold"

    with connection.schema_editor() as editor:
        editor.create_model(Customer)
        editor.create_model(Sold)
    for number in range(ORDERS):
        Sold.objects.create(customer=Customer.objects.create(name=f"customer {number}"))
    connection.connection.set_trace_callback(traced.append)
    from django.core import signals
    from django.db import close_old_connections

    signals.request_finished.disconnect(close_old_connections)
    signals.request_started.disconnect(close_old_connections)

    def view(_request: Any) -> HttpResponse:
        return HttpResponse(
            f"<html><body>{', '.join(sold.customer.name for sold in Sold.objects.order_by('id'))}</body></html>"
        )

    global urlpatterns
    urlpatterns = [path("", view)]
    if tool == "debug toolbar":
        urlpatterns.append(path("__debug__/", include("debug_toolbar.urls")))
    if tool == "silk":
        urlpatterns.append(path("silk/", include("silk.urls", namespace="silk")))
    application: Application = get_wsgi_application()
    return application


urlpatterns: list[Any] = []


# --- the tools


@contextmanager
def nothing() -> Iterator[Callable[[], None]]:
    """Nothing watches."""
    yield lambda: None


_prepared: dict[str, Any] = {}


def _prepare_placebench() -> None:
    from placebench import SqlProfiler

    _prepared["profiler"] = SqlProfiler()


def placebench(mode: str) -> Tool:
    """A record around the request."""

    @contextmanager
    def watched() -> Iterator[Callable[[], int | None]]:
        with _prepared["profiler"].record("request", mode) as recording:
            yield lambda: recording.statement_count

    return watched


@contextmanager
def sqltap() -> Iterator[Callable[[], int]]:
    """A profiling session around the request."""
    from sqltap import ProfilingSession

    session = ProfilingSession(engine)
    with session:
        yield lambda: len(session.collect())


@contextmanager
def queryspy() -> Iterator[Callable[[], int]]:
    """Its record around the request."""
    from queryspy import record

    with record() as recorder:
        yield lambda: recorder.query_count


@contextmanager
def queryguard() -> Iterator[Callable[[], int]]:
    """What its fixture for pytest does around a test."""
    from pytest_queryguard import record_queries

    with record_queries() as log:
        yield lambda: log.count


def _prepare_opentelemetry() -> None:
    from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    SQLAlchemyInstrumentor().instrument(engine=engine, tracer_provider=provider, skip_dep_check=True)
    _prepared["exporter"] = exporter


@contextmanager
def opentelemetry() -> Iterator[Callable[[], int]]:
    """Spans that are kept in memory."""
    exporter = _prepared["exporter"]
    exporter.clear()
    yield lambda: sum("db.statement" in (span.attributes or {}) for span in exporter.get_finished_spans())


@contextmanager
def pyinstrument() -> Iterator[Callable[[], None]]:
    """With its default interval; nothing is rendered."""
    from pyinstrument import Profiler

    with Profiler():
        yield lambda: None


def _prepare_py_spy() -> None:
    from placebench.profiler.capture.external_sampler import find_py_spy

    command = [find_py_spy(), "record", "--pid", str(os.getpid()), "--format", "raw", "--output", os.devnull]
    spy = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert spy.stdout is not None
    spy.stdout.readline()
    _prepared["py-spy"] = spy


def end_of_py_spy() -> None:
    """End it, if it runs."""
    if (spy := _prepared.get("py-spy")) is not None:
        spy.terminate()
        spy.communicate()


@contextmanager
def debug_toolbar() -> Iterator[Callable[[], int]]:
    """By its middleware: the number of its SQL panel."""
    from debug_toolbar.toolbar import DebugToolbar

    made: list[Any] = []
    original = DebugToolbar.__init__

    def keep(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        made.append(self)

    DebugToolbar.__init__ = keep
    try:
        yield lambda: len(made[-1].get_panel_by_id("SQLPanel").get_stats()["queries"])
    finally:
        DebugToolbar.__init__ = original


@contextmanager
def silk() -> Iterator[Callable[[], int]]:
    """By its middleware: the number that it has saved."""
    from silk.models import Request

    yield lambda: Request.objects.order_by("-start_time").first().num_sql_queries


PREPARED: dict[str, Callable[[], None]] = {
    **{f"placebench, {mode}": _prepare_placebench for mode in ("light", "full", "sampled", "flame")},
    "opentelemetry": _prepare_opentelemetry,
    "py-spy": _prepare_py_spy,
}
_OURS = {f"placebench, {mode}": placebench(mode) for mode in ("light", "full", "sampled", "flame")}
TOOLS: dict[str, dict[str, Tool]] = {
    "sqlalchemy": {
        "none": nothing,
        **_OURS,
        "sqltap": sqltap,
        "queryspy": queryspy,
        "queryguard": queryguard,
        "opentelemetry": opentelemetry,
        "pyinstrument": pyinstrument,
        "py-spy": nothing,
    },
    "django": {
        "none": nothing,
        **_OURS,
        "debug toolbar": debug_toolbar,
        "silk": silk,
        "pyinstrument": pyinstrument,
        "py-spy": nothing,
    },
}
STACKS: dict[str, Callable[[str], Application]] = {"sqlalchemy": sqlalchemy, "django": django}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
