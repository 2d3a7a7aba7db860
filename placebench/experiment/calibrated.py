"""What this machine can resolve, as it was last found out: kept in the user's state folder, shown in every report.

The key pieces are `keep` and `kept`.
"""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from placebench.compare.calibration import Calibration
from placebench.experiment.records import FORMAT_VERSION, RunHead


def state_file() -> Path:
    """$XDG_STATE_HOME/placebench/calibration.json, by default below ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "placebench" / "calibration.json"


def keep(calibrations: Sequence[Calibration], head: RunHead) -> Path:
    """Keep what the run of *head* found out, in place of what was kept before; returns the file."""
    path = state_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(
        json.dumps(
            {
                "format_version": FORMAT_VERSION,
                "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "machine": head.manifest.get("machine", {}).get("processor"),
                "variant": head.variants[0],
                "topology": head.topology,
                "trees": head.trees,
                "rounds": head.settings["rounds"],
                "metrics": {each.metric: each.to_json() for each in calibrations},
            }
        )
    )
    partial.replace(path)
    return path


def kept() -> dict[str, Any] | None:
    """What was last kept on this machine; None where nothing was, or nothing that can be read."""
    try:
        document = json.loads(state_file().read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("format_version") == FORMAT_VERSION else None
