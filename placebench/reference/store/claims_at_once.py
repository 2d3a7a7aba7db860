"""A claim checked and written in one round trip, where PostgreSQL is spoken to by psycopg2.

The key piece is `write_at_once`. Two or three prepared statements travel in one message of the simple protocol, which
is one transaction. The first take the locks, in the order of `claims.py`: the consumer, then the providers by id. The
last one's snapshot is therefore newer than the wait; it checks all and writes all or nothing. A single statement could
not: it would sum up what was used before it waited. What it found comes back, so a refusal needs no second look.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from placebench.reference.checks import MAX_INTEGER
from placebench.reference.store.claims import Amount, check
from placebench.reference.store.consumers import Claim, check_generation
from placebench.reference.store.room import Room


def speaks_at_once(engine: Engine) -> bool:
    """Whether several statements with values can be sent to this database in one message."""
    return engine.dialect.name == "postgresql" and engine.dialect.driver == "psycopg2"


def write_at_once(connection: Connection, claim: Claim) -> bool:
    """Write the claim in one round trip; False if nothing was written and `claims.write` has to see to it.

    That is so for a new project, user or consumer type, and for what is unknown or larger than an integer of the
    tables. connection: in autocommit. Raises ConcurrentUpdate and Conflict as `claims.write` does.
    """
    if not claim.allocations or not _fits_the_columns(claim):
        return False
    try:
        rows = connection.exec_driver_sql(_message(connection, claim), _values(claim)).all()
    except DBAPIError as error:
        if getattr(error.orig, "pgcode", None) != _NO_SUCH_STATEMENT:
            raise
        connection.info.pop(_SERVED, None)  # a pooler has given the connection another session
        return False
    if not rows[0].fits:
        _refuse(claim, rows)
    return bool(rows[0].fits)


def _refuse(claim: Claim, rows: Sequence[Any]) -> None:
    """Raise what `claims.write` would, unless something is unknown."""
    if None in rows[0][2:5] or any(None in row[5:7] for row in rows):
        return
    check_generation(claim, rows[0].generation)
    amounts = [
        Amount(claim.consumer, provider, name, (row.provider_id, row.class_id), amount)
        for (provider, name, amount), row in zip(_lines(claim), rows, strict=True)
    ]
    named = zip(amounts, rows, strict=True)
    check(amounts, {each.key: Room(each.where, *row[7:]) for each, row in named if row.total is not None})


def _message(connection: Connection, claim: Claim) -> str:
    """What is sent, with the statements prepared first where the connection has none yet, or old ones."""
    served = connection.info.get(_SERVED, 0)
    connection.info[_SERVED] = served + 1
    prepare = "" if served % PLAN_SERVES else _PREPARE
    return f"{prepare}{_GENERIC}{'' if claim.generation is None else _HOLD_CONSUMER}{_CLAIM}"


def _values(claim: Claim) -> dict[str, Any]:
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


def _lines(claim: Claim) -> list[tuple[str, str, int]]:
    return [
        (provider, name, amount)
        for provider, resources in claim.allocations.items()
        for name, amount in resources.items()
    ]


def _fits_the_columns(claim: Claim) -> bool:
    numbers = [amount for _, _, amount in _lines(claim)] + [claim.generation or 0]
    return all(-MAX_INTEGER <= number < MAX_INTEGER for number in numbers)


# The tables grow under a plan, so it is made anew after so many claims of a connection: some 2 ms each time.
PLAN_SERVES: Final = 500
_SERVED: Final = "placebench_claims"  # in the connection's info: how many claims its statements were sent for
_NO_SUCH_STATEMENT: Final = "26000"

_NOW: Final = "date_trunc('second', now() AT TIME ZONE 'UTC')"

# A generic plan, for planning costs four times what the claim itself does. While it is made the tables may be empty
# and called so by ANALYZE: without this the plan would read them whole when they no longer are.
_PREPARE: Final = f"""
SET LOCAL enable_seqscan = off;
DEALLOCATE ALL;
PREPARE placebench_hold_consumer (text) AS SELECT FROM consumers WHERE uuid = $1 FOR UPDATE;
PREPARE placebench_hold_providers (text[]) AS
SELECT FROM resource_providers WHERE uuid = ANY($1) ORDER BY id FOR NO KEY UPDATE;
PREPARE placebench_claim (text, int, text, text, text, text[], text[], int[]) AS
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
), claimant AS (
    SELECT (SELECT generation FROM consumers WHERE uuid = $1) AS generation,
        (SELECT id FROM projects WHERE external_id = $3) AS project_id,
        (SELECT id FROM users WHERE external_id = $4) AS user_id,
        (SELECT id FROM consumer_types WHERE name = $5) AS consumer_type_id
), verdict AS MATERIALIZED (
    SELECT claimant.*, generation IS NOT DISTINCT FROM $2
        AND project_id IS NOT NULL AND user_id IS NOT NULL AND consumer_type_id IS NOT NULL
        AND (SELECT bool_and(coalesce(
            amount BETWEEN min_unit AND max_unit AND mod(amount, step_size) = 0
            AND (used_by_others + amount <= (total - reserved) * allocation_ratio OR used_by_others + amount <= used),
            false)) FROM wanted) AS fits
    FROM claimant
), given_back AS (
    DELETE FROM allocations USING verdict WHERE fits AND consumer_id = $1
), made AS (
    INSERT INTO consumers (created_at, uuid, generation, project_id, user_id, consumer_type_id)
    SELECT {_NOW}, $1, 1, project_id, user_id, consumer_type_id FROM verdict WHERE fits AND $2 IS NULL
), changed AS (
    UPDATE consumers AS own SET updated_at = {_NOW}, generation = $2 + 1, project_id = verdict.project_id,
        user_id = verdict.user_id, consumer_type_id = verdict.consumer_type_id
    FROM verdict WHERE fits AND uuid = $1
), given AS (
    INSERT INTO allocations (created_at, resource_provider_id, resource_class_id, consumer_id, used)
    SELECT {_NOW}, provider_id, class_id, $1, amount FROM wanted, verdict WHERE fits ORDER BY number
), moved_on AS (
    UPDATE resource_providers AS own SET updated_at = {_NOW}, generation = own.generation + 1
    FROM verdict WHERE fits AND id = ANY (ARRAY(SELECT provider_id FROM wanted))
)
SELECT fits, generation, project_id, user_id, consumer_type_id, provider_id, class_id, total, reserved, min_unit,
    max_unit, step_size, allocation_ratio, used, used_by_others
FROM verdict, wanted ORDER BY number;
"""
_GENERIC: Final = "SET LOCAL plan_cache_mode = force_generic_plan;"
_HOLD_CONSUMER: Final = "EXECUTE placebench_hold_consumer (%(consumer)s);"
_CLAIM: Final = """EXECUTE placebench_hold_providers (%(providers)s);
EXECUTE placebench_claim (%(consumer)s, %(generation)s, %(project)s, %(user)s, %(type)s, %(providers)s, %(classes)s,
%(amounts)s)"""
