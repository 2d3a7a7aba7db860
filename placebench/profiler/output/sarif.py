"""Findings as SARIF 2.1.0, which code scanning of GitHub, GitLab and editors shows beside the lines: `write_sarif`."""

import json
import re
from collections.abc import Iterable
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from placebench import units
from placebench.profiler.analysis.findings import Finding, find
from placebench.profiler.model.files import write_whole
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.statement import Caller
from placebench.profiler.output.source_places import relative_file, repository_root

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "SRCROOT"
_FINGERPRINT = "placebenchFinding/v1"
_DESCRIPTIONS = {
    "n+1": "One line runs the same statement many times in one request.",
    "duplicate": "A read runs again with the same values in one request.",
    "redundant fetch": "Rows are fetched that another statement of the request had fetched.",
    "wide rows": "Rows have more bytes than a page of results needs.",
    "statement-cache miss": "SQLAlchemy compiles a statement again and again.",
    "connection-pool wait": "A request waits for a connection of the pool.",
    "connection-pool timeout": "No connection of the pool came in time.",
    "sequential scan": "PostgreSQL reads a whole table for few of its rows.",
    "row-estimate error": "PostgreSQL expects far more or fewer rows than there are.",
    "spill": "A sort or a hash is written to disk.",
    "idle in transaction": "A transaction is open while the application does something else.",
}
# They depend on the data, on the load and on the server more than on the line.
_NOTES = frozenset({"wide rows", "connection-pool wait", "row-estimate error", "spill"})


def write_sarif(recording: RecordingData, path: Path | str, *, root: Path | None = None) -> None:
    """Write the findings as one SARIF file.

    A finding without a line (of mode "light", or of a pool) is a notification of the run: code scanning refuses results
    without a place. So are the recording's notes.

    root: the folder that files are named from (default: the repository of the current folder).
    """
    document = sarif_document(recording, root=root or repository_root())
    write_whole(Path(path), json.dumps(document, indent=1, ensure_ascii=False))


def sarif_document(recording: RecordingData, *, root: Path) -> dict[str, Any]:
    """The same as plain data."""
    findings = find(recording)
    placed = [finding for finding in findings if finding.caller is not None]
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
        "invocations": [
            {"executionSuccessful": True, "toolExecutionNotifications": _notifications(recording, findings)}
        ],
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, kinds.index(finding.kind), root) for finding in placed],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(kind: str) -> dict[str, Any]:
    """What is the same for all findings of a kind."""
    description = _DESCRIPTIONS.get(kind, kind)
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


def _rule_id(kind: str) -> str:
    """n-plus-one, sequential-scan: the words of a kind."""
    return re.sub(r"[^a-z0-9]+", "-", kind.lower().replace("n+1", "n plus one")).strip("-")


def _level(kind: str) -> str:
    return "note" if kind in _NOTES else "warning"


def _result(finding: Finding, rule: int, root: Path) -> dict[str, Any]:
    """A finding at its line; the line that called it is a related one."""
    result = {
        "ruleId": _rule_id(finding.kind),
        "ruleIndex": rule,
        "level": _level(finding.kind),
        "message": {"text": _message(finding)},
        "locations": [_location(finding.caller, root)] if finding.caller else [],
        "partialFingerprints": {_FINGERPRINT: _fingerprint(finding, root)},
        "properties": {
            "count": finding.count,
            "secondsPerRequest": finding.mean_s,
            "statementFingerprint": finding.fingerprint,
        },
    }
    if finding.outer_caller is not None:
        related = {**_location(finding.outer_caller, root), "id": 1, "message": {"text": "called from here"}}
        result["relatedLocations"] = [related]
    return result


def _message(finding: Finding) -> str:
    sql = f" Statement: {finding.shortened_sql}" if finding.sql else ""
    return f"{finding.kind}: {finding.title} ({units.duration(finding.mean_s)}). {_sentence(finding.advice)}{sql}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _location(caller: Caller, root: Path) -> dict[str, Any]:
    """A line of a file, relative to the repository where it is in it."""
    file = relative_file(caller.file, root)
    artifact = {"uri": Path(root / caller.file).as_uri()}
    if file is not None:
        artifact = {"uri": Path("/", file).as_uri().removeprefix("file:///"), "uriBaseId": _ROOT}
    return {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(caller.line, 1)}},
        "logicalLocations": [{"name": caller.function, "kind": "function"}],
    }


def _fingerprint(finding: Finding, root: Path) -> str:
    """Equal as long as the same function of the same file runs the same statement, on whatever line."""
    caller = finding.caller
    place = (relative_file(caller.file, root) or Path(caller.file).name, caller.function) if caller else ()
    text = "\x00".join((finding.kind, finding.fingerprint or "", *place))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _notifications(recording: RecordingData, findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """What has no line: findings of light recordings and of pools, and what could not be measured."""
    found = [(_message(each), _level(each.kind)) for each in findings if each.caller is None]
    found += [(note, "note") for note in recording.notes]
    return [{"message": {"text": text}, "level": level} for text, level in found]
