"""Inventory data sets: provider trees generated from a topology file, a number of trees and a seed, without I/O.

`read_topology` reads a file and returns a `Topology`; `render_toml` writes one.
"""

from placebench.lab.inventory.topology.toml_file import MAX_WEIGHT, is_custom, is_standard, read_topology, render_toml
from placebench.lab.inventory.topology.topology import CONSUMER_TYPE, OWNER, Consumer, ResourceProvider, Topology
from placebench.lab.inventory.topology.tree import (
    ClaimPattern,
    Inventory,
    Node,
    RandomSubset,
    Take,
    Takes,
    TreeType,
    inventory_map,
)

__all__ = [
    "CONSUMER_TYPE",
    "MAX_WEIGHT",
    "OWNER",
    "ClaimPattern",
    "Consumer",
    "Inventory",
    "Node",
    "RandomSubset",
    "ResourceProvider",
    "Take",
    "Takes",
    "Topology",
    "TreeType",
    "inventory_map",
    "is_custom",
    "is_standard",
    "read_topology",
    "render_toml",
]
