"""Tasks of a real Celery, in a prefork worker and at once."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

celery = pytest.importorskip("celery")

from placebench.profiler.integrations.celery import profile_tasks  # noqa: E402
from placebench.profiler.integrations.process_profiler import process_profiler  # noqa: E402

TASKS = """
from pathlib import Path

from celery import Celery
from sqlalchemy import create_engine, text

from placebench.profiler.integrations.celery import profile_tasks

app = Celery("shop", broker="filesystem://", backend="file://" + str(Path("results").resolve()))
app.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control"}
engine = create_engine("sqlite:///shop.db")
profile_tasks(app, folder=Path("recordings"))


@app.task(name="shop.bill")
def bill(count):
    with engine.connect() as connection:
        for number in range(count):
            connection.execute(text("select :n"), {"n": number}).all()
    return count


@app.task(name="shop.fail")
def fail():
    raise ZeroDivisionError("by the task")
"""


def test_tasks_that_run_at_once_are_recorded(query: Callable[[int], None]) -> None:
    """Under their names, with the error of one that fails; another application's tasks are not."""
    app, other = celery.Celery("shop"), celery.Celery("other")
    for each in (app, other):
        each.conf.task_always_eager = True
    calls = profile_tasks(app)

    def bill() -> None:
        query(3)

    def fail() -> None:
        raise ZeroDivisionError

    for each in (app, other):
        each.task(name=f"{each.main}.bill")(bill).delay()
    app.task(name="shop.fail")(fail).delay()

    recordings = process_profiler().recordings
    assert [("shop.bill", 3, None), ("shop.fail", 0, "ZeroDivisionError")] == [
        (each.name, each.statement_count, each.error) for each in recordings
    ]
    assert 2 == calls.counts.profiled


@pytest.mark.processes
def test_tasks_of_a_prefork_worker_are_recorded(tmp_path: Path, eventually: Callable[..., bool]) -> None:
    """By each child process, in files of its own."""
    (tmp_path / "shop.py").write_text(TASKS)
    for folder in ("queue", "results", "control"):
        (tmp_path / folder).mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("PYTHONSAFEPATH", None)
    with celery.Celery("client", broker="filesystem://", set_as_current=False) as client:
        folders = {"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control"}
        client.conf.broker_transport_options = {key: str(tmp_path / name) for key, name in folders.items()}
        for count in (1, 2, 3):
            client.send_task("shop.bill", [count])
        client.send_task("shop.fail")
    # There is no other worker: to look for one takes a second, and longer on a busy machine.
    alone = ["--without-mingle", "--without-gossip", "--without-heartbeat"]
    command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-P", "prefork", "-c", "2", *alone]

    log = tmp_path / "worker.log"
    with log.open("w") as stderr, subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=stderr) as worker:
        files = tmp_path / "recordings"
        eventually(lambda: len(list(files.glob("*.recording.json"))) >= 4 or worker.poll() is not None, limit_s=100)
        worker.terminate()
        try:
            worker.wait(timeout=60)
        except subprocess.TimeoutExpired:
            worker.kill()

    documents = [json.loads(path.read_text()) for path in files.glob("*.recording.json")]
    recorded = sorted((each["name"], len(each["statements"]), each["error"]) for each in documents)
    assert [
        *(("shop.bill", count, None) for count in (1, 2, 3)),
        ("shop.fail", 0, "ZeroDivisionError"),
    ] == recorded, log.read_text()
