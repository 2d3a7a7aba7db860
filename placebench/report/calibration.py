"""What the machine could resolve when it was last calibrated before a run: the key piece is `calibrated`.

The document is the one that `placebench.experiment.environment` keeps.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from placebench import units
from placebench.experiment.records import RunHead
from placebench.report import sentences


def calibrated(head: RunHead) -> str:
    """When and where identical variants were compared, then a sentence a metric; empty where they never were."""
    kept = head.manifest.get("calibration") or {}
    metrics = [made for name in ("cpu_s", "wall_s") if (made := kept.get("metrics", {}).get(name))]
    if not metrics:
        return ""
    rounds = f" of {kept['rounds']} rounds" if "rounds" in kept else ""
    made = f"{_machine(kept, head)} at {sentences.moment(kept['made_at'])} with {metrics[0]['replicates']} replicates"
    return " ".join([f"{made}{rounds} of identical variants.", *map(_told, metrics)])


def _machine(kept: Mapping[str, Any], head: RunHead) -> str:
    """What is kept may come from elsewhere: several machines can share a home."""
    here = head.manifest.get("machine", {}).get("processor")
    if kept["machine"] == here:
        return "This machine was calibrated"
    return f"Not this machine ({here}) but another one ({kept['machine']}) was calibrated"


def _told(made: Mapping[str, Any]) -> str:
    differed, low, high = (units.change(math.exp(made[name])) for name in ("estimate", "low", "high"))
    within = "within" if made["passed"] else "not accepted, for that is not within"
    interval = f"{low} to {high}; {within} half the margin of {units.level(made['margin'])}"
    called = f"{made['false_positives']} of {made['runs_of_six']} runs of six called them different"
    label = sentences.METRIC_LABELS[made["metric"]]
    return f"Their {label} differed by {differed} ({interval}) and {'; '.join([called, *_found(made)])}."


def _found(made: Mapping[str, Any]) -> Iterator[str]:
    """For each number of replicates how often injected effects are found, and which one in 4 of 5 runs."""
    for number, power in made["power"].items():
        shares = ", ".join(
            f"{units.level(float(effect))} in {units.percent(share, digits=2)}" for effect, share in power.items()
        )
        smallest = units.percent(math.expm1(made["detectable"][number]), digits=2)
        yield f"{number} replicates find a change of {shares} of runs, and one of {smallest} in 4 of 5"
