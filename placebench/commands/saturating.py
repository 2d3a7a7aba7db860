"""`placebench load --slo p95=500ms` and `--until-errors`: the search for what a service takes, with its page."""

import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from placebench import units
from placebench.commands.console import print_json, print_result, say
from placebench.commands.folders import list_run
from placebench.errors import LoadError, PlacebenchError, UndecidedError

if TYPE_CHECKING:
    from placebench.experiment.capacity import Step
    from placebench.experiment.load_run import LoadSpec

_STEP_S = 10.0
_MOST_USERS = 1024
_TIMEOUT_S = 10.0
_EXIT_INTERRUPTED = 130


def add_options(parser: ArgumentParser) -> None:
    """Those of a search."""
    search = parser.add_mutually_exclusive_group()
    search.add_argument(
        "--slo",
        metavar="p95=500ms",
        type=str.lower,
        help="search for the highest rate of arrivals under this objective, from --rate on, in steps of --time (10 s)",
    )
    search.add_argument(
        "--until-errors", action="store_true", help=f"double --users up to {_MOST_USERS} until errors or timeouts begin"
    )


def wanted(arguments: Namespace) -> bool:
    """Whether a search was asked for."""
    return bool(arguments.slo or arguments.until_errors)


def run_search(arguments: Namespace) -> int:
    """Make the search; each step is told as it ends, and the page's address is the last line."""
    from placebench import paths
    from placebench.experiment.capacity import CapacitySearch, read_objective
    from placebench.experiment.run_folder import claim_folder, new_folder

    objective = read_objective(arguments.slo) if arguments.slo else None
    spec = _spec(arguments)
    folder = (
        claim_folder(arguments.out.resolve()) if arguments.out else new_folder("saturation", paths.profiles_folder())
    )
    search = CapacitySearch(spec, folder, step_s=arguments.time or _STEP_S, tell=lambda step: say(_line(step)))
    try:
        if objective:
            search.rate(objective, arguments.rate)
        else:
            search.users(arguments.users, _MOST_USERS)
    except PlacebenchError:
        if not search.made.steps:
            shutil.rmtree(folder)
            raise
        _tell(folder, arguments)
        raise
    except KeyboardInterrupt:
        say("interrupted")
        _tell(folder, arguments)
        return _EXIT_INTERRUPTED
    _tell(folder, arguments)
    if search.made.held is None and search.made.broken is None:
        raise UndecidedError(f"nothing can be told of the service: {search.made.steps[-1].why}")
    return 0


def _spec(arguments: Namespace) -> "LoadSpec":
    from placebench.experiment.load_run import LoadSpec

    if arguments.requests is not None:
        raise LoadError("--requests has no meaning in a search: its steps take --time seconds each")
    kind, needed = ("open", "a rate") if arguments.slo else ("closed", "users")
    if arguments.locustfile not in ("closed", kind):
        raise LoadError(f"--locustfile {arguments.locustfile}: a search of {needed} makes a load of its own, {kind}")
    return LoadSpec(
        url=arguments.url,
        request=arguments.path,
        kind=kind,
        warmup=arguments.warmup,
        seed=arguments.seed,
        response_timeout_s=arguments.answer_timeout or (300.0 if arguments.slo else _TIMEOUT_S),
    )


def _tell(folder: Path, arguments: Namespace) -> None:
    from placebench.experiment.capacity import Saturation
    from placebench.report.capacity import result_line, saturation_document, write_saturation

    page = write_saturation(folder)
    list_run(folder)
    made = Saturation.load(folder / "saturation.json")
    if arguments.json:
        print_json(saturation_document(folder, made))
        say(page.as_uri())
    else:
        print_result(result_line(made))
        print_result(page.as_uri())


def _line(step: "Step") -> str:
    """One step as it ends."""
    p95 = step.latency_s["p95"] if step.latency_s["p95"] is not None else step.latency_s["p50"]
    word = {"held": "holds", "broken": "does not hold", "generator": "does not count"}[step.outcome]
    told = f"{step.load:g}: {units.rate(step.throughput_per_s)}, {units.duration(p95)}, {word}"
    return f"{told}: {step.why}" if step.why else told
