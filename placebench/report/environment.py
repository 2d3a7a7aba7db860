"""What a run was made with, as the rows of a table that anybody may read: names of settings, and no secrets.

The key piece is `manifest`. A page is kept as an artifact and sent around, and what somebody hands to an application in
`env=NAME=VALUE` may be a key or a password: only the name is shown.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placebench.experiment.records import RunHead

_SHOWN_ELSEWHERE = ("steps", "points", "impossible", "trials")
_HIDDEN = "***"
_DATABASE = "{database_url}"
_OPEN = (
    "PLACEBENCH_VARIANT",
    "PYTHONPATH",
    "OS_API__AUTH_STRATEGY",
    "OS_DEFAULT__DEBUG",
    "OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP",
)
"""Variables that we set ourselves."""
_IN_A_VARIANT = re.compile(r"\benv=([^=,\s]+)=([^,]*)")
# Up to the last @ of a word: a password may hold one that nobody escaped.
_IN_A_URL = re.compile(r"(://[^:/@\s]*:)\S*@")
_IN_A_QUERY = re.compile(r"(password=)[^&\s]+", re.IGNORECASE)


def manifest(head: RunHead) -> list[tuple[str, str]]:
    """The manifest and the settings as rows, nested names joined by dots."""
    settings = {name: value for name, value in head.settings.items() if name not in _SHOWN_ELSEWHERE}
    about = {name: value for name, value in head.manifest.items() if name != "calibration"}
    return list(flattened({**about, **({"run": settings} if settings else {})}))


def flattened(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each plain value of a nested document with its dotted name; lists are joined by spaces, None is 'unknown'.

    What stands in a list goes by its name, and what is empty there is left out. Variables of an environment have
    their names alone, but for those that we set.
    """
    for name, value in document.items():
        if isinstance(value, Mapping):
            inside = _masked_variables(value) if name == "variables" else value
            yield from flattened(inside, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            for number, each in enumerate(value):
                told = {key: part for key, part in each.items() if key != "name" and part not in (None, "", {}, [])}
                yield from flattened(told, f"{prefix}{name}.{each.get('name', number)}.")
        else:
            yield f"{prefix}{name}", _plain(value)


def masked(text: str) -> str:
    """*text* without the values in a variant's `env=NAME=VALUE`, and without the passwords of URLs."""
    told = _IN_A_VARIANT.sub(lambda found: f"env={found[1]}={_value(found[1], found[2])}", text)
    return _IN_A_QUERY.sub(rf"\1{_HIDDEN}", _IN_A_URL.sub(rf"\1{_HIDDEN}@", told))


def _masked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: _value(name, value) for name, value in variables.items()}


def _value(name: str, value: str) -> str:
    return value if name in _OPEN or value == _DATABASE else _HIDDEN


def _plain(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(masked(str(each)) for each in value)
    return masked(str(value))
