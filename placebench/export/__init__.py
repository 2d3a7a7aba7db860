"""A live Placement as a topology file: read by its database or its API, its names and ids replaced, its trees merged.

`read_database` and `read_api` give `PlacementData`, `export` makes a topology of it, which
`placebench.topology.render_toml` writes.
"""

from placebench.export.exporter import Exported, export
from placebench.export.live_placement import LiveAllocation, LiveProvider, PlacementData, read_api, read_database

__all__ = ["Exported", "LiveAllocation", "LiveProvider", "PlacementData", "export", "read_api", "read_database"]
