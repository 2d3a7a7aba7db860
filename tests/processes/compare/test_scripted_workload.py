"""Workloads that are Python: a function, and a locustfile, in a client process."""

from collections.abc import Iterator
from pathlib import Path

import orders_app
import pytest

from placebench.compare.keep.run_folder import claim_folder
from placebench.compare.load.client_process import Driven
from placebench.compare.load.clients import http_client
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.workload import WorkloadKeys, read_workload
from placebench.errors import GateFailedError, LoadError

FUNCTION = """
def buy(client):
    print("a print is not a line of the protocol")
    client.post("/login", json={"password": "secret"})
    orders = client.get("/orders").json()["orders"]
    chosen = client.random.choice(orders)["id"]
    client.post("/orders", json={"item": f"pen {chosen}"}, name="buy", expect_status=201)
    client.get("/none", params={"page": 2}, expect_status=404).headers["Content-Type"]

def silent(client):
    pass

def failing(client):
    client.get("/orders")

def wrong(client):
    client.get("/page").json()
"""
LOCUSTFILE = """
from locust import FastHttpUser, HttpUser, SequentialTaskSet, between, task

class Buyer(HttpUser):
    wait_time = between(10, 20)

    def on_start(self):
        self.client.post("/login", json={"password": "secret"})

    @task(3)
    def orders(self):
        self.client.get("/orders", name="orders")

    @task
    class Buying(SequentialTaskSet):
        @task
        def page(self):
            with self.client.get("/none", catch_response=True) as response:
                response.success() if response.status_code == 404 else response.failure("found")

        @task
        def buy(self):
            self.client.get("/page", timeout=5)
            self.interrupt()
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The small shop on a free port."""
    with orders_app.served() as url:
        yield url


def drive(url: str, folder: Path, times: int = 2, seed: int = 1, **keys: str) -> Driven:
    """What a script does in a process of its own."""
    (folder / "bench.py").write_text(FUNCTION)
    (folder / "locustfile.py").write_text(LOCUSTFILE)
    sent = read_workload(WorkloadKeys(**keys), source="plan.toml", folder=folder, seed=seed)  # type: ignore[arg-type]
    with http_client(claim_folder(folder / f"run-{seed}")) as client:
        return client.drive(url, sent, times=times, login=True)


def test_a_function_sends_the_same_to_each_variant(url: str, tmp_path: Path) -> None:
    """Each call is counted, judged by its status and compared by its name; what it draws is drawn by the seed."""
    first, again, other = (drive(url, tmp_path / name, workload="bench:buy", seed=seed) for name, seed in VARIANTS)

    assert (first.failures, len(first.wall_s), first.cycle) == ([], 8, 4)
    assert first.calls[1:4] == ["/orders", "buy", "/none?page=2"]
    assert first.calls == again.calls
    assert (len(first.responses["buy"]), len(first.responses["/none?page=2"])) == (2, 1)
    assert first.names == ["POST /login", "GET /orders", "POST /orders", "GET /none"]
    assert first.client_cpu_s > 0
    assert other.failures == []


VARIANTS = (("one", 1), ("two", 1), ("three", 2))


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    """A folder for each variant."""
    for name, _ in VARIANTS:
        (tmp_path / name).mkdir()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("bench:silent", "workload 'bench:silent' sent no request"),
        ("bench:none", "workload 'bench:none' cannot be loaded: AttributeError"),
        ("absent:buy", "workload 'absent:buy' cannot be loaded: ModuleNotFoundError: No module named 'absent'"),
    ],
)
def test_a_function_that_cannot_be_run_is_one_line(script: str, message: str, url: str, tmp_path: Path) -> None:
    """Not there, not importable, or without a request."""
    with pytest.raises(LoadError, match=message):
        drive(url, tmp_path, workload=script)


def test_failures_of_a_function_are_those_of_its_requests(url: str, tmp_path: Path) -> None:
    """An unexpected status by the request, and an exception by the function."""
    status = drive(url, tmp_path / "one", workload="bench:failing").failures
    raised = drive(url, tmp_path / "two", workload="bench:wrong", times=1).failures

    assert status == ['/orders: status 403, expected below 400: {"error": "not logged in"}'] * 2
    assert [each.partition(": Expecting")[0] for each in raised] == ["bench:wrong: JSONDecodeError"]


def test_the_tasks_of_a_locustfile_are_the_workload(url: str, tmp_path: Path) -> None:
    """By their weights, without waits, after `on_start`; a sequence in its order, and what it judges itself."""
    seen = drive(url, tmp_path, locustfile="locustfile.py", times=40)

    assert seen.failures == []
    assert set(seen.calls) == {"orders", "/none", "/page"}
    assert 2 * seen.calls.count("/page") == seen.calls.count("/none") + seen.calls.count("/page") > 0
    assert seen.calls.count("orders") > seen.calls.count("/page")


def test_another_sequence_of_requests_is_refused() -> None:
    """A workload that lets one variant off some requests compares nothing."""
    same = SameResponses()
    same.check_calls("one", ["/a", "/b"])
    same.check_calls("two", ["/a", "/b"])

    with pytest.raises(GateFailedError, match="request 2 of the workload is none to three, and /b to one"):
        same.check_calls("three", ["/a"])
    with pytest.raises(GateFailedError, match="request 2 of the workload is /a to four"):
        same.check_calls("four", ["/a", "/a"])
