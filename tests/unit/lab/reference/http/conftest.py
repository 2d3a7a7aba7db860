"""The reference service over an empty SQLite database, spoken to through werkzeug's client."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, insert
from sqlalchemy.pool import StaticPool
from werkzeug.test import Client, TestResponse

from placebench.lab.inventory import tables
from placebench.lab.reference.api.pipeline import make_app

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}


@dataclass(frozen=True)
class Service:
    """The service, its engine, and requests with the headers that a well-behaved client sends."""

    client: Client
    engine: Engine

    def send(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> TestResponse:
        """The response; headers: beside or instead of the usual ones."""
        return self.client.open(path, method=method, json=body, headers={**HEADERS, **(headers or {})})

    def get(self, path: str) -> Any:
        """The document at this path."""
        response = self.send("GET", path)
        assert response.status_code == 200, response.text
        return response.json

    def provider(self, number: int, **more: Any) -> str:
        """The path of a new provider with this number in its name and uuid."""
        response = self.send("POST", "/resource_providers", {"name": f"rp{number}", "uuid": uuid(number), **more})
        assert response.status_code == 200, response.text
        return f"/resource_providers/{uuid(number)}"

    def outcome(self, method: str, path: str, body: Any = None) -> tuple[int, str | None]:
        """The status, and the code of the error document if it is one."""
        response = self.send(method, path, body)
        return response.status_code, response.json["errors"][0]["code"] if response.status_code >= 400 else None


def uuid(number: int) -> str:
    """A uuid that a reader can tell from others."""
    return f"00000000-0000-4000-8000-{number:012d}"


@pytest.fixture(scope="session")
def _database() -> bytes:
    """A SQLite database with all tables and nothing but three standard classes and one standard trait."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    tables.metadata.create_all(engine)
    with engine.begin() as connection:
        names = ("VCPU", "MEMORY_MB", "DISK_GB")
        connection.execute(insert(tables.resource_classes), [{"id": at, "name": name} for at, name in enumerate(names)])
        connection.execute(insert(tables.traits).values(name="HW_CPU_X86_AVX"))
    with engine.connect() as connection:
        serialized: bytes = connection.connection.driver_connection.serialize()
    engine.dispose()
    return serialized


@pytest.fixture
def service(_database: bytes) -> Iterator[Service]:
    """The service over a database of its own."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    with engine.connect() as connection:
        connection.connection.driver_connection.deserialize(_database)
    yield Service(Client(make_app(engine, "tuned")), engine)
    engine.dispose()
