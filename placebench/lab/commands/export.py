"""`placebench lab export`: write the inventory of a running Placement as a file for `lab seed --topology FILE`."""

import secrets
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench import units
from placebench.commands import Command, options
from placebench.commands.output import emit, progress, say
from placebench.errors import ExportError
from placebench.paths import check_writable

if TYPE_CHECKING:
    from placebench.lab.inventory.export.exporter import Exported
    from placebench.lab.inventory.export.live_placement import PlacementData
    from placebench.lab.inventory.topology import TreeType

_SALT_BYTES = 16


@dataclass(frozen=True)
class InventoryExportOptions:
    """The options of `placebench lab export`."""

    output: options.OutputOptions
    db: str | None
    api: str | None
    token: str
    out: Path | None
    salt: str | None
    request: str | None


def _configure(parser: ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    options.add_database(source, "database of a Placement, which is only read")
    source.add_argument(
        "--api", type=options.service_url, metavar="URL", help="address of a Placement, which is only read"
    )
    parser.add_argument("--token", default="admin", metavar="T", help="with --api: X-Auth-Token (default: admin)")
    options.add_out(parser, "file to write (default: standard output)", metavar="FILE")
    parser.add_argument(
        "--salt", metavar="S", help="salt of the names: the same salt gives the same names (default: new)"
    )
    parser.add_argument(
        "--request", type=options.request, metavar="PATH", help="path and query to measure it with, in its own names"
    )
    options.add_output(parser)


def _run(given: InventoryExportOptions) -> int:
    """Export the inventory; print the topology file, or with --out a summary of it."""
    from placebench.lab.inventory.export.exporter import export
    from placebench.lab.inventory.topology import render_toml

    if given.out:  # before the inventory is read, which may take minutes
        if given.out.suffix != ".toml":
            raise ExportError(f"--out {given.out}: expected a file whose name ends in .toml")
        check_writable(given.out)
    exported = export(_read(given), salt=given.salt or secrets.token_hex(_SALT_BYTES), request=given.request)
    text = render_toml(exported.topology, comments=[_headline(exported), *exported.losses])
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    emit(
        given.output,
        text=lambda: f"{given.out}: {_headline(exported)}" if given.out else text.rstrip(),
        document=lambda: _document(given.out, exported, text),
    )
    for loss in exported.losses:
        say(loss)
    return 0


def _read(given: InventoryExportOptions) -> "PlacementData":
    from placebench.lab.inventory.export.live_placement import read_api, read_database

    if given.db:
        return read_database(given.db)
    assert given.api is not None  # argparse requires one of the two
    with progress("percent of the providers", 100) as advance:
        return read_api(given.api, given.token, lambda done, total: advance(done * 100 // total))


def _headline(exported: "Exported") -> str:
    topology = exported.topology
    return (
        f"A live Placement with other names: {units.count(exported.providers)} providers in"
        f" {units.count(topology.trees)} trees of {units.count(len(topology.tree_types))} tree types,"
        f" {units.count(exported.consumers)} consumers"
    )


def _document(out: Path | None, exported: "Exported", text: str) -> dict[str, Any]:
    topology = exported.topology
    return {
        "rows": [_row(each) for each in topology.tree_types],
        "trees": topology.trees,
        "providers": exported.providers,
        "consumers": exported.consumers,
        "request": topology.request,
        "losses": list(exported.losses),
        **({"out": str(out)} if out else {"toml": text}),
    }


def _row(tree_type: "TreeType") -> dict[str, Any]:
    return {
        "weight": tree_type.weight,
        "providers": len(tree_type.nodes),
        "inventories": sum(len(node.inventories) for node in tree_type.nodes),
        "traits": sorted({trait for node in tree_type.nodes for trait in node.traits}),
        "aggregates": sorted({aggregate for node in tree_type.nodes for aggregate in node.aggregates}),
        "claims": len(tree_type.claims),
    }


COMMANDS = {"lab export": Command(_configure, _run, options=InventoryExportOptions)}
