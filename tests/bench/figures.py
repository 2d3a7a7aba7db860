"""What published figures are made with: the registry of their functions, the raw files, and how numbers are written."""

import functools
import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from placebench import units
from placebench.stats import hodges_lehmann

TOP = Path(__file__).resolve().parents[2]
RESULTS = TOP / "docs" / "results"
FIGURES: dict[str, Callable[[], str]] = {}


def figure(made: Callable[[], str]) -> Callable[[], str]:
    """The text of the function is that of its name, with dashes, in the pages."""
    FIGURES[made.__name__.replace("_", "-")] = made
    return made


def raw(name: str) -> dict[str, Any]:
    """The content of a raw file."""
    content: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return content


def source(name: str) -> str:
    """When, on what and how often a raw file was measured, with its link."""
    made = raw(name)
    machine = made["machine"]
    where = f"{machine['cores']} cores of {machine['processor']}"
    return f"{made['made_at'][:10]}, {where}, Python {machine['python']}, {machine['postgresql']}; [raw file]({name})"


def is_measured(name: str) -> bool:
    """Whether a raw file is there."""
    return (RESULTS / name).is_file()


def where_measured(name: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """A decorator of the functions of a raw file, which say so as long as nothing is measured."""
    recipe = Path(name).stem

    def decorate(made: Callable[[], str]) -> Callable[[], str]:
        @functools.wraps(made)
        def text() -> str:
            return made() if is_measured(name) else f"not measured yet (`tox -e results -- {recipe}`)"

        return text

    return decorate


def table(head: str, rows: Iterable[Sequence[object]]) -> str:
    """A table with this line of headings, and a line for each row."""
    lines = [head, re.sub(r"[^|]+", " --- ", head), *("| " + " | ".join(map(str, row)) + " |" for row in rows)]
    return "\n\n" + "\n".join(re.sub(r"\|  \|", "| |", line) for line in lines) + "\n\n"


# --- how figures are written


def change(ratio: float, digits: int = 1) -> str:
    """A ratio as the change that it is, in percent with a sign."""
    return f"{'−' if ratio < 1 else '+'}{abs(ratio - 1) * 100:.{digits}f}"


def effect(ratio: float, low: float, high: float, *, ci: str = "", n: str = "") -> str:
    """'−93.3 % [−94.2, −91.7]'; below 2 % of the baseline with another digit."""
    digits = 2 if ratio < 0.02 else 1
    return f"{change(ratio, digits)} % [{ci}{change(low, digits)}, {change(high, digits)}{n}]"


def times(ratio: float) -> str:
    """How many times faster: '14.9×'."""
    return f"{units.significant(1 / ratio)}×"


def paired(baseline: Sequence[float], variant: Sequence[float]) -> tuple[float, float, float]:
    """Estimate and limits of the ratio of replicates that belong together."""
    found = hodges_lehmann([math.log(b / a) for a, b in zip(baseline, variant, strict=True)])
    return math.exp(found.estimate), math.exp(found.low), math.exp(found.high)


def middle(values: Sequence[float]) -> str:
    """Their median, three significant digits."""
    return units.significant(statistics.median(values))


def interval(row: dict[str, Any], name: str) -> str:
    """'1.20 s [1.19, 1.22]', in the unit of the median."""
    scale, unit = (1, "s") if abs(row[f"{name}_s"]) >= 1 else (1e3, "ms")
    values = (row[f"{name}{each}_s"] for each in ("", "_low", "_high"))
    median, low, high = ("–" if each is None else units.significant(each * scale).replace("-", "−") for each in values)
    return f"{median} {unit} [{low}, {high}]"
