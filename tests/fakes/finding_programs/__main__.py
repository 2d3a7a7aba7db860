"""Run the programs under one tool; print them as JSON with the kinds of findings that it reports of each.

    python -m finding_programs TOOL [--stack NAME …] [--only PROGRAM …] [--url postgresql://…]

TOOL is placebench, queryspy, queryguard or nplusone; the others report N+1, which includes reads of equal values. For
a program of a stack that the tool does not know "reported" is null. Without --url those of PostgreSQL are left out.
"""

import argparse
import functools
import importlib
import json
import sys
from collections.abc import Callable

from finding_programs import CLOCK, PROGRAMS, Program

STACKS = ("sqlalchemy", "sqlite3", "django", "postgresql", "plans", "asyncio")
Run = Callable[[], None]


def with_placebench() -> Callable[[Program, Run], list[str]]:
    """Statements with their values and lines, or plans; by a clock that only the programs move."""
    from placebench.profiler import Clocks, SqlProfiler

    profiler = SqlProfiler(clocks=Clocks(elapsed=CLOCK, cpu=lambda: 0.0))

    def run(program: Program, work: Run) -> list[str]:
        with profiler.record(program.name, mode=program.mode) as recording:
            work()
        return sorted({each.kind for each in recording.findings()})

    return run


def with_queryspy() -> Callable[[Program, Run], list[str]]:
    """Its own threshold."""
    import queryspy

    def run(_program: Program, work: Run) -> list[str]:
        with queryspy.record() as recorder:
            work()
        return ["n+1"] if recorder.findings() else []

    return run


def with_queryguard() -> Callable[[Program, Run], list[str]]:
    """All that its plug-in for pytest would fail a test for."""
    from pytest_queryguard import NPlusOneDetected, record_queries

    def run(_program: Program, work: Run) -> list[str]:
        with record_queries() as log:
            work()
        try:
            log.assert_no_nplusone()
        except NPlusOneDetected:
            return ["n+1"]
        return []

    return run


def with_nplusone() -> Callable[[Program, Run], list[str]]:
    """It raises at the first lazy load of a second object; its part for SQLAlchemy cannot be imported with 2.1."""
    import nplusone.ext.django.patch  # noqa: F401  hooks Django
    from nplusone.core.exceptions import NPlusOneError
    from nplusone.core.profiler import Profiler

    def run(_program: Program, work: Run) -> list[str]:
        try:
            with Profiler():
                work()
        except NPlusOneError:
            return ["n+1"]
        return []

    return run


TOOLS: dict[str, tuple[Callable[[], Callable[[Program, Run], list[str]]], tuple[str, ...]]] = {
    "placebench": (with_placebench, STACKS),
    "queryspy": (with_queryspy, ("sqlalchemy",)),
    "queryguard": (with_queryguard, ("sqlalchemy",)),
    "nplusone": (with_nplusone, ("django",)),
}


def main() -> None:
    """Print what the tool found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("--url")
    parser.add_argument("--stack", nargs="*", default=STACKS)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    prepare, known = TOOLS[arguments.tool]
    run = prepare()  # before the programs import a driver
    stacks = [name for name in arguments.stack if arguments.url or name not in ("postgresql", "plans")]
    places = {name: importlib.import_module(f"finding_programs.on_{name}").place for name in stacks}
    results = []
    for program in PROGRAMS:
        if arguments.only and program.name not in arguments.only:
            continue
        reported: list[str] | None = None
        if program.stack in known:
            with places[program.stack](arguments.url or "") as place:
                reported = run(program, functools.partial(program.function, place))
        about = {"name": program.name, "stack": program.stack, "finding": program.finding}
        results.append({**about, "expected": sorted(program.findings), "reported": reported})
    json.dump(results, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
