"""A live Placement as a topology file: read by its database or its API, its names and ids replaced, its trees merged.

The door is `export`, for what `read_database` or `read_api` has read; `placebench.topology.toml_of` writes it.
"""

from placebench.export.exporter import Exported, export
from placebench.export.live_placement import Allocation, Cloud, Provider
from placebench.export.sources import read_api, read_database

__all__ = ["Allocation", "Cloud", "Exported", "Provider", "export", "read_api", "read_database"]
