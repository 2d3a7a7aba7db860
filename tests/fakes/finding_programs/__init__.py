"""Small programs, each with the findings that a profiler must report of it, and no others.

`PROGRAMS` has all of them. A program takes the place that its module makes for it (a database with a few rows) and is
what an application does in one request. `found` and `absent` name the finding that it is about; most are from public
complaints about missed patterns and false alarms. `python -m finding_programs TOOL` runs them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Program:
    """A function of its place, and what must be found in it.

    finding: what it is about. findings: all that must be found. mode: of the recording. stack: what it is written with.
    """

    name: str
    function: Callable[[Any], Any]
    stack: str
    finding: str
    findings: frozenset[str]
    mode: str


PROGRAMS: list[Program] = []


def _add(finding: str, findings: set[str], mode: str) -> Callable[[_Function], _Function]:
    def add(function: _Function) -> _Function:
        stack = function.__module__.rpartition(".")[2].removeprefix("on_").replace("_", " ")
        PROGRAMS.append(Program(function.__name__, function, stack, finding, frozenset(findings), mode))
        return function

    return add


def found(finding: str, *others: str, mode: str = "full") -> Callable[[_Function], _Function]:
    """The program must have this finding, and the others."""
    return _add(finding, {finding, *others}, mode)


def absent(finding: str, *others: str, mode: str = "full") -> Callable[[_Function], _Function]:
    """The program looks as if it had this finding, which it must not have."""
    return _add(finding, set(others), mode)


class Clock:
    """Seconds that pass only by `work`, so that a program that waits for 100 ms takes no time."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> float:
        """Do something else than SQL for that time."""
        self.now += seconds
        return seconds


CLOCK = Clock()
