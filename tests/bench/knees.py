"""How near `placebench load --slo` comes to the capacity of services whose law is known.

    tox -e bench -- knees --runs 5

Each service is one queue of 5 ms a request (tests/fakes/queue_service.py): exponential service times (M/M/1) with a
p95 of at most 50 ms, and constant ones (M/D/1) with one of at most 25 ms. Both are measured at the same time, because
the services use no CPU.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from raw_file import measured_here, write_raw

SERVICE_S, STEP_S = 0.005, 5.0
LAWS = {
    "M": ("p95 <= 50ms", 1 / SERVICE_S - math.log(20) / 0.05),
    # By simulation of 60,000 arrivals: a percentile of the latency of M/D/1 has no closed form.
    "D": ("p95 <= 25ms", 69.2 * 0.01 / SERVICE_S),
}
"""The objective and the true capacity by the law of the service times."""
SERVICE = Path(__file__).parents[1] / "fakes" / "queue_service.py"


MAX_SMOKE_S = 60.0
"""Where the load generator is late, a search goes on at half the rate, which takes twice as long, and so on."""


def answer(law: str, seed: int, *, smoke: bool) -> dict[str, Any] | None:
    """One search, with its interval and its steps.

    smoke: a short one from near the capacity, without replicates; None if the machine is too busy for it.
    """
    objective, true_per_s = LAWS[law]
    command = [sys.executable, str(SERVICE), law, str(SERVICE_S), str(seed)]
    with (
        tempfile.TemporaryDirectory() as scratch,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served,
    ):
        try:
            assert served.stdout is not None
            amount = ["--time", "0.5", "--replicates", "0", "--rate", "100"] if smoke else ["--time", f"{STEP_S:g}"]
            words = ["--slo", objective, *amount, "--seed", str(1000 * seed), "--json"]
            url = served.stdout.readline().strip()
            program = [sys.executable, "-m", "placebench", "load", url, *words, "--out", f"{scratch}/run"]
            limit_s = MAX_SMOKE_S if smoke else None
            done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            served.kill()
    found = json.loads(done.stdout)
    return {
        "law": f"M/{law}/1",
        "objective": objective,
        "true_per_s": true_per_s,
        "seed": seed,
        "exit_code": done.returncode,
        "capacity": found["capacity"],
        "replicates_per_s": [knee["rate_per_s"] for knee in found["knees"]],
        "full": found["saturated"] and found["saturated"]["full"],
        "max_per_s": found["saturated"] and found["saturated"]["throughput_per_s"],
    }


def bench_knees(arguments: argparse.Namespace, say: Callable[..., None], _: Callable[..., str]) -> None:
    """Measure both services that often, and write the answers to knees.json."""
    answers: list[dict[str, Any]] = []
    for seed in range(1, (1 if arguments.smoke else arguments.runs or 5) + 1):
        with ThreadPoolExecutor(len(LAWS)) as pool:
            found_now = list(pool.map(partial(answer, seed=seed, smoke=arguments.smoke), LAWS))
        answers += filter(None, found_now)
        for each in filter(None, found_now):
            found = each["capacity"]
            off = f"{found['rate_per_s'] / each['true_per_s'] - 1:+.1%}" if found else "no capacity"
            say("knees", each["law"], off, str(each["full"]))
        if None in found_now:
            say("knees", f"no capacity within {MAX_SMOKE_S:g} s: the machine is busy")
        write_raw(arguments.out / "knees.json", {**measured_here(), "service_s": SERVICE_S, "answers": answers})
