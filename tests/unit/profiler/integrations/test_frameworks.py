"""Web frameworks whose import is hooked: each request is a recording, beside what sqlite3 traced.

Each application is on the real package, and none of them knows of the profiler.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from kept_recordings import Kept

from placebench.http_session import Request
from placebench.profiler.integrations.frameworks import record_frameworks
from placebench.profiler.integrations.in_process_client import in_process_client
from placebench.profiler.integrations.process_profiler import process_profiler

pytestmark = pytest.mark.usefixtures("nothing_is_lost")


def send(application: Any, *requests: str) -> None:
    """Send requests to an application, without a server."""
    with in_process_client(application) as client:
        for each in requests:
            client.send(Request.parse(each))


def imported(name: str) -> Any:
    """Import a framework, or skip the test."""
    return pytest.importorskip(name)


def test_flask(kept: Kept, query: Callable[[int], None]) -> None:
    """Its routes, also of a blueprint, a page that is not there, an error, and what streams."""
    flask = imported("flask")
    app = flask.Flask("shop")
    blueprint = flask.Blueprint("items", "items", url_prefix="/items")

    @app.get("/orders/<int:number>")
    def order(number: int) -> str:
        query(number)
        return "order"

    @blueprint.post("/<name>")
    def item(name: str) -> Any:
        query(1)
        return flask.Response((query(1) or "part" for _ in range(2)), status=201)

    @app.get("/fails")
    def fails() -> str:
        query(1)
        raise ZeroDivisionError

    app.register_blueprint(blueprint)
    send(app, "/orders/3", "POST /items/chair", "/fails", "/nothing/4")

    assert {
        ("GET /orders/<int:number>", "/orders/<int:number>", 200, 3),
        ("POST /items/<name>", "/items/<name>", 201, 3),
        ("GET /fails", "/fails", 500, 1),
        ("GET /nothing/4", None, 404, 0),
    } == kept.requests()


def test_bottle(kept: Kept, query: Callable[[int], None]) -> None:
    """Its routes, and those of an application that is mounted in another."""
    bottle = imported("bottle")
    app, inner = bottle.Bottle(), bottle.Bottle()

    @app.get("/orders/<number:int>")
    def order(number: int) -> str:
        query(number)
        return "order"

    @inner.get("/items/<name>")
    def item(name: str) -> str:
        query(1)
        return "item"

    app.mount("/shop/", inner)
    send(app, "/orders/2", "/shop/items/chair", "/nothing")

    assert {
        ("GET /orders/<number:int>", "/orders/<number:int>", 200, 2),
        ("GET /shop/items/<name>", "/shop/items/<name>", 200, 1),
        ("GET /nothing", None, 404, 0),
    } == kept.requests()


def test_falcon(kept: Kept, query: Callable[[int], None]) -> None:
    """Its resources, under WSGI and under ASGI."""
    falcon = imported("falcon")
    asgi = imported("falcon.asgi")

    class Order:
        def on_get(self, _request: Any, response: Any, number: str) -> None:
            query(int(number))
            response.status = falcon.HTTP_202

    class AwaitedOrder:
        async def on_get(self, _request: Any, _response: Any, number: str) -> None:
            query(int(number))

    app, awaited = falcon.App(), asgi.App()
    app.add_route("/orders/{number}", Order())
    awaited.add_route("/awaited/{number}", AwaitedOrder())
    send(app, "/orders/2", "/nothing")
    send(awaited, "/awaited/3", "/nothing")

    assert {
        ("GET /orders/{number}", "/orders/{number}", 202, 2),
        ("GET /awaited/{number}", "/awaited/{number}", 200, 3),
        ("GET /nothing", None, 404, 0),
    } == kept.requests()
    assert 4 == len(kept.recordings)


def test_pyramid(kept: Kept, query: Callable[[int], None]) -> None:
    """Its routes, and a path that no route has."""
    config = imported("pyramid.config")
    response = imported("pyramid.response")

    def order(request: Any) -> Any:
        query(int(request.matchdict["number"]))
        return response.Response("order")

    with config.Configurator() as configurator:
        configurator.add_route("order", "/orders/{number}")
        configurator.add_view(order, route_name="order")
        app = configurator.make_wsgi_app()
    send(app, "/orders/2", "/nothing")

    assert {
        ("GET /orders/{number}", "/orders/{number}", 200, 2),
        ("GET /nothing", None, 404, 0),
    } == kept.requests()


def test_fastapi_in_starlette(kept: Kept, query: Callable[[int], None]) -> None:
    """An application that is mounted in another is recorded once, with the path that it is mounted at."""
    fastapi = imported("fastapi")
    starlette = imported("starlette.applications")
    routing = imported("starlette.routing")
    responses = imported("starlette.responses")
    inner = fastapi.FastAPI()

    @inner.get("/orders/{number}")
    def order(number: int, tasks: fastapi.BackgroundTasks) -> int:
        query(number)
        tasks.add_task(mail, 2)
        tasks.add_task(mail, 1)
        return number

    def mail(count: int) -> None:
        query(count)

    async def item(request: Any) -> Any:
        query(1)
        return responses.PlainTextResponse("item", status_code=203)

    app = starlette.Starlette(routes=[routing.Route("/items/{name}", item), routing.Mount("/shop", inner)])
    send(app, "/items/chair", "/shop/orders/3", "/nothing")

    name = f"{__name__}.mail"
    assert {
        ("GET /items/{name}", "/items/{name}", 203, 1),
        ("GET /shop/orders/{number}", "/shop/orders/{number}", 200, 3),
        (name, name, None, 2),
        (name, name, None, 1),
        ("GET /nothing", None, 404, 0),
    } == kept.requests()
    by_cause = {each.cause for each in kept.recordings if each.kind == "background"}
    assert by_cause == {each.identifier for each in kept.recordings if each.route == "/shop/orders/{number}"}


def test_a_lifespan_and_a_task_that_it_starts(kept: Kept, query: Callable[[int], None]) -> None:
    """Startup and shutdown are recordings; a task that startup leaves behind is one that startup has caused."""
    fastapi = imported("fastapi")
    context = imported("contextlib")
    started = asyncio.Event()

    async def poll() -> None:
        await started.wait()
        query(3)

    @context.asynccontextmanager
    async def lifespan(_app: Any) -> Any:
        query(1)
        task = asyncio.create_task(poll())
        yield
        started.set()
        await task
        query(2)

    app = fastapi.FastAPI(lifespan=lifespan)
    send(app, "/nothing")

    assert {
        ("lifespan", "lifespan.startup", 1),
        ("request", "GET /nothing", 0),
        ("background", f"{__name__}.poll", 3),
        ("lifespan", "lifespan.shutdown", 2),
    } == {(each.kind, each.name, each.statement_count) for each in kept.recordings}
    (task,) = (each for each in kept.recordings if each.kind == "background")
    assert task.cause == kept.recordings[0].identifier


def test_litestar(kept: Kept, query: Callable[[int], None]) -> None:
    """Its routes, and background tasks after the response."""
    litestar = imported("litestar")
    background = imported("litestar.background_tasks")

    async def mail(count: int) -> None:
        query(count)

    @litestar.get("/orders/{number:int}", sync_to_thread=True)
    def order(request: litestar.Request) -> None:
        query(request.path_params["number"])

    @litestar.post("/items/{name:str}")
    async def item() -> Any:
        query(1)
        return litestar.Response("item", background=background.BackgroundTask(mail, 2))

    send(litestar.Litestar([order, item]), "/orders/3", "POST /items/chair", "/nothing")

    name = f"{__name__}.mail"
    assert {
        ("GET /orders/{number}", "/orders/{number}", 200, 3),
        ("POST /items/{name}", "/items/{name}", 201, 1),
        (name, name, None, 2),
        ("GET /nothing", None, 404, 0),
    } == kept.requests()


def test_aiohttp(kept: Kept, query: Callable[[int], None]) -> None:
    """Its routes, also of a sub-application, errors, a stream, and each message of a WebSocket."""
    web = imported("aiohttp.web")
    utils = imported("aiohttp.test_utils")

    async def order(request: Any) -> Any:
        query(int(request.match_info["number"]))
        return web.Response(status=202)

    async def stream(request: Any) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2):
            query(1)
            await response.write(b"part")
        return response

    async def missing(_request: Any) -> Any:
        query(1)
        raise web.HTTPGone

    async def talk(request: Any) -> Any:
        talking = web.WebSocketResponse()
        await talking.prepare(request)
        query(1)
        async for message in talking:
            query(int(message.data))
            await talking.send_str("done")
        return talking

    async def visit() -> None:
        app, inner = web.Application(), web.Application()
        app.add_routes([web.get("/orders/{number}", order), web.get("/gone", missing), web.get("/ws/{room}", talk)])
        inner.add_routes([web.get("/stream", stream)])
        app.add_subapp("/inner", inner)
        async with utils.TestClient(utils.TestServer(app)) as client:
            for path in ("/orders/3", "/gone", "/inner/stream", "/nothing"):
                await (await client.get(path)).read()
            async with client.ws_connect("/ws/blue") as talking:
                for count in ("2", "3"):
                    await talking.send_str(count)
                    assert "done" == await talking.receive_str()

    asyncio.run(visit())

    assert {
        ("GET /orders/{number}", "/orders/{number}", 202, 3),
        ("GET /gone", "/gone", 410, 1),
        ("GET /inner/stream", "/inner/stream", 200, 2),
        ("GET /nothing", None, 404, 0),
        ("WEBSOCKET /ws/{room}", "/ws/{room}", 101, 1),
        ("WEBSOCKET /ws/{room}", "/ws/{room}", None, 2),
        ("WEBSOCKET /ws/{room}", "/ws/{room}", None, 3),
    } == kept.requests()


def test_sanic(kept: Kept, query: Callable[[int], None]) -> None:
    """Its routes under its own server, errors, and each message of a WebSocket."""
    sanic = imported("sanic")
    aiohttp = imported("aiohttp")
    app = sanic.Sanic("shop", configure_logging=False)

    @app.get("/orders/<number:int>")
    async def order(_request: Any, number: int) -> Any:
        query(number)
        return sanic.text("order", status=202)

    @app.get("/fails")
    async def fails(_request: Any) -> Any:
        query(1)
        raise sanic.NotFound

    @app.websocket("/ws/<room>")
    async def talk(_request: Any, talking: Any, room: str) -> None:
        query(1)
        async for message in talking:
            query(int(message))
            await talking.send("done")

    async def visit() -> None:
        app.config.MOTD = False
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = await app.create_server(sock=listening, return_asyncio_server=True)
            await server.startup()
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with aiohttp.ClientSession(address) as client:
                for path in ("/orders/3", "/fails", "/nothing"):
                    await (await client.get(path)).read()
                async with client.ws_connect("/ws/blue") as talking:
                    for count in ("2", "3"):
                        await talking.send_str(count)
                        assert "done" == await talking.receive_str()
            await server.close()

    asyncio.run(visit())
    sanic.Sanic._app_registry.clear()

    assert {
        ("GET /orders/<number:int>", "/orders/<number:int>", 202, 3),
        ("GET /fails", "/fails", 404, 1),
        ("GET /nothing", None, 404, 0),
        ("WEBSOCKET /ws/<room:str>", "/ws/<room:str>", 101, 1),
        ("WEBSOCKET /ws/<room:str>", "/ws/<room:str>", None, 2),
        ("WEBSOCKET /ws/<room:str>", "/ws/<room:str>", None, 3),
    } == kept.requests()


def test_an_application_inside_of_a_profiled_one_is_recorded_once(kept: Kept, query: Callable[[int], None]) -> None:
    """A server's wrapper knows no route: the framework inside names the recording."""
    fastapi = imported("fastapi")
    flask = imported("flask")
    app, page = fastapi.FastAPI(), flask.Flask("shop")

    @app.get("/orders/{number}")
    async def order(number: int) -> None:
        query(number)

    @page.get("/pages/<int:number>")
    def show(number: int) -> str:
        query(number)
        return "page"

    recorder = process_profiler()
    send(recorder.asgi(app), "/orders/2")
    send(recorder.wsgi(page), "/pages/3")

    assert [] == kept.recordings
    assert [("GET /orders/{number}", 2), ("GET /pages/<int:number>", 3)] == [
        (each.name, each.statement_count) for each in recorder.recordings
    ]
    kept.recordings += recorder.recordings


def test_a_framework_that_is_not_as_expected(caplog: pytest.LogCaptureFixture, query: Callable[[int], None]) -> None:
    """One line says so, the application goes on, and other frameworks are recorded."""
    strange = ModuleType("bottle")
    strange.__dict__["__version__"] = "0.5"
    flask = imported("flask")
    app = flask.Flask("shop")
    kept = Kept()
    with pytest.MonkeyPatch.context() as patched, caplog.at_level(logging.WARNING, "placebench.profiler"):
        patched.setitem(sys.modules, "bottle", strange)
        hooks = record_frameworks(process_profiler(), kept, "light")
    send(app, "/nothing")
    hooks.remove()

    assert ["bottle 0.5 is not recorded"] == [each.split(":")[0] for each in caplog.messages]
    assert ["GET /nothing"] == [each.name for each in kept.recordings]


def test_removed_hooks_leave_the_frameworks_as_they_were(kept: Kept, query: Callable[[int], None]) -> None:
    """Their functions are those from before."""
    flask = imported("flask")
    background = imported("starlette.background")
    during = flask.Flask.__call__, background.BackgroundTask.__call__
    hooks = record_frameworks(process_profiler(), kept, "light")
    within = flask.Flask.__call__, background.BackgroundTask.__call__
    hooks.remove()

    assert (flask.Flask.__call__, background.BackgroundTask.__call__) == during
    assert not {id(each) for each in during} & {id(each) for each in within}
