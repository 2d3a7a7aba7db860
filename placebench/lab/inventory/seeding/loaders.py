"""The interface of loaders, and functions that find the loaders and topologies in the folder `loaders`."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Protocol, cast

from sqlalchemy import Connection

from placebench.errors import SeedError, TopologyError, did_you_mean
from placebench.lab.inventory.topology import Topology, read_topology
from placebench.paths import resource_folder

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Target:
    """The destination of a loader: a connection in a transaction, and the URL of the API for loaders that use HTTP."""

    connection: Connection
    api_url: str | None = None


class Loader(Protocol):
    """The function `load` of a loader module."""

    def __call__(self, topology: Topology, target: Target, progress: Progress) -> None:
        """Write all providers of the topology with their data into an empty database.

        The function neither commits nor rolls back what it writes through `target.connection`. It calls `progress(done,
        total)` with numbers of providers, holds a bounded number of trees in memory, and raises SeedError if it has to
        stop.
        """


class ProgressMeter:
    """Reports the progress, in providers, of a loader that passes each tree several times (once per table)."""

    def __init__(self, progress: Progress, topology: Topology, passes: int) -> None:
        self._progress = progress
        self._providers = topology.providers
        self._trees = topology.trees * passes
        self._done = 0

    def step(self, trees: int) -> None:
        """Record that *trees* more trees have been passed, and report the progress."""
        self._done += trees
        self._progress(self._providers * self._done // self._trees, self._providers)


def find_topology(name: str, *, trees: int | None = None, seed: int = 1, utilization: float | None = None) -> Topology:
    """Return the topology with this name, or the one in the file *name* (`….toml`).

    trees, seed, utilization: as in `placebench.lab.inventory.topology.read_topology`.

    Raises TopologyError if the file is not valid, or, with a list of topologies, if none has this name.
    """
    if name.endswith(".toml"):
        return read_topology(Path(name), trees=trees, seed=seed, utilization=utilization)
    files = {path.stem: path for path in sorted((resource_folder("loaders") / "topologies").glob("*.toml"))}
    if name not in files:
        names = f"{did_you_mean(name, files)}there are {', '.join(files)}"
        raise TopologyError(f"no topology {name!r}: {names}, or the path of a .toml file")
    return read_topology(files[name], trees=trees, seed=seed, utilization=utilization)


def find_loader(name: str) -> Loader:
    """Return the function `load` of the loader *name*; raise SeedError, with a list of loaders, if there is none."""
    files = {path.stem.removeprefix("by_"): path for path in sorted(resource_folder("loaders").glob("by_*.py"))}
    if name not in files:
        raise SeedError(f"no loader {name!r}: there are {', '.join(files)}")
    path = files[name]
    spec = spec_from_file_location(f"placebench_loader_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SeedError(f"{path} cannot be loaded as Python")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Loader, module.load)
