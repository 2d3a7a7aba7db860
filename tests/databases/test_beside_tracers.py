"""The profiler beside OpenTelemetry's instrumentation of the drivers and sentry-sdk: both see every statement."""

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_version import since_2_0

from placebench.profiler import Recording, SqlProfiler

pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
_TIMES = 10


@pytest.fixture(scope="module")
def spans() -> Any:
    """OpenTelemetry's spans, kept in memory."""
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry import trace as api
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    api.set_tracer_provider(provider)
    return exporter


def use_psycopg(url: str) -> None:
    """Ten statements by the function of the module and ten by the class."""
    for connect in (psycopg.connect, psycopg.Connection.connect):
        with connect(url) as connection, connection.cursor() as cursor:
            for _ in range(_TIMES // 2):
                cursor.execute("select 1").fetchall()


def use_psycopg_async(url: str) -> None:
    """Ten statements."""

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            for _ in range(_TIMES):
                await (await connection.cursor().execute("select 1")).fetchall()

    asyncio.run(work())


def use_psycopg2(url: str) -> None:
    """Ten statements."""
    connection = psycopg2.connect(url)
    cursor = connection.cursor()
    for _ in range(_TIMES):
        cursor.execute("select 1")
        cursor.fetchall()
    connection.close()


def use_asyncpg(url: str) -> None:
    """Ten statements."""

    async def work() -> None:
        connection = await asyncpg.connect(url)
        for _ in range(_TIMES):
            await connection.fetch("select 1")
        await connection.close()

    asyncio.run(work())


def use_sqlite3(_url: str) -> None:
    """Ten statements."""
    cursor = sqlite3.connect(":memory:").cursor()
    for _ in range(_TIMES):
        cursor.execute("select 1").fetchall()


_USES = {
    "psycopg": use_psycopg,
    "psycopg_async": use_psycopg_async,
    "psycopg2": use_psycopg2,
    "asyncpg": use_asyncpg,
    "sqlite3": use_sqlite3,
}


def instrumentor(driver: str) -> Any:
    """OpenTelemetry's of this driver."""
    package = driver.removesuffix("_async")
    module = pytest.importorskip(f"opentelemetry.instrumentation.{package}")
    name = {"asyncpg": "AsyncPG", "sqlite3": "SQLite3"}.get(package, package.capitalize())
    return getattr(module, f"{name}Instrumentor")()


def functions_of_drivers() -> list[Any]:
    """All functions that make connections; of class methods, what they call."""
    methods = (vars(owner)["connect"] for owner in (psycopg.Connection, psycopg.AsyncConnection))
    return [
        *(getattr(each, "__func__", each) for each in methods),
        *(psycopg.connect, psycopg2.connect, psycopg2._connect),
        *(asyncpg.connect_utils._connect, asyncpg.Connection.fetch, sqlite3.connect, sqlite3.dbapi2.connect),
    ]


class Both:
    """The tracer and the profiler, each of which can be there or not."""

    def __init__(self, driver: str) -> None:
        self._instrumentor = instrumentor(driver)
        self.profiler: SqlProfiler | None = None
        self.is_traced = False

    def switch_tracer(self) -> None:
        """On or off."""
        self.is_traced = not self.is_traced
        (self._instrumentor.instrument if self.is_traced else self._instrumentor.uninstrument)()

    def switch_profiler(self) -> None:
        """On or off."""
        if self.profiler is None:
            self.profiler = SqlProfiler.for_drivers()
        else:
            self.profiler.remove()
            self.profiler = None


@pytest.mark.parametrize("driver", _USES)
def test_both_see_all_while_they_are_there_and_the_driver_is_its_own_afterwards(
    driver: str, url: str, spans: Any
) -> None:
    """In each of the four orders of coming and going."""
    both, before = Both(driver), functions_of_drivers()
    switches: tuple[Callable[[], None], ...] = both.switch_tracer, both.switch_profiler
    failures = []

    for comes, goes in itertools.product(itertools.permutations(switches), repeat=2):
        order = [each.__name__ for each in (*comes, *goes)]
        for switch in (*comes, *goes):
            switch()
            spans.clear()
            recorded = run_recorded(both.profiler, _USES[driver], url)
            traced = [each for each in spans.get_finished_spans() if each.name.lower().startswith("select")]
            expected = _TIMES * both.is_traced, _TIMES * (both.profiler is not None)
            if (len(traced), recorded) != expected:
                failures.append((order, switch.__name__, len(traced), recorded, expected))
        if functions_of_drivers() != before:
            failures.append((order, "the driver is not as it was"))

    assert not failures


def run_recorded(profiler: SqlProfiler | None, use: Callable[[str], None], url: str) -> int:
    """Use a driver, and return how many statements were recorded."""
    if profiler is None:
        use(url)
        return 0
    with profiler.record("use") as recording:
        use(url)
    assert (recording.failed_hooks, recording.missed) == ((), 0)
    return len(recording.statements)


@pytest.fixture(params=["sentry first", "profiler first"])
def beside_sentry(request: pytest.FixtureRequest) -> Iterator[tuple[SqlProfiler, list[Any]]]:
    """A profiler and what sentry-sdk sends, which patches asyncpg for good."""
    sentry_sdk = pytest.importorskip("sentry_sdk")
    from sentry_sdk.integrations.asyncpg import AsyncPGIntegration

    sent: list[Any] = []

    def keep(event: Any, _hint: Any) -> None:
        sent.append(event)

    first = SqlProfiler.for_drivers() if request.param == "profiler first" else None
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:1/1",
        traces_sample_rate=1.0,
        before_send_transaction=keep,
        default_integrations=False,
        auto_enabling_integrations=False,
        integrations=[AsyncPGIntegration()],
    )
    profiler = first or SqlProfiler.for_drivers()
    yield profiler, sent
    profiler.remove()
    sentry_sdk.get_client().close()
    sentry_sdk.init(default_integrations=False, auto_enabling_integrations=False)


def test_sentry_and_the_profiler_see_all(beside_sentry: tuple[SqlProfiler, list[Any]], url: str) -> None:
    """asyncpg's statements."""
    import sentry_sdk

    profiler, sent = beside_sentry
    recording: Recording
    with sentry_sdk.start_transaction(name="use"), profiler.record("use") as recording:
        use_asyncpg(url)

    spans = [each for each in sent[0]["spans"] if each["description"] == "select 1"]
    assert (len(spans), len(recording.statements)) == (_TIMES, _TIMES)


@since_2_0
def test_a_statement_of_sqlalchemy_beside_sentry_is_one(
    beside_sentry: tuple[SqlProfiler, list[Any]], database_url: str
) -> None:
    """Sentry's functions are between its adapter and asyncpg."""
    beside_sentry[0].remove()
    profiler = SqlProfiler()

    async def work() -> None:
        engine = create_async_engine(make_url(database_url).set(drivername="postgresql+asyncpg"))
        async with engine.connect() as connection:
            for _ in range(_TIMES):
                await connection.execute(text("select 1"))
        await engine.dispose()

    with profiler.record("use") as recording:
        asyncio.run(work())
    profiler.remove()

    assert [each.row_count for each in recording.statements] == [1] * _TIMES
