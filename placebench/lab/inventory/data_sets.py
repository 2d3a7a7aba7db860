"""Inventory data sets: as data of a comparison (`TopologyData`), and as data of a study (`SeededData`)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from placebench.compare.measure.databases import ScratchData
from placebench.compare.what.data_setup import DatabaseKind, DataKind
from placebench.errors import PlacebenchError
from placebench.lab.inventory.seeding import data_digest, find_topology, migrate_options, seed
from placebench.lab.inventory.topology import Topology
from placebench.meters.table_contents import TableContents
from placebench.runtime.postgres import Server


@dataclass(frozen=True)
class TopologyData:
    """An inventory data set of the laboratory, as data of a comparison."""

    topology: Topology
    database: DatabaseKind = "postgresql"
    superuser: ClassVar[bool] = False

    @property
    def title(self) -> str:
        """The title of the topology."""
        return self.topology.title

    @property
    def trees(self) -> int:
        """Number of provider trees in the topology."""
        return self.topology.trees

    @property
    def seed(self) -> int:
        """The seed of the topology's random choices."""
        return self.topology.seed

    def fill(self, url: str, folder: Path, admin_url: str = "") -> dict[str, Any]:  # noqa: ARG002
        """Seed the topology into the database at *url*; return the receipt as JSON."""
        return seed(self.topology, url, loader="copy" if self.database == "postgresql" else "sql").to_json()

    def contents(self, url: str) -> TableContents:
        """Return the digest of the seeded tables, regardless of tables that optional revisions add."""
        return TableContents({"inventory data set": data_digest(url)})

    def upgrade(self, url: str, revisions: tuple[str, ...]) -> None:
        """Migrate the database to optional *revisions* of the schema."""
        migrate_options(url, revisions)


class SeededData(ScratchData):
    """An inventory data set as data of a study, which can create databases of other topologies on the same server."""

    def __init__(self, server: Server, topology: Topology, folder: Path) -> None:
        super().__init__(server, TopologyData(topology), folder)
        self.topology = topology

    def of(self, topology: Topology, revisions: tuple[str, ...] = ()) -> str:
        """Return the URL of a database of *topology* at optional *revisions*, which is created on the first call."""
        if topology == self.topology and not revisions:
            return self.url
        if (name := f" {topology.name} {topology.trees} {revisions}") not in self.made:
            self.made[name] = url = self.server.create_database(f"{self.prefix}_{len(self.made)}")
            seed(topology, url)
            migrate_options(url, revisions)
        return self.made[name]

    def with_trees(self, trees: int, revisions: tuple[str, ...] = ()) -> str:
        """Return the URL of a database of the study's topology with *trees* trees, at optional *revisions*."""
        return self.of(replace(self.topology, trees=trees), revisions)


class TopologyKind:
    """The data kind that --topology selects."""

    def find(
        self, name: str, *, seed: int, trees: int | None, utilization: float | None, database: DatabaseKind
    ) -> tuple[TopologyData, str]:
        """Return the data of the topology with this name or file, and the topology's request."""
        topology = find_topology(name, seed=seed, trees=trees, utilization=utilization)
        if topology.trees < 1:
            raise PlacebenchError(f"--trees {topology.trees} leaves nothing to request: give 1 or more")
        return TopologyData(topology, database), topology.request


KINDS: Mapping[str, DataKind] = {"topology": TopologyKind()}
