"""Raw files in docs/results: every section writes its own with `write_raw`, headed by when, where and with what.

A file that is measured part by part has the head (`measured_here`) in each of its parts instead.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from placebench.compare.keep.environment import manifest
from placebench.report.documents import provenance


def measured_here(database_url: str = "") -> dict[str, Any]:
    """Date, commit, processor and versions; that of PostgreSQL too where a database of it is named."""
    return provenance(manifest(database_url), made_at=datetime.now(UTC).isoformat(timespec="seconds"))


def write_raw(path: Path, values: Mapping[str, Any]) -> None:
    """Replace the file at once, so that one that is interrupted leaves the earlier one."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps({"format_version": 1, **values}, indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)
