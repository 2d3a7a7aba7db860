"""What this machine can resolve, as it was last found out: kept in the user's state folder, shown in every report.

The key pieces are `found_out`, `keep` and `kept`. A quick calibration does not replace one that took an hour.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from placebench.decoding import check, read_json
from placebench.errors import RunFolderError
from placebench.experiment.documents import Calibration
from placebench.experiment.records import RunHead
from placebench.stats.calibration import MetricCalibration as Metric

FORMAT_VERSION = 1


def state_file() -> Path:
    """$XDG_STATE_HOME/placebench/calibration.json, by default below ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "placebench" / "calibration.json"


def found_out(calibrations: Sequence[Metric], head: RunHead) -> dict[str, Any]:
    """What the run of *head* found out, by metric, with what one needs to know to believe it."""
    return {
        "format_version": FORMAT_VERSION,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": head.manifest.get("machine", {}).get("processor"),
        "variant": head.variants[0],
        "topology": head.topology,
        "trees": head.trees,
        "rounds": head.settings["rounds"],
        "metrics": {each.metric: each.to_json() for each in calibrations},
    }


def keep(document: Mapping[str, Any]) -> bool:
    """Keep what `found_out` says in place of what was kept before; False where that rests on more, and stays."""
    before = kept()
    if before and before["machine"] == document["machine"] and _weight(before) > _weight(document):
        return False
    path = state_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(document))
    partial.replace(path)
    return True


def _weight(document: Mapping[str, Any]) -> int:
    """How many rounds it rests on."""
    rounds: int = document.get("rounds", 0)
    replicates: int = max(each["replicates"] for each in document["metrics"].values())
    return rounds * replicates


def kept() -> dict[str, Any] | None:
    """What was last kept on this machine; None where nothing was, or nothing that can be read."""
    path = state_file()
    try:
        document = read_json(path, dict[str, Any], error=RunFolderError)
        check(document, Calibration, str(path), error=RunFolderError)
    except RunFolderError:
        return None
    return document if document.get("format_version") == FORMAT_VERSION else None
