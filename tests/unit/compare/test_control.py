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


class SteppingClock:
    """The CPU clock of a thread, of which each reading takes one step."""

    def __init__(self, step_ns: int) -> None:
        self.step_ns = step_ns
        self.now_ns = 0

    def __call__(self) -> int:
        """Return the time after one more step."""
        self.now_ns += self.step_ns
        return self.now_ns


@pytest.mark.parametrize("amount_ns", [0, 1, 500, 60_000, 1_234_567])
@pytest.mark.parametrize("step_ns", [1, 250, 10_000])
def test_the_burnt_cpu_is_the_amount_whatever_the_clock(amount_ns: int, step_ns: int) -> None:
    """Three parts together burn the amount, and at most one step of the clock more: no part adds its own error."""
    clock = SteppingClock(step_ns)
    added = AddedCpu(amount_ns / 1e9, clock)

    for part in (1, 2, 3):
        added.burn(part)
        assert amount_ns * part // 3 <= added._burnt_ns <= amount_ns * part // 3 + step_ns or not amount_ns

    assert amount_ns <= added._burnt_ns < amount_ns + step_ns


@pytest.mark.parametrize("around_ns", [0, 2_000, 9_000])
def test_the_cpu_of_the_slow_down_itself_counts_as_burnt(around_ns: int) -> None:
    """The code before the loop, and what two readings do not show of a reading's cost, are part of the amount."""
    clock = SteppingClock(800)
    added = AddedCpu(30e-6, clock, uncounted_ns=placebench_control.uncounted_cpu_ns(SteppingClock(800)))
    clock.now_ns += around_ns

    for part in (1, 2, 3):
        added.burn(part)

    # Each part but the first reads once before it begins; the clock shows all readings.
    assert 30_000 <= clock.now_ns < 30_000 + 2 * 800


def test_a_part_that_is_late_burns_nothing_twice() -> None:
    """An application that begins its response after it returned has burnt all at its return."""
    clock = SteppingClock(100)
    added = AddedCpu(3e-6, clock)
    added.burn(3)
    burnt_ns = added._burnt_ns

    added.burn(2)

    assert burnt_ns == added._burnt_ns == 3000


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
def test_a_wsgi_response_is_the_same_and_takes_at_least_the_cpu(cpu_s: float) -> None:
    """The thread that serves the request has burnt the amount when the response is there."""
    seen: list[object] = []
    before_s = time.thread_time()

    body = slowed_wsgi(wsgi, cpu_s, 0.0)({"PATH_INFO": "/one"}, lambda *response: seen.append(response))

    assert time.thread_time() - before_s >= cpu_s
    assert [b"/one"] == body
    assert [("200 OK", [("X-Path", "/one")])] == seen


@pytest.mark.parametrize("cpu_s", [0.0, 0.002, 0.02])
def test_an_asgi_response_is_the_same_and_takes_at_least_the_cpu(cpu_s: float) -> None:
    """All messages pass in order, and the amount is burnt before the last one."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    before_s = time.thread_time()
    asyncio.run(slowed_asgi(asgi, cpu_s, 0.0)({"type": "http", "path": "/one"}, None, send))

    assert time.thread_time() - before_s >= cpu_s
    assert ["http.response.start", "http.response.body", "http.response.body"] == [each["type"] for each in sent]
    assert b"/one" == b"".join(each.get("body", b"") for each in sent)


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
