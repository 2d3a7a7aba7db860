"""Reads a topology file (TOML) and checks it: every mistake is a TopologyError that names file, key and expectation.

The door is `read`. docs/lab/data.md describes the file.
"""

import tomllib
from pathlib import Path

from placebench.errors import TopologyError
from placebench.topology.claiming import claims_of
from placebench.topology.nodes import NAME, nodes_of
from placebench.topology.section import Form, Section
from placebench.topology.topology import Topology
from placebench.topology.tree import MAXIMUM, Kind, Node

MOST_SHARE = 1_000_000
_REQUEST = Form(r"/[^\s#]+", "the path and query that it is measured with, such as '/allocation_candidates?…'")


def read(path: Path, *, trees: int | None = None, seed: int = 1, fill: float | None = None) -> Topology:
    """The topology that the file describes, its tree repeated *trees* times (the file's own number when None).

    *fill*: filled to this ratio, whatever the file says of fill and claims (when None: as the file says).
    Raises TopologyError for a file that cannot be read, is no TOML, or has a wrong key or value.
    """
    document = Section(path, "", _toml(path))
    kinds = _kinds(document)
    most = min(_most_trees(kind.nodes) for kind in kinds)
    default_trees = document.whole("trees", default=1000, at_least=0, at_most=most)
    return Topology(
        name=_file_name(path),
        trees=default_trees if trees is None else _within("trees", trees, 0, most),
        seed=_within("seed", seed, -(2**63), 2**63 - 1),
        request=document.text("request", _REQUEST),
        kinds=kinds,
        fill=_fill(document, kinds) if fill is None else _ratio(fill),
        aggregates_every=_aggregates_every(document),
    )


def _kinds(document: Section) -> tuple[Kind, ...]:
    """One kind of tree from [[providers]], or several from [[kinds]]."""
    if "kinds" not in document.values:
        document.only("trees", "request", "fill", "aggregates_every", "providers", "claims", "kinds")
        nodes = nodes_of(document)
        return (Kind(nodes, claims=claims_of(document, nodes)),)
    document.only("trees", "request", "fill", "aggregates_every", "kinds")
    kinds = tuple(_kind(section) for section in document.tables("kinds"))
    if sum(kind.share for kind in kinds) > MOST_SHARE:
        document.fail("kinds", f"shares of at most {MOST_SHARE} together", sum(kind.share for kind in kinds))
    return kinds


def _kind(section: Section) -> Kind:
    section.only("share", "providers", "claims")
    nodes = nodes_of(section)
    share = section.whole("share", default=1, at_least=1, at_most=MOST_SHARE)
    return Kind(nodes, share=share, claims=claims_of(section, nodes))


def _fill(document: Section, kinds: tuple[Kind, ...]) -> float | None:
    fill = document.fraction("fill")
    if fill is not None and any(kind.claims for kind in kinds):
        document.fail("fill", "no fill beside claims", fill)
    return fill


def _aggregates_every(document: Section) -> int | None:
    if "aggregates_every" not in document.values:
        return None
    return document.whole("aggregates_every", at_least=1, at_most=MAXIMUM)


def _ratio(fill: float) -> float:
    if not 0 <= fill <= 1:
        raise TopologyError(f"fill: expected a number from 0 to 1, saw {fill}")
    return fill


def _most_trees(nodes: tuple[Node, ...]) -> int:
    """How many trees have ids that fit Placement's integer columns."""
    return MAXIMUM // max(len(nodes), sum(len(node.inventories) for node in nodes))


def _within(name: str, value: int, at_least: int, at_most: int) -> int:
    if not at_least <= value <= at_most:
        raise TopologyError(f"{name}: expected a whole number from {at_least} to {at_most}, saw {value}")
    return value


def _toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TopologyError(f"{path}: is no TOML: {error}") from error


def _file_name(path: Path) -> str:
    file = Section(path, "", {"the file's name": path.stem})
    return file.text("the file's name", NAME)
