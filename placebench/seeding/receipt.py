"""The receipt of a seeded database: a row of `placebench_receipts`, and a file when it travels.

The key piece is `SeedReceipt`. A database that holds providers and no receipt of ours is not ours.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, select

from placebench.decoding import read_json
from placebench.errors import SeedError
from placebench.seeding.connection import connected
from placebench.tables import placebench_receipts, utc_now

FORMAT_VERSION = 1


@dataclass(frozen=True)
class SeedReceipt:
    """What was seeded, how, in how many seconds of the loader (its indexes included), and the digest of the data."""

    topology: str
    trees: int
    seed: int
    loader: str
    providers: int
    inventories: int
    provider_traits: int
    provider_aggregates: int
    elapsed_s: float
    digest: str
    format_version: int = FORMAT_VERSION

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)

    def save(self, path: Path) -> None:
        """Write the receipt to a file."""
        path.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> SeedReceipt:
        """The receipt that `save` wrote. Raises SeedError for a file that is none, or of another format."""
        receipt = read_json(path, cls, error=SeedError)
        if receipt.format_version != FORMAT_VERSION:
            raise SeedError(f"{path}: format {receipt.format_version}, this placebench reads {FORMAT_VERSION}")
        return receipt


def stored_receipt(connection: Connection) -> SeedReceipt | None:
    """The receipt that the database holds, or None."""
    columns = [placebench_receipts.c[name] for name in SeedReceipt.__dataclass_fields__]
    row = connection.execute(select(*columns).order_by(placebench_receipts.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else SeedReceipt(**row._mapping)


def receipt_of(url: str) -> SeedReceipt | None:
    """The receipt that the database at *url* holds, or None where it has none; nothing is written or migrated."""
    with connected(url) as connection:
        if not inspect(connection).has_table(placebench_receipts.name):
            return None
        return stored_receipt(connection)


def store_receipt(connection: Connection, receipt: SeedReceipt) -> None:
    """Write the receipt into the database, in the place of an older one."""
    connection.execute(placebench_receipts.delete())
    connection.execute(placebench_receipts.insert(), {**receipt.to_json(), "seeded_at": utc_now()})
