"""Random clouds: trees of providers with odd inventories, traits, aggregates and allocations, small enough to read.

The main parts are `clouds`, the hypothesis strategy, and `load`, which puts a cloud into a database. A provider is
known by its place in the cloud, and an aggregate by its number.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, Table, delete, insert, select

from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding import add_standard_names

CLASSES: Final = ("VCPU", "MEMORY_MB", "DISK_GB", "VGPU", "CUSTOM_GOLD")
SHARES: Final = "MISC_SHARES_VIA_AGGREGATE"
TRAITS: Final = ("HW_CPU_X86_AVX", "HW_NUMA_ROOT", "STORAGE_DISK_SSD", "CUSTOM_RED")
AGGREGATES: Final = (1, 2, 3)
_FIRST_CUSTOM_ID: Final = 10_000
_KEPT: Final = ("traits", "resource_classes", "placebench_receipts", "placebench_created_tables")

_INVENTORY_COLUMNS: Final = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
_SHOWN: Final = (
    *(tables.resource_providers, tables.inventories, tables.allocations, tables.traits, tables.resource_classes),
    *(tables.placement_aggregates, tables.resource_provider_traits, tables.resource_provider_aggregates),
)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Inventory:
    """What a provider has of one class, and what is used of it."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = 100
    step_size: int = 1
    allocation_ratio: float = 1.0
    used: int = 0

    def has_room(self, amount: int) -> bool:
        """Whether one allocation of this amount is possible."""
        return (
            self.used + amount <= (self.total - self.reserved) * self.allocation_ratio
            and self.min_unit <= amount <= self.max_unit
            and amount % self.step_size == 0
        )

    @property
    def capacity(self) -> int:
        """All that can be given, truncated."""
        return int((self.total - self.reserved) * self.allocation_ratio)

    def __str__(self) -> str:
        usual = Inventory(self.total)
        odd = ", ".join(f"{name} {value}" for name, value in vars(self).items() if value != getattr(usual, name))
        return f"{self.total} ({odd})" if odd else str(self.total)


@dataclass(frozen=True)
class Provider:
    """One resource provider; parent: its place in the cloud, always before this one's."""

    parent: int | None
    inventories: Mapping[str, Inventory]
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Cloud:
    """All providers."""

    providers: tuple[Provider, ...]

    def root(self, place: int) -> int:
        """The place of the root above the provider."""
        return list(self.lineage(place))[-1]

    def lineage(self, place: int) -> Iterator[int]:
        """The provider and its ancestors, from the bottom up."""
        above: int | None = place
        while above is not None:
            yield above
            above = self.providers[above].parent

    def sharing(self) -> list[int]:
        """The providers that share via aggregates."""
        return [place for place, provider in enumerate(self.providers) if SHARES in provider.traits]

    def __str__(self) -> str:
        return "\n".join(self._line(place) for place in range(len(self.providers)))

    def _line(self, place: int) -> str:
        provider = self.providers[place]
        depth = len(list(self.lineage(place))) - 1
        parts = [f"{name} {inventory}" for name, inventory in provider.inventories.items()]
        parts += sorted(provider.traits) + [f"aggregate {number}" for number in sorted(provider.aggregates)]
        below = "" if provider.parent is None else f" below {provider.parent}"
        return f"  {'  ' * depth}provider {place}{below}: {', '.join(parts) or 'nothing'}"


def provider_uuid(place: int) -> str:
    """The UUID of the provider at this place."""
    return f"{place:08d}-0000-4000-8000-000000000000"


def aggregate_uuid(number: int) -> str:
    """The UUID of the aggregate with this number."""
    return f"aaaaaaaa-0000-4000-8000-{number:012d}"


def consumer_uuid(place: int) -> str:
    """The UUID of the consumer who uses what is used of the provider at this place."""
    return f"cccccccc-0000-4000-8000-{place:012d}"


_totals = st.sampled_from([8, 16, 4, 8, 16, 8, 16, 2, 1, 3])
_amounts_used = st.sampled_from([0] * 9 + [1, 2, 4, 9])
_usual = st.builds(Inventory, _totals, max_unit=st.sampled_from([100] * 5 + [2]), used=_amounts_used)
_odd = st.builds(
    Inventory,
    _totals,
    reserved=st.sampled_from([0, 0, 1, 4, 8]),
    min_unit=st.sampled_from([1, 1, 2]),
    max_unit=st.sampled_from([100, 1, 2, 3]),
    step_size=st.sampled_from([1, 1, 2]),
    allocation_ratio=st.sampled_from([1.0, 1.5, 0.3, 2.0]),
    used=_amounts_used,
).filter(lambda inventory: inventory.capacity >= 0)  # Placement refuses to store any other
_inventories = st.dictionaries(st.sampled_from(CLASSES), st.one_of(*[_usual] * 7, _odd), min_size=1, max_size=4)
_traits = st.frozensets(st.sampled_from(TRAITS), max_size=2)
_aggregates = st.frozensets(st.sampled_from(AGGREGATES), max_size=2)
_deep = st.sampled_from([1] * 8 + [2, 0])  # mostly below the one before: six levels and more


@dataclass(frozen=True)
class _Draft:
    """A provider before it has its place; above: how many places before it its parent stands, 0 for none.

    storage: disk is only on roots of their own that share it.
    """

    above: int
    storage: bool
    empty: bool
    inventories: Mapping[str, Inventory]
    traits: frozenset[str]
    aggregates: frozenset[int]
    shares: bool

    def at(self, place: int) -> Provider:
        """The provider that it becomes there."""
        traits = self.traits | {SHARES} if self.shares else self.traits
        if self.storage and self.shares:
            return Provider(None, {"DISK_GB": next(iter(self.inventories.values()))}, traits, self.aggregates)
        parent = place - self.above if 0 < self.above <= place else None
        inventories = {} if self.empty else dict(self.inventories)
        if self.storage:
            inventories.pop("DISK_GB", None)
        return Provider(parent, inventories, traits, self.aggregates)


@st.composite
def clouds(draw: st.DrawFn) -> Cloud:
    """One to twelve providers; with or without trees, wide or deep, aggregates, sharing providers, shared storage."""
    above = draw(st.sampled_from([st.just(0), st.integers(0, 4), st.integers(0, 4), _deep]))
    grouped, shared = draw(st.booleans()), draw(st.booleans())
    drafts = st.builds(
        _Draft,
        above=above,
        storage=st.just(grouped and shared and draw(st.booleans())),
        empty=st.sampled_from([False] * 9 + [True]),
        inventories=_inventories,
        traits=_traits,
        aggregates=_aggregates if grouped else st.just(frozenset[int]()),
        shares=st.sampled_from([False, False, False, True]) if grouped and shared else st.just(False),
    )
    found = draw(st.lists(drafts, min_size=1, max_size=8) | st.lists(drafts, min_size=6, max_size=12))
    if draw(st.sampled_from([False] * 6 + [True])):
        # Equal devices below the last provider, or several equal sharing providers.
        alike = draw(drafts)
        found += [replace(alike, above=0 if alike.shares else number + 1) for number in range(draw(st.integers(2, 5)))]
    return Cloud(tuple(draft.at(place) for place, draft in enumerate(found)))


def load(engine: Engine, cloud: Cloud) -> None:
    """Make the database hold this cloud and nothing else, but for traits and classes."""
    with engine.begin() as connection:
        _empty(connection)
        ensure_names(connection)
        for table, rows in _rows(cloud, _ids(connection, tables.resource_classes), _ids(connection, tables.traits)):
            _insert(connection, table, rows)


def stored(engine: Engine, count: int) -> Cloud:
    """The cloud that the database holds; at places below *count* that have no provider any more: one with nothing."""
    with engine.connect() as connection:
        rows = {table.name: connection.execute(select(table)).mappings().all() for table in _SHOWN}
    names, traits = ({row["id"]: row["name"] for row in rows[table]} for table in ("resource_classes", "traits"))
    numbers = {row["id"]: int(row["uuid"][-12:]) for row in rows["placement_aggregates"]}
    places = {row["id"]: int(row["uuid"].partition("-")[0]) for row in rows["resource_providers"]}
    used: dict[tuple[int, int], int] = defaultdict(int)
    for row in rows["allocations"]:
        used[row["resource_provider_id"], row["resource_class_id"]] += row["used"]
    providers = dict.fromkeys(range(count), Provider(None, {}))
    for provider in rows["resource_providers"]:
        own = provider["id"]
        of_own = {table: [row for row in rows[table] if row.get("resource_provider_id") == own] for table in rows}
        inventories = {
            names[row["resource_class_id"]]: Inventory(
                **{field: row[field] for field in _INVENTORY_COLUMNS}, used=used[own, row["resource_class_id"]]
            )
            for row in of_own["inventories"]
        }
        providers[places[own]] = Provider(
            places.get(provider["parent_provider_id"]),
            inventories,
            frozenset(traits[row["trait_id"]] for row in of_own["resource_provider_traits"]),
            frozenset(numbers[row["aggregate_id"]] for row in of_own["resource_provider_aggregates"]),
        )
    highest = max(providers)
    return Cloud(tuple(providers.get(place, Provider(None, {})) for place in range(highest + 1)))


def _insert(connection: Connection, table: Table, rows: Rows) -> None:
    if rows:
        connection.execute(insert(table), rows)


def _empty(connection: Connection) -> None:
    for table in reversed(tables.metadata.sorted_tables):
        if table.name not in _KEPT:
            connection.execute(delete(table))
    for table in (tables.resource_classes, tables.traits):
        connection.execute(delete(table).where(table.c.name.like("CUSTOM_NEW%")))


def ensure_names(connection: Connection) -> None:
    """Make the classes and traits that clouds are made of, where they are missing; writes may delete custom ones."""
    add_standard_names(connection)
    if CLASSES[-1] not in _ids(connection, tables.resource_classes):
        _insert(connection, tables.resource_classes, [{"id": _FIRST_CUSTOM_ID, "name": CLASSES[-1]}])
    known = _ids(connection, tables.traits)
    _insert(connection, tables.traits, [{"name": name} for name in set(TRAITS) - known.keys()])


def _ids(connection: Connection, table: Table) -> dict[str, int]:
    return dict(connection.execute(select(table.c.name, table.c.id)).all())


def _rows(cloud: Cloud, class_ids: Mapping[str, int], trait_ids: Mapping[str, int]) -> Iterator[tuple[Table, Rows]]:
    """The rows of each table, in an order that foreign keys allow."""
    places = range(len(cloud.providers))
    yield tables.resource_providers, [_provider(cloud, place) for place in places]
    yield tables.placement_aggregates, [{"id": _id(each), "uuid": aggregate_uuid(each)} for each in AGGREGATES]
    for table in (tables.projects, tables.users):
        yield table, [{"id": _id(0), "external_id": "somebody"}]
    yield tables.consumer_types, [{"id": _id(0), "name": "INSTANCE"}]
    yield tables.consumers, [_consumer(place) for place in places if _used(cloud.providers[place])]
    for place, provider in enumerate(cloud.providers):
        own = {"resource_provider_id": _id(place)}
        stocks = [(class_ids[name], inventory) for name, inventory in provider.inventories.items()]
        yield tables.inventories, [own | _inventory(*each) for each in stocks]
        yield tables.resource_provider_traits, [own | {"trait_id": trait_ids[each]} for each in provider.traits]
        yield tables.resource_provider_aggregates, [own | {"aggregate_id": _id(each)} for each in provider.aggregates]
        used = [(class_id, inventory.used) for class_id, inventory in stocks if inventory.used]
        yield tables.allocations, [own | _allocation(place, *each) for each in used]


def _id(number: int) -> int:
    """Beyond what a sequence of PostgreSQL comes to, since rows with ids of their own do not move it on."""
    return 1_000_000 + number


def _used(provider: Provider) -> bool:
    return any(inventory.used for inventory in provider.inventories.values())


def _provider(cloud: Cloud, place: int) -> dict[str, Any]:
    parent = cloud.providers[place].parent
    return {
        "id": _id(place),
        "uuid": provider_uuid(place),
        "name": f"provider {place}",
        "generation": 0,
        "root_provider_id": _id(cloud.root(place)),
        "parent_provider_id": None if parent is None else _id(parent),
    }


def _consumer(place: int) -> dict[str, Any]:
    whose = {"project_id": _id(0), "user_id": _id(0), "consumer_type_id": _id(0)}
    return {"uuid": consumer_uuid(place), "generation": 1, **whose}


def _inventory(class_id: int, inventory: Inventory) -> dict[str, Any]:
    columns = {name: value for name, value in vars(inventory).items() if name != "used"}
    return {"resource_class_id": class_id, **columns}


def _allocation(place: int, class_id: int, used: int) -> dict[str, Any]:
    return {"resource_class_id": class_id, "consumer_id": consumer_uuid(place), "used": used}
