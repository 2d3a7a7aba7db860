"""What every loader promises.

The key piece is `Loader`; the loaders are files of the room `loaders`, found by placebench.seeding.catalogue.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection

from placebench.topology import Topology

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Target:
    """Where a loader writes: a connection inside a transaction, and the API's address for those that speak HTTP."""

    connection: Connection
    api_url: str | None = None


class Loader(Protocol):
    """The function `load` of a loader."""

    def __call__(self, topology: Topology, target: Target, progress: Progress) -> None:
        """Write every provider of the topology, with all that belongs to it, into a database that holds none.

        What it writes through `target.connection` it neither commits nor rolls back. It calls `progress(done, total)`
        in providers, holds a bounded number of trees in memory, and raises SeedError when it has to stop.
        """


class Meter:
    """Tells how far a loader is, in providers, when each tree passes by several times (once for each table)."""

    def __init__(self, progress: Progress, topology: Topology, passes: int) -> None:
        self._progress = progress
        self._providers = topology.providers
        self._trees = topology.trees * passes
        self._done = 0

    def step(self, trees: int) -> None:
        """So many trees more have passed by."""
        self._done += trees
        self._progress(self._providers * self._done // self._trees, self._providers)
