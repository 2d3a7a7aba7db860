"""Telemetry of ASGI applications as uvicorn serves them: FastAPI, and applications without a framework."""

import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from placebench.telemetry import Telemetry, load

SERVE = """
import os, socket, sys, uvicorn
from placebench.telemetry import Telemeter

telemeter = Telemeter(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
{application}
uvicorn.Server(uvicorn.Config(application, log_level="critical")).run(sockets=[listener])
"""
FASTAPI = """
import asyncio
from contextlib import asynccontextmanager
from fastapi import APIRouter, BackgroundTasks, FastAPI
from fastapi.responses import StreamingResponse
from placebench import SqlProfiler
from sqlalchemy import create_engine, text
from sqlalchemy.pool import StaticPool

@asynccontextmanager
async def lifespan(app):
    yield

app = FastAPI(lifespan=lifespan)
router = APIRouter(prefix="/shops/{shop}")

@router.get("/orders/{number:int}")
@telemeter.handler
async def order(shop: str, number: int):
    await asyncio.sleep(0.02)
    return {"number": number}

@router.get("/plain")
@telemeter.handler
def plain(shop: str):
    return {}

@router.get("/untimed")
async def untimed(shop: str):
    return {}

@router.get("/stream")
async def stream(shop: str):
    async def parts():
        for _ in range(3):
            await asyncio.sleep(0.01)
            yield "."
    return StreamingResponse(parts())

@router.get("/background")
async def background(shop: str, tasks: BackgroundTasks):
    tasks.add_task(asyncio.sleep, 0.3)
    return {}

@router.get("/broken")
async def broken(shop: str):
    raise KeyError("bug")

@router.get("/rows")
async def rows(shop: str, tasks: BackgroundTasks):
    def read():
        with engine.connect() as connection:
            return connection.execute(text("SELECT 1")).scalar_one()
    tasks.add_task(read)
    return read()

app.include_router(router)
engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
profiler = SqlProfiler(engine)
profiler.listen(telemeter)
application = telemeter.asgi(profiler.asgi(app))
"""
PLAIN = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise ValueError("not served")
    if scope["path"] == "/broken":
        raise KeyError("bug")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"well"})

application = telemeter.asgi(app)
"""
ECHO = """
async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        await receive()
        message = await receive()
        await send({"type": "websocket.send", "text": message["text"]})
        await send({"type": "websocket.close"})
        return
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})

application = telemeter.asgi(app)
"""


@contextmanager
def served(application: str, folder: Path, *, ended_by: signal.Signals = signal.SIGINT) -> Iterator[int]:
    """The port at which uvicorn serves the application until the end of the block."""
    for name in ("uvicorn", "fastapi"):
        pytest.importorskip(name)
    program = [sys.executable, "-c", SERVE.format(application=application), str(folder)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.send_signal(ended_by)


def ask(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    """The status and the body of a GET request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    found = response.status, response.read()
    connection.close()
    return found


def rows(telemetry: Telemetry, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of the durations, sorted."""
    return sorted(tuple(row) for row in telemetry.durations[list(columns)].to_numpy())


@pytest.fixture(scope="module")
def of_fastapi(tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    """A request to each route of the FastAPI application, which ends by SIGTERM, as in a container."""
    folder = tmp_path_factory.mktemp("telemetry")
    with served(FASTAPI, folder, ended_by=signal.SIGTERM) as port:
        assert ask(port, "/shops/berlin/orders/17", x_placebench_request="42") == (200, b'{"number":17}')
        assert ask(port, "/shops/berlin/stream") == (200, b"...")
        assert [ask(port, f"/shops/berlin/{name}")[0] for name in ("plain", "untimed", "background")] == [200] * 3
        assert ask(port, "/shops/berlin/broken")[0] == 500
        assert ask(port, "/shops/berlin/rows") == (200, b"1")
        assert ask(port, "/nowhere/12")[0] == 404
    return load(folder)


@pytest.mark.long
def test_fastapi_gets_a_server_series_by_route(of_fastapi: Telemetry) -> None:
    """Parameters of the path have their names, prefixes of routers included; a path without a route has its pattern."""
    server = of_fastapi.durations.query("series == 'server'")

    assert sorted(zip(server["path"], server["status"], strict=True)) == [
        ("/nowhere/<id>", "404"),
        ("/shops/<shop>/background", "200"),
        ("/shops/<shop>/broken", "500"),
        ("/shops/<shop>/orders/<number>", "200"),
        ("/shops/<shop>/plain", "200"),
        ("/shops/<shop>/rows", "200"),
        ("/shops/<shop>/stream", "200"),
        ("/shops/<shop>/untimed", "200"),
    ]
    assert of_fastapi.truncated == 0


def test_handlers_are_timed_in_the_loop_and_in_threads(of_fastapi: Telemetry) -> None:
    """`telemeter.handler` gives handler and framework, which together are no longer than the request."""
    by_path = of_fastapi.durations.pivot_table(index="path", columns="series", values="duration_s", observed=True)
    timed = by_path[["server", "framework", "handler"]].dropna()

    assert sorted(timed.index) == ["/shops/<shop>/orders/<number>", "/shops/<shop>/plain"]
    assert timed["handler"]["/shops/<shop>/orders/<number>"] >= 0.02
    assert (timed["framework"] + timed["handler"] <= timed["server"]).all()
    assert (timed["framework"] > 0).all()


def test_a_request_lasts_until_its_last_byte_and_no_longer(of_fastapi: Telemetry) -> None:
    """A streamed body counts, a background task does not."""
    server = of_fastapi.durations.query("series == 'server'").set_index("path")["duration_s"]

    assert server["/shops/<shop>/stream"] >= 0.03
    assert server["/shops/<shop>/background"] < 0.3


def test_statements_belong_to_the_request_that_ran_them(of_fastapi: Telemetry) -> None:
    """The profiler below hands them over; that of the background task, after the response, is not among them."""
    assert of_fastapi.durations.query("series == 'statement'")["path"].tolist() == ["/shops/<shop>/rows"]


def test_the_number_of_the_client_is_kept(of_fastapi: Telemetry) -> None:
    """A client that times requests too is matched by it."""
    assert set(of_fastapi.durations.query("request == 42")["path"]) == {"/shops/<shop>/orders/<number>"}


def test_an_application_without_a_framework_is_timed_too(tmp_path: Path) -> None:
    """An error is passed on to the server, which responds with 500, and the row has the name of the error."""
    with served(PLAIN, tmp_path) as port:
        assert ask(port, "/orders/17") == (200, b"well")
        assert ask(port, "/broken")[0] == 500

    assert rows(load(tmp_path), "series", "path", "status") == [
        ("server", "/broken", "KeyError"),
        ("server", "/orders/<id>", "200"),
    ]


def test_websockets_and_the_figures_of_the_process_are_there(tmp_path: Path) -> None:
    """A WebSocket is passed on and leaves no row; the process has its memory, CPU and threads."""
    websockets = pytest.importorskip("websockets.sync.client")
    with served(ECHO, tmp_path) as port:
        assert ask(port, "/")[0] == 204
        with websockets.connect(f"ws://127.0.0.1:{port}/echo") as connection:
            connection.send("well")
            assert connection.recv() == "well"
    telemetry = load(tmp_path)

    assert rows(telemetry, "series", "path") == [("server", "/")]
    assert {"rss_bytes", "cpu_user_s", "threads"} <= set(telemetry.runtime["name"])
