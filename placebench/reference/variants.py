"""Variants of the reference service: frozen choices of ways, all made from one tuple of optimizations.

The key piece is `variant`, which reads a name: naive, tuned, naive+a+b, tuned-a-b, naive+step:way, shapes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from placebench.errors import VariantError
from placebench.reference.steps import (
    Ways,
    binding,
    collector,
    copying,
    membership,
    model,
    rows,
    search,
    serialising,
    summaries,
    usages,
)
from placebench.reference.steps.optimization import Optimization, Way

# In the order of the ladder: first what is not done at all any more, then what is done at less cost.
OPTIMIZATIONS: tuple[Optimization, ...] = (
    summaries.OPTIMIZATION,
    usages.OPTIMIZATION,
    membership.OPTIMIZATION,
    search.OPTIMIZATION,
    binding.OPTIMIZATION,
    rows.OPTIMIZATION,
    model.OPTIMIZATION,
    copying.OPTIMIZATION,
    serialising.OPTIMIZATION,
    collector.OPTIMIZATION,
)

# Algorithms beside the one that the optimizations improve; as variants they take no suffix.
ALGORITHMS: tuple[str, ...] = ("shapes",)

_BY_NAME: Mapping[str, Optimization] = {each.name: each for each in OPTIMIZATIONS}
_BY_STEP: Mapping[str, Optimization] = {each.step: each for each in OPTIMIZATIONS}
_PART = re.compile(r"([+-])([^+-]*)")


@dataclass(frozen=True, slots=True)
class Variant:
    """An algorithm and the way it takes each step."""

    name: str
    ways: Ways
    algorithm: str = "objects"


def variant(name: str) -> Variant:
    """The variant of this name; VariantError with what there is, if there is none."""
    if name in ALGORITHMS:
        return Variant(name, _ways({each.step: each.better for each in OPTIMIZATIONS}), algorithm=name)
    base, parts = re.split("[+-]", name, maxsplit=1)[0], _PART.findall(name)
    sign = {"naive": "+", "tuned": "-"}.get(base)
    if sign is None or any(given != sign for given, _ in parts):
        raise _no_such(name)
    chosen = {each.step: each.plain if base == "naive" else each.better for each in OPTIMIZATIONS}
    changed = [_change(name, sign, part) for _, part in parts]
    if len({step for step, _ in changed}) < len(changed):
        raise VariantError(f"variant {name!r} changes one step twice: name each step once")
    return Variant(name, _ways({**chosen, **dict(changed)}))


def ladder() -> tuple[str, ...]:
    """From naive, one optimization more at each rung, to tuned, which has them all."""
    names = [each.name for each in OPTIMIZATIONS]
    return ("naive", *("+".join(("naive", *names[:count])) for count in range(1, len(names))), "tuned")


def ablations() -> tuple[str, ...]:
    """tuned with one optimization taken away, for each of them."""
    return tuple(f"tuned-{each.name}" for each in OPTIMIZATIONS)


def third_ways() -> tuple[str, ...]:
    """naive with one step taken in a way that is neither plain nor in tuned, for each of these."""
    return tuple(f"naive+{each.step}:{way.name}" for each in OPTIMIZATIONS for way in each.others)


def _change(name: str, sign: str, part: str) -> tuple[str, Way]:
    """The step that a part of a name changes, and its new way."""
    step, colon, way_name = part.partition(":")
    if colon and sign == "+" and step in _BY_STEP:
        for way in _BY_STEP[step].ways:
            if way.name == way_name:
                return step, way
    elif not colon and part in _BY_NAME:
        optimization = _BY_NAME[part]
        return optimization.step, optimization.better if sign == "+" else optimization.plain
    raise _no_such(name)


def _ways(chosen: Mapping[str, Way]) -> Ways:
    does: dict[str, Any] = {step: way.does for step, way in chosen.items()}
    return Ways(**does)


def _no_such(name: str) -> VariantError:
    optimizations = ", ".join(each.name for each in OPTIMIZATIONS)
    return VariantError(
        f"no variant {name!r}: expected naive, tuned, naive+NAME+NAME, tuned-NAME-NAME, naive+STEP:WAY or "
        f"{' or '.join(ALGORITHMS)}, "
        f"with NAME one of {optimizations}, and STEP:WAY one of {_listed(third_ways())}"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name.removeprefix("naive+") for name in names)
