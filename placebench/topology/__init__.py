"""The cloud as data: trees of providers, made from a topology file, a number of trees and a seed; pure, nothing stored.

The door is `read`, which gives a `Topology`.
"""

from placebench.topology.reading import read
from placebench.topology.topology import Provider, Topology
from placebench.topology.tree import Inventory, Kind, Node, Some
from placebench.topology.vocabulary import is_custom

__all__ = ["Inventory", "Kind", "Node", "Provider", "Some", "Topology", "is_custom", "read"]
