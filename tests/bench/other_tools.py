"""placebench and other tools on the same programs, each by its own command; docs/results/tools.json.

* One request under each profiler (`tooled_requests.py`): the CPU that it adds, and the statements that it counts.
* A program and the same with 5 % more work, and the program twice: the change that each tool for benchmarks reports.
* A load of four users on one server: requests per second, and the CPU of the client for each.

A tool that is not installed is left out: wrk and hyperfine are programs of the system.
"""

import argparse
import json
import random
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import tooled_requests
from raw_file import measured_here, write_raw

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "sqltap": "sqltap",
    "queryspy": "queryspy",
    "queryguard": "pytest-queryguard",
    "opentelemetry": "opentelemetry-instrumentation-sqlalchemy",
    "pyinstrument": "pyinstrument",
    "py-spy": "py-spy",
    "debug toolbar": "django-debug-toolbar",
    "silk": "django-silk",
    "pytest-benchmark": "pytest-benchmark",
    "locust": "locust",
}
WORK = """
import sys

total = 0
for number in range(int(sys.argv[1])):
    total += number * number % 7
"""
BENCHMARK = """
import pytest

def work(count):
    total = 0
    for number in range(count):
        total += number * number % 7

@pytest.mark.parametrize("count", [{first}, {second}], ids=["first", "second"])
def test_work(benchmark, count):
    benchmark.pedantic(work, args=(count,), rounds=20, warmup_rounds=1)
"""
APPLICATION = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"hello"]
"""
LOCUSTFILE = """
from locust import HttpUser, task

class User(HttpUser):
    @task
    def get(self):
        self.client.get("/")
"""
REQUESTS = 5
"""Per turn of a process."""
USERS = 4
LOAD_S = 3  # on a busy machine the first requests of locust come after a second


def bench_tools(
    arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[[Sequence[float]], str]
) -> None:
    """Measure all three, and write the raw file."""
    is_smoke = arguments.repeats < 2
    document: dict[str, Any] = {**measured_here(), "n": arguments.repeats, "versions": versions()}
    with tempfile.TemporaryDirectory(prefix="placebench-tools-") as name:
        folder = Path(name)
        document["requests"] = profiled_requests(arguments.repeats, 1 if is_smoke else 12)
        for stack, tools in document["requests"].items():
            for tool, found in tools.items():
                say(
                    f"{stack}, {tool}",
                    spread([statistics.median(turns) * 1e3 for turns in found["cpu_s"]]),
                    str(found["statements"]),
                )
        document["changes"] = changes(folder, *((1, 1, 20_000) if is_smoke else (3, 20, 500_000)))
        for tool, cases in document["changes"].items():
            say(tool, *(spread(each) for each in cases.values()))
        document["loads"] = loads(folder, arguments.repeats)
        for tool, found in document["loads"].items():
            say(tool, spread(found["per_s"]), spread(found["client_cpu_s"]))
    write_raw(arguments.out / "tools.json", document)


def versions() -> dict[str, str]:
    """Those of the tools that are here."""
    found = {}
    for tool, package in PACKAGES.items():
        try:
            found[tool] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if shutil.which("hyperfine"):
        found["hyperfine"] = output("hyperfine", "--version").split()[1]
    if shutil.which("wrk"):
        said = subprocess.run(["wrk", "--version"], capture_output=True, text=True, check=False).stdout  # exits with 1
        found["wrk"] = said.split()[1]
    return found


def output(*command: str | Path, folder: Path | None = None) -> str:
    """What a program prints. Raises CalledProcessError if it fails."""
    return subprocess.run(
        [*map(str, command)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    ).stdout


def profiled_requests(repeats: int, turns: int) -> dict[str, dict[str, dict[str, Any]]]:
    """By stack and tool: the statements that it counted and SQLite traced, and CPU per request by process and turn.

    In each repeat all processes of a stack live at the same time and take turns of `REQUESTS` in a random order: the
    processor, which may be faster in one minute than in the next, is the same for all of one turn.
    """
    here = versions()
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for stack, tools in tooled_requests.TOOLS.items():
        known = [tool for tool in tools if tool in ("none", *here) or tool.startswith("placebench")]
        found[stack] = {tool: {"cpu_s": [], "statements": None, "traced": None} for tool in known}
        for repeat in range(repeats):
            with ExitStack() as stacked:
                processes = {tool: stacked.enter_context(tooled_process(stack, tool)) for tool in known}
                for process in processes.values():
                    ask(process)  # the first requests prepare what later ones reuse
                for tool in known:
                    found[stack][tool]["cpu_s"].append([])
                for turn in range(turns):
                    for tool in random.Random(repeat * turns + turn).sample(known, len(known)):
                        said = ask(processes[tool])
                        found[stack][tool]["cpu_s"][-1].append(said.pop("cpu_s"))
                        found[stack][tool].update(said)
    return found


@contextmanager
def tooled_process(stack: str, tool: str) -> Iterator[subprocess.Popen[str]]:
    """A process that makes requests of the stack under the tool."""
    command = [sys.executable, "-W", "ignore", str(HERE / "tooled_requests.py"), stack, tool]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()


def ask(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What one turn of a process took and counted. Raises RuntimeError if the process ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{REQUESTS}\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("{"):
            return dict(json.loads(line))
    raise RuntimeError(f"{process.args!r} ended")


def changes(folder: Path, repeats: int, replicates: int, count: int) -> dict[str, dict[str, list[float]]]:
    """By tool, the ratios that it reports of the same work twice, and of 5 % more."""
    program = folder / "work.py"
    program.write_text(WORK)
    words = (sys.executable, "-S", str(program))

    def hyperfine(second: int) -> float:
        lines = [" ".join((*words, str(each))) for each in (count, second)]
        output("hyperfine", "-N", "--warmup", "1", "--runs", "20", "--export-json", folder / "h.json", *lines)
        first, other = (each["mean"] for each in json.loads((folder / "h.json").read_text())["results"])
        return float(other / first)

    def pytest_benchmark(second: int) -> float:
        (folder / "test_work.py").write_text(BENCHMARK.format(first=count, second=second))
        output(
            sys.executable, "-m", "pytest", "-q", "test_work.py", "--benchmark-json", folder / "b.json", folder=folder
        )
        first, other = (each["stats"]["mean"] for each in json.loads((folder / "b.json").read_text())["benchmarks"])
        return float(other / first)

    def placebench(second: int) -> float:
        # Two axes: one with the same value twice would be one point.
        axis = f"count={count},{second}" if second != count else f"count={count},0{count}"
        command = [sys.executable, "-m", "placebench", "study", "matrix", "--axis", axis, "--json", "-q"]
        with tempfile.TemporaryDirectory(dir=folder) as run:
            said = json.loads(output(*command, "-n", str(replicates), "-o", f"{run}/run", "--", *words, "{count}"))
        (change,) = (row["times_the_control"] for row in said["rows"] if not row["is_control"])
        return float(change)

    here = versions()
    tools = {"placebench": placebench, "hyperfine": hyperfine, "pytest-benchmark": pytest_benchmark}
    found: dict[str, dict[str, list[float]]] = {
        tool: {"same": [], "more": []} for tool in tools if tool == "placebench" or tool in here
    }
    for _ in range(repeats):
        for tool, cases in found.items():
            cases["same"].append(tools[tool](count))
            cases["more"].append(tools[tool](count * 105 // 100))
    return found


def loads(folder: Path, repeats: int) -> dict[str, dict[str, list[float]]]:
    """By tool: requests per second of four users on one worker of gunicorn, and CPU seconds of the client for each."""
    (folder / "served.py").write_text(APPLICATION)
    (folder / "locustfile.py").write_text(LOCUSTFILE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    ours = (sys.executable, "-m", "placebench", "load", url, "--users", USERS, "--time", LOAD_S, "--json", "-q")
    locust = (sys.executable, "-m", "locust", "--headless", "-u", USERS, "-r", USERS, "-t", f"{LOAD_S}s", "--json")
    commands: dict[str, tuple[Any, ...]] = {"placebench": (*ours, "-o", "run"), "locust": (*locust, "--host", url)}
    if shutil.which("wrk"):
        commands["wrk"] = ("wrk", "-t", 1, "-c", USERS, "-d", f"{LOAD_S}s", url)
    found: dict[str, dict[str, list[float]]] = {tool: {"per_s": [], "client_cpu_s": []} for tool in commands}
    server = [sys.executable, "-m", "gunicorn", "-w", "1", "-b", f"127.0.0.1:{port}", "--keep-alive", "5"]
    with subprocess.Popen(
        [*server, "--threads", "4", "served:application"], cwd=folder, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(port)
            for _ in range(repeats):
                for tool, command in commands.items():
                    per_s = 0.0
                    while not per_s:  # on a very busy machine no response comes in time
                        before = resource.getrusage(resource.RUSAGE_CHILDREN)
                        said = output(*map(str, command), folder=folder)
                        after = resource.getrusage(resource.RUSAGE_CHILDREN)
                        shutil.rmtree(folder / "run", ignore_errors=True)
                        per_s = rate(tool, said)
                    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                    found[tool]["per_s"].append(per_s)
                    found[tool]["client_cpu_s"].append(cpu_s / (per_s * LOAD_S))
        finally:
            process.terminate()
    return found


def rate(tool: str, said: str) -> float:
    """The requests per second in what a tool has printed."""
    if tool == "wrk":
        return float(said.partition("Requests/sec:")[2].split()[0])
    if tool == "locust":
        return float(
            sum(
                each["num_requests"] / (each["last_request_timestamp"] - each["start_time"])
                for each in json.loads(said)
            )
        )
    document = json.loads(said)
    return float(document["throughput_per_s"])


def wait_for(port: int) -> None:
    """Return once somebody listens."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on {port}")
