"""The SQL that writes claims: new allocations replace a consumer's old ones if all amounts fit.

`WRITERS` has two implementations: one round trip, or about 15 statements of portable SQL.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection, case, delete, func, insert, select
from sqlalchemy.exc import DBAPIError

from placebench.lab.inventory.tables import allocations, inventories, resource_providers
from placebench.lab.reference.domain.problems import BadRequest, Conflict
from placebench.lab.reference.domain.validation import MAX_INTEGER
from placebench.lab.reference.store import consumers
from placebench.lab.reference.store.consumers import ConsumerClaim, check_consumer_generation
from placebench.lab.reference.store.database import GENERIC_PLAN, PREPARED, Database
from placebench.lab.reference.store.name_tables import RESOURCE_CLASSES
from placebench.lab.reference.store.providers import LockedProvider, advance_generation


@dataclass(frozen=True, slots=True)
class _InventoryUse:
    """A provider's inventory of a class, with the amounts in use by all consumers and by all but the claimants."""

    where: str  # the text for messages, such as "VCPU on 4e8e5957-649f-477b-9e5b-f1f75b21c03c"
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    used: int
    used_by_others: int

    def check_unit(self, amount: int) -> None:
        """Raise Conflict if min_unit, max_unit or step_size does not allow this amount of one allocation."""
        if not self.min_unit <= amount <= self.max_unit or amount % self.step_size:
            raise Conflict(
                f"{amount} of {self.where} does not fit its units: from {self.min_unit} to {self.max_unit}"
                f" in steps of {self.step_size}"
            )

    def check_sum(self, amount: int) -> None:
        """Raise Conflict if all allocations together would exceed both the capacity and the amount in use now."""
        capacity = (self.total - self.reserved) * self.allocation_ratio
        wanted = self.used_by_others + amount
        if wanted > capacity and wanted > self.used:
            raise Conflict(
                f"{amount} of {self.where} exceeds its capacity: {capacity:g}, of which {self.used_by_others} is used"
            )


_Key = tuple[int, int]  # the ids of a provider and of a resource class


@dataclass(frozen=True, slots=True)
class _Amount:
    """An allocation to write: an amount of a class from a provider, for a consumer."""

    consumer: str
    provider: str
    resource_class: str
    key: _Key
    amount: int

    @property
    def where(self) -> str:
        """The class and provider for messages, such as "VCPU on 4e8e5957-649f-477b-9e5b-f1f75b21c03c"."""
        return f"{self.resource_class} on {self.provider}"


def write_claims(connection: Connection, claims: Sequence[ConsumerClaim]) -> None:
    """Replace the allocations of the claims' consumers, and increment the generations of consumers and providers.

    Raises ConcurrentUpdate if a consumer has another generation than its claim, BadRequest for an unknown provider or
    class, and Conflict if an amount does not fit. About ten statements, plus one per consumer and provider.
    """
    present = consumers.lock_consumers(connection, claims)
    locked = lock_providers(connection, claims)
    consumers.write_consumers(connection, claims, present)
    allocate(connection, claims, locked)


def lock_providers(
    connection: Connection, claims: Sequence[ConsumerClaim], others: Collection[str] = ()
) -> dict[str, LockedProvider]:
    """Lock the providers that the claims change, and others, until the commit; return their newest states by uuid.

    Raises BadRequest for an unknown provider in the claims or in *others*. One or two statements:

    SELECT id, uuid, generation, root_provider_id FROM resource_providers WHERE uuid IN :uuids ORDER BY id FOR UPDATE
    """
    own = resource_providers.c
    query = select(own.id, own.uuid, own.generation, own.root_provider_id)
    uuids = _touched_providers(connection, claims).union(others)
    rows = connection.execute(query.where(own.uuid.in_(uuids)).order_by(own.id).with_for_update()).all()
    there = {row.uuid for row in rows if row.root_provider_id is not None}
    if missing := sorted(_named_providers(claims).union(others) - there):
        raise BadRequest(f"allocations: no resource provider {', '.join(missing)}")
    return {row.uuid: LockedProvider(row.id, row.uuid, row.generation) for row in rows}


def _named_providers(claims: Sequence[ConsumerClaim]) -> set[str]:
    return {provider for claim in claims for provider in claim.allocations}


def _touched_providers(connection: Connection, claims: Sequence[ConsumerClaim]) -> set[str]:
    """Return the providers that the claims name, and those with allocations of consumers whose claims are empty.

    SELECT DISTINCT p.uuid FROM resource_providers p JOIN allocations a ON a.resource_provider_id = p.id
    WHERE a.consumer_id IN :emptied
    """
    emptied = [claim.consumer for claim in claims if not claim.allocations]
    if not emptied:
        return _named_providers(claims)
    joined = resource_providers.join(allocations, allocations.c.resource_provider_id == resource_providers.c.id)
    left = select(resource_providers.c.uuid).distinct().select_from(joined)
    return _named_providers(claims) | set(connection.scalars(left.where(allocations.c.consumer_id.in_(emptied))))


def allocate(
    connection: Connection, claims: Sequence[ConsumerClaim], locked: Mapping[str, LockedProvider]
) -> dict[str, LockedProvider]:
    """Write the claims' allocations, and return the changed providers with their new generations, by uuid.

    locked: the result of `lock_providers`. Raises BadRequest for an unknown class, Conflict if an amount does not fit.
    """
    moved_on = {uuid: locked[uuid] for uuid in _touched_providers(connection, claims)}
    claimants = [claim.consumer for claim in claims]
    wanted = list(_amounts(connection, claims, locked))
    _check_amounts(wanted, _read_inventory_uses(connection, wanted, claimants))
    connection.execute(delete(allocations).where(allocations.c.consumer_id.in_(claimants)))
    if rows := [_row(each) for each in wanted]:
        connection.execute(insert(allocations), rows)
    return {uuid: replace(each, generation=advance_generation(connection, each)) for uuid, each in moved_on.items()}


def _row(each: _Amount) -> dict[str, str | int]:
    provider_id, class_id = each.key
    ids = {"resource_provider_id": provider_id, "resource_class_id": class_id}
    return {"consumer_id": each.consumer, "used": each.amount, **ids}


def _amounts(
    connection: Connection, claims: Sequence[ConsumerClaim], locked: Mapping[str, LockedProvider]
) -> Iterator[_Amount]:
    """Yield the claims' amounts with the ids of provider and class; raise BadRequest for an unknown class."""
    names = {name for claim in claims for resources in claim.allocations.values() for name in resources}
    ids = RESOURCE_CLASSES.ids(connection, names, lock=True)
    for claim in claims:
        for provider, resources in claim.allocations.items():
            for name, amount in resources.items():
                yield _Amount(claim.consumer, provider, name, (locked[provider].id, ids[name]), amount)


def _check_amounts(wanted: Sequence[_Amount], uses: Mapping[_Key, _InventoryUse]) -> None:
    """Raise Conflict for the first amount that has no inventory or does not fit, by itself or with the others."""
    sums: Counter[_Key] = Counter()
    for each in wanted:
        if each.key not in uses:
            raise Conflict(f"resource provider {each.provider} has no inventory of {each.resource_class}")
        uses[each.key].check_unit(each.amount)
        sums[each.key] += each.amount
    for key, amount in sums.items():
        uses[key].check_sum(amount)


def _read_inventory_uses(
    connection: Connection, wanted: Sequence[_Amount], claimants: Collection[str]
) -> dict[_Key, _InventoryUse]:
    """Return the inventories that the amounts are taken from, with the amounts in use.

    SELECT resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size, allocation_ratio
    FROM inventories WHERE resource_provider_id IN :providers AND resource_class_id IN :classes
    """
    names = {each.key: each.where for each in wanted}
    used = _read_used(connection, names, claimants)
    own = inventories.c
    query = select(
        own.resource_provider_id,
        own.resource_class_id,
        own.total,
        own.reserved,
        own.min_unit,
        own.max_unit,
        own.step_size,
        own.allocation_ratio,
    )
    providers, classes = {key[0] for key in names}, {key[1] for key in names}
    rows = connection.execute(
        query.where(own.resource_provider_id.in_(providers), own.resource_class_id.in_(classes))
    ).all()
    keyed = {(row[0], row[1]): row[2:] for row in rows}
    return {key: _InventoryUse(names[key], *keyed[key], *used.get(key, (0, 0))) for key in names.keys() & keyed.keys()}


def _read_used(
    connection: Connection, keys: Collection[_Key], claimants: Collection[str]
) -> dict[_Key, tuple[int, int]]:
    """Return the amounts in use of each inventory: by all consumers, and by all but the claimants.

    SELECT resource_provider_id, resource_class_id, sum(used),
    sum(CASE WHEN consumer_id IN :claimants THEN 0 ELSE used END) FROM allocations
    WHERE resource_provider_id IN :providers AND resource_class_id IN :classes
    GROUP BY resource_provider_id, resource_class_id
    """
    own = allocations.c
    by_others = case((own.consumer_id.in_(claimants), 0), else_=own.used)
    query = (
        select(own.resource_provider_id, own.resource_class_id, func.sum(own.used), func.sum(by_others))
        .where(own.resource_provider_id.in_({key[0] for key in keys}))
        .where(own.resource_class_id.in_({key[1] for key in keys}))
        .group_by(own.resource_provider_id, own.resource_class_id)
    )
    return {(row[0], row[1]): (int(row[2]), int(row[3])) for row in connection.execute(query)}


def _write_at_once(connection: Connection, claim: ConsumerClaim) -> bool:
    """Write the claim in one round trip and return True; return False if nothing was written.

    `write_claims` must then write the claim. The reasons are: the project, user or consumer type is new; the claim has
    no type (before 1.38) or no allocations; a consumer that the claim calls new has allocations; the consumer was
    deleted meanwhile; a provider or class is unknown; a number does not fit the tables' columns. Raises
    ConcurrentUpdate and Conflict as `write_claims` does.

    connection: must be in autocommit.
    """
    if not claim.allocations or claim.consumer_type is None or not _fits_the_columns(claim):
        return False
    try:
        rows = connection.exec_driver_sql(_message(connection, claim), _values(claim)).all()
    except DBAPIError as error:
        if getattr(error.orig, "pgcode", None) != _NO_SUCH_STATEMENT:
            raise
        connection.info.pop(_SERVED, None)  # a connection pooler has switched to another server session
        return False
    if rows:
        _refuse(claim, rows)
    return not rows


def _refuse(claim: ConsumerClaim, rows: Sequence[Any]) -> None:
    """Raise the error that `write_claims` would raise; return if a row or name that the claim needs does not exist."""
    if None in rows[0][1:4] or any(None in row[4:6] for row in rows):
        return
    check_consumer_generation(claim, rows[0].generation)
    amounts = [
        _Amount(claim.consumer, provider, name, (row.provider_id, row.class_id), amount)
        for (provider, name, amount), row in zip(_lines(claim), rows, strict=True)
    ]
    pairs = zip(amounts, rows, strict=True)
    _check_amounts(
        amounts, {each.key: _InventoryUse(each.where, *row[6:]) for each, row in pairs if row.total is not None}
    )


def _message(connection: Connection, claim: ConsumerClaim) -> str:
    """Return the message to send, which first prepares the statements if the connection has none or only old ones."""
    served = connection.info.get(_SERVED, 0)
    connection.info[_SERVED] = served + 1
    prepare = "" if served % PLAN_SERVES else _PREPARE
    if prepare:
        connection.info.pop(PREPARED, None)
    return f"{prepare}{GENERIC_PLAN}{_CLAIM_AS_NEW if claim.generation is None else _CLAIM_AGAIN}"


def _values(claim: ConsumerClaim) -> dict[str, Any]:
    providers, classes, amounts = zip(*_lines(claim), strict=True)
    return {
        "consumer": claim.consumer,
        "generation": claim.generation,
        "project": claim.project,
        "user": claim.user,
        "type": claim.consumer_type,
        "providers": list(providers),
        "classes": list(classes),
        "amounts": list(amounts),
    }


def _lines(claim: ConsumerClaim) -> list[tuple[str, str, int]]:
    return [
        (provider, name, amount)
        for provider, resources in claim.allocations.items()
        for name, amount in resources.items()
    ]


def _fits_the_columns(claim: ConsumerClaim) -> bool:
    numbers = [amount for _, _, amount in _lines(claim)] + [claim.generation or 0]
    return all(-MAX_INTEGER <= number < MAX_INTEGER for number in numbers)


# A plan is made anew after this many claims of a connection, since the tables grow; planning takes some 2 ms.
PLAN_SERVES: Final = 500
_SERVED: Final = "placebench_claims"  # the key in the connection's info under which its claims are counted
_NO_SUCH_STATEMENT: Final = "26000"

_NOW: Final = "date_trunc('second', now() AT TIME ZONE 'UTC')"

# The parts of the statement that differ between new and present consumers. They are two statements because a plan opens
# its tables and fires its triggers even if it writes no rows.
_NEW: Final = f"""
), written AS (
    INSERT INTO consumers (created_at, uuid, generation, project_id, user_id, consumer_type_id)
    SELECT {_NOW}, $1, 1, project_id, user_id, consumer_type_id FROM verdict WHERE fits
    RETURNING uuid"""
# A consumer that was not there to be held may have been made since, and may be deleted while this statement runs: all
# that is written depends on the row that it updates.
_PRESENT: Final = f"""
), written AS (
    UPDATE consumers AS own SET updated_at = {_NOW}, generation = $2 + 1, project_id = verdict.project_id,
        user_id = verdict.user_id, consumer_type_id = verdict.consumer_type_id
    FROM verdict WHERE fits AND uuid = $1 AND own.generation = $2
    RETURNING uuid
), given_back AS (
    DELETE FROM allocations USING written WHERE consumer_id = written.uuid"""


def _prepare_claim(name: str, fits: str, write_consumer: str) -> str:
    """Return the PREPARE of one statement that checks the claim and writes all of it or nothing.

    The statement returns no row if it wrote, else a row per amount with the values that the checks found.

    Args:
        name: The name of the prepared statement.
        fits: A condition on the consumer that must be true for the claim to be written.
        write_consumer: The CTEs that write the consumer.
    """
    return f"""
PREPARE {name} (text, int, text, text, text, text[], text[], int[]) AS
WITH wanted AS MATERIALIZED (
    SELECT named.*, stock.*, taken.*
    FROM (
        SELECT number, amount,
            (SELECT id FROM resource_providers WHERE uuid = line.provider AND root_provider_id IS NOT NULL)
                AS provider_id,
            (SELECT id FROM resource_classes WHERE name = line.class) AS class_id
        FROM unnest($6, $7, $8) WITH ORDINALITY AS line (provider, class, amount, number)
        OFFSET 0 -- keeps PostgreSQL from joining whole tables: each line looks up its own rows
    ) AS named
    LEFT JOIN LATERAL (
        SELECT total, reserved, min_unit, max_unit, step_size, allocation_ratio FROM inventories
        WHERE resource_provider_id = provider_id AND resource_class_id = class_id OFFSET 0
    ) AS stock ON true
    LEFT JOIN LATERAL (
        SELECT coalesce(sum(used), 0) AS used,
            coalesce(sum(used) FILTER (WHERE consumer_id <> $1), 0) AS used_by_others
        FROM allocations WHERE resource_provider_id = provider_id AND resource_class_id = class_id OFFSET 0
    ) AS taken ON true
), claimant AS MATERIALIZED (
    SELECT (SELECT generation FROM consumers WHERE uuid = $1) AS generation,
        (SELECT id FROM projects WHERE external_id = $3) AS project_id,
        (SELECT id FROM users WHERE external_id = $4) AS user_id,
        (SELECT id FROM consumer_types WHERE name = $5) AS consumer_type_id
), verdict AS MATERIALIZED (
    SELECT claimant.*, {fits}
        AND project_id IS NOT NULL AND user_id IS NOT NULL AND consumer_type_id IS NOT NULL
        AND (SELECT bool_and(coalesce(
            amount BETWEEN min_unit AND max_unit AND mod(amount, step_size) = 0
            AND (used_by_others + amount <= (total - reserved) * allocation_ratio OR used_by_others + amount <= used),
            false)) FROM wanted) AS fits
    FROM claimant{write_consumer}
), given AS (
    INSERT INTO allocations (created_at, resource_provider_id, resource_class_id, consumer_id, used)
    SELECT {_NOW}, provider_id, class_id, uuid, amount FROM wanted, written ORDER BY number
), moved_on AS (
    UPDATE resource_providers AS own SET updated_at = {_NOW}, generation = own.generation + 1
    FROM written WHERE id = ANY (ARRAY(SELECT provider_id FROM wanted))
)
SELECT generation, project_id, user_id, consumer_type_id, provider_id, class_id, total, reserved, min_unit, max_unit,
    step_size, allocation_ratio, used, used_by_others
FROM verdict, wanted WHERE NOT EXISTS (SELECT FROM written) ORDER BY number;
"""


_PREPARE: Final = f"""
DEALLOCATE ALL;
PREPARE placebench_hold_consumer (text) AS SELECT FROM consumers WHERE uuid = $1 FOR UPDATE;
PREPARE placebench_hold_providers (text[]) AS
SELECT FROM resource_providers WHERE uuid = ANY($1) ORDER BY id FOR NO KEY UPDATE;
{
    _prepare_claim(
        "placebench_claim_as_new",
        "generation IS NULL AND NOT EXISTS (SELECT FROM allocations WHERE consumer_id = $1)",
        _NEW,
    )
}
{_prepare_claim("placebench_claim_again", "generation = $2", _PRESENT)}
"""
_VALUES: Final = """(%(consumer)s, %(generation)s, %(project)s, %(user)s, %(type)s, %(providers)s, %(classes)s,
%(amounts)s)"""
_HOLD_PROVIDERS: Final = "EXECUTE placebench_hold_providers (%(providers)s);"
_CLAIM_AS_NEW: Final = f"{_HOLD_PROVIDERS}EXECUTE placebench_claim_as_new {_VALUES}"
_CLAIM_AGAIN: Final = f"""EXECUTE placebench_hold_consumer (%(consumer)s);
{_HOLD_PROVIDERS}EXECUTE placebench_claim_again {_VALUES}"""


def _claim_at_once(database: Database, claim: ConsumerClaim) -> None:
    """Write the claim in one round trip if that is possible, else step by step."""
    if database.takes_messages and database.write_at_once(lambda connection: _write_at_once(connection, claim)):
        return
    _claim_step_by_step(database, claim)


def _claim_step_by_step(database: Database, claim: ConsumerClaim) -> None:
    """Write the claim with about 15 statements of portable SQL, one round trip each."""
    database.write(lambda connection: write_claims(connection, [claim]))


WRITERS: Final[Mapping[str, Callable[[Database, ConsumerClaim], None]]] = {
    "at_once": _claim_at_once,
    "step_by_step": _claim_step_by_step,
}
