"""`placebench topology export`: a live Placement's topology as a file that `placebench seed --topology FILE` reads."""

import secrets
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench import units
from placebench.commands import values
from placebench.commands.console import print_json, print_result, progress, say
from placebench.errors import ExportError
from placebench.paths import check_writable

if TYPE_CHECKING:
    from placebench.export import Exported, PlacementData
    from placebench.topology import TreeType

HELP = "a live Placement's topology as a file, with other names, to be seeded at any scale"
_SALT_BYTES = 16


def configure(parser: ArgumentParser) -> None:
    """From where, as which file, with what in place of the names."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="export")
    export = actions.add_parser("export", help=HELP, description=HELP)
    source = export.add_mutually_exclusive_group(required=True)
    source.add_argument("--db", type=values.text, metavar="URL", help="the database of a Placement; it is only read")
    source.add_argument(
        "--api", type=values.service_url, metavar="URL", help="the address of a Placement; it is only read"
    )
    export.add_argument("--token", default="admin", metavar="T", help="for --api: X-Auth-Token (default: admin)")
    export.add_argument(
        "--out", type=values.path, metavar="FILE.toml", help="the file to write (default: standard output)"
    )
    export.add_argument("--salt", metavar="S", help="the same salt gives the same names (default: a new one)")
    export.add_argument(
        "--request", type=values.request, metavar="PATH", help="what to measure it with, in the names of the data"
    )
    export.add_argument("--json", action="store_true", help="print what was exported as JSON, a row a kind of tree")


def run(arguments: Namespace) -> int:
    """Export; prints the file, or with --out what is in it."""
    from placebench.export import export
    from placebench.topology import render_toml

    _check(arguments.out)
    exported = export(
        _read(arguments), salt=arguments.salt or secrets.token_hex(_SALT_BYTES), request=arguments.request
    )
    text = render_toml(exported.topology, comments=[_headline(exported), *exported.losses])
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")
    _print(arguments, exported, text)
    return 0


def _check(out: Path | None) -> None:
    """Before the data is read, which may take minutes."""
    if out and out.suffix != ".toml":
        raise ExportError(f"--out {out}: expected a file whose name ends in .toml")
    if out:
        check_writable(out)


def _read(arguments: Namespace) -> "PlacementData":
    from placebench.export import read_api, read_database

    if arguments.db:
        return read_database(arguments.db)
    with progress("percent of the providers", 100) as advance:
        return read_api(arguments.api, arguments.token, lambda done, total: advance(done * 100 // total))


def _headline(exported: "Exported") -> str:
    topology = exported.topology
    return (
        f"A live Placement with other names: {units.count(exported.providers)} providers in"
        f" {units.count(topology.trees)} trees of {units.count(len(topology.tree_types))} tree types,"
        f" {units.count(exported.consumers)} consumers"
    )


def _print(arguments: Namespace, exported: "Exported", text: str) -> None:
    if arguments.json:
        print_json(_document(arguments, exported, text))
    elif arguments.out:
        print_result(f"{arguments.out}: {_headline(exported)}")
    else:
        print_result(text.rstrip())
    for loss in exported.losses:
        say(loss)


def _document(arguments: Namespace, exported: "Exported", text: str) -> dict[str, Any]:
    topology = exported.topology
    return {
        "rows": [_row(each) for each in topology.tree_types],
        "trees": topology.trees,
        "providers": exported.providers,
        "consumers": exported.consumers,
        "request": topology.request,
        "losses": list(exported.losses),
        **({"out": str(arguments.out)} if arguments.out else {"toml": text}),
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
