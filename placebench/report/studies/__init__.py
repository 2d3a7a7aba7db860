"""What a survey says: each command's measurements as rows, a first sentence, charts, and how to read them.

The key piece is `told`. A module a command (`matrix.py`, `network.py`, …) has one public function, `tell(run) -> Told`;
the page, the table of a terminal and the JSON document are made of what it returns.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

from placebench.errors import RunFolderError
from placebench.experiment.documents import HEADS
from placebench.report.studies.study import Column, Picture, Told, counted, failed
from placebench.results import Run

_MODULES: Mapping[str, str] = {
    "breakdown": "breakdown",
    "matrix": "matrix",
    "network": "network",
    "published": "published",
    "workers": "workers",
}
"""The module of each survey's command, in this package."""


def is_survey(run: Run) -> bool:
    """Whether the run was made by a survey; raises RunFolderError for a run of a command that no report knows."""
    if run.head.command not in HEADS:
        seen = f"{run.folder / 'run.json'}: command: expected one of {', '.join(HEADS)}, saw {run.head.command!r:.60}"
        raise RunFolderError(seen)
    return run.head.command in _MODULES


def told(run: Run) -> Told:
    """What the survey of this run says, as far as it got; no speed where answers differ."""
    if run.head.same_responses.get("equal") is False:
        return Told(f"No speed is shown: {run.head.same_responses['difference']}.", rows=(), columns=())
    module = import_module(f"{__name__}.{_MODULES[run.head.command]}")
    return cast(Callable[[Run], Told], module.tell)(run)


__all__ = ["Column", "Picture", "Told", "counted", "failed", "is_survey", "told"]
