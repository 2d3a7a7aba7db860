"""What telemetry costs a request, and what reading its samples takes; sections of bench.py.

Cost: CPU of this process, every thread of it, blocks with and without telemetry by turns, the writing of the lines
included. Both variants pass the same environ and close the body, as a server does.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from placebench import units
from placebench.lab.reference.api.pipeline import make_app
from placebench.stats import median_interval
from placebench.telemetry import Telemeter, load
from placebench.telemetry.series_file import DURATION_LINE, REQUEST_LINE

REQUESTS = 2000
BLOCKS_A_REPEAT = 5
ENVIRON = {
    "REQUEST_METHOD": "GET",
    "PATH_INFO": "/",
    "QUERY_STRING": "",
    "SERVER_NAME": "127.0.0.1",
    "SERVER_PORT": "80",
    "wsgi.url_scheme": "http",
    "HTTP_X_PLACEBENCH_REQUEST": "123456789012345678",
}


def bench_telemetry(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """Microseconds a request, of an empty application and of the reference service's `GET /`; seconds of reading."""
    blocks, samples = arguments.repeats * BLOCKS_A_REPEAT, arguments.samples
    say(f"telemetry, {blocks} blocks of {REQUESTS}", "µs without", "µs it adds", "interval")
    for name, app in (("an empty application", _empty), ("the service's GET /", make_app(_engine(), "tuned"))):
        with tempfile.TemporaryDirectory() as folder:
            telemeter = Telemeter(folder)
            without, added = _costs(app, telemeter, blocks)
            telemeter.close()
        found = median_interval(added)
        interval = "too few blocks" if found.low is None else f"{found.low:.2f} to {found.high:.2f}"
        say(name, spread(without), units.significant(found.median), interval)
    for name, template, rows in (("requests", REQUEST_LINE, samples // 3), ("durations", DURATION_LINE, samples)):
        seconds = [_reading_s(template, rows, samples) for _ in range(min(arguments.repeats, 5))]
        say(f"{samples} samples from {name}", "seconds to frames", spread(seconds))


def _costs(app: Any, telemeter: Telemeter, blocks: int) -> tuple[list[float], list[float]]:
    """Microseconds of CPU a request: without, and how much more with."""
    watched = telemeter.wsgi(app)
    for each in (app, watched):
        _block(each)
    without, added = [], []
    for number in range(blocks):
        order = (app, watched) if number % 2 else (watched, app)
        took = {}
        for each in order:
            began = time.process_time()
            _block(each)
            if each is watched:
                telemeter.file.flush()
            took[id(each)] = (time.process_time() - began) / REQUESTS * 1e6
        without.append(took[id(app)])
        added.append(took[id(watched)] - took[id(app)])
    return without, added


def _block(app: Any) -> None:
    for _ in range(REQUESTS):
        body = app(dict(ENVIRON), _start_response)
        for _piece in body:
            pass
        close = getattr(body, "close", None)
        if close is not None:
            close()


def _empty(_environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    start_response("200 OK", [])
    return [b""]


def _start_response(*_: Any) -> None:
    pass


def _engine() -> Any:
    return create_engine("sqlite://")


def _reading_s(template: str, rows: int, samples: int) -> float:
    """So many samples in two files, as two workers leave them."""
    request = ("GET", "/allocation_candidates", "200", 0.0123456, "0.0012345", "0.0111111")
    duration = ("GET", "/allocation_candidates", "200", "statement", "44a0a97454740470", 0.0012345)
    fields = request if template is REQUEST_LINE else duration
    with tempfile.TemporaryDirectory() as folder:
        for worker in range(2):
            lines = (template % (1.7e9 + row / 1000, worker << 40 | row, *fields) for row in range(rows // 2 + 1))
            Path(folder, f"worker-{worker}.csv").write_text("".join(lines))
        began = time.perf_counter()
        telemetry = load(folder)
        took = time.perf_counter() - began
        assert len(telemetry.durations) >= samples - 3
    return took
