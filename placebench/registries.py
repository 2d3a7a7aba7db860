"""Registries of entries that parts of placebench and other packages add by name: `Registry`.

A registration is a mapping from names to entries. placebench's own mappings are named as text, "module:attribute", and
imported when a registry is first read, so that no part has to import those that add to it. Another package names its
mapping as an entry point of the registry's group, in its pyproject.toml:

    [project.entry-points."placebench.variants"]
    shop = "shop_benchmark:VARIANTS"
"""

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Generic, TypeVar

_Entry = TypeVar("_Entry")


class Registry(Generic[_Entry]):
    """Entries by name: placebench's own first, in order, then those of installed packages."""

    def __init__(self, group: str, *own: str) -> None:
        """Make a registry; nothing is imported yet.

        Args:
            group: The group of entry points that other packages use.
            own: placebench's own mappings, each as "module:attribute".
        """
        self._group = group
        self._mappings = own

    @cached_property
    def own(self) -> Mapping[str, _Entry]:
        """The entries of placebench itself."""
        entries: dict[str, _Entry] = {}
        for mapping in self._mappings:
            module, _, attribute = mapping.partition(":")
            entries.update(getattr(import_module(module), attribute))
        return entries

    @cached_property
    def all(self) -> Mapping[str, _Entry]:
        """All entries; the metadata of installed packages is read once, which takes up to 0.1 s."""
        from importlib.metadata import entry_points

        entries = dict(self.own)
        for point in entry_points(group=self._group):
            entries.update({name: entry for name, entry in point.load().items() if name not in self.own})
        return entries

    def get(self, name: str) -> _Entry | None:
        """Return the entry of this name, or None; other packages are read last."""
        return self.own[name] if name in self.own else self.all.get(name)
