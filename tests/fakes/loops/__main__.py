"""Runs the loops of one ORM, each in a recording: `python -m loops ORM FOLDER`, with a database in FOLDER.

Prints for each loop the parents of its N+1 (rows and function of the line), the doubt, and the advice.
"""

import asyncio
import importlib
import inspect
import json
import sys
from dataclasses import asdict
from typing import Any

from placebench.profiler import SqlProfiler


async def run(orm: str, folder: str) -> dict[str, Any]:
    """Record each loop of the module of this ORM."""
    profiler = SqlProfiler()
    module = importlib.import_module(f"loops.on_{orm}")
    try:
        prepared = module.prepare(folder)
        if inspect.isawaitable(prepared):
            await prepared
        return {loop.__name__: await loops_found(profiler, loop) for loop in module.LOOPS}
    finally:
        if hasattr(module, "close"):  # a thread of aiosqlite would keep the process alive
            await module.close()


async def loops_found(profiler: SqlProfiler, loop: Any) -> list[dict[str, Any]]:
    """Record one loop, and return its N+1 findings as plain data."""
    with profiler.record(loop.__name__) as recording:
        result = loop()
        if inspect.isawaitable(result):
            await result
    assert not recording.failed_hooks, recording.failed_hooks
    found = []
    for each in recording.findings():
        if each.kind == "n+1":
            parents = None
            if each.parents is not None and each.parents.caller is not None:
                parents = asdict(each.parents)
                parents["line"] = each.parents.caller.function
            found.append({"parents": parents, "title": each.title, "advice": each.advice})
    return found


sys.stdout.write(json.dumps(asyncio.run(run(*sys.argv[1:3]))))
