"""What each mode of our profiler costs a whole request: CPU of this process, by turns in a random order; prints JSON.

    python request_cost.py DATABASE_URL REQUEST VARIANT REPEATS

The seconds of each request by mode, "" for none; all threads of the process, so that a sampling thread is in it.
"""

import gc
import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from sqlalchemy import create_engine
from werkzeug.test import Client

from placebench import SqlProfiler
from placebench.compare.what.http_request import HEADERS
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.variants import variant

MODES = ("", "light", "full", "sampled", "flame")
WARM_UP = 3


def main(url: str, request: str, name: str, repeats: int) -> None:
    """Measure, and print the seconds."""
    engine = create_engine(url)
    client = Client(make_app(engine, name))
    profiler = SqlProfiler(engine)
    variant(name).implementations.collector()
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    for repeat in range(-WARM_UP, repeats):
        for mode in random.Random(repeat).sample(MODES, len(MODES)):
            taken = cpu_s(lambda: answered(client, request), profiler, mode)
            if repeat >= 0:
                seconds[mode].append(taken)
    print(json.dumps(seconds))


def answered(client: Client, request: str) -> None:
    """Ask, and read the answer; what is no answer costs nothing that is worth a figure."""
    answer = client.get(request, headers=HEADERS)
    if answer.status_code != 200 or not answer.get_data():
        sys.exit(f"{answer.status}: {answer.get_data(as_text=True)[:200]}")


def cpu_s(ask: Callable[[], Any], profiler: SqlProfiler, mode: str) -> float:
    """CPU seconds of one request, with its recording to the end; what is left over is collected before."""
    gc.collect()
    began = time.process_time()
    with profiler.record("request", mode) if mode else nullcontext():
        ask()
    return time.process_time() - began


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
