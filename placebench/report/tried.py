"""What a run tried: each pair of arms that is compared, by a name that fits a page.

The key piece is `tried`. Arms of a ladder have long names; what changed between two of them has a short one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from placebench.results import Run

_KINDS = {"alone": "{}, alone", "missed": "{}, among the others"}


@dataclass(frozen=True)
class Tried:
    """One change, or one program held against another."""

    baseline: str
    variant: str
    name: str
    kind: str
    """rung, alone, missed or own; empty where arms were named on the command line."""

    @property
    def label(self) -> str:
        """What tells it from the others: 'slots, alone'."""
        return _KINDS.get(self.kind, "{}").format(self.name)


def tried(run: Run) -> list[Tried]:
    """The trials of an experiment, else each arm with the first, as far as both were measured; each pair once."""
    seen = {block.arm for block in run.blocks} | set(run.wire)
    if trials := run.head.settings.get("trials"):
        made = [Tried(each["baseline"], each["variant"], each["name"], each["kind"]) for each in trials]
    else:
        baseline, *others = [variant for variant in run.head.variants if variant in seen] or [""]
        made = [Tried(baseline, other, other, "") for other in others]
    first: dict[tuple[str, str], Tried] = {}
    for each in made:
        if seen.issuperset((each.baseline, each.variant)):
            first.setdefault((each.baseline, each.variant), each)
    return list(first.values())


def arm_shortened(arm: str, among: Iterable[str] = ()) -> str:
    """An arm by its first part and its last: 'naive+rows+slots+sets' → 'naive+…+sets'; others as they are.

    Where another one of *among* would be called the same it keeps as many of its last parts as tell it from them.
    """
    others = [other for other in among if other != arm]
    kept = range(1, arm.count("+") + 1)
    names = (_by_its_ends(arm, parts) for parts in kept if not _is_shared(arm, others, parts))
    return next(names, arm)


def _is_shared(arm: str, others: Sequence[str], parts: int) -> bool:
    return any(_by_its_ends(other, parts) == _by_its_ends(arm, parts) for other in others)


def _by_its_ends(arm: str, parts: int) -> str:
    head, *rest = arm.split("+")
    return arm if len(rest) <= parts else "+".join([head, "…", *rest[-parts:]])
