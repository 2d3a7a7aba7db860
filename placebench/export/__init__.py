"""A live Placement as a topology file: read by its database or its API, its names and ids replaced, its trees merged.

The door is `export`, for what `read_database` or `read_api` has read; `placebench.topology.toml_of` writes it.
"""

from placebench.export.by_api import read_api
from placebench.export.by_database import read_database
from placebench.export.exporting import Exported, export
from placebench.export.live import Allocation, Cloud, Provider

__all__ = ["Allocation", "Cloud", "Exported", "Provider", "export", "read_api", "read_database"]
