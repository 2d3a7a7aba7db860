"""The cloud as data: trees of providers, made from a topology file, a number of trees and a seed; pure, nothing stored.

The door is `read`, which gives a `Topology`.
"""

from placebench.topology.reader import MOST_SHARE, is_custom, is_standard, read
from placebench.topology.topology import CONSUMER_TYPE, OWNER, Consumer, Provider, Topology
from placebench.topology.tree import Claim, Inventory, Kind, Node, Some, Take, Takes, capacity, gives, stocks_of
from placebench.topology.writer import toml_of

__all__ = [
    "CONSUMER_TYPE",
    "MOST_SHARE",
    "OWNER",
    "Claim",
    "Consumer",
    "Inventory",
    "Kind",
    "Node",
    "Provider",
    "Some",
    "Take",
    "Takes",
    "Topology",
    "capacity",
    "gives",
    "is_custom",
    "is_standard",
    "read",
    "stocks_of",
    "toml_of",
]
