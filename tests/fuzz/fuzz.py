"""`tox -e fuzz`: random programs under the real profiler, in all its modes, beside counts of their own, from a seed.

    python tests/fuzz/fuzz.py [--seed N] [--minutes N] [--programs N] [--sqlite] [--gevent]

A program has nested records, spans, waits, garbage collections, threads, tasks, tasks that are cancelled, forked
processes, and statements: of sqlite3 and aiosqlite, and of psycopg2, psycopg 3 and asyncpg on a private PostgreSQL, all
of these through SQLAlchemy too. psycopg2 and psycopg 3 also use COPY, pipelines (awaited ones too), notifications,
nested savepoints, two-phase commits, functions, and cursors of the server that are left open; asyncpg copies records.
Each recording is checked for the laws of its account and for what the program counted; SQLite's trace, the log of
PostgreSQL and its pg_stat_statements count beside it. --sqlite leaves PostgreSQL out. With --gevent everything is
patched: threads are greenlets, beside which an event loop of asyncio runs in the main one.
A program that fails is made smaller as long as it still fails, and is printed with what is wrong; the run goes on with
the next one, and ends with exit code 1.
"""

import sys

if "--gevent" in sys.argv:
    from gevent import monkey

    monkey.patch_all()

import argparse
import asyncio
import faulthandler
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from pprint import pformat
from typing import Any

from placebench.profiler import SqlProfiler
from placebench.runtime.postgres.binaries import find_binaries
from placebench.runtime.postgres.private_server import launch_private_server

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH hides what lies beside a program

from drawn_programs import MODES, Program, draw
from machine import HANGS_S, Machine
from on_postgresql import SETTINGS, Server, wait_in_greenlets

_ATTEMPTS = 150
_MAX_FAILURES = 5


def main() -> int:
    """Run programs until the time is over; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(100_000), help="default: any")
    parser.add_argument("--minutes", type=float, default=10, help="no program begins after these (default: 10)")
    parser.add_argument("--programs", type=int, default=1_000_000, help="how many at most")
    parser.add_argument("--sqlite", action="store_true", help="leave PostgreSQL out")
    parser.add_argument("--gevent", action="store_true", help="patch everything: threads are greenlets")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        server = None
        if not arguments.sqlite:
            launched = launch_private_server(find_binaries(), SETTINGS)
            stack.callback(launched.supervisor.close)
            server = Server(launched)
        if arguments.gevent:
            wait_in_greenlets()
        return _run(arguments, server)


def _run(arguments: argparse.Namespace, server: Server | None) -> int:
    began, failures, tally = time.monotonic(), 0, Counter[str]()
    print(f"seed {arguments.seed}: run this again with --seed {arguments.seed}", flush=True)
    for number in range(arguments.programs):
        if time.monotonic() - began > 60 * arguments.minutes or failures == _MAX_FAILURES:
            break
        mode, awaited, program = _drawn(arguments, number)
        tally["programs"] += 1
        if found := _wrong(program, mode, server, awaited=awaited, tally=tally):
            failures += 1
            smaller = _smaller(program, mode, server, awaited=awaited)
            kind = "in an event loop" if awaited else "without an event loop"
            print(f"\nprogram {number}, mode {mode}, {kind}:\n{pformat(smaller, width=110)}")
            again = _wrong(smaller, mode, server, awaited=awaited, tally=Counter())
            print("\n".join(f"  {each}" for each in again or (*found, "(not with every run)")), flush=True)
    print(", ".join(f"{name}: {count}" for name, count in sorted(tally.items())))
    print(f"failed: {failures}, seconds: {time.monotonic() - began:.0f}")
    return 1 if failures else 0


def _drawn(arguments: argparse.Namespace, number: int) -> tuple[str, bool, Program]:
    """Return the program with this number: the mode of its outermost record, whether it needs an event loop, steps."""
    chosen = random.Random(f"{arguments.seed}/{number}")
    awaited = number % 2 == 1
    program = draw(chosen, awaited=awaited, postgresql=not arguments.sqlite)
    return MODES[number // 2 % len(MODES)], awaited, program


def _wrong(program: Program, mode: str, server: Server | None, *, awaited: bool, tally: Counter[str]) -> list[str]:
    """Run a program in a record, and return a line for each thing that is wrong in a recording."""
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    profiler = SqlProfiler()
    machine = Machine(profiler, server)
    if server is not None:
        server.begin()
    try:
        if awaited:
            asyncio.run(_recorded(machine, program, mode))
        else:
            with machine.connections(), machine.record(mode):
                machine.run(program)
    finally:
        profiler.remove()
        faulthandler.cancel_dump_traceback_later()
    for _, ledger in machine.recordings:
        tally["recordings"] += 1
        tally["statements"] += len(ledger.calls)
    found = machine.problems()
    if server is not None:
        found += server.problems(machine.on_server, machine.failed, machine.cut_off)
    return found


async def _recorded(machine: Machine, program: Program, mode: str) -> None:
    with machine.connections(), machine.record(mode):
        await machine.run_awaited(program)


def _smaller(program: Program, mode: str, server: Server | None, *, awaited: bool) -> Program:
    """Return the smallest program that was found to fail, by leaving out one step after the other."""
    attempts = 0
    while True:
        for smaller in _without_a_step(program):
            attempts += 1
            if attempts > _ATTEMPTS:
                return program
            if _wrong(smaller, mode, server, awaited=awaited, tally=Counter()):
                program = smaller
                break
        else:
            return program


def _without_a_step(program: Program) -> Iterator[Program]:
    """Yield copies of a program, each without one step at some depth."""
    below: list[Any]
    for index, step in enumerate(program):
        if len(program) > 1:
            yield [*program[:index], *program[index + 1 :]]
        for place, argument in enumerate(step):
            if isinstance(argument, list) and argument and isinstance(argument[0], (tuple, list)):
                if isinstance(argument[0], tuple):
                    yield [*program[:index], *deepcopy(argument), *program[index + 1 :]]
                    below = list(_without_a_step(argument))
                else:
                    below = [
                        [*argument[:at], each, *argument[at + 1 :]]
                        for at, inner in enumerate(argument)
                        for each in _without_a_step(inner)
                    ]
                    below += [[*argument[:at], *argument[at + 1 :]] for at in range(len(argument)) if len(argument) > 1]
                for each in below:
                    yield [*program[:index], (*step[:place], each, *step[place + 1 :]), *program[index + 1 :]]


if __name__ == "__main__":
    sys.exit(main())
