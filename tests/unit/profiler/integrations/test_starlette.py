"""The middleware on real applications of FastAPI and Starlette."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

fastapi = pytest.importorskip("fastapi")

from fastapi.responses import StreamingResponse  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.middleware import Middleware  # noqa: E402
from starlette.responses import PlainTextResponse  # noqa: E402
from starlette.routing import Mount, Route  # noqa: E402

from placebench.http_session import Request  # noqa: E402
from placebench.profiler.integrations.in_process_client import Response, in_process_client  # noqa: E402
from placebench.profiler.integrations.process_profiler import process_profiler  # noqa: E402
from placebench.profiler.integrations.starlette import StarletteMiddleware  # noqa: E402


def responses(application: Any, *requests: str) -> list[Response]:
    """Those of the application, without a server."""
    with in_process_client(application) as client:
        return [client.send(Request.parse(each)) for each in requests]


def recorded() -> list[tuple[str, int]]:
    """Name and number of statements of each recording."""
    return [(each.name, each.statement_count) for each in process_profiler().recordings]


def test_a_recording_says_which_request_it_is(query: Callable[[int], None]) -> None:
    """Its kind, route, status and start, and an identifier of its own."""
    app = fastapi.FastAPI()
    app.add_middleware(StarletteMiddleware)

    @app.get("/orders/{number}", status_code=202)
    async def order(number: int) -> int:
        query(number)
        return number

    before = time.time()
    responses(app, "GET /orders/1", "GET /orders/2")
    first, second = process_profiler().recordings

    assert ("request", "/orders/{number}", 202, "") == (first.kind, first.route, first.status, first.cause)
    assert before <= first.started_at <= second.started_at <= time.time()
    assert 16 == len(first.identifier)
    assert first.identifier != second.identifier


def test_each_request_to_fastapi_is_recorded_under_its_route(query: Callable[[int], None]) -> None:
    """Views in the thread pool, async ones, those of a router, streamed responses; validation errors too."""
    app = fastapi.FastAPI()
    app.add_middleware(StarletteMiddleware)
    router = fastapi.APIRouter(prefix="/items")

    @app.get("/orders/{number}")
    def order(number: int) -> int:
        query(number)
        return number

    @router.get("/{number}")
    async def item(number: int) -> int:
        await asyncio.sleep(0)
        query(number)
        return number

    @app.get("/stream")
    def stream() -> StreamingResponse:
        def parts() -> Iterator[str]:
            for _ in range(3):
                query(1)
                yield "x"

        return StreamingResponse(parts())

    app.include_router(router)
    sent = responses(app, "GET /orders/3", "GET /items/2", "GET /stream", "GET /orders/x", "GET /none")

    assert [200, 200, 200, 422, 404] == [each.status for each in sent]
    assert [b"3", b"2", b"xxx"] == [each.body for each in sent[:3]]
    assert [
        ("GET /orders/{number}", 3),
        ("GET /items/{number}", 2),
        ("GET /stream", 3),
        ("GET /orders/{number}", 0),
        ("GET /none", 0),
    ] == recorded()


def test_each_request_to_starlette_is_recorded_under_its_route(query: Callable[[int], None]) -> None:
    """In a mounted application too; a request that fails is recorded with its error."""

    async def order(request: Any) -> PlainTextResponse:
        query(int(request.path_params["number"]))
        return PlainTextResponse("an order")

    async def fail(request: Any) -> None:
        query(1)
        raise ZeroDivisionError

    routes = [Route("/orders/{number}", order), Mount("/inner", routes=[Route("/fail", fail)])]
    app = Starlette(routes=routes, middleware=[Middleware(StarletteMiddleware)])
    responses(app, "GET /orders/3")
    with pytest.raises(ZeroDivisionError):
        responses(app, "GET /inner/fail")

    assert [("GET /orders/{number}", 3), ("GET /inner/fail", 1)] == recorded()
    assert [None, "ZeroDivisionError"] == [each.error for each in process_profiler().recordings]


def test_statements_name_their_route_and_endpoint(query: Callable[[int], None], sent: list[str]) -> None:
    """If it is wanted: of FastAPI in its thread pool, of a mounted Starlette; what runs before the router has none."""
    app = fastapi.FastAPI()

    @app.get("/orders/{number}")
    def order(number: int) -> int:
        query(1)
        return number

    async def item(_request: Any) -> PlainTextResponse:
        query(1)
        return PlainTextResponse("item")

    app.mount("/shop", Starlette(routes=[Route("/items/{number}", item)]))

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            query(1)
        await app(scope, receive, send)

    responses(StarletteMiddleware(outer, comments=True), "GET /orders/1", "GET /shop/items/2")

    assert sent == [
        "select 0",
        "select 0 /*controller='order',route='/orders/{number}'*/",
        "select 0",
        "select 0 /*controller='item',route='/shop/items/{number}'*/",
    ]


def test_jobs_without_a_copy_of_the_context_name_the_request(query: Callable[[int], None]) -> None:
    """`run_in_executor` makes none and has its own recording; `asyncio.to_thread` and FastAPI's pool belong to it."""
    app = fastapi.FastAPI()
    app.add_middleware(StarletteMiddleware)

    @app.get("/")
    async def view() -> None:
        query(1)
        await asyncio.to_thread(query, 2)
        await asyncio.get_running_loop().run_in_executor(None, query, 3)

    responses(app, "/")

    job, request = process_profiler().recordings
    assert (3, 0, "request", "") == (request.statement_count, request.missed, request.kind, request.cause)
    assert (3, 0, "background", request.identifier) == (job.statement_count, job.missed, job.kind, job.cause)


def test_a_websocket_beside_a_request_is_recorded(query: Callable[[int], None]) -> None:
    """The handshake and each message, which the handshake has caused, of a real connection of Starlette's."""
    testclient = pytest.importorskip("starlette.testclient")
    app = fastapi.FastAPI()
    app.add_middleware(StarletteMiddleware)
    is_queried = threading.Event()

    @app.websocket("/ws/{room}")
    async def connection(websocket: fastapi.WebSocket, room: str) -> None:
        await websocket.accept()
        query(1)
        for count in (2, 3):
            await websocket.receive_text()
            query(count)
        is_queried.set()
        await websocket.close()

    @app.get("/")
    def view() -> None:
        query(1)
        for _ in range(2):
            socket.send_text("now")
        assert is_queried.wait(30)

    with testclient.TestClient(app) as client, client.websocket_connect("/ws/blue") as socket:
        assert client.get("/").status_code == 200

    requests = [each for each in process_profiler().recordings if each.kind == "request"]
    handshake, *messages = (each for each in process_profiler().recordings if each.kind == "websocket")
    assert [("GET /", 1, 0, ())] == [(each.name, each.statement_count, each.missed, each.notes) for each in requests]
    assert (101, 1, "") == (handshake.status, handshake.statement_count, handshake.cause)
    assert [(2, handshake.identifier), (3, handshake.identifier)] == [
        (each.statement_count, each.cause) for each in messages
    ]
    assert {("WEBSOCKET /ws/{room}", "/ws/{room}")} == {(each.name, each.route) for each in (handshake, *messages)}


def test_what_a_request_leaves_behind_names_it(query: Callable[[int], None]) -> None:
    """A background task, a task of asyncio, a thread and a job are recordings of their own, each once."""
    app = fastapi.FastAPI()
    app.add_middleware(StarletteMiddleware)
    left: list[asyncio.Task[None]] = []
    responded = asyncio.Event()
    threads: list[threading.Thread] = []

    async def audit() -> None:
        await responded.wait()
        query(3)
        await asyncio.to_thread(query, 1)

    async def mail() -> None:
        query(2)
        responded.set()
        await asyncio.gather(*left)
        for thread in threads:
            await asyncio.to_thread(thread.join)

    @app.post("/orders/{number}")
    async def order(number: int, tasks: fastapi.BackgroundTasks) -> None:
        query(1)
        tasks.add_task(mail)
        left.append(asyncio.create_task(audit()))
        threads.append(threading.Thread(target=query, args=(5,)))
        threads[0].start()

    responses(app, "POST /orders/7")

    request = next(each for each in process_profiler().recordings if each.kind == "request")
    others = [each for each in process_profiler().recordings if each is not request]
    assert ("POST /orders/{number}", 1, 0) == (request.name, request.statement_count, request.missed)
    assert {("background", request.identifier)} == {(each.kind, each.cause) for each in others}
    module = __name__
    assert {
        "POST /orders/{number}, after the response": 2,
        f"{module}.audit": 4,
        f"{type(query).__module__}.Query": 5,
    } == {each.name: each.statement_count for each in others}
