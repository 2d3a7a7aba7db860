"""What placebench and three other tools report of the programs in tests/fakes/finding_programs, beside what is right.

Each tool runs all programs in a process of its own; one that is not installed is left out. docs/results/findings.json.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from finding_programs.__main__ import TOOLS
from raw_file import measured_here, write_raw
from sqlalchemy.engine import make_url

from placebench.runtime.postgres import open_server

FAKES = Path(__file__).resolve().parents[1] / "fakes"
PACKAGES = {"queryspy": "queryspy", "queryguard": "pytest-queryguard", "nplusone": "nplusone"}


def bench_findings(
    arguments: argparse.Namespace, say: Callable[..., None], _spread: Callable[[Sequence[float]], str]
) -> None:
    """Run the programs under each tool."""
    installed = {each.name.lower() for each in metadata.distributions()}
    document: dict[str, Any] = {"measured": measured_here(), "versions": {}, "programs": []}
    with open_server() as server:
        server.create_database("finding_programs")
        url = make_url(server.admin_url("finding_programs")).set(drivername="postgresql")
        for tool in TOOLS:
            package = PACKAGES.get(tool, "placebench")
            if package not in installed:
                say(tool, "not installed")
                continue
            document["versions"][tool] = metadata.version(package)
            results = run_programs(tool, url.render_as_string(hide_password=False))
            document["programs"] = document["programs"] or [
                {**{name: each[name] for name in ("name", "stack", "finding", "expected")}, "reported": {}}
                for each in results
            ]
            for program, result in zip(document["programs"], results, strict=True):
                program["reported"][tool] = result["reported"]
            say(tool, f"{len(results)} programs")
    write_raw(arguments.out / "findings.json", document)


def run_programs(tool: str, url: str) -> list[dict[str, Any]]:
    """Return the programs, each with what must be reported and what the tool reports; None where it cannot run."""
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "finding_programs", tool, "--url", url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(FAKES), os.environ.get("PYTHONPATH", "")))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    results: list[dict[str, Any]] = json.loads(child.stdout)
    return results
