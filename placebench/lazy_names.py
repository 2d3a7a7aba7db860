"""Public names of a package that are loaded on first use, so that its importing costs nothing: `load_on_use`."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def load_on_use(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a `__getattr__` for *package*, which loads a name from the module of the package that *names* has it in.

    names: public names by their module, relative to the package.
    """
    homes = {name: module for module, its_names in names.items() for name in its_names}

    def getattr_of_package(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return getattr_of_package
