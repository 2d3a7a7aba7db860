"""Jobs and scripts as variants: what they return or print is the response, and how they end is its status."""

import sys
from pathlib import Path

import pytest

from placebench.compare.load.client_process import Client
from placebench.compare.what.http_request import send
from placebench.compare.what.workload import WorkloadKeys, read_workload
from placebench.meters.processes import read_tree_cpu_s
from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import RunningServer, ServerSpec

pytestmark = pytest.mark.processes

JOBS = """
calls = 0

def count():
    global calls
    calls += 1
    return {"calls": calls}

def fail():
    raise ValueError("no orders")
"""
BUSY = "import time; end = time.process_time() + 0.1\nwhile time.process_time() < end: pass\nprint('done')"


def started(folder: Path, job: str) -> RunningServer:
    """The job behind HTTP."""
    (folder / "jobs.py").write_text(JOBS)
    (folder / "busy.py").write_text(BUSY)
    command = f"exec {sys.executable} -m placebench.runtime.job_server {{port}} {job}"
    return serve(ServerSpec("", server="command", command=command, ready="/", folder=folder))


def test_a_function_is_imported_once_and_its_result_is_compared(tmp_path: Path) -> None:
    """Each run is one request, and what it returns is a document with its rules."""
    keys = WorkloadKeys(request="POST /run")
    with started(tmp_path, "jobs:count") as server:
        seen = Client(tmp_path).drive(server.url, read_workload(keys, source="plan.toml", seed=1), times=3)

    assert (seen.failures, len(seen.responses["POST /run"])) == ([], 3)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("jobs:fail", (500, b"ValueError: no orders")),
        (f"{sys.executable} -c 'import sys; sys.exit(\"disk full\")'", (500, b"exit code 1\ndisk full")),
        (f"{sys.executable} -c 'print(42)'", (200, b"42")),
    ],
)
def test_how_a_job_ends_is_its_status(job: str, expected: tuple[int, bytes], tmp_path: Path) -> None:
    """An exception and an exit code are failures with what was said; the output is the response."""
    with started(tmp_path, job) as server:
        reply = send(server.url, "POST", "/run", headers={})

    assert (reply.status, reply.body.strip()[-len(expected[1]) :]) == expected


def test_the_cpu_of_a_command_is_in_its_process_tree(tmp_path: Path) -> None:
    """A process that has ended counts: two runs of at least a tenth of a second each."""
    with started(tmp_path, f"{sys.executable} busy.py") as server:
        before = read_tree_cpu_s(server.pids())
        for _ in range(2):
            assert send(server.url, "POST", "/run", headers={}).body == b"done\n"

        assert 0.19 <= read_tree_cpu_s(server.pids()) - before < 2
