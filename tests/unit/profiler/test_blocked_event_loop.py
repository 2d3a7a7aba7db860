"""What holds an event loop is found with its line and with those who waited; by a clock that only the programs move."""

import asyncio
import json
import sqlite3
import threading
from asyncio import events
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from placebench.errors import ProfilerError
from placebench.profiler import Clocks, Recording, SqlProfiler
from placebench.profiler.analysis.findings import Limits, find
from placebench.profiler.model.loop_block import LateRequest, LoopBlock
from placebench.profiler.model.statement import Caller

LINE = Caller("/app/views.py", 31, "report")


class Clock:
    """Seconds that pass only by `work`; event loops count by it, too."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> float:
        self.now += seconds
        return seconds


class Loop(asyncio.SelectorEventLoop):
    """A loop of that clock, which does not wait for a timer but lets its time pass."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def time(self) -> float:
        return self._clock()

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._clock.now = max(self._clock.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def profiler(clock: Clock) -> Iterator[SqlProfiler]:
    before = events.Handle._run
    made = SqlProfiler.for_drivers("sqlite3", clocks=Clocks(elapsed=clock))
    yield made
    made.remove()
    assert events.Handle._run is before


def run(clock: Clock, *requests: Awaitable[None]) -> None:
    """Run the requests at the same time, each in a task of its own."""

    async def main() -> None:
        await asyncio.gather(*requests)

    loop = Loop(clock)
    loop.run_until_complete(main())
    loop.close()


def requests_of(profiler: SqlProfiler, mode: str = "full", **paths: Callable[[], Awaitable[object]]) -> Any:
    """A request for each path, by an application whose paths call these functions."""

    async def application(scope: Any, _receive: Any, send: Any) -> None:
        await paths[scope["path"]]()
        await send({"type": "http.response.body", "body": b""})

    profiled = profiler.asgi(application, mode=mode)

    async def send(_message: Any) -> None:
        """The client takes it at once."""

    def request(path: str) -> Awaitable[None]:
        return profiled({"type": "http", "method": "GET", "path": path}, None, send)  # type: ignore[arg-type]

    return request


def blocks_of(profiler: SqlProfiler) -> dict[str, list[tuple[str, float, list[tuple[str, float, bool]]]]]:
    """The blocks of each recording that has any: cause, seconds, and who waited."""
    return {
        recording.name: [
            (block.cause, round(block.elapsed_s, 6), [(who, round(late, 6), known) for who, late, known in block.late])
            for block in recording.loop_blocks
        ]
        for recording in profiler.recordings
        if recording.loop_blocks
    }


def test_who_waited_for_a_statement_is_named_with_its_seconds(profiler: SqlProfiler, clock: Clock) -> None:
    """A timer that was due after 0.1 of the 0.3 seconds has waited 0.2; a request that was there before, all of it."""
    connection = sqlite3.connect(":memory:")
    connection.create_function("slow", 1, clock.work)

    async def report() -> None:
        connection.execute("select slow(0.3)").fetchall()

    request = requests_of(profiler, report=report, timer=lambda: asyncio.sleep(0.1), health=lambda: asyncio.sleep(0))
    run(clock, request("timer"), request("report"), request("health"))
    connection.close()

    late = [("GET health", 0.3, True), ("GET timer", 0.2, True)]
    assert blocks_of(profiler) == {"GET report": [("statement", 0.3, late)]}
    (report_recording,) = [each for each in profiler.recordings if each.loop_blocks]
    (finding,) = report_recording.findings()
    assert (finding.kind, finding.count, finding.sql) == ("blocked event loop", 1, "select slow(?)")
    assert str(finding.caller).endswith("report")


def test_a_computation_is_that_of_its_own_request(profiler: SqlProfiler, clock: Clock) -> None:
    """Two that compute in turn have a block each, and each waits for the one before."""

    async def compute() -> None:
        await asyncio.sleep(0)
        clock.work(0.2)
        await asyncio.sleep(0)

    request = requests_of(profiler, first=compute, second=compute)
    run(clock, request("first"), request("second"))

    assert blocks_of(profiler) == {
        "GET first": [("call", 0.2, [("GET second", 0.2, True)])],
        "GET second": [("call", 0.2, [("GET first", 0.2, True)])],
    }


def test_what_the_holder_wakes_has_not_waited_for_the_loop(profiler: SqlProfiler, clock: Clock) -> None:
    """A request that waits for the result of a computation is late by the computation, not by the loop."""
    done = asyncio.Event()

    async def compute() -> None:
        clock.work(0.2)
        done.set()

    request = requests_of(profiler, waits=done.wait, computes=compute)
    run(clock, request("waits"), request("computes"))

    assert blocks_of(profiler) == {"GET computes": [("call", 0.2, [])]}


def test_within_one_recording_tasks_are_named(profiler: SqlProfiler, clock: Clock) -> None:
    """A script has one recording: the task whose timer was due has waited."""

    async def computes() -> None:
        clock.work(0.2)

    async def waits() -> None:
        await asyncio.sleep(0.05)

    with profiler.record("script") as recording:
        run(clock, waits(), computes())

    (block,) = recording.loop_blocks
    assert [(who.rpartition(".")[2], round(late, 6)) for who, late, _ in block.late] == [("waits", 0.15)]
    assert block.late[0].name.startswith("task ")


def test_a_record_that_ends_while_it_holds_the_loop_has_the_block_at_once(profiler: SqlProfiler, clock: Clock) -> None:
    """Who waited is added when they have gone on."""

    async def view() -> None:
        with profiler.record("inside") as recording:
            clock.work(0.06)
        seen.append((recording, recording.loop_blocks))

    async def other() -> None:
        with profiler.record("other"):
            await asyncio.sleep(0)

    seen: list[tuple[Recording, tuple[LoopBlock, ...]]] = []
    run(clock, view(), other())

    ((recording, at_once),) = seen
    assert [(block.elapsed_s, block.late) for block in at_once] == [(pytest.approx(0.06), ())]
    assert recording.loop_blocks[0].late == (LateRequest("other", pytest.approx(0.06), True),)


def test_less_than_50_ms_from_one_await_to_the_next_is_no_block(profiler: SqlProfiler, clock: Clock) -> None:
    """However often."""

    async def compute() -> None:
        for _ in range(5):
            clock.work(0.049)
            await asyncio.sleep(0)

    request = requests_of(profiler, computes=compute)
    run(clock, request("computes"))

    assert blocks_of(profiler) == {}


def test_a_closed_loop_loses_no_recording(profiler: SqlProfiler, clock: Clock) -> None:
    """The recording that held the loop in its last turn is stored when the loop is closed."""

    async def compute() -> None:
        clock.work(0.2)

    request = requests_of(profiler, computes=compute)
    loop = Loop(clock)
    loop.run_until_complete(request("computes"))
    loop.close()

    assert [recording.name for recording in profiler.recordings] == ["GET computes"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_profilers_are_removed_in_any_order(order: tuple[int, int]) -> None:
    """The loop then calls its own function again."""
    before = events.Handle._run
    profilers = [SqlProfiler.for_drivers("sqlite3"), SqlProfiler.for_drivers("sqlite3")]

    for number in order:
        profilers[number].remove()

    assert events.Handle._run is before


def test_a_loop_of_another_thread_is_its_own(profiler: SqlProfiler, clock: Clock) -> None:
    """What waits there has not waited for this one."""
    entered, computed = threading.Event(), threading.Event()

    async def compute() -> None:
        entered.wait(30)
        clock.work(0.2)
        computed.set()

    async def elsewhere() -> None:
        entered.set()
        await asyncio.sleep(0)
        computed.wait(30)

    request = requests_of(profiler, computes=compute, elsewhere=elsewhere)
    thread = threading.Thread(target=run, args=(clock, request("elsewhere")))
    thread.start()
    run(clock, request("computes"))
    thread.join()

    assert blocks_of(profiler)["GET computes"] == [("call", 0.2, [])]


def block(elapsed_s: float = 0.3, **fields: Any) -> LoopBlock:
    """A block by a statement at LINE."""
    given = {"started_s": 0.0, "loop": "asyncio", "cause": "statement", "cause_s": 0.29, "sql": "select ?"}
    return LoopBlock(**{**given, "elapsed_s": elapsed_s, "fingerprint": "f", "caller": LINE, **fields})


def test_the_finding_says_how_long_and_who_waited() -> None:
    """The longest first; three are named."""
    late = (LateRequest("GET /health", 0.29, True), LateRequest("GET /orders", 0.3), LateRequest("GET /orders", 0.1))
    (finding,) = find(Recording("GET /report", "full", loop_blocks=(block(late=late), block(0.1))))

    assert (finding.count, finding.seconds, finding.caller) == (2, 0.4, LINE)
    assert finding.title == (
        "blocked the event loop 2 times, for up to 300 ms: a statement whose driver waits without "
        "yielding (290 ms); waited meanwhile: GET /orders (up to 300 ms), GET /health (290 ms)"
    )


@pytest.mark.parametrize(
    ("fields", "title", "advice"),
    [
        ({"cause": "connection-pool wait"}, "a wait for a connection of the pool (290 ms)", "an asynchronous driver"),
        ({"cause": "transaction step", "sql": "COMMIT"}, "a COMMIT whose driver waits", "an asynchronous driver"),
        ({"cause": "call", "sql": None}, "a computation, or a call that waits", "asyncio.to_thread"),
        ({"loop": "gevent"}, "blocked the hub for 300 ms: a statement", "psycogreen"),
        ({"loop": "eventlet", "cause": "call"}, "blocked the hub for 300 ms: a computation", "eventlet's thread pool"),
        ({"late": [LateRequest(str(n), 0.1) for n in range(5)]}, "2 (up to 100 ms) and 2 others", "asynchronous"),
        ({"late": ()}, "no other request of the recordings waited", "an asynchronous driver"),
    ],
)
def test_the_advice_is_that_of_the_cause(fields: dict[str, Any], title: str, advice: str) -> None:
    """What yields to a hub is another matter than what yields to an event loop."""
    (finding,) = find(Recording("r", "full", loop_blocks=(block(**fields),)))

    assert title in finding.title
    assert advice in finding.advice


def test_the_limit_is_the_users() -> None:
    """50 ms by default."""
    recording = Recording("r", "full", loop_blocks=(block(0.05), block(0.3, caller=None)))

    assert [len(find(recording, limits)) for limits in (None, Limits(blocked_s=0.1), Limits(blocked_s=1))] == [2, 1, 0]


@pytest.mark.parametrize("kind", ["program", "lifespan", "background"])
def test_a_start_that_held_the_loop_alone_is_no_finding_of_merged_requests(kind: str) -> None:
    """It is left out of the sum, whose kind is that of requests, unless somebody waited for it."""
    start = Recording("start", "full", kind=kind, loop_blocks=(block(0.9),))
    late = Recording("start", "full", kind=kind, loop_blocks=(block(late=(LateRequest("GET /health", 0.29, True),)),))
    request = Recording("GET /report", "full", loop_blocks=(block(0.1),))

    merged = Recording.merge([start, late, request])

    assert [(each.request, each.elapsed_s) for each in merged.loop_blocks] == [(2, 0.3), (3, 0.1)]
    assert [finding.count for finding in find(merged)] == [2]


def test_blocks_are_saved_and_merged() -> None:
    """With those who waited, and the number of their request; a recording without any has no key for them."""
    recording = Recording("r", "full", loop_blocks=(block(late=(LateRequest("GET /health", 0.29, True),)),))
    merged = Recording.merge([recording, recording])

    again = Recording.from_json(json.loads(json.dumps(merged.to_json())))

    assert again.loop_blocks == merged.loop_blocks
    assert [each.request for each in again.loop_blocks] == [1, 2]
    assert "loop_blocks" not in Recording("r", "full").to_json()
    with pytest.raises(ProfilerError, match=r"loop_blocks\[0\].request: expected a whole number from 1 to 1, saw 2"):
        Recording.from_json({**recording.to_json(), "loop_blocks": merged.to_json()["loop_blocks"][1:]})
