"""The calibration of the machine, as it was before a run, as sentences: `calibration_sentences`."""

import math
from collections.abc import Mapping
from typing import Any

from placebench import units
from placebench.compare.keep.records import RunHead
from placebench.report.effects import METRIC_LABELS
from placebench.report.environment import moment


def calibration_sentences(head: RunHead) -> str:
    """Return when and where identical variants were compared, and the result per metric; '' without a calibration."""
    kept = head.manifest.get("calibration") or {}
    metrics = [made for name in ("cpu_s", "wall_s") if (made := kept.get("metrics", {}).get(name))]
    if not metrics:
        return ""
    rounds = f" of {kept['rounds']} rounds" if "rounds" in kept else ""
    here = head.manifest.get("machine", {}).get("processor")
    machine = "This machine" if kept["machine"] == here else f"Another machine ({kept['machine']}, this one is {here})"
    replicates = f"{units.numbered(metrics[0]['replicates'], 'replicate')}{rounds}"
    made = f"{machine} was calibrated at {moment(kept['made_at'])} with {replicates} of identical variants (A/A)."
    return " ".join([made, *map(metric_sentences, metrics)])


def metric_sentences(made: Mapping[str, Any]) -> str:
    """Return the calibration result of one metric as sentences, from its JSON document.

    'A/A check of server CPU failed: −0.20 % [95 % CI −0.55, +0.24], allowed ±0.5 %. False positives: 1 of 10. …'
    """
    estimate, low, high = (units.signed_percent(math.exp(made[name])) for name in ("estimate", "low", "high"))
    limits = ", ".join(each.removesuffix(" %") for each in (low, high))
    outcome = "passed" if made["passed"] else "failed"
    allowed = units.round_percent(made["margin"] / 2)
    label, of_six = METRIC_LABELS[made["metric"]], made["runs_of_six"]
    check = f"A/A check of {label} {outcome}: {estimate} [95 % CI {limits}], allowed ±{allowed}."
    sentences = [check, f"False positives: {made['false_positives']} of {of_six} comparisons of 6 replicates."]
    for number, power in made["power"].items():
        found = ", ".join(
            f"{units.round_percent(float(effect))} in {units.percent(share, digits=2)}"
            for effect, share in power.items()
        )
        mde = units.percent(math.expm1(made["detectable"][number]), digits=2)
        sentences.append(f"At n = {number} the MDE (80 % power) is {mde}; found injected effects: {found} runs.")
    return " ".join(sentences)
