"""The environment, request and data of a run, without secrets: `environment_rows`, `request_section`, `masked`.

A report is kept as a CI artifact and passed on, and a value that a user passes to an application in `env=NAME=VALUE`
may be a key or a password: only the name is shown.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from placebench import units
from placebench.compare.keep.records import RunHead
from placebench.masking import HIDDEN, mask
from placebench.report.model import Block, Code, Facts, Section, Text, code

_SHOWN_ELSEWHERE = ("steps", "points", "impossible", "trials")
_DATABASE = "{database_url}"
_OPEN = (
    "PLACEBENCH_VARIANT",
    "PYTHONPATH",
    "OS_API__AUTH_STRATEGY",
    "OS_DEFAULT__DEBUG",
    "OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP",
)
"""Environment variables that placebench itself sets, so that their values may be shown."""
_IN_A_VARIANT = re.compile(r"\benv=([^=,\s]+)=([^,]*)")


def environment_rows(head: RunHead) -> list[tuple[str, str]]:
    """Return the manifest and the settings of a run as (name, value) rows; nested names are joined by dots."""
    settings = {name: value for name, value in head.settings.items() if name not in _SHOWN_ELSEWHERE}
    if "cells" in settings:
        settings["cells"] = _merged(settings["cells"].values())
    about = {name: value for name, value in head.manifest.items() if name != "calibration"}
    rows = list(flattened({**about, **({"run": settings} if settings else {})}))
    if head.cost:
        cost = head.cost.figures(head.elapsed_s)
        energy = cost.pop("energy_j")
        for name, value in cost.items():
            rows.append((f"cost.{name}", units.NOT_MEASURED if value is None else _plain(value)))
        rows += flattened(energy, "cost.energy_j.") if energy else [("cost.energy_j", units.NOT_MEASURED)]
    return rows


def _merged(cells: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return each setting of the combinations of a study once, with all values that it has in one of them."""
    values: dict[str, dict[str, None]] = {}
    for cell in cells:
        for name, value in flattened(cell):
            if name != "variant.name":
                values.setdefault(name, {})[value] = None
    return {name: " | ".join(found) for name, found in values.items()}


def flattened(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each value of a nested document with its dotted name; None becomes 'unknown', lists are joined by spaces.

    List items that are documents are named by their `name`, and their empty values are left out. The values of
    environment variables are hidden, except those that placebench sets.
    """
    for name, value in document.items():
        if isinstance(value, Mapping):
            is_environment = name == "variables"
            inside = {key: _value(key, each) for key, each in value.items()} if is_environment else value
            yield from flattened(inside, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            for number, each in enumerate(value):
                shown = {key: part for key, part in each.items() if key != "name" and part not in (None, "", {}, [])}
                yield from flattened(shown, f"{prefix}{name}.{each.get('name', number)}.")
        else:
            yield f"{prefix}{name}", _plain(value)


def masked(text: str) -> str:
    """Return *text* without secrets (`placebench.masking`) and without the values in `env=NAME=VALUE` of a variant."""
    return mask(_IN_A_VARIANT.sub(lambda found: f"env={found[1]}={_value(found[1], found[2])}", text))


def _value(name: str, value: str) -> str:
    return value if name in _OPEN or value == _DATABASE else HIDDEN


def _plain(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(masked(str(each)) for each in value)
    return masked(str(value))


def moment(stamp: str) -> str:
    """Return a UTC timestamp in readable form: '2026-11-20T14:03:11+00:00' → '2026-11-20 14:03:11 UTC'."""
    return stamp.replace("T", " ").replace("+00:00", " UTC")


def data_text(head: RunHead) -> str:
    """Return the topology of a run's data, its number of trees, and the random seed, as text.

    The combinations of a study may have data of their own: then it is all of these.
    """
    trees = f", {units.numbered(head.trees, 'tree')}" if head.trees else ""
    titles = dict.fromkeys(cell["data"] for cell in head.settings.get("cells", {}).values()) or (head.topology,)
    return f"{' | '.join(titles)}{trees}, seed {head.seed}"


def request_section(head: RunHead, facts: Sequence[tuple[Text, Text]] = (), *notes: Block) -> Section:
    """Return the section on the request and the data of a run, followed by *facts* (term, description) and *notes*."""
    receipt = head.receipt
    data = data_text(head)
    if "providers" in receipt:
        counts = (("providers", "resource providers"), ("inventories", "inventories"), ("provider_traits", "traits"))
        data += f": {', '.join(f'{units.count(receipt[name])} {label}' for name, label in counts)}"
    if receipt.get("tables"):  # an application that makes its tables itself has none yet
        data += f": {units.numbered(receipt['rows'], 'row')} in {units.numbered(receipt['tables'], 'table')}"
    if unchecked := receipt.get("unchecked_tables"):
        data += f"; changes to {', '.join(unchecked)} were not looked for, they are too large"
    digest = [("Digest of the data", code(receipt["digest"]))] if "digest" in receipt else []
    listed = Facts([("Data", data), *digest, *facts])
    return Section("Request and data", [request_block(head.request), listed, *notes])


def request_block(request: str) -> Code:
    """Return a request as a code block that can wrap between parameters; GET is added before a bare path or URL."""
    parts = Markup("<wbr>&amp;").join(escape(part) for part in request.split("&"))
    is_bare = request.startswith(("/", "http")) and " " not in request  # a command may begin with a path too
    return Code(Markup("GET " if is_bare else "") + parts, "request")
