"""Traits and resource classes: their ids by name and their names by id.

Read anew for each request, as Placement does: another program may have added some since.
"""

from dataclasses import dataclass

from sqlalchemy import Table, select

from placebench import tables
from placebench.reference.lookups.reader import Reader

SHARING_TRAIT = "MISC_SHARES_VIA_AGGREGATE"


@dataclass(frozen=True, slots=True)
class Catalog:
    """All names that a request may use."""

    trait_names: dict[int, str]
    trait_ids: dict[str, int]
    class_names: dict[int, str]
    class_ids: dict[str, int]


def read_catalog(reader: Reader) -> Catalog:
    """Both whole tables; 2 round trips."""
    trait_names = _names(reader, tables.traits)
    class_names = _names(reader, tables.resource_classes)
    return Catalog(trait_names, _turned(trait_names), class_names, _turned(class_names))


def _names(reader: Reader, table: Table) -> dict[int, str]:
    """SELECT id, name FROM traits"""
    return dict(reader.read(select(table.c.id, table.c.name)))


def _turned(names: dict[int, str]) -> dict[str, int]:
    return {name: key for key, name in names.items()}
