"""Registries of named entries that parts of placebench and other packages contribute: `Registry`.

A registration is a mapping from names to entries. placebench's own mappings are given as text, "module:attribute", and
imported when a registry is first read, so that no module has to import the contributors. An entry may be text of the
same form, which is imported when that entry is first used. Another package declares its mapping as an entry point of
the registry's group, in its pyproject.toml:

    [project.entry-points."placebench.variants"]
    shop = "shop_benchmark:VARIANTS"
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, TypeVar

_Entry = TypeVar("_Entry")


class _Entries(Mapping[str, _Entry]):
    """Entries by name; entries that are given as text are imported when they are read."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given

    def __getitem__(self, name: str) -> _Entry:
        entry = self.given[name]
        if isinstance(entry, str):
            entry = self.given[name] = _load(entry)
        made: _Entry = entry
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)

    def __contains__(self, name: object) -> bool:
        return name in self.given


class Registry(Generic[_Entry]):
    """Entries by name: placebench's own in their order, then those of installed packages."""

    def __init__(self, group: str, *own: str) -> None:
        """Create a registry; nothing is imported yet.

        Args:
            group: The group of entry points that other packages use.
            own: placebench's own mappings, each as "module:attribute".
        """
        self._group = group
        self._mappings = own

    @cached_property
    def own(self) -> Mapping[str, _Entry]:
        """The entries of placebench itself, by name."""
        return _Entries(_load_all(self._mappings))

    @cached_property
    def all(self) -> Mapping[str, _Entry]:
        """All entries, by name; the metadata of installed packages is read once, which takes up to 0.1 s."""
        from importlib.metadata import entry_points

        given: dict[str, Any] = {}
        for point in entry_points(group=self._group):
            given.update(point.load())
        own = _load_all(self._mappings)
        return _Entries({**own, **{name: entry for name, entry in given.items() if name not in own}})

    def get(self, name: str) -> _Entry | None:
        """Return the entry of this name, or None; other packages are only searched if placebench has no such entry."""
        return self.own[name] if name in self.own else self.all.get(name)


def _load_all(mappings: tuple[str, ...]) -> dict[str, Any]:
    return {name: entry for mapping in mappings for name, entry in _load(mapping).items()}


def _load(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
