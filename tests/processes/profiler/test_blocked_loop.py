"""Event loops of real servers that stand still: the line, and who waited, agree with what others count.

Only stretches as long as the programs make them are compared: on a busy machine the start of a thread or a few lines of
Python may hold a loop for 50 ms too.
"""

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

_APPLICATION = """
import sqlite3, sys, time
from placebench.profiler import SqlProfiler
{imports}
def held(_value):
    print("held", flush=True)
    return sys.stdin.readline()
async def report(request):
    connection = sqlite3.connect(":memory:")
    connection.create_function("held", 1, held)
    connection.execute("select held(1)").fetchall()
    return PlainTextResponse("")
async def health(request):
    return PlainTextResponse("")
routes = [Route("/report", report), Route("/health", health)]
application = SqlProfiler.for_drivers("sqlite3").asgi(Starlette(routes=routes), mode="full", folder=sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
server = uvicorn.Server(uvicorn.Config(application, log_level="critical", lifespan="off", loop={loop!r}))
server.run(sockets=[listener])
"""
_IMPORTS = """
import socket, uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_request_that_waited_for_a_blocked_server_is_named(tmp_path: Path, loop: str) -> None:
    """It came by another connection while a statement of sqlite3 held the loop, after a tenth of a second.

    asyncio's own loop tells how long it has waited; of another one this is not more than the whole block.
    """
    for name in ("uvicorn", "starlette", loop):
        pytest.importorskip(name)
    program = _APPLICATION.format(imports=_IMPORTS, loop=loop)
    (tmp_path / "served.py").write_text(program)
    command = [sys.executable, str(tmp_path / "served.py"), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        # What is done once, such as imports, may hold the loop too: then nobody is late for what came before.
        with connection(port, "/unknown") as unknown:
            assert status(unknown) == 404
        with connection(port, "/report") as report:
            assert server.stdout.readline() == "held\n"
            time.sleep(0.1)
            with connection(port, "/health") as health:
                time.sleep(0.1)
                server.stdin.write("go on\n")
                server.stdin.flush()
                assert (status(report), status(health)) == (200, 200)
        server.terminate()
        server.communicate(timeout=30)
    recordings = {each["name"]: each for each in map(json.loads, map(Path.read_text, tmp_path.glob("*.json")))}

    (block,) = (block for block in recordings["GET /report"]["loop_blocks"] if block["elapsed_s"] > 0.2)
    assert (block["cause"], block["sql"], block["caller"][2], block["loop"]) == (
        "statement",
        "select held(?)",
        "report",
        loop,
    )
    ((who, seconds, is_exact),) = block["late"]
    assert (who, is_exact) == ("GET /health", loop == "asyncio")
    assert 0.09 < seconds <= block["elapsed_s"] - (0.09 if is_exact else 0)
    assert [block for block in recordings["GET /health"].get("loop_blocks", ()) if block["elapsed_s"] > 0.2] == []


def connection(port: int, path: str) -> socket.socket:
    """A connection that has sent a request."""
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
    return made


def status(made: socket.socket) -> int:
    """The status of the response."""
    return int(made.makefile("rb").readline().split()[1])


_DEBUGGED = """
import asyncio, json, logging, random, sqlite3, sys, time
from placebench.profiler import SqlProfiler
lines = []
logging.getLogger("asyncio").addHandler(logging.StreamHandler(sys.stderr))
profiler = SqlProfiler.for_drivers("sqlite3")
held = []
def slow(seconds):
    time.sleep(seconds)
async def request(number):
    with profiler.record(str(number), mode="light") as recording:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.create_function("slow", 1, slow)
        def query(seconds):
            connection.execute("select slow(?)", (seconds,)).fetchall()
        choose = random.Random(number)
        for _ in range(4):
            seconds = choose.choice((0.005, 0.02, 0.15, 0.25))
            how = choose.choice((query, slow, "thread", "sleep"))
            held.append(how in (query, slow) and seconds >= 0.15)
            if how == "thread":
                await asyncio.to_thread(query, seconds)
            elif how == "sleep":
                await asyncio.sleep(seconds)
            else:
                how(seconds)
                await asyncio.sleep(0)
    return recording
async def main():
    asyncio.get_running_loop().slow_callback_duration = 0.05
    return await asyncio.gather(*map(request, range(8)))
recordings = asyncio.run(main(), debug=True)
print(json.dumps([sum(held), [block.elapsed_s for each in recordings for block in each.loop_blocks]]))
"""


def test_blocks_are_the_slow_callbacks_of_asyncio_in_debug_mode() -> None:
    """Each as long, among statements and pauses on the loop, in threads and awaited: one for each of 150 ms or more."""
    child = subprocess.run([sys.executable, "-c", _DEBUGGED], capture_output=True, text=True, timeout=120, check=True)
    logged = sorted(float(each) for each in re.findall(r"^Executing .* took ([\d.]+) seconds", child.stderr, re.M))
    held, blocks = json.loads(child.stdout)

    # On a busy machine other callbacks take 50 ms too, and are waits for a processor, which only asyncio counts.
    assert held > 5
    assert sorted(blocks)[-held:] == pytest.approx(logged[-held:], abs=0.050)


_BESIDE_A_THREAD = """
import asyncio, json, sqlite3, threading, time
from placebench.profiler import SqlProfiler
ready, begin, released, ended = (threading.Event() for _ in range(4))
def query():
    connection = sqlite3.connect(":memory:")
    connection.create_function("wait", 0, released.wait)
    ready.set()
    begin.wait()
    connection.execute("select wait()").fetchall()
    ended.set()
async def view():
    waits = asyncio.create_task(asyncio.to_thread(query))
    await asyncio.to_thread(ready.wait)
    begin.set()
    time.sleep(0.5)
    released.set()
    ended.wait()
    await waits
profiler = SqlProfiler.for_drivers("sqlite3")
with profiler.record("view") as recording:
    asyncio.run(view())
held = [block for block in recording.loop_blocks if block.elapsed_s >= 0.5]
print(json.dumps([[block.cause, block.caller.function] for block in held]))
"""


def test_a_statement_of_another_thread_is_not_what_holds_the_loop(tmp_path: Path) -> None:
    """It runs at the same time, and in the same recording, as what does."""
    (tmp_path / "program.py").write_text(_BESIDE_A_THREAD)
    command = [sys.executable, str(tmp_path / "program.py")]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    assert json.loads(child.stdout) == [["call", "view"]]


_GREENLETS = """
import warnings
warnings.simplefilter("ignore")
{patch}
import ctypes, json, sqlite3
from placebench.profiler import SqlProfiler
profiler = SqlProfiler.for_drivers("sqlite3")
wait = ctypes.CDLL(None).usleep
def view(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/statement":
        connection = sqlite3.connect(":memory:")
        connection.create_function("slow", 1, lambda seconds: wait(int(seconds * 1e6)))
        connection.execute("select slow(0.2)").fetchall()
    elif path == "/computation":
        wait(200_000)
    else:
        pause(0.05)
    return [b""]
application = profiler.wsgi(view)
def request(path):
    application({{"PATH_INFO": path, "REQUEST_METHOD": "GET"}}, None)
for path in ("/statement", "/computation", "/yields"):
    each = [spawn(request, "/other"), spawn(request, path)]
    join(each)
    pause(0.05)
print(json.dumps([
    [each.name, block.cause, block.loop, [who for who, *_ in block.late]]
    for each in profiler.recordings for block in each.loop_blocks if block.elapsed_s >= 0.2
]))
"""
_RUN = {
    "gevent": """
import gevent.monkey
gevent.monkey.patch_all()
import gevent
spawn, pause, join = gevent.spawn, gevent.sleep, gevent.joinall
""",
    "eventlet": """
import eventlet
eventlet.monkey_patch()
spawn, pause, join = eventlet.spawn, eventlet.sleep, lambda each: [one.wait() for one in each]
""",
}


@pytest.mark.parametrize("library", _RUN)
def test_a_hub_that_is_held_is_named_with_who_waited(library: str) -> None:
    """By a driver that does not yield, and by a computation; a greenlet that sleeps holds nothing."""
    pytest.importorskip(library)
    program = _GREENLETS.format(patch=_RUN[library])
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert json.loads(child.stdout) == [
        ["GET /statement", "statement", library, ["GET /other"]],
        ["GET /computation", "call", library, ["GET /other"]],
    ]


_TRIO = """
import json, time, trio
from placebench.profiler import SqlProfiler
profiler = SqlProfiler.for_drivers("sqlite3")
async def application(scope, receive, send):
    if scope["path"] == "/computes":
        time.sleep(0.2)
    else:
        await trio.sleep(0.05)
    await send({"type": "http.response.body", "body": b""})
profiled = profiler.asgi(application)
async def send(message):
    pass
async def main():
    async with trio.open_nursery() as nursery:
        for path in ("/other", "/computes"):
            nursery.start_soon(profiled, {"type": "http", "method": "GET", "path": path}, None, send)
    await trio.sleep(0.1)
trio.run(main)
print(json.dumps([
    [each.name, block.cause, block.loop, [who for who, *_ in block.late]]
    for each in profiler.recordings for block in each.loop_blocks if block.elapsed_s >= 0.2
]))
"""


def test_a_loop_of_trio_that_is_held_is_named_with_who_waited() -> None:
    """An instrument of trio tells when a task's step begins and ends."""
    pytest.importorskip("trio")
    child = subprocess.run([sys.executable, "-c", _TRIO], capture_output=True, text=True, timeout=60, check=True)

    assert json.loads(child.stdout) == [["GET /computes", "call", "trio", ["GET /other"]]]
