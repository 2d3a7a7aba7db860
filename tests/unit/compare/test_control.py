"""The slow-down that a comparison injects itself: how it is written, and how much is burnt."""

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placebench.compare.compare_run import CompareSettings
from placebench.compare.keep.control import Control, ControlRecord
from placebench.compare.what.variants import Variant, control_variant
from placebench.errors import PlacebenchError, UsageError
from placebench.lab.placement_api import placement_workload
from placebench.runtime.standalone.control import placebench_control
from placebench.runtime.standalone.control.placebench_control import (
    AddedCpu,
    AddedStatements,
    slowed_asgi,
    slowed_wsgi,
    with_statements,
)


class SimulatedThread:
    """A thread whose CPU time passes with each reading of its clock, and with each turn of a loop."""

    def __init__(self, reading_ns: int, spin_ns: float) -> None:
        self.reading_ns, self.spin_ns = reading_ns, spin_ns
        self.now_ns = 0.0

    def clock(self) -> int:
        """Return the time in the middle of a reading."""
        self.now_ns += self.reading_ns
        return round(self.now_ns - self.reading_ns / 2)

    def spin(self, number: int) -> None:
        """Let the time of so many turns pass."""
        self.now_ns += number * self.spin_ns


@pytest.mark.parametrize("amount_ns", [0, 1, 1_350, 60_000, 1_234_567])
@pytest.mark.parametrize("reading_ns", [1, 400, 10_000])
@pytest.mark.parametrize("slower", [0.5, 1.0, 3.0])
def test_requests_take_the_amount_on_average(
    monkeypatch: pytest.MonkeyPatch, amount_ns: int, reading_ns: int, slower: float
) -> None:
    """Whatever the clock costs, and however the speed of the loop changes, the CPU of 1000 requests is theirs.

    The rest is less than the last burning was, which a loop of a third of the speed may overshoot.
    """
    thread = SimulatedThread(reading_ns, spin_ns=4.0)
    monkeypatch.setattr(placebench_control, "_spin", thread.spin)
    added = AddedCpu(amount_ns / 1e9, thread.clock)
    began_ns = thread.now_ns
    thread.spin_ns *= slower

    burnt_at = {1: 0, 2: 0}
    for _ in range(1000):
        for place in burnt_at:
            before_ns = thread.now_ns
            if place == 1:
                added.begin_request()
            else:
                added.burn(place)
            burnt_at[place] += thread.now_ns > before_ns

    rest_ns = 1000 * amount_ns - (thread.now_ns - began_ns)
    assert abs(rest_ns) <= 1.2 * (200_000 + amount_ns) + 3 * reading_ns
    assert max(burnt_at.values()) - min(burnt_at.values()) <= 1
    assert sum(burnt_at.values()) <= max(amount_ns / 200, amount_ns >= 200_000 and 1000)


def wsgi(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    """An application that responds with its path."""
    start_response("200 OK", [("X-Path", environ["PATH_INFO"])])
    return [environ["PATH_INFO"].encode()]


async def asgi(scope: dict[str, Any], receive: Any, send: Callable[..., Any]) -> None:
    """An application that responds with its path in two messages."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("cpu_s", [0.0, 0.002, 0.02])
def test_a_wsgi_response_is_the_same_and_takes_the_cpu(cpu_s: float) -> None:
    """The threads that serve the requests have burnt the amounts when the last response is there."""
    seen: list[object] = []
    slowed = slowed_wsgi(wsgi, cpu_s, 0.0)
    before_s = time.thread_time()

    bodies = [slowed({"PATH_INFO": "/one"}, lambda *response: seen.append(response)) for _ in range(3)]

    assert time.thread_time() - before_s >= 2.5 * cpu_s
    assert [[b"/one"]] * 3 == bodies
    assert [("200 OK", [("X-Path", "/one")])] * 3 == seen


@pytest.mark.parametrize("cpu_s", [0.0, 0.002, 0.02])
def test_an_asgi_response_is_the_same_and_takes_the_cpu(cpu_s: float) -> None:
    """All messages pass in order, and the amounts of three requests are burnt then."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    slowed = slowed_asgi(asgi, cpu_s, 0.0)
    before_s = time.thread_time()
    for _ in range(3):
        asyncio.run(slowed({"type": "http", "path": "/one"}, None, send))

    assert time.thread_time() - before_s >= 2.5 * cpu_s
    assert ["http.response.start", "http.response.body", "http.response.body"] * 3 == [each["type"] for each in sent]
    assert b"/one" * 3 == b"".join(each.get("body", b"") for each in sent)


def test_a_request_that_burns_nothing_makes_nothing_to_collect() -> None:
    """The wrapped application is given the server's own objects: it may keep them, and more would be collected."""
    given: list[object] = []
    environ: dict[str, Any] = {"type": "http"}

    async def keep(*objects: object) -> None:
        given.extend(objects)

    slowed_wsgi(lambda *objects: given.extend(objects), 1e-9, 0.0)(environ, begin := lambda *_: None)
    asyncio.run(slowed_asgi(keep, 1e-9, 0.0)(environ, "receive", "send"))

    assert [id(each) for each in (environ, begin, environ, "receive", "send")] == [id(each) for each in given]


def test_a_wait_takes_at_least_its_time() -> None:
    """Both interfaces wait before the application is called, without burning anything."""

    async def send(message: dict[str, Any]) -> None:
        del message

    began_s = time.perf_counter()
    slowed_wsgi(wsgi, 0.0, 0.01)({"PATH_INFO": "/one"}, lambda *_: None)
    between_s = time.perf_counter()
    asyncio.run(slowed_asgi(asgi, 0.0, 0.01)({"type": "http", "path": "/one"}, None, send))

    assert between_s - began_s >= 0.01
    assert time.perf_counter() - between_s >= 0.01


def test_only_http_requests_are_slowed() -> None:
    """A server's lifespan messages reach the application as they are."""
    scopes: list[str] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        scopes.append(f"{scope['type']} {receive} {send}")

    asyncio.run(slowed_asgi(application, 1.0, 1.0)({"type": "lifespan"}, "receive", "send"))

    assert ["lifespan receive send"] == scopes


@pytest.mark.parametrize(
    ("text", "control", "label"),
    [
        ("3%", Control("cpu", 0.03), "+3 % CPU"),
        ("+2.5 %", Control("cpu", 0.025), "+2.5 % CPU"),
        ("wait:1ms", Control("wait", 0.001), "+1 ms wait"),
        ("wait:250us", Control("wait", 0.00025), "+0.25 ms wait"),
        ("statement", Control("statement", 1.0), "+1 statement"),
    ],
)
def test_a_control_is_a_share_of_cpu_a_wait_or_a_statement(text: str, control: Control, label: str) -> None:
    """Each is named in the report as it was injected, and written in a plan as it is read."""
    assert control == Control.parse(text) == Control.parse(control.text)
    assert label == control.label


@pytest.mark.parametrize("text", ["", "3", "0%", "-3%", "1001%", "nan%", "wait", "wait:0ms", "wait:11s", "wait:1"])
def test_any_other_control_is_refused(text: str) -> None:
    """The error says what was seen and what is expected."""
    with pytest.raises(UsageError) as raised:
        Control.parse(text)

    assert repr(text) in str(raised.value)
    assert "3%" in str(raised.value)
    assert "wait:1ms" in str(raised.value)


def test_the_control_is_the_baseline_under_a_free_name() -> None:
    """A variant of the user may have the name control."""
    baseline = Variant("base", module="shop:app")

    assert "control" == control_variant(baseline, ["base", "new"]).name
    assert "control.3" == control_variant(baseline, ["base", "control", "control.2"]).name
    assert "shop:app" == control_variant(baseline, []).module


def test_a_run_without_replicates_has_no_control_of_a_time() -> None:
    """It is refused before anything is started."""
    variants = (Variant("a"), Variant("b"))

    with pytest.raises(PlacebenchError, match="control"):
        CompareSettings(variants, placement_workload("/"), control=Control("cpu", 0.03), replicates=0)


def test_a_run_with_another_control_is_not_resumed_as_this_one() -> None:
    """The control is part of a run's settings, and a run without one has the settings that it had before."""
    variants = (Variant("a"), Variant("b"))
    without, *with_one = (
        CompareSettings(variants, placement_workload("/"), control=control).to_json()
        for control in (None, Control("cpu", 0.03), Control("cpu", 0.05), Control("wait", 0.03))
    )

    assert "control" not in without
    for one, other in itertools.combinations(with_one, 2):
        assert one != other


def test_what_was_injected_is_read_as_it_was_saved(tmp_path: Path) -> None:
    """A resumed run injects the same amount, or again none."""
    for injected_s in (0.000123456789, None):
        record = ControlRecord("cpu", 0.03, "base", "control", injected_s)
        record.save(tmp_path / "control.json")

        assert record == ControlRecord.load(tmp_path / "control.json")


def test_a_statement_needs_no_replicates() -> None:
    """It is counted, so a run that only counts can have this control."""
    variants = (Variant("a"), Variant("b"))

    made = CompareSettings(variants, placement_workload("/"), control=Control.parse("statement"), replicates=0)

    assert made.control_copy is not None
    assert "control" == made.control_copy.name


def test_the_added_statement_reaches_the_database(tmp_path: Path) -> None:
    """Each request sends it before the application is called, on one connection, and its response stays the same."""
    added = AddedStatements(2, f"sqlite:///{tmp_path / 'data.db'}")
    connections: list[str] = []
    connect = placebench_control._connect

    def counting(url: str) -> Callable[[str], Any]:
        connections.append(url)
        return connect(url)

    placebench_control._connect = counting
    try:
        asking = with_statements(wsgi, "wsgi", added)
        bodies = [asking({"PATH_INFO": "/one"}, lambda *_: None) for _ in range(3)]
    finally:
        placebench_control._connect = connect

    assert [[b"/one"]] * 3 == bodies
    assert 1 == len(connections)
    assert (tmp_path / "data.db").exists()
