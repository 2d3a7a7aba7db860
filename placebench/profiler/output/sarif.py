"""Findings as SARIF 2.1.0, which GitHub, GitLab and editors show next to the lines: `write_sarif`."""

import json
import re
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from placebench import units
from placebench.profiler.analysis.findings import DESCRIPTIONS, Finding, Kind, find
from placebench.profiler.model.files import write_whole
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.statement import Caller
from placebench.profiler.output.source_places import relative_file, repository_root

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "SRCROOT"
_FINGERPRINT = "placebenchFinding/v1"
# Kinds that depend on the data, the load and the server more than on the line.
_NOTES = frozenset({"wide rows", "connection-pool wait", "row-estimate error", "spill"})


def write_sarif(recording: RecordingData, path: Path | str, *, root: Path | None = None) -> None:
    """Write the findings as one SARIF file.

    A finding without a line (in mode "light", or of a pool) is a notification of the run, because code scanning refuses
    results without a place. So are the recording's notes.

    root: the folder that file names are relative to (default: the repository of the current folder).
    """
    document = sarif_document(recording, root=root or repository_root())
    write_whole(Path(path), json.dumps(document, indent=1, ensure_ascii=False))


def sarif_document(recording: RecordingData, *, root: Path) -> dict[str, Any]:
    """Return the findings as a SARIF document in plain data."""
    findings = find(recording)
    placed = [finding for finding in findings if finding.caller is not None]
    without_line = [(_message(each), _level(each.kind)) for each in findings if each.caller is None]
    without_line += [(note, "note") for note in recording.notes]
    notifications = [{"message": {"text": text}, "level": level} for text, level in without_line]
    kinds = list(dict.fromkeys(finding.kind for finding in placed))
    run = {
        "tool": {
            "driver": {
                "name": "placebench",
                "semanticVersion": version("placebench"),
                "rules": [_rule(kind) for kind in kinds],
            }
        },
        "automationDetails": {"id": f"placebench/{recording.name}/"},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, kinds.index(finding.kind), root) for finding in placed],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(kind: Kind) -> dict[str, Any]:
    description = DESCRIPTIONS[kind]
    help_text = f"{description} Each result says what to do. A finding says that a pattern is there, not that it made "
    help_text += "anything slow: compare a recording before the change with one after it (placebench profile diff)."
    return {
        "id": _rule_id(kind),
        "name": "".join(word.capitalize() for word in _rule_id(kind).split("-")),
        "shortDescription": {"text": description},
        "help": {"text": help_text, "markdown": help_text},
        "defaultConfiguration": {"level": _level(kind)},
        "properties": {"tags": ["performance", "sql"]},
    }


def _rule_id(kind: Kind) -> str:
    """Return the rule id of a kind, such as n-plus-one or sequential-scan."""
    return re.sub(r"[^a-z0-9]+", "-", kind.lower().replace("n+1", "n plus one")).strip("-")


def _level(kind: Kind) -> str:
    return "note" if kind in _NOTES else "warning"


def _result(finding: Finding, rule: int, root: Path) -> dict[str, Any]:
    """Return a SARIF result for a finding at its line; the line that called it is a related location."""
    # The fingerprint stays the same as long as the same function of the same file runs the statement, on whatever line.
    caller = finding.caller
    place = (relative_file(caller.file, root) or Path(caller.file).name, caller.function) if caller else ()
    identity = "\x00".join((finding.kind, finding.fingerprint or "", *place))
    result = {
        "ruleId": _rule_id(finding.kind),
        "ruleIndex": rule,
        "level": _level(finding.kind),
        "message": {"text": _message(finding)},
        "locations": [_location(finding.caller, root)] if finding.caller else [],
        "partialFingerprints": {_FINGERPRINT: blake2b(identity.encode(), digest_size=16).hexdigest()},
        "properties": {
            "count": finding.count,
            "secondsPerRequest": finding.mean_s,
            "statementFingerprint": finding.fingerprint,
        },
    }
    parents = finding.parents
    related = [
        {**_location(place, root), "id": number, "message": {"text": text}}
        for number, (place, text) in enumerate(
            (
                (finding.outer_caller, "called from here"),
                (None if parents is None else parents.caller, f"parents: {parents}"),
            ),
            1,
        )
        if place is not None
    ]
    if related:
        result["relatedLocations"] = related
    return result


def _message(finding: Finding) -> str:
    sql = f" Statement: {finding.shortened_sql}" if finding.sql else ""
    advice = f"{finding.advice[:1].upper()}{finding.advice[1:]}."
    return f"{finding.kind}: {finding.title} ({units.duration(finding.mean_s)}). {advice}{sql}"


def _location(caller: Caller, root: Path) -> dict[str, Any]:
    """Return a SARIF location of a line, relative to the repository if the file is in it."""
    file = relative_file(caller.file, root)
    artifact = {"uri": Path(root / caller.file).as_uri()}
    if file is not None:
        artifact = {"uri": quote(file, errors="surrogateescape"), "uriBaseId": _ROOT}
    return {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(caller.line, 1)}},
        "logicalLocations": [{"name": caller.function, "kind": "function"}],
    }
