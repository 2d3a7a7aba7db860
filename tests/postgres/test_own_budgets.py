"""The reference service within the budgets that our own `placebench profile check` holds it to."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from placebench.compare.what.http_request import HEADERS
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.runtime.postgres import Server

TOPOLOGY = find_topology("nested-perfload", trees=4, seed=1)
BUDGETS = ("statements <= 12", "round_trips <= 14", "n_plus_one <= 0", "duplicates <= 0")


@pytest.fixture(scope="module")
def seeded(server: Server) -> str:
    """A database with four provider trees."""
    url = server.create_database("placebench_test_budgets")
    seed(TOPOLOGY, url)
    return url


def check(url: str, variant: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A check of the request for candidates."""
    headers = [word for name, value in HEADERS.items() for word in ("--header", f"{name}: {value}")]
    gates = [word for budget in BUDGETS for word in ("--gate", budget)]
    words = ["--request", f"GET {TOPOLOGY.request}", *headers, *gates, "--mode", "full", "--json", "-o", str(folder)]
    return subprocess.run(
        [sys.executable, "-m", "placebench", "profile", "check", "placebench.lab.reference.wsgi:application", *words],
        env={**os.environ, "PLACEBENCH_DATABASE_URL": url, "PLACEBENCH_VARIANT": variant},
        capture_output=True,
        text=True,
        check=False,
    )


def test_candidates_stay_within_their_budgets(seeded: str, tmp_path: Path) -> None:
    """tuned does; naive is refused by exit code 1, with what it took of each."""
    tuned, naive = (check(seeded, variant, tmp_path / variant) for variant in ("tuned", "naive"))

    assert (0, 1) == (tuned.returncode, naive.returncode)
    summary = json.loads(tuned.stdout)["summary"]
    assert (12, 14) == (summary["statements"], summary["round_trips"])
    refused = re.findall(r"(\d+ \w[\w ]*), expected <= \d+$", naive.stderr, re.MULTILINE)
    assert ["18 statements", "20 round trips", "6 duplicates"] == refused
