"""The SQL of consumers, which own allocations and have a project, a user and a type."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Table, delete, insert, select, update

from placebench.lab.inventory.tables import consumer_types, consumers, projects, users
from placebench.lab.reference.domain.problems import ConcurrentUpdate


@dataclass(frozen=True, slots=True)
class ConsumerClaim:
    """A claim: the allocations that replace all present ones of a consumer. A claim without any removes them."""

    consumer: str
    generation: int | None  # the generation that the client last saw; None: the consumer must be new
    project: str
    user: str
    consumer_type: str | None  # None: the type stays as it is, and a new consumer has none
    allocations: Mapping[str, Mapping[str, int]]  # amounts by provider uuid and resource class
    any_generation: bool = False  # whether the generation is not checked: microversions before 1.28 have none


def lock_consumers(connection: Connection, claims: Sequence[ConsumerClaim]) -> dict[str, int]:
    """Lock the claims' existing consumers until the commit, and return their generations by uuid.

    Raises ConcurrentUpdate if a generation differs from the one in the claim. One statement, ordered by uuid:

    SELECT uuid, generation FROM consumers WHERE uuid IN :uuids ORDER BY uuid FOR UPDATE
    """
    own = consumers.c
    query = select(own.uuid, own.generation).where(own.uuid.in_([claim.consumer for claim in claims]))
    rows = connection.execute(query.order_by(own.uuid).with_for_update())
    generations = {row.uuid: row.generation for row in rows}
    for claim in claims:
        check_consumer_generation(claim, generations.get(claim.consumer))
    return generations


def write_consumers(connection: Connection, claims: Sequence[ConsumerClaim], present: Mapping[str, int]) -> None:
    """Insert or update the claims' consumers with their next generations; delete those whose claims are empty.

    present: the result of `lock_consumers`. Raises ConcurrentUpdate if a consumer was changed nevertheless. At most one
    statement, plus one or two per project, user and type, and one per consumer.
    """
    keeping = [claim for claim in claims if claim.allocations]
    if emptied := set(present) - {claim.consumer for claim in keeping}:
        connection.execute(delete(consumers).where(consumers.c.uuid.in_(emptied)))
    project_ids = _ensure_rows(connection, projects, "external_id", {claim.project for claim in keeping})
    user_ids = _ensure_rows(connection, users, "external_id", {claim.user for claim in keeping})
    types = {claim.consumer_type for claim in keeping if claim.consumer_type is not None}
    type_ids = _ensure_rows(connection, consumer_types, "name", types)
    for claim in sorted(keeping, key=lambda claim: claim.consumer):
        row = {"project_id": project_ids[claim.project], "user_id": user_ids[claim.user]}
        if claim.consumer_type is not None:
            row["consumer_type_id"] = type_ids[claim.consumer_type]
        _write_consumer(connection, claim.consumer, present.get(claim.consumer), row)


def check_consumer_generation(claim: ConsumerClaim, generation: int | None) -> None:
    """Raise ConcurrentUpdate unless *generation* (None: the consumer does not exist) is the one in the claim."""
    if claim.generation != generation and not claim.any_generation:
        seen = "does not exist" if generation is None else f"has generation {generation}"
        expected = "must be new" if claim.generation is None else f"has {claim.generation}"
        raise ConcurrentUpdate(
            f"consumer generation conflict: {claim.consumer} {seen}, the request says that it {expected}: read it again"
        )


def _ensure_rows(connection: Connection, table: Table, column: str, names: Collection[str]) -> dict[str, int]:
    """Return the ids of the rows with these names; insert the missing rows.

    SELECT id FROM projects WHERE external_id = :name
    """
    ids = {}
    for name in sorted(names):
        found = connection.scalar(select(table.c.id).where(table.c[column] == name))
        made = insert(table).values({column: name}).returning(table.c.id)
        ids[name] = found if found is not None else connection.execute(made).scalar_one()
    return ids


def _write_consumer(connection: Connection, uuid: str, generation: int | None, row: Mapping[str, int]) -> None:
    """Insert a consumer with generation 1, or update it with its next generation.

    UPDATE consumers SET generation = :next, ... WHERE uuid = :uuid AND generation = :generation
    """
    if generation is None:
        connection.execute(insert(consumers).values(uuid=uuid, generation=1, **row))
        return
    own = consumers.c
    unchanged = update(consumers).where(own.uuid == uuid, own.generation == generation)
    if connection.execute(unchanged.values(generation=generation + 1, **row)).rowcount != 1:
        raise ConcurrentUpdate(f"consumer {uuid} was changed meanwhile: read it and try again")
