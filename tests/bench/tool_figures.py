"""The figures of docs/explanation/alternatives.md: placebench and other tools on the same programs (tools.json)."""

import statistics
from typing import Any

from figures import effect, figure, paired, raw, table, where_measured

from placebench import units

COMMANDS = {
    "placebench, light": '`profiler.record("request", "light")`',
    "placebench, full": 'the same, `"full"`',
    "placebench, sampled": 'the same, `"sampled"`',
    "placebench, flame": 'the same, `"flame"`',
    "sqltap": "`with sqltap.ProfilingSession(engine)`",
    "queryspy": "`with queryspy.record()`",
    "queryguard": "`with pytest_queryguard.record_queries()`",
    "opentelemetry": "`SQLAlchemyInstrumentor().instrument(engine=engine)`, spans kept in memory",
    "debug toolbar": "`DebugToolbarMiddleware`, `DEBUG = True`",
    "silk": "`SilkyMiddleware`",
    "pyinstrument": "`with pyinstrument.Profiler()`",
    "py-spy": "`py-spy record --pid PID --format raw`",
    "hyperfine": "`hyperfine -N --warmup 1 --runs 20 FIRST SECOND`",
    "pytest-benchmark": "`pytest --benchmark-json`, `pedantic(rounds=20)`",
    "wrk": "`wrk -t 1 -c 4 -d 3s URL`",
    "locust": "`locust --headless -u 4 -r 4 -t 3s`",
}


def _name(found: dict[str, Any], tool: str) -> str:
    """The tool with its version, or with our mode."""
    name, _, mode = tool.partition(", ")
    return f"{name}, `{mode}`" if mode else f"{name} {found['versions'].get(name, '')}".strip()


@figure
@where_measured("tools.json")
def tools_requests() -> str:
    """A line for each profiler: what it adds to a request of each stack, and the statements that it counts."""
    found = raw("tools.json")
    stacks = found["requests"]
    rows = []
    for tool in dict.fromkeys(tool for tools in stacks.values() for tool in tools if tool != "none"):
        cells = []
        for tools in stacks.values():
            if tool not in tools:
                cells += ["–", "–"]
                continue
            made = tools[tool]
            ratios = [
                statistics.median(b / a for a, b in zip(plain, watched, strict=True))
                for plain, watched in zip(tools["none"]["cpu_s"], made["cpu_s"], strict=True)
            ]
            cells.append(effect(*paired([1.0] * len(ratios), ratios)))
            cells.append("none" if made["statements"] is None else f"{made['statements']} of {made['traced']}")
        rows.append([_name(found, tool), COMMANDS[tool], *cells])
    return table("| Tool | Command | SQLAlchemy, CPU | statements | Django, CPU | statements |", rows)


@figure
@where_measured("tools.json")
def tools_changes() -> str:
    """A line for each tool: the change that it reports between two runs of the same work, and of 5 % more."""
    found = raw("tools.json")
    ours = "`placebench study matrix --axis count=N,N -n 20 -- COMMAND {count}`"
    rows = []
    for tool, cases in found["changes"].items():
        changes = [", ".join(f"{units.signed_percent(each)}" for each in cases[case]) for case in ("same", "more")]
        rows.append([_name(found, tool), COMMANDS.get(tool, ours), *changes])
    return table("| Tool | Command | the same work | 5 % more work |", rows)


@figure
@where_measured("tools.json")
def tools_loads() -> str:
    """A line for each tool: requests per second, and the CPU of the client per request."""
    found = raw("tools.json")
    ours = "`placebench load URL --users 4 --time 3`"
    rows = []
    for tool, made in found["loads"].items():
        rates = made["per_s"]
        cpu_us = statistics.median(made["client_cpu_s"]) * 1e6
        spread = f"{statistics.median(rates):.0f} ({min(rates):.0f}–{max(rates):.0f})"
        rows.append([_name(found, tool), COMMANDS.get(tool, ours), spread, units.significant(cpu_us)])
    return table("| Tool | Command | requests per second, median (min–max) | CPU of the client per request, µs |", rows)
