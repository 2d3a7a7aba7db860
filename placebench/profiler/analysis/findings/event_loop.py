"""Findings about event loops: what holds one, and who waits meanwhile."""

from collections.abc import Iterator

from placebench import units
from placebench.profiler.analysis.findings.kinds import Finding, Limits, times
from placebench.profiler.model.loop_block import KINDS_ALONE, LateRequest, LoopBlock
from placebench.profiler.model.recording_data import RecordingData

_HUBS = ("gevent", "eventlet")
_MAX_NAMED = 3


def blocked_event_loops(recording: RecordingData, limits: Limits) -> Iterator[Finding]:
    """Find lines that held an event loop, or a hub of greenlets, and name the requests that went on late."""
    places: dict[tuple[object, ...], list[LoopBlock]] = {}
    serves = recording.kind not in KINDS_ALONE
    for block in recording.loop_blocks:
        if block.elapsed_s >= limits.blocked_s and (serves or block.late):
            key = block.cause, block.fingerprint, block.caller, block.outer_caller
            places.setdefault(key, []).append(block)
    for blocks in places.values():
        longest = max(blocks, key=lambda block: block.elapsed_s)
        loop = "hub" if longest.loop in _HUBS else "event loop"
        how_long = f"blocked the {loop} for {units.duration(longest.elapsed_s)}"
        if len(blocks) > 1:
            how_long = f"blocked the {loop} {times(len(blocks))}, for up to {units.duration(longest.elapsed_s)}"
        yield Finding(
            kind="blocked event loop",
            title=f"{how_long}: {_cause(longest)}; {_who_waited([late for block in blocks for late in block.late])}",
            advice=_advice(longest),
            count=len(blocks),
            seconds=sum(block.elapsed_s for block in blocks),
            sql=longest.sql,
            caller=longest.caller,
            outer_caller=longest.outer_caller,
            fingerprint=longest.fingerprint,
        )


def _cause(block: LoopBlock) -> str:
    if block.cause == "statement":
        return f"a statement whose driver waits without yielding ({units.duration(block.cause_s)})"
    if block.cause == "connection-pool wait":
        return f"a wait for a connection of the pool ({units.duration(block.cause_s)})"
    if block.cause == "transaction step":
        return f"a {block.sql} whose driver waits without yielding ({units.duration(block.cause_s)})"
    return "a computation, or a call that waits without yielding"


def _who_waited(late: list[LateRequest]) -> str:
    """Return who went on late, each name once with its longest wait."""
    waits: dict[str, LateRequest] = {}
    for each in sorted(late, key=lambda each: each.seconds):
        waits[each.name] = each
    if not waits:
        return "no other request of the recordings waited"
    named = [
        f"{each.name} ({'' if each.is_exact else 'up to '}{units.duration(each.seconds)})"
        for each in sorted(waits.values(), key=lambda each: -each.seconds)
    ]
    others = len(named) - _MAX_NAMED
    return f"waited meanwhile: {', '.join(named[:_MAX_NAMED])}{f' and {others} others' if others > 0 else ''}"


def _advice(block: LoopBlock) -> str:
    if block.loop in _HUBS:
        patched = "psycogreen for psycopg2, or a driver in Python after monkey.patch_all()"
        if block.cause == "call":
            return f"run it in {block.loop}'s thread pool, or in another process"
        return f"let the driver yield: {patched}"
    if block.cause == "call":
        return "await asyncio.to_thread(...), or a process pool if it computes in Python"
    return (
        "use an asynchronous driver, await asyncio.to_thread(...), or write def instead of async def where the "
        "framework then uses a thread"
    )
