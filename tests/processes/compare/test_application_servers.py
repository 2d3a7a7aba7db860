import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from placebench.compare.measure.counted_pass import failures_with_log
from placebench.compare.what.http_request import get
from placebench.errors import LoadError, MissingExtraError, ServerError
from placebench.meters.processes import read_tree_cpu_s
from placebench.runtime import application_servers, running_server
from placebench.runtime.application_servers import serve, with_server
from placebench.runtime.running_server import RunningServer, ServerSpec
from placebench.runtime.uwsgi import UwsgiServer, uwsgi_program

Served = Callable[..., RunningServer]


def until(true: Callable[[], bool]) -> None:
    """Wait for what another process does: 30 s at most, since a busy machine takes long."""
    give_up_at = time.monotonic() + 30
    while not true():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_answers_from_this_environment_until_it_is_stopped(served: Served) -> None:
    """`serve` returns when GET / is answered, by workers with our packages; after `stop` no process is left."""
    server = served(processes=2, threads=2)
    until(lambda: len(server.worker_pids()) == 2)  # the first one responds while the second is still to come
    pids = [server.pid, *server.worker_pids()]

    assert get(server.url, "/").body.decode() == sys.prefix
    server.stop()
    assert [alive(pid) for pid in pids] == [False, False, False]


def test_workers_that_are_still_starting_are_stopped_at_once(served: Served) -> None:
    """A stop right after the start does not wait for uWSGI's mercy, although workers may miss its signal."""
    server = served(processes=4, grace_s=1000.0)
    before = time.monotonic()
    server.stop()

    assert time.monotonic() - before < 60


def test_a_server_that_still_loads_its_application_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without workers has no request in flight and ignores signals, so it is killed without a grace period."""
    monkeypatch.setattr(UwsgiServer, "_grace_s", 1000.0)
    (tmp_path / "slow_app.py").write_text("import time\nopen('loads', 'w').close()\ntime.sleep(1000)\n")
    environment = {"PYTHONPATH": str(tmp_path)}
    spec = ServerSpec(database_url="none", module="slow_app:application", folder=tmp_path, environment=environment)
    server = UwsgiServer(spec)
    until((tmp_path / "loads").exists)
    before = time.monotonic()
    server.stop()

    assert time.monotonic() - before < 60
    assert not alive(server.pid)


def test_requests_in_flight_are_answered_before_the_end(served: Served) -> None:
    """A request that is asleep when the server is told to stop gets its whole response."""
    server = served(threads=2)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(get, server.url, "/work?sleep=0.7&size=2500000")
        until(lambda: get(server.url, "/counts").body == b"1 1")
        server.stop()

    assert (200, 2_500_000) == (slow.result().status, len(slow.result().body))


@pytest.mark.parametrize("length", [20_000, 32_000])
def test_a_long_query_arrives_whole(served: Served, length: int) -> None:
    """Queries of up to 32 KB reach the service."""
    server = served()

    assert get(server.url, "/query?" + "a" * length).body == str(length).encode()


def test_the_environment_reaches_the_service(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spec's variables are there; UWSGI_* of this process, which uWSGI reads as options, are not."""
    monkeypatch.setenv("UWSGI_PROCESSES", "3")
    environment = {"PYTHONPATH": str(Path(__file__).parent), "PYTHONHASHSEED": "7"}
    server = served(variant="naive", threads=12, environment=environment)

    names = ("PYTHONHASHSEED", "PLACEBENCH_VARIANT", "PLACEBENCH_POOL_SIZE", "UWSGI_PROCESSES")
    assert [b"7", b"naive", b"12", b""] == [get(server.url, f"/env?name={name}").body for name in names]
    assert len(server.worker_pids()) == 1


def test_a_taken_port_is_one_line(served: Served) -> None:
    """The other server on the port answers nothing in our place."""
    other = served()
    port = int(other.url.rsplit(":", 1)[1])

    with pytest.raises(ServerError, match=rf"127\.0\.0\.1:{port}\b"):
        served(port=port)
    assert get(other.url, "/").status == 200


@pytest.mark.parametrize("server", ["gunicorn", "granian", "hypercorn", "uvicorn"])
def test_a_taken_port_is_named_whatever_the_server_calls_it(server: str, tmp_path: Path) -> None:
    """asyncio writes the system's message in lower case."""
    (tmp_path / "shop.py").write_text("async def application(scope, receive, send): raise RuntimeError\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        where = {"module": "shop:application", "folder": tmp_path, "interface": "asgi", "port": port}
        with pytest.raises(ServerError, match=f"port 127.0.0.1:{port} is taken: .* choose another one"):
            serve(ServerSpec(database_url="none", server=server, **where))


def test_an_application_that_does_not_load_is_told_with_the_end_of_the_log(served: Served) -> None:
    """The exception of the import is in the message."""
    with pytest.raises(ServerError, match=r"no_such:app .*No module named 'no_such'"):
        served(module="no_such:app")


def test_a_service_that_does_not_become_ready_is_given_up(served: Served) -> None:
    """`GET /` has to answer 200 within start_timeout_s."""
    with pytest.raises(ServerError, match=r"`GET /`.* 200 .* 0\.5 s"):
        served(module="small_app:never_ready", start_timeout_s=0.5)


@pytest.mark.parametrize(
    ("wrong", "values"),
    [
        ({"host": "no.such.host.invalid"}, r"no\.such\.host\.invalid"),
        ({"host": "192.0.2.1"}, r"192\.0\.2\.1:0; .*Cannot assign requested address"),
        ({"port": 70_000}, r"70000.* 65535"),
        ({"threads": 0}, r"\b1 processes of 0 threads"),
    ],
)
def test_an_address_that_cannot_be_served_is_one_line(served: Served, wrong: dict[str, object], values: str) -> None:
    """Each names what was seen."""
    with pytest.raises(ServerError, match=values):
        served(**wrong)


def test_a_killed_worker_is_told_although_it_was_replaced(served: Served) -> None:
    """uWSGI starts a new worker by itself; `check` says that one died."""
    server = served(processes=2)
    server.check()
    killed = server.worker_pids()[0]
    os.kill(killed, signal.SIGKILL)
    until(lambda: "Respawned" in server.log_tail())

    with pytest.raises(ServerError, match=rf"uWSGI .*pid: {killed}\) .*signal 9"):
        server.check()
    assert len(server.worker_pids()) == 2


def test_a_killed_master_is_told(served: Served) -> None:
    """With how it ended."""
    server = served()
    os.kill(server.pid, signal.SIGKILL)

    until(lambda: "-9 " in _trouble(server))
    assert server.worker_pids() == []


def _trouble(server: RunningServer) -> str:
    """What its check says; nothing before its end is known."""
    try:
        server.check()
    except ServerError as error:
        return str(error)
    return ""


def test_only_this_servers_part_of_a_log_is_read(served: Served, tmp_path: Path) -> None:
    """Servers that share a log file one after the other do not see each other's dead workers."""
    log = tmp_path / "log" / "uwsgi.log"
    first = served(log=log)
    os.kill(first.worker_pids()[0], signal.SIGKILL)
    until(lambda: "Respawned" in first.log_tail())
    first.stop()

    served(log=log).check()
    assert log.read_text().count("DAMN") == 1


@pytest.mark.long
def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    """kill -9 of a process that serves and loads ends uWSGI and locust, and removes locust's scratch folder."""
    script = """
import sys
from pathlib import Path
from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import ServerSpec

app, folder = sys.argv[1:]
server = serve(ServerSpec("none", module="small_app:application", environment={"PYTHONPATH": app}))
print(server.pid, *server.worker_pids(), flush=True)
run_load(LoadSpec(url=server.url, request="/work?sleep=0.01", time_s=60), folder=Path(folder))
"""
    arguments = [str(Path(__file__).parent), str(tmp_path)]
    with subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        until(lambda: len(list(tmp_path.glob("locust-*/samples.count"))) == 1)
        family = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()

    until(lambda: not any(alive(pid) for pid in [*pids, *(member.pid for member in family)]))
    assert len(family) >= 5  # two shepherds, uWSGI's master and worker, locust
    until(lambda: not list(tmp_path.glob("locust-*/")))


def test_a_missing_uwsgi_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither beside this Python nor on PATH."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MissingExtraError, match=rf"{tmp_path}/python .*placebench\[bench\]"):
        uwsgi_program()


ASYNCHRONOUS = """
import os, subprocess, sys

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        return
    if scope["path"] == "/work":
        subprocess.run([sys.executable, "-S", "-c", "import time\\nwhile time.process_time() < 0.2: pass"], check=True)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})

def make_app():
    return app
"""


@pytest.fixture
def of_shop(tmp_path: Path) -> Callable[..., ServerSpec]:
    """A function that makes the spec of an ASGI application, or of the small one where a module is named."""
    (tmp_path / "shop.py").write_text(ASYNCHRONOUS)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parent)])
    given = {"environment": {"PYTHONPATH": path}, "any_response_is_ready": True, "folder": tmp_path, "server": ""}
    return lambda **more: ServerSpec("none", **{"module": "shop:app", **given, **more})


@pytest.mark.parametrize(
    ("server", "module", "interface"),
    [
        ("uvicorn", "shop:make_app()", "asgi"),
        ("hypercorn", "shop:make_app()", "asgi"),
        ("granian", "shop:make_app()", "asgi"),
        ("gunicorn", "shop:make_app()", "asgi"),
        ("hypercorn", "small_app:application", "wsgi"),
        ("granian", "small_app:application", "wsgi"),
        ("gunicorn", "small_app:application", "wsgi"),
        ("mod_wsgi", "small_app:application", "wsgi"),
    ],
)
def test_an_application_is_served_by_any_server_of_its_interface(
    server: str, module: str, interface: str, of_shop: Callable[..., ServerSpec]
) -> None:
    """After `stop` no process of its tree is left, and no worker died before."""
    try:
        spec = with_server(of_shop(server=server, module=module))
    except MissingExtraError as error:
        if server != "mod_wsgi":
            raise
        pytest.skip(str(error))
    with serve(spec) as running:
        pids = running.pids()
        status = get(running.url, "/work").status if interface == "wsgi" else get(running.url, "/").status
        running.check()

    assert (spec.interface, status) == (interface, 200)
    assert [alive(pid) for pid in pids] == [False] * len(pids)


def test_the_server_is_chosen_by_the_application(of_shop: Callable[..., ServerSpec]) -> None:
    """uvicorn for ASGI and uWSGI for WSGI; a server of the other interface is refused, and a missing one is named."""
    assert (with_server(of_shop()).server, with_server(of_shop(module="small_app:application")).server) == (
        "uvicorn",
        "uwsgi",
    )
    with pytest.raises(ServerError, match=r"uwsgi .*shop:app.* ASGI"):
        with_server(of_shop(server="uwsgi"))
    with pytest.raises(ServerError, match=r"no_such:app .*No module named 'no_such'"):
        with_server(of_shop(module="no_such:app"))


def test_the_cpu_of_children_that_have_ended_counts(of_shop: Callable[..., ServerSpec]) -> None:
    """A request for which the application runs another program takes the CPU of both."""
    with serve(with_server(of_shop())) as running:
        before = read_tree_cpu_s(running.pids())
        get(running.url, "/work")
        spent = read_tree_cpu_s(running.pids()) - before

    assert spent > 0.18


CHILDREN_OF_THREADS = """
import subprocess, sys, threading, time
def start():
    subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"])
    started.wait()
started = threading.Barrier(4)
for _ in range(3):
    threading.Thread(target=start, daemon=True).start()
started.wait()
print("started", flush=True)
input()
"""


def test_the_processes_below_another_are_those_that_psutil_finds() -> None:
    """Also those that threads have started, and theirs; a process that is gone has none."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", CHILDREN_OF_THREADS]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"started\n"
            children = psutil.Process(parent.pid).children
            until(lambda: len(children(recursive=True)) == 9)
            expected = {each.pid for each in children(recursive=True)}

            assert expected == running_server._descendants(parent.pid)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)

    assert set() == running_server._descendants(parent.pid)


def test_a_command_serves_at_the_port_that_it_is_given(tmp_path: Path) -> None:
    """Ready when its path responds; all that its shell has started ends with it, and a wrong command is one line."""
    command = f"cd {tmp_path} && {sys.executable} -m http.server {{port}} --bind {{host}}; true"
    with serve(ServerSpec("none", server="command", command=command, ready="/")) as running:
        pids, status = running.pids(), get(running.url, "/").status
    with serve(ServerSpec("none", server="command", command=command)) as listening:
        assert get(listening.url, "/").status == 200

    assert (len(pids), status) == (2, 200)
    assert [alive(pid) for pid in pids] == [False, False]
    with pytest.raises(ServerError, match=r"echo no pears .*: no pears \d+"):
        serve(ServerSpec("none", server="command", command="echo no pears {port}; exit 1"))


def test_a_command_whose_own_port_is_taken_is_told_with_the_end_of_its_log() -> None:
    """The port that it was given is free, and is not called taken."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = f"{sys.executable} -m http.server {port} --bind 127.0.0.1; exit {{port}}"
        with pytest.raises(ServerError, match=r"could not serve .*the end of its log: .*Address already in use"):
            serve(ServerSpec("none", server="command", command=command))


def test_ipv6_is_served(served: Served) -> None:
    """An address with colons goes into brackets."""
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    server = served(host="::1")

    assert server.url.startswith("http://[::1]:")
    assert get(server.url, "/").status == 200


LEAVES = {
    "thread": "threading.Thread(target=threading.Event().wait).start()",
    "child": "subprocess.Popen(['sleep', SECONDS])",
    "daemon": "subprocess.Popen(['setsid', 'sleep', SECONDS])",
    "silent daemon": "subprocess.Popen(['setsid', 'sleep', SECONDS], **{name: subprocess.DEVNULL for name in STREAMS})",
    "exit hook": "atexit.register(print, 'bye')",
    "failing exit hook": "atexit.register(int, 'bye')",
    "output": "print('hello'); print('[1]', file=sys.stderr)",
    "no output": "os.close(1); os.close(2)",
    "worker process": "multiprocessing.get_context('fork').Process(target=time.sleep, args=(int(SECONDS),)).start()",
}
LEAVING = """
import atexit, multiprocessing, os, pathlib, subprocess, sys, threading, time
STREAMS = ("stdin", "stdout", "stderr")
SECONDS = "{seconds}"
{leaves}
atexit.register(pathlib.Path("exited").touch)
def application(environ, start_response): ...
"""


@pytest.mark.parametrize("leaves", LEAVES)
def test_what_an_import_leaves_neither_delays_nor_outlives_it(
    of_shop: Callable[..., ServerSpec], tmp_path: Path, leaves: str
) -> None:
    """Threads, children, daemons and output at the import; exit hooks are called, and no process is left."""
    seconds = str(317_000 + list(LEAVES).index(leaves))
    (tmp_path / "leaving.py").write_text(LEAVING.format(seconds=seconds, leaves=LEAVES[leaves]))
    found = with_server(of_shop(module="leaving:application"))

    assert (found.interface, found.server, (tmp_path / "exited").exists()) == ("wsgi", "uwsgi", True)
    assert [each.pid for each in psutil.process_iter(["cmdline"]) if seconds in (each.info["cmdline"] or [])] == []
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"shop.py", "leaving.py", "exited"}


def test_an_import_that_does_not_end_is_one_line(of_shop: Callable[..., ServerSpec], tmp_path: Path) -> None:
    """It says how long was waited, where the application was, and what to set."""
    (tmp_path / "waiting.py").write_text("import time\n\ndef connect():\n    time.sleep(317)\n\nconnect()\n")

    with pytest.raises(ServerError) as caught:
        with_server(of_shop(module="waiting:application", start_timeout_s=1.0))
    assert str(caught.value).startswith(
        f"waiting:application: importing it did not end within 1 s; it was at {tmp_path}/waiting.py:4 in connect: "
    )
    assert str(caught.value).endswith("start_timeout_s")


@pytest.mark.parametrize(
    "first", ["import os; os.close(2)", "import faulthandler; faulthandler.cancel_dump_traceback_later()"]
)
def test_an_import_that_hides_where_it_is(
    of_shop: Callable[..., ServerSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Without standard error, or without the timer that shows it, the line still says that it did not end."""
    monkeypatch.setattr(application_servers, "_IMPORT_GRACE_S", 0.5)
    (tmp_path / "waiting.py").write_text(f"import faulthandler, os, time\n{first}\ntime.sleep(317)\n")

    with pytest.raises(ServerError, match=r"^waiting:application: importing it did not end within 1 s: let it wait"):
        with_server(of_shop(module="waiting:application", start_timeout_s=1.0))


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import os; print('no licence', flush=True); os._exit(3)", "no licence"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "exit code -9"),
        ("import atexit; atexit.register(print, 'bye')\nraise ValueError('two\\nlines')", "ValueError: two lines"),
    ],
)
def test_an_import_that_fails_is_one_line(
    of_shop: Callable[..., ServerSpec], tmp_path: Path, code: str, reason: str
) -> None:
    """The reason is the exception, or else the last thing that was printed."""
    (tmp_path / "failing.py").write_text(code)

    with pytest.raises(ServerError) as caught:
        with_server(of_shop(module="failing:application"))
    assert str(caught.value) == f"failing:application cannot be imported by {sys.executable}: {reason}"


def test_a_missing_driver_says_which_variable_to_read(of_shop: Callable[..., ServerSpec], tmp_path: Path) -> None:
    """SQLAlchemy 2.1 asks for psycopg 3 where the URL names no driver."""
    (tmp_path / "failing.py").write_text("raise ModuleNotFoundError(\"No module named 'psycopg'\")")

    with pytest.raises(ServerError, match=r"No module named 'psycopg'; .* read SQLALCHEMY_DATABASE_URL"):
        with_server(of_shop(module="failing:application"))


RAISING = """
def application(environ, start_response):
    raise RuntimeError("no such shelf")
"""


def test_an_application_that_raises_in_every_request_has_started(
    of_shop: Callable[..., ServerSpec], tmp_path: Path
) -> None:
    """uWSGI closes the connection then; whoever sends requests sees it at once, with the reason in the log."""
    (tmp_path / "raising.py").write_text(RAISING)
    log = tmp_path / "server.log"
    spec = with_server(of_shop(module="raising:application", server="uwsgi", start_timeout_s=1000.0))
    with serve(replace(spec, log=log)), pytest.raises(LoadError) as caught, failures_with_log("shop", log):
        raise LoadError("2 of 2 requests failed")

    assert str(caught.value).startswith(
        "shop: 2 of 2 requests failed; the first exception in its log: RuntimeError: no such shelf; its log: "
    )


@pytest.mark.parametrize(
    "exception",
    [
        "sqlite3.OperationalError: no such table: blog_post",
        'psycopg.errors.UndefinedTable: relation "orders" does not exist',
        "pymysql.err.ProgrammingError: (1146, \"Table 'shop.orders' doesn't exist\")",
    ],
)
def test_a_missing_table_says_where_tables_come_from(exception: str, tmp_path: Path) -> None:
    """The line names the three keys."""
    log = tmp_path / "server.log"
    log.write_text(f'Traceback (most recent call last):\n  File "views.py", line 1\n{exception}\n')

    with pytest.raises(LoadError) as caught, failures_with_log("v1", log):
        raise LoadError("2 of 2 requests failed")

    made = (
        "each variant has a copy of the database that setup = 'COMMAND' or template_db = 'URL' made, changed by its "
        "own migrations with migrate = 'COMMAND'"
    )
    assert f"{exception} ({made}); its log: " in str(caught.value)


def test_an_application_that_never_gets_ready_is_one_line(of_shop: Callable[..., ServerSpec], tmp_path: Path) -> None:
    """It names the path, the time, and the two settings."""
    (tmp_path / "raising.py").write_text(RAISING)
    spec = with_server(of_shop(module="raising:application", server="uwsgi", ready="/health"))

    with pytest.raises(ServerError) as caught:
        serve(replace(spec, start_timeout_s=2.0))
    line = str(caught.value)
    assert line.startswith("`GET /health` did not respond with 200 within 2 s of the start of uWSGI: ready names ")
    assert "start_timeout_s allows more time; the end of its log: " in line
    assert line.endswith("RuntimeError: no such shelf")


def test_a_first_request_that_takes_long_is_waited_for(
    of_shop: Callable[..., ServerSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes ten times as long as the first look at the service waits."""
    monkeypatch.setattr(running_server, "_RESPONSE_LIMIT_S", 0.1)
    slow = (
        "import time\ndef application(environ, start_response):\n    time.sleep(1)\n    start_response('200 OK', [])\n"
    )
    (tmp_path / "slow.py").write_text(f"{slow}    return [b'']\n")

    with serve(of_shop(module="slow:application", server="wsgiref", ready="/", start_timeout_s=200.0)) as running:
        assert get(running.url, "/").status == 200


@pytest.mark.parametrize("server", ["uwsgi", "gunicorn"])
def test_a_daemon_of_the_application_does_not_delay_the_end(
    of_shop: Callable[..., ServerSpec], tmp_path: Path, server: str
) -> None:
    """It was started at the import, in a session of its own; it ends with the server, long before the grace is over."""
    code = LEAVING.format(seconds="317900", leaves=LEAVES["silent daemon"])
    (tmp_path / "leaving.py").write_text(code.replace("...", "start_response('200 OK', []); return []"))
    spec = with_server(of_shop(module="leaving:application", server=server))
    with serve(replace(spec, grace_s=1000.0)) as running:
        pids = running.pids()
        before = time.monotonic()
    took_s = time.monotonic() - before

    assert took_s < 200
    assert len(pids) >= 3
    assert [pid for pid in pids if alive(pid)] == []
