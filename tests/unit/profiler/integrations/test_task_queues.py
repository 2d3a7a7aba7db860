"""Task queues and schedulers whose import is hooked: each task is a recording, beside what sqlite3 traced.

The brokers are in memory, so that nothing is started; where a queue has none, the test skips without its server.
"""

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kept_recordings import Kept

pytestmark = pytest.mark.usefixtures("nothing_is_lost")


def test_celery(kept: Kept, query: Callable[[int], None]) -> None:
    """Tasks of every application, and the error of one that fails."""
    celery = pytest.importorskip("celery")
    app = celery.Celery("shop")
    app.conf.task_always_eager = True

    def bill(count: int) -> None:
        query(count)

    def fail() -> None:
        query(1)
        raise ZeroDivisionError

    app.task(name="shop.bill")(bill).delay(2)
    app.task(name="shop.fail")(fail).delay()

    assert [
        ("task", "shop.bill", "shop.bill", None, 2),
        ("task", "shop.fail", "shop.fail", "ZeroDivisionError", 1),
    ] == kept.tasks()


def test_celery_runs_of_one_id_that_overlap(kept: Kept, query: Callable[[int], None]) -> None:
    """A retry has the id of the run before it, and may begin in another thread before that one has ended."""
    celery = pytest.importorskip("celery")
    begun, retried = threading.Event(), threading.Event()

    def bill(count: int) -> None:
        query(count)
        begun.set()
        if count == 1:
            retried.wait()
        query(count)

    task = celery.Celery("shop").task(name="shop.bill")(bill)
    first = threading.Thread(target=task.apply, args=([1],), kwargs={"task_id": "one"})
    first.start()
    begun.wait()
    task.apply([2], task_id="one")
    retried.set()
    first.join()

    assert [("task", "shop.bill", "shop.bill", None, count) for count in (2, 4)] == kept.tasks()


def test_dramatiq(kept: Kept, query: Callable[[int], None]) -> None:
    """Actors in the threads of a worker, and the error of one that fails."""
    dramatiq = pytest.importorskip("dramatiq")
    stub = pytest.importorskip("dramatiq.brokers.stub")
    broker = stub.StubBroker(middleware=[])
    worker = dramatiq.Worker(broker, worker_timeout=10, worker_threads=2)

    @dramatiq.actor(broker=broker)
    def bill(count: int) -> None:
        query(count)

    @dramatiq.actor(broker=broker, actor_name="shop.fail")
    def fail() -> None:
        query(1)
        raise ZeroDivisionError

    worker.start()
    bill.send(2)
    fail.send()
    broker.join("default", fail_fast=False)
    worker.stop()

    assert [
        ("task", "bill", "bill", None, 2),
        ("task", "shop.fail", "shop.fail", "ZeroDivisionError", 1),
    ] == kept.tasks()


def test_huey(kept: Kept, query: Callable[[int], None]) -> None:
    """Tasks that a consumer would run."""
    huey = pytest.importorskip("huey")
    queue = huey.MemoryHuey()

    @queue.task()
    def bill(count: int) -> None:
        query(count)

    bill(2)
    bill(1)
    while (task := queue.dequeue()) is not None:
        queue.execute(task)

    name = f"{__name__}.bill"
    assert [("task", name, name, None, 1), ("task", name, name, None, 2)] == kept.tasks()


def test_taskiq(kept: Kept, query: Callable[[int], None]) -> None:
    """Awaited tasks and those in the thread pool of the worker, and the error of one that fails."""
    taskiq = pytest.importorskip("taskiq")

    async def work() -> None:
        broker = taskiq.InMemoryBroker()

        @broker.task("shop.bill")
        async def bill(count: int) -> None:
            query(count)

        @broker.task("shop.send")
        def send(count: int) -> None:
            query(count)

        @broker.task("shop.fail")
        async def fail() -> None:
            raise ZeroDivisionError

        await broker.startup()
        for task in (await bill.kiq(2), await send.kiq(3), await fail.kiq()):
            await task.wait_result()
        await broker.shutdown()

    asyncio.run(work())

    assert [
        ("task", "shop.bill", "shop.bill", None, 2),
        ("task", "shop.fail", "shop.fail", "ZeroDivisionError", 0),
        ("task", "shop.send", "shop.send", None, 3),
    ] == kept.tasks()


def test_apscheduler(kept: Kept, query: Callable[[int], None]) -> None:
    """Jobs in a thread pool, and coroutines in the event loop."""
    pytest.importorskip("apscheduler")
    background = pytest.importorskip("apscheduler.schedulers.background")
    awaited = pytest.importorskip("apscheduler.schedulers.asyncio")
    events = pytest.importorskip("apscheduler.events")
    # A scheduler that is shut down between the end of its job and the job's removal fails in its own thread.
    ends = events.EVENT_JOB_EXECUTED, events.EVENT_JOB_REMOVED

    def bill(count: int) -> None:
        query(count)

    scheduler = background.BackgroundScheduler()
    ended = [threading.Event() for _ in ends]
    for end, event in zip(ends, ended, strict=True):
        scheduler.add_listener(lambda _, event=event: event.set(), end)
    scheduler.start()
    scheduler.add_job(bill, args=[2])
    assert all(event.wait(30) for event in ended)
    scheduler.shutdown()

    async def work() -> None:
        async def send(count: int) -> None:
            query(count)

        scheduler = awaited.AsyncIOScheduler()
        ended = [asyncio.Event() for _ in ends]
        for end, event in zip(ends, ended, strict=True):
            scheduler.add_listener(lambda _, event=event: event.set(), end)
        scheduler.start()
        scheduler.add_job(send, args=[3])
        await asyncio.wait_for(asyncio.gather(*(event.wait() for event in ended)), 30)
        scheduler.shutdown()

    asyncio.run(work())

    assert [("job", "bill", 2), ("job", "send", 3)] == [
        (kind, name.rpartition(".")[2], count) for kind, name, _, _, count in kept.tasks()
    ]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Any]:
    """A connection to a server of this test's own."""
    client = pytest.importorskip("redis")
    program = shutil.which("redis-server") or pytest.skip("redis-server is not installed")
    address = tmp_path / "redis.sock"
    with subprocess.Popen(
        [program, "--port", "0", "--unixsocket", str(address), "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert any("accept connections" in line for line in server.stdout or ())
        connection = client.Redis(unix_socket_path=str(address))
        yield connection
        connection.close()
        server.terminate()


def bill_by_rq(count: int) -> None:
    """A job; RQ finds it by its name."""
    test_rq.query(count)  # type: ignore[attr-defined]


@pytest.mark.processes
def test_rq(kept: Kept, query: Callable[[int], None], redis: Any) -> None:
    """Jobs that a worker runs in its own process; one that forks runs the same method in the child."""
    rq = pytest.importorskip("rq")
    test_rq.query = query  # type: ignore[attr-defined]
    queue = rq.Queue(connection=redis)
    queue.enqueue(bill_by_rq, 2)
    rq.SimpleWorker([queue], connection=redis).work(burst=True)
    del test_rq.query  # type: ignore[attr-defined]

    name = f"{__name__}.bill_by_rq"
    assert [("task", name, name, None, 2)] == kept.tasks()


def test_a_task_in_a_request_belongs_to_it(kept: Kept, query: Callable[[int], None]) -> None:
    """One that is called like a function, as in tests and with eager tasks, is not a recording of its own."""
    celery = pytest.importorskip("celery")
    flask = pytest.importorskip("flask")
    app, page = celery.Celery("shop"), flask.Flask("shop")
    app.conf.task_always_eager = True

    @app.task(name="shop.bill")
    def bill(count: int) -> None:
        query(count)

    @page.post("/orders")
    def order() -> str:
        query(1)
        bill.delay(2)
        return "ordered"

    page.test_client().post("/orders").close()
    assert [("request", "POST /orders", "/orders", None, 3)] == kept.tasks()
