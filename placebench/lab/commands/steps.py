"""`placebench lab steps`: the effect of each optimization, measured in the same replicates, and which ones to keep."""

from argparse import ArgumentParser
from dataclasses import dataclass

from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.runs import compare_plan
from placebench.errors import UsageError


@dataclass(frozen=True)
class StepsOptions:
    """The options of `placebench lab steps`."""

    comparison: options.ComparisonOptions
    leave_one_out: bool
    only: str | None
    add: tuple[str, ...]
    pg: tuple[str, ...]
    request: str | None


def _configure(parser: ArgumentParser) -> None:
    series = parser.add_mutually_exclusive_group()
    series.add_argument(
        "--leave-one-out",
        action="store_true",
        help="each optimization added alone, and left out alone (default: the cumulative series)",
    )
    series.add_argument("--only", metavar="NAME", help="one optimization, on its own request and data")
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="NAME:ALTERNATIVE",
        help="implementation that every variant has, such as driver:psycopg3; may be repeated",
    )
    parser.add_argument(
        "--pg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of PostgreSQL that every variant has, such as jit=on; may be repeated",
    )
    options.add_replicates(parser, 12)
    options.add_comparison(parser, rounds="6; with --only: 12")
    options.add_host(parser)


def _run(given: StepsOptions) -> int:
    """Compare the steps; measurements are reported even if the run is interrupted or fails."""
    from placebench.http_session import Request
    from placebench.lab.perfload.catalogue import experiment_named

    name = given.only or ("leave-one-out" if given.leave_one_out else "cumulative")
    plan = experiment_named(name, everywhere="".join(f"+{each}" for each in given.add))
    requests = [Request("GET", given.request)] if given.request else []
    postgres: dict[str, str] = {}
    for text in given.pg:
        setting, sign, value = text.partition("=")
        if not (setting and sign and value):
            raise UsageError(f"--pg {text!r}: expected NAME=VALUE, such as work_mem=64kB")
        postgres[setting.lower()] = value
    compare_plan(given.comparison, plan, postgres=postgres, requests=requests)
    return 0


COMMANDS = {"lab steps": Command(_configure, _run, options=StepsOptions, needs_linux=STARTS_SERVERS)}
