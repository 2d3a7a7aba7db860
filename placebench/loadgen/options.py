"""The options of our locustfiles, in addition to locust's own, and the schedule of open-loop arrivals."""

import argparse
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from placebench.http_session import Request

_RESPONSE_TIMEOUT_S = 300.0
DEFAULT_TIME_S = 10.0
"""Duration of a load in seconds if neither a duration nor a number of requests is given."""
MAX_CONCURRENT = 400
_Arrival = TypeVar("_Arrival")


@dataclass(frozen=True)
class LoadOptions:
    """The options of one load run."""

    path: str
    workload: tuple[Request, ...]
    """Requests that are sent in turn; if empty, GET requests of *path* with the headers of Placement's API."""
    login: tuple[Request, ...]
    """Requests that each user sends once before all others."""
    requests: int | None
    warmup: int
    measure_s: float | None
    rate_per_s: float
    max_concurrent: int
    seed: int
    response_timeout_s: float
    insecure: bool
    samples_file: Path | None
    telemetry: Path | None

    @classmethod
    def of(cls, parsed: argparse.Namespace) -> Self:
        """Return the options from the result of a parser with `add_options`."""
        import msgspec  # not at the top: the command line reads a default from here and starts faster without it

        return cls(
            path=parsed.candidates_path,
            workload=msgspec.json.decode(parsed.requests_file or "[]", type=tuple[Request, ...]),
            login=msgspec.json.decode(parsed.login_file or "[]", type=tuple[Request, ...]),
            requests=parsed.requests,
            warmup=parsed.warmup,
            measure_s=parsed.measure_s,
            rate_per_s=parsed.rate,
            max_concurrent=parsed.max_concurrent,
            seed=parsed.seed,
            response_timeout_s=parsed.response_timeout,
            insecure=bool(parsed.insecure),
            samples_file=Path(parsed.samples_file) if parsed.samples_file else None,
            telemetry=Path(parsed.telemetry) if parsed.telemetry else None,
        )


def add_options(parser: argparse.ArgumentParser, *, path: str) -> None:
    """Add our options with their defaults; *path* is the default of --candidates-path."""
    group = parser.add_argument_group("placebench")
    group.add_argument(
        "--candidates-path", default=path, metavar="PATH", help="path and query to request (default: %(default)s)"
    )
    group.add_argument(
        "--requests-file",
        # The content instead of the path, because locust's master sends the options to workers on other machines.
        type=lambda path: Path(path).read_text(),
        metavar="FILE",
        help='requests of any service, sent in turn: JSON [{"method", "path", "headers", "body" in base64}]',
    )
    group.add_argument(
        "--login-file",
        type=lambda path: Path(path).read_text(),
        metavar="FILE",
        help="login that each user sends once before, keeping its cookies and token; as --requests-file",
    )
    group.add_argument("--requests", type=_positive_int, help="stop when exactly this number of requests has ended")
    group.add_argument("--warmup", type=_natural, default=0, metavar="N", help="requests first that are not counted")
    group.add_argument(
        "--measure-s", type=_positive, metavar="S", help="start no request this many seconds after the warm-up"
    )
    group.add_argument("--rate", type=_positive, default=10.0, help="open-loop load: arrivals per second")
    group.add_argument(
        "--max-concurrent",
        type=_positive_int,
        default=MAX_CONCURRENT,
        metavar="N",
        help="open-loop load: requests in flight at most, of each process (default: %(default)s)",
    )
    group.add_argument("--seed", type=int, default=1, help="open-loop load: which schedule")
    group.add_argument(
        "--response-timeout",
        type=_positive,
        default=_RESPONSE_TIMEOUT_S,
        metavar="S",
        help="seconds to wait for a whole response (default: %(default)s)",
    )
    group.add_argument(
        "--insecure", type=int, default=0, metavar="0|1", help="1: accept a certificate that is not valid (default: 0)"
    )
    group.add_argument("--samples-file", metavar="FILE", help="write the exact samples there, as JSON")
    group.add_argument(
        "--telemetry",
        metavar="DIR",
        default=os.environ.get("PLACEBENCH_TELEMETRY"),
        help="write the client's telemetry there (default: $PLACEBENCH_TELEMETRY)",
    )


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return value


def _positive_int(text: str) -> int:
    return _whole(text, at_least=1)


def _natural(text: str) -> int:
    return _whole(text, at_least=0)


def _whole(text: str, *, at_least: int) -> int:
    value = int(text)
    if value < at_least:
        raise argparse.ArgumentTypeError(f"{text}: expected at least {at_least}")
    return value


def arrivals(rate_per_s: float, seed: int) -> Iterator[float]:
    """Yield the offsets in seconds from the start at which requests are due, endlessly, with exponential gaps."""
    chance = random.Random(seed)
    at = 0.0
    while True:
        at += chance.expovariate(rate_per_s)
        yield at


@dataclass(frozen=True)
class LoadPart:
    """The part of a load that one of several processes makes; by default the whole load."""

    index: int = 0
    count: int = 1

    def share(self, total: int) -> int:
        """Return this part's share of *total*; the shares of all parts add up to *total*."""
        return total // self.count + (self.index < total % self.count)

    def select(self, schedule: Iterable[_Arrival], seed: int) -> Iterator[_Arrival]:
        """Return this part's arrivals of *schedule*: each arrival belongs to one part, drawn independently by *seed*.

        All parts together are the schedule itself. Independent draws divide a Poisson process into independent Poisson
        processes, one per part. Clocks that differ therefore do not change the process of all arrivals. Taking every
        n-th arrival would give regular gaps, and the combined gaps would depend on the clocks.
        """
        chance = random.Random(f"part of each arrival, seed {seed}")
        return (arrival for arrival in schedule if chance.randrange(self.count) == self.index)
