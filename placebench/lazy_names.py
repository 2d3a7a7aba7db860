"""Lazy loading of a package's public names on first use, so that importing the package costs nothing: `load_on_use`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def load_on_use(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` for *package*.

    names: the public names by module; module names are relative to the package.
    """
    homes = {name: module for module, its_names in names.items() for name in its_names}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        loaded = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, loaded)
        return loaded

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, list_names
