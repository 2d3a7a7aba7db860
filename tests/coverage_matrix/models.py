"""Runs the job of one driver four times in each of some ways: `models.py MODULE.CLASS MODE MODEL…`.

The first line of stdin has the settings; the last line of stdout has the results of the jobs.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if "gevent" in sys.argv:
    import gevent.monkey

    gevent.monkey.patch_all()
if "eventlet" in sys.argv:
    warnings.simplefilter("ignore")
    import eventlet

    eventlet.monkey_patch()

warnings.simplefilter("ignore")
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
JOBS = range(4)
_POLL_S = 0.05


def by_threads() -> list[Any]:
    import jobs

    found: list[Any] = []
    threads = [threading.Thread(target=lambda number=number: found.append(jobs.run(number))) for number in JOBS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def by_thread_pool() -> list[Any]:
    import jobs

    with ThreadPoolExecutor(2) as executor:
        return list(executor.map(jobs.run, JOBS))


def by_asyncio() -> list[Any]:
    import jobs

    async def work() -> list[Any]:
        run: Any = jobs.run_awaited if jobs.driver.awaited else lambda number: asyncio.to_thread(jobs.run, number)
        return list(await asyncio.gather(*(run(number) for number in JOBS)))

    return asyncio.run(work())


def by_gevent() -> list[Any]:
    import gevent
    import jobs

    if jobs.driver.awaited:  # one event loop, in a greenlet
        return list(gevent.spawn(by_asyncio).get())
    spawned = [gevent.spawn(jobs.run, number) for number in JOBS]
    gevent.joinall(spawned, raise_error=True)
    return [each.value for each in spawned]


def by_eventlet() -> list[Any]:
    import eventlet
    import jobs

    if jobs.driver.awaited:  # one event loop, in a greenlet
        return list(eventlet.spawn(by_asyncio).wait())
    return [each.wait() for each in [eventlet.spawn(jobs.run, number) for number in JOBS]]


def by_processes(method: str) -> list[Any]:
    import multiprocessing

    import jobs

    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(jobs.run, JOBS, chunksize=1)


def by_server(*command: str) -> list[Any]:
    """Ask a server for one response after the other, from four threads."""

    from placebench.runtime.ports import free_port

    port = free_port()
    command = tuple(word.replace("PORT", str(port)) for word in command)
    with running(*command), ThreadPoolExecutor(4) as executor:

        def respond(number: int) -> Any:
            while True:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{number}", timeout=60) as response:
                        return json.loads(response.read())
                except ConnectionRefusedError:
                    time.sleep(_POLL_S)
                except urllib.error.URLError as error:
                    if not isinstance(error.reason, ConnectionRefusedError):
                        raise
                    time.sleep(_POLL_S)

        found = list(executor.map(respond, JOBS))
        return with_recordings(found)


def by_celery() -> list[Any]:
    import jobs
    from celery_application import application

    folder = Path(jobs.settings["folder"])
    with running("-m", "celery", "-A", "celery_application", "worker", "-P", "prefork", "-c", "2", "-l", "WARNING"):
        for number in JOBS:
            application.send_task("job", [number])
        while len(results := sorted(folder.glob("result-*.json"))) < len(JOBS):
            time.sleep(_POLL_S)
        return with_recordings([json.loads(each.read_text()) for each in results])


def with_recordings(found: list[Any]) -> list[Any]:
    """The results of jobs with the recordings that an integration has saved, once there is one for each job."""
    import jobs
    from program import summary_of

    from placebench.profiler import Recording

    folder = Path(jobs.settings["folder"], "recordings")
    while len(files := [each for each in sorted(folder.glob("*.json")) if "flame" not in each.name]) < len(JOBS):
        time.sleep(_POLL_S)
    recorded = [summary_of(Recording.load(file)) for file in files]
    return [each | {"recorded": summary} for each, summary in zip(found, recorded, strict=True)]


@contextmanager
def running(*command: str) -> Iterator[None]:
    """A program that runs beside, with the settings in its environment; it is ended with the block."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.DEVNULL, stderr=sys.stderr, cwd=HERE
    ) as process:
        try:
            yield
        finally:
            process.terminate()


def by_parent() -> list[Any]:
    """Record where the processes are started, and not in them."""
    import multiprocessing

    import jobs

    with jobs.profiler.record("parent") as recording, multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(jobs.run_unrecorded, JOBS, chunksize=1)
    return [one_result(recording, found)]


_IN_AN_INTERPRETER = """
import json, sys, threading, types
sys.path[:0] = {path!r}
sys.modules["place"] = module = types.ModuleType("place")
module.__getattr__ = lambda _: lambda *_: None
import {module}
place = types.SimpleNamespace(url={url!r}, traced={traced!r})
driver = {driver}()
found = driver.finish(driver.job(place))
for thread in threading.enumerate()[1:]:
    thread.join()
with open({file!r}, "w") as opened:
    json.dump([found, place.traced], opened)
"""


def by_interpreters() -> list[Any]:
    """Record the main interpreter, while others run the job, without this package: they may not load its libraries."""
    import jobs

    # Those of mod_wsgi: others may not start the threads and programs that drivers need.
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters

        options = {"config": "legacy"}
    else:
        import _xxsubinterpreters as interpreters

        options = {"isolated": False}
    from place import trace_counts

    found, driver = list[Any](), jobs.settings["driver"]
    with jobs.profiler.record("main") as recording:
        for number in JOBS:
            file = str(Path(jobs.settings["folder"], f"interpreter-{number}.json"))
            traced = [] if jobs.settings.get("in_process") else None
            words = {"path": sys.path, "module": driver.partition(".")[0], "driver": driver, "file": file}
            words |= {"url": jobs.settings.get("url"), "traced": traced}
            interpreter = interpreters.create(**options)
            failure = interpreters.run_string(interpreter, _IN_AN_INTERPRETER.format(**words))
            interpreters.destroy(interpreter)
            if failure is not None:
                raise RuntimeError(failure.formatted)
            handed_out, traced = json.loads(Path(file).read_text())
            counted = None if traced is None else trace_counts(traced)
            found.append({"counted": counted, "handed_out": handed_out})
    return [one_result(recording, found)]


def one_result(recording: Any, found: list[Any]) -> dict[str, Any]:
    """The results of all jobs as those of one recording."""
    from program import summary_of

    counted = None
    if found[0]["counted"] is not None:
        counted = {"statements": sum(each["counted"]["statements"] for each in found), "rows": None}
    handed_out = sum(each["handed_out"] for each in found)
    return {"recorded": summary_of(recording), "counted": counted, "handed_out": handed_out, "process": os.getpid()}


MODELS: dict[str, Callable[[], list[Any]]] = {
    "threads": by_threads,
    "thread pool": by_thread_pool,
    "asyncio": by_asyncio,
    "gevent": by_gevent,
    "eventlet": by_eventlet,
    "fork": lambda: by_processes("fork"),
    "spawn": lambda: by_processes("spawn"),
    "forkserver": lambda: by_processes("forkserver"),
    "celery": by_celery,
    "gunicorn": lambda: by_server(
        *("-m", "gunicorn", "--preload", "-w", "2", "-b", "127.0.0.1:PORT", "--log-level", "error"),
        "web_application:application",
    ),
    "uwsgi": lambda: by_server(
        *("-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", str(Path(sys.executable).parent / "uwsgi")),
        *("--http-socket", "127.0.0.1:PORT", "--master", "--processes", "2", "--need-app", "--enable-threads"),
        *("--disable-logging", "--die-on-term", "--wsgi-file", str(HERE / "web_application.py")),
    ),
    "parent": by_parent,
    "sub-interpreters": by_interpreters,
}


def main() -> None:
    """Run the jobs in each way, and print their results with what a witness has counted of all of them."""
    driver, mode, *models = sys.argv[1:]
    settings = json.loads(sys.stdin.readline())
    done = {}
    with tempfile.TemporaryDirectory() as top:
        os.environ["COVERAGE_MATRIX"] = json.dumps(settings | {"folder": top, "driver": driver, "mode": mode})
        import jobs
        from place import ask

        for model in models:
            folder = Path(top, model)
            folder.mkdir()
            jobs.settings.update(jobs.driver.prepared_settings(settings | {"folder": str(folder)}))
            os.environ["COVERAGE_MATRIX"] = json.dumps(jobs.settings)
            if model in jobs.driver.impossible:
                done[model] = {"not_run": jobs.driver.impossible[model]}
                continue
            ask("mark")
            try:
                found = MODELS[model]()
                done[model] = {"jobs": found, "counted": ask("read")}
            except Exception as error:  # noqa: BLE001  the reason stands in the table
                lines = [line for line in str(error).splitlines() if line.strip()]
                text = f"{type(error).__name__}: {lines[-1].strip() if lines else ''}"
                # The error of a sub-interpreter is within another one.
                done[model] = {"not_run": re.sub(r"^\w+: <class '(\w+)'>", r"\1", text).rstrip(".")}
    print(json.dumps({"done": done}))


if __name__ == "__main__":
    main()
