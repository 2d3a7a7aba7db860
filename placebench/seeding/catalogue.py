"""What lies in the room `loaders`: the loaders, as `by_<name>.py`, and the topologies, as `topologies/<name>.toml`."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import cast

from placebench.errors import SeedError, TopologyError
from placebench.paths import room
from placebench.seeding.loading import Loader
from placebench.topology import Topology, read


def topology_named(name: str, *, trees: int | None = None, seed: int = 1, fill: float | None = None) -> Topology:
    """The topology of that name, or the one in the file that *name* is the path of (`….toml`).

    trees, seed, fill: as in `placebench.topology.read`.

    Raises TopologyError: for a file with a mistake, or with the list of topologies when there is none of that name.
    """
    if name.endswith(".toml"):
        return read(Path(name), trees=trees, seed=seed, fill=fill)
    files = {path.stem: path for path in sorted((room("loaders") / "topologies").glob("*.toml"))}
    if name not in files:
        raise TopologyError(f"no topology {name!r}: there are {', '.join(files)}, or the path of a .toml file")
    return read(files[name], trees=trees, seed=seed, fill=fill)


def loader_named(name: str) -> Loader:
    """The function `load` of the loader *name*. Raises SeedError, with the list of loaders, when there is none."""
    files = {path.stem.removeprefix("by_"): path for path in sorted(room("loaders").glob("by_*.py"))}
    if name not in files:
        raise SeedError(f"no loader {name!r}: there are {', '.join(files)}")
    return _load(files[name])


def _load(path: Path) -> Loader:
    spec = spec_from_file_location(f"placebench_loader_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SeedError(f"{path} cannot be loaded as Python")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Loader, module.load)
